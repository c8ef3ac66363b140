//! `narrows-fleet run`.

use clap::Args;
use narrows_control::fleet_agent::AgentSocket;
use narrows_fleet::agent::Agent;
use narrows_fleet::claims;
use narrows_fleet::config::{CONFIG, Config, ConfigError, check_files, seed};
use narrows_fleet::engine::nats::Nats;
use narrows_fleet::plane::Instance;
use narrows_fleet::subjects::Subjects;
use narrows_fleet::view::{self, View};
use std::path::PathBuf;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// The questions that may wait.
const QUESTIONS: usize = 8;

/// Run the agent of this box, until SIGTERM or SIGINT.
///
/// It needs no privileges, but an instance answers only its own user and root: run it as that user,
/// in the same network namespace, as narrows-fleet.service does. Instance and engine may come and
/// go; it waits for them.
#[derive(Args)]
pub struct Run {
    /// The configuration.
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    config: PathBuf,

    /// The socket at which it answers `narrows fleet show` and views. Default:
    /// $NARROWS_FLEET_SOCKET, the configuration's `view`, or the usual one in /run/narrows.
    #[arg(long, value_name = "PATH")]
    fleet_socket: Option<PathBuf>,
}

impl Run {
    pub fn execute(self) -> anyhow::Result<()> {
        let config = Config::read(&self.config).map_err(|error| match error {
            // It names the file.
            ConfigError::Unreadable { .. } => anyhow::Error::new(error),
            error => anyhow::Error::new(error)
                .context(format!("{} is no configuration", self.config.display())),
        })?;
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let socket = AgentSocket::new(self.fleet_socket).path();
        let config = Config { view: socket.or_else(|| config.view.clone()), ..config };
        runtime.enable_all().build()?.block_on(run(config))
    }
}

async fn run(config: Config) -> anyhow::Result<()> {
    let mut signals = [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?];
    let path = config.view.clone().map_or_else(view::path, Ok)?;
    let view = View::at(path)?;
    check_files(&config.link)?;
    let seed = config.link.nkey.as_deref().map(seed).transpose()?;
    let subjects = Subjects::new(config.fleet.clone(), config.me.clone());
    let engine = Nats::connect(&config.link, seed, subjects)
        .await
        .map_err(|error| anyhow::anyhow!("the engine cannot be tried: {error}"))?;
    let plane = Instance::with(config.ports.clone());
    log::info!(
        "the agent of {} in the fleet {}, of {} boxes",
        config.me,
        config.fleet,
        config.members.len()
    );
    let (asked, questions) = mpsc::channel(QUESTIONS);
    let claims = claims::read(&config.claims)?;
    let mut agent = Agent::new(config, plane, engine, questions)?;
    agent.restore(claims);
    let [terminate, interrupt] = &mut signals;
    let stop = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    tokio::select! {
        () = agent.run(stop) => {}
        () = view.serve(asked) => {}
    }
    log::info!("ended: what this box borrowed ends with its lease");
    Ok(())
}
