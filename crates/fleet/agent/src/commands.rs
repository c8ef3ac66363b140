//! The subcommands, a module each.

pub mod forget;
pub mod init;
pub mod metrics;
pub mod run;
pub mod show;

use narrows_fleet::config::{CONFIG, Config};
use narrows_fleet::view;
use std::path::{Path, PathBuf};

/// Where the agent of this network namespace answers. A configuration that is not there says
/// nothing else, unless it was asked for.
fn view_of(config: Option<&Path>) -> anyhow::Result<PathBuf> {
    let said = match config {
        Some(path) => Some(Config::read(path)?),
        None if Path::new(CONFIG).exists() => Some(Config::read(Path::new(CONFIG))?),
        None => None,
    };
    match said.and_then(|config| config.view) {
        Some(path) => Ok(path),
        None => Ok(view::path()?),
    }
}
