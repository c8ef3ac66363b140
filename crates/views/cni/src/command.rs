//! The commands of CNI.

use crate::attachment::Attachment;
use crate::config::{self, Config};
use crate::host_plane::{self, HostPlane};
use crate::version::Version;
use crate::{CniError, HELP, device, result, words};
use serde_json::json;
use std::io::Read;
use std::time::Duration;

/// What the program prints, and how it ends.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Answer {
    /// For the runtime.
    pub stdout: String,
    /// For its log.
    pub stderr: String,
    /// The exit status.
    pub status: u8,
}

impl Answer {
    fn printed(stdout: String) -> Self {
        Self { stdout, ..Self::default() }
    }
}

/// Runs the command that the variables of CNI name. `input` is read if there is one.
pub fn run(var: &dyn Fn(&str) -> Option<String>, input: impl Read) -> Answer {
    let Some(command) = var("CNI_COMMAND").filter(|command| !command.is_empty()) else {
        return Answer::printed(HELP.to_owned());
    };
    let text = config::read(input);
    // Also what is wrong with a configuration is said in its version.
    let version = text.as_deref().ok().and_then(|text| config::version(text).ok());
    let answer = text.and_then(|text| execute(&command, var, &text));
    answer.unwrap_or_else(|error| Answer {
        stdout: error.json(version.unwrap_or(Version::NEWEST)) + "\n",
        stderr: String::new(),
        status: 1,
    })
}

fn execute(
    command: &str,
    var: &dyn Fn(&str) -> Option<String>,
    text: &[u8],
) -> Result<Answer, CniError> {
    let config = |since| {
        let config = Config::parse(text)?;
        match config.version < since {
            false => Ok(config),
            true => Err(CniError::Version(format!(
                "{command} is a command of CNI since {}, and the configuration is of {}",
                since.name(),
                config.version.name()
            ))),
        }
    };
    let always = Version::V0_3_0;
    match command {
        "ADD" => add(&config(always)?, &Attachment::read(var, true)?),
        "CHECK" => check(&config(Version::V0_4_0)?, &Attachment::read(var, true)?),
        "DEL" => {
            let attachment = Attachment::read(var, false)?;
            // A version that is not served has no result of an ADD, so nothing of it is left.
            let stderr =
                del(text, &attachment).err().map(|error| format!("narrows-cni: {error}\n"));
            Ok(Answer { stderr: stderr.unwrap_or_default(), ..Answer::default() })
        }
        // Nothing of a pod is left when its device is gone.
        "GC" => config(Version::V1_1_0).map(|_| Answer::default()),
        "STATUS" => {
            config(Version::V1_1_0)?;
            host_plane::answers().map(|()| Answer::default())
        }
        "VERSION" => Ok(versions(text)),
        other => Err(CniError::Environment(format!(
            "CNI_COMMAND is \"{other}\": it is ADD, DEL, CHECK, GC, STATUS or VERSION"
        ))),
    }
}

fn add(config: &Config, attachment: &Attachment) -> Result<Answer, CniError> {
    let previous = config.chained()?;
    if !config.limits.is_empty() {
        let dev = device::on_the_host(attachment, previous)?;
        HostPlane::find(&dev, config.wait)?.apply(&words::set(&dev, &config.limits))?;
    }
    Ok(Answer::printed(format!("{}\n", result::passed_on(previous, config.version))))
}

fn check(config: &Config, attachment: &Attachment) -> Result<Answer, CniError> {
    let previous = config.chained()?;
    if config.limits.is_empty() {
        return Ok(Answer::default());
    }
    let dev = device::on_the_host(attachment, previous)?;
    let saved = HostPlane::find(&dev, config.wait)?.saved()?;
    if host_plane::holds(&words::set(&dev, &config.limits), &saved)? {
        return Ok(Answer::default());
    }
    Err(CniError::NotInForce(format!(
        "the limits of the pod are not those in force at {dev}: `narrows tc save dev {dev}` says \
         what is, and the pod has to be made again"
    )))
}

/// Takes the limits away, if anything is there that has them. A pod ends all the same: its limits
/// go with its device.
fn del(text: &[u8], attachment: &Attachment) -> Result<(), CniError> {
    let config = Config::parse(text)?;
    let Some(previous) = &config.previous else { return Ok(()) };
    if !attachment.namespace.as_deref().is_some_and(|path| path.exists()) {
        return Ok(());
    }
    let Ok(dev) = device::on_the_host(attachment, previous) else { return Ok(()) };
    let plane = match HostPlane::find(&dev, Duration::ZERO) {
        Ok(plane) => plane,
        Err(CniError::TryAgain(_)) => return Ok(()),
        Err(error) => return Err(error),
    };
    match words::unset(&dev, &config.limits, &plane.saved()?) {
        lines if lines.is_empty() => Ok(()),
        lines => plane.apply(&lines),
    }
}

/// The versions that are served, said in the version of the caller.
fn versions(text: &[u8]) -> Answer {
    let version = config::version(text).unwrap_or(Version::NEWEST).name();
    let versions = json!({
        "cniVersion": version,
        "supportedVersions": Version::ALL.map(Version::name),
    });
    Answer::printed(format!("{versions}\n"))
}
