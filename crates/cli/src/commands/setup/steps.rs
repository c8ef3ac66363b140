//! The files and commands of a setup, shown before they are written and run.

use crate::output;
use anyhow::{Context, bail};
use narrows_escape::shell;
use narrows_forwarding::Forwarding;
use narrows_tc::{OfflineHost, load};
use narrows_top::{App, Excerpt, Feed, Look, Source, View};
use narrows_views::names;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// This directory exists if systemd runs this host: sd_booted(3).
const SYSTEMD: &str = "/run/systemd/system";
/// Where an administrator's units are: systemd.unit(5).
const UNITS: &str = "/etc/systemd/system";
/// What the service may do in addition, where its policy needs connection tracking.
const DROP_IN: &str = "\
# Written by `narrows setup`. `nat` in the policy asks the kernel's connection tracking which device
# a packet is of. Where that is a module, only this capability may read its types.
[Service]
CapabilityBoundingSet=CAP_SYS_ADMIN
AmbientCapabilities=CAP_SYS_ADMIN
";
/// How long a service may take to answer.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// The time that each table of the first minute covers.
const FRAME: Duration = Duration::from_secs(10);

pub fn has_systemd() -> bool {
    Path::new(SYSTEMD).is_dir()
}

/// The files of instance `name` in `directory`: systemd's configuration, and the policy.
fn files(directory: &Path, name: &str) -> [PathBuf; 2] {
    ["conf", "tc"].map(|extension| directory.join(format!("{name}.{extension}")))
}

/// # Errors
/// If a file of instance `name` exists in `directory` and must not be overwritten.
pub fn check(directory: &Path, name: &str, force: bool) -> anyhow::Result<()> {
    match files(directory, name).iter().find(|path| fs::symlink_metadata(path).is_ok()) {
        Some(path) if !force => bail!(
            "{} is there already: edit it, choose another --name, or overwrite it with --force",
            path.display()
        ),
        _ => Ok(()),
    }
}

/// The files and commands.
pub struct Plan {
    /// The files with their texts; the policy is the last one.
    files: Vec<(PathBuf, String)>,
    /// How the instance is started.
    start: Start,
}

enum Start {
    /// systemd starts this unit.
    Unit(String),
    /// There is no systemd: the user runs this command.
    ByHand(String),
}

impl Plan {
    /// The plan for instance `name` with the ports of `forwarding` and the policy `text`, with its
    /// files in `directory`. `more` are options of `narrows run` besides its ports.
    pub fn new(
        directory: &Path,
        name: &str,
        forwarding: &Forwarding,
        text: &str,
        more: &[&str],
        systemd: bool,
    ) -> anyhow::Result<Self> {
        let text = text.replace("narrows@NAME", &format!("narrows@{name}"));
        let policy = match load(&text, "policy", &OfflineHost::default()) {
            Ok(policy) => policy,
            Err(complaints) => bail!("these ports have no policy: {}", complaints.trim()),
        };
        let words = forwarding.words();
        let words: Vec<&str> = words.split(' ').chain(more.iter().copied()).collect();
        let [option, ports, rest @ ..] = &words[..] else { bail!("no ports: {words:?}") };
        // The unit's default is that of a wire.
        let option = match *option {
            "--ports" => String::new(),
            option => format!("FORWARDING={option}\n"),
        };
        let conf = format!(
            "# Written by `narrows setup`. OPTIONS takes what `narrows run --help` lists.\n\
             {option}PORTS={ports}\nOPTIONS={}\n",
            rest.join(" ")
        );
        let [conf_file, policy_file] = files(directory, name);
        let looks_up = policy.ports().any(|(_, port)| port.looks_up_translations());
        let drop_in = (systemd && looks_up).then(|| {
            let path = format!("{UNITS}/narrows@{name}.service.d/nat.conf");
            (PathBuf::from(path), DROP_IN.to_owned())
        });
        let start = match systemd {
            true => Start::Unit(format!("narrows@{name}")),
            false => Start::ByHand(format!(
                "narrows run {} --batch {}",
                words.iter().map(|word| shell(word).into_owned()).collect::<Vec<_>>().join(" "),
                shell(&policy_file.to_string_lossy())
            )),
        };
        let files = drop_in.into_iter().chain([(conf_file, conf), (policy_file, text)]).collect();
        Ok(Self { files, start })
    }

    pub fn policy_file(&self) -> std::path::Display<'_> {
        self.files.last().map_or(Path::new(""), |(path, _)| path).display()
    }

    /// Writes the files, each as a whole.
    pub fn write(&self) -> anyhow::Result<()> {
        for (path, text) in &self.files {
            let folder = path.parent().unwrap_or(Path::new("/"));
            fs::create_dir_all(folder)
                .with_context(|| format!("cannot create {}", folder.display()))?;
            narrows_tc::replace(path, text)
                .with_context(|| format!("cannot write {}", path.display()))?;
            output::say(format_args!("wrote {}", path.display()));
        }
        Ok(())
    }

    /// Starts the instance, or restarts it if it may be running. False if the user must do it.
    pub fn start(&self, again: bool) -> anyhow::Result<bool> {
        let unit = match &self.start {
            Start::Unit(unit) => unit,
            Start::ByHand(command) => {
                output::say(format_args!(
                    "this host has no systemd: start Narrows now and at each boot with\n  {command}"
                ));
                return Ok(false);
            }
        };
        if self.files.iter().any(|(path, _)| path.starts_with(UNITS)) {
            systemctl(&["daemon-reload"])?;
        }
        systemctl(&["enable", unit])?;
        systemctl(&[if again { "restart" } else { "start" }, unit])?;
        Ok(true)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (path, text) in &self.files {
            let state = if fs::symlink_metadata(path).is_ok() { " (is there already)" } else { "" };
            writeln!(formatter, "write {}{state}:", path.display())?;
            for line in text.lines() {
                writeln!(formatter, "{}", format!("  {line}").trim_end())?;
            }
        }
        match &self.start {
            Start::Unit(unit) => writeln!(formatter, "run systemctl enable --now {unit}"),
            Start::ByHand(command) => writeln!(formatter, "then start it with: {command}"),
        }
    }
}

fn systemctl(words: &[&str]) -> anyhow::Result<()> {
    let said = format!("systemctl {}", words.join(" "));
    output::say(&said);
    let output = Command::new("systemctl").args(words).output();
    let output = output.with_context(|| format!("cannot run {said}"))?;
    if !output.status.success() {
        let unit = words.last().copied().unwrap_or_default();
        bail!(
            "{said} failed: {}\nThe files are written. `journalctl -u {unit}` says more; without the \
             package, install dist/narrows@.service and dist/narrows.sysusers first (docs/install.md)",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}

/// Shows the instance with the port `dev` for `span`.
pub fn watch(dev: &str, span: Duration) -> anyhow::Result<()> {
    let end = Instant::now() + START_TIMEOUT;
    let names = names(None)?;
    let mut source = loop {
        match Source::find(Some(dev), names.clone()) {
            Ok(source) => break source,
            Err(error) if Instant::now() > end => return Err(error.into()),
            Err(_) => sleep(Duration::from_millis(100)),
        }
    };
    let span_s = span.as_secs();
    output::say(format_args!(
        "running; the next {span_s} s (Ctrl-C ends this view, not the service):"
    ));
    let queues = Excerpt { only: Some(View::Queues), ..Excerpt::default() };
    let mut app = App::new(View::Queues);
    app.feed(Feed::Snapshot(Box::new(source.ask()?)));
    let end = Instant::now() + span;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        sleep(left.min(FRAME));
        app.feed(Feed::Snapshot(Box::new(source.ask()?)));
        output::text(
            narrows_top::once(&app, &queues, Look::from_environment()).unwrap_or_else(|why| why),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::answers::Line;
    use super::super::policy;
    use super::*;
    use narrows_units::Rate;

    fn wire() -> Forwarding {
        Forwarding::wire("eth1", "eth2").unwrap()
    }

    fn plan(directory: &Path, forwarding: Forwarding, more: &[&str], systemd: bool) -> Plan {
        let rate = Rate::from_bits_per_sec;
        let (down, up) = (rate(95_000_000), rate(20_000_000));
        let line = Line { forwarding, down, up, link: "docsis".to_owned() };
        let text = policy::text(&line);
        Plan::new(directory, "home", &line.forwarding, &text, more, systemd).unwrap()
    }

    #[test]
    fn what_is_no_wire_says_so_in_the_configuration() {
        let shown = |forwarding, more: &[&str], systemd| {
            plan(Path::new("/x"), forwarding, more, systemd).to_string()
        };
        let pair = ("100".parse().unwrap(), "200".parse().unwrap());
        let stick = Forwarding::stick("eth1", &[pair]).unwrap();
        let conf = shown(stick.clone(), &[], true);
        let lines = "  FORWARDING=--stick\n  PORTS=eth1\n  OPTIONS=--vlans 100:200\n";
        assert!(conf.contains(lines), "{conf}");
        let by_hand = shown(stick, &[], false);
        assert!(by_hand.contains("narrows run --stick eth1 --vlans 100:200 --batch /x/home.tc"));
        let router = Forwarding::router(&["eth1", "eth2"].map(str::to_owned)).unwrap();
        let conf = shown(router, &["--skip-netfilter"], true);
        let lines = "  FORWARDING=--router\n  PORTS=eth1,eth2\n  OPTIONS=--skip-netfilter\n";
        assert!(conf.contains(lines), "{conf}");
        let host = Forwarding::host(&["eth1".to_owned()]).unwrap();
        let text = policy::of_host("eth1", 50_000);
        let conf = Plan::new(Path::new("/x"), "home", &host, &text, &[], true).unwrap();
        let lines = "  FORWARDING=--port\n  PORTS=eth1\n  OPTIONS=\n";
        assert!(conf.to_string().contains(lines), "{conf}");
    }

    #[test]
    fn a_service_that_asks_connection_tracking_may_read_its_types() {
        let host = Forwarding::host(&["ppp0".to_owned()]).unwrap();
        let plan = |words: &str, systemd| {
            let text = format!("qdisc add dev ppp0 root fq_codel {words}\n");
            Plan::new(Path::new("/x"), "home", &host, &text, &[], systemd).unwrap()
        };
        let with_nat = plan("hosts src nat", true);
        let shown = with_nat.to_string();
        assert!(shown.contains("write /etc/systemd/system/narrows@home.service.d/nat.conf"));
        assert!(shown.contains("\n  AmbientCapabilities=CAP_SYS_ADMIN\n"), "{shown}");
        assert_eq!(with_nat.policy_file().to_string(), "/x/home.tc");
        assert!(!plan("hosts src", true).to_string().contains("SYS_ADMIN"));
        assert!(!plan("hosts src nat", false).to_string().contains("SYS_ADMIN"));
    }

    #[test]
    fn nothing_is_overwritten_without_force() {
        let folder = std::env::temp_dir().join(format!("nrw-setup-{}", std::process::id()));
        let plan = plan(&folder, wire(), &[], false);
        check(&folder, "home", false).unwrap();
        plan.write().unwrap();
        assert!(check(&folder, "home", false).unwrap_err().to_string().contains("--force"));
        check(&folder, "home", true).unwrap();
        let policy = fs::read_to_string(folder.join("home.tc")).unwrap();
        assert!(policy.contains("reload narrows@home"), "{policy}");
        assert!(load(&policy, "test", &OfflineHost::default()).is_ok());
        let conf = fs::read_to_string(folder.join("home.conf")).unwrap();
        assert!(conf.contains("PORTS=eth1,eth2\n"), "{conf}");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_plan_shows_files_and_commands() {
        let shown = plan(Path::new("/etc/narrows"), wire(), &[], true).to_string();
        assert!(shown.contains("write /etc/narrows/home.tc:\n  # "), "{shown}");
        assert!(shown.ends_with("run systemctl enable --now narrows@home\n"), "{shown}");
        let shown = plan(Path::new("/x"), wire(), &[], false).to_string();
        assert!(shown.contains("narrows run --ports eth1,eth2 --batch /x/home.tc"), "{shown}");
    }
}
