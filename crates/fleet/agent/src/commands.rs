//! The subcommands, a module each.

pub mod forget;
pub mod init;
pub mod metrics;
pub mod run;
pub mod show;

use clap::Args;
use narrows_control::fleet_agent::AgentSocket;
use narrows_fleet::config::{CONFIG, Config};
use narrows_fleet::view;
use std::path::{Path, PathBuf};

/// Where the running agent is asked.
#[derive(Args)]
pub struct Asked {
    /// The agent's configuration.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// The agent's socket. Default: $NARROWS_FLEET_SOCKET, the configuration's `view`, or the usual
    /// one in /run/narrows.
    #[arg(long, value_name = "PATH")]
    fleet_socket: Option<PathBuf>,
}

impl Asked {
    /// Where the agent of this network namespace answers. A configuration that is not there says
    /// nothing else, unless it was asked for.
    fn view(self) -> anyhow::Result<PathBuf> {
        if let Some(path) = AgentSocket::new(self.fleet_socket).path() {
            return Ok(path);
        }
        let said = match self.config.as_deref() {
            Some(path) => Some(Config::read(path)?),
            None if Path::new(CONFIG).exists() => Some(Config::read(Path::new(CONFIG))?),
            None => None,
        };
        match said.and_then(|config| config.view) {
            Some(path) => Ok(path),
            None => Ok(view::path()?),
        }
    }
}
