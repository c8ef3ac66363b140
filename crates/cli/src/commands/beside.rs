//! `narrows fleet`, `narrows sync`, `narrows serve` and `narrows history`: other programs, whose
//! packages many boxes do without.

use anyhow::bail;
use clap::Args;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};

/// Share limits with other boxes: runs narrows-fleet, which is a package of its own.
///
/// `narrows fleet --help` has its commands, and narrows-fleet(8) its manual.
#[derive(Args)]
#[command(disable_help_flag = true, disable_version_flag = true)]
#[command(after_long_help = "Examples:
  narrows fleet init --fleet edge --box a=10.0.0.1 --box b=10.0.0.2 ./edge
  narrows fleet show")]
pub struct Fleet {
    /// What narrows-fleet gets.
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Bring subscribers from files and systems to the shaper: runs narrows-sync, which is a package of
/// its own.
///
/// `narrows sync --help` has its commands, and narrows-sync(8) its manual.
#[derive(Args)]
#[command(disable_help_flag = true, disable_version_flag = true)]
#[command(after_long_help = "Examples:
  narrows sync libreqos --devices ShapedDevices.csv --network network.json --dry-run
  narrows sync show")]
pub struct Sync {
    /// What narrows-sync gets.
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl Fleet {
    /// Becomes that program.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        become_program("narrows-fleet", self.arguments)
    }
}

impl Sync {
    /// Becomes that program.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        become_program("narrows-sync", self.arguments)
    }
}

/// Becomes narrows-serve, with the command line that this process has. It has been checked: both
/// programs know the same.
pub fn views() -> anyhow::Result<ExitCode> {
    become_program("narrows-serve", std::env::args_os().skip(1).collect())
}

/// Becomes `name`, a program that lies beside this one or in PATH.
fn become_program(name: &str, arguments: Vec<OsString>) -> anyhow::Result<ExitCode> {
    let beside = std::env::current_exe().unwrap_or_default().with_file_name(name);
    let program = if beside.is_file() { beside.as_path() } else { Path::new(name) };
    let error = Command::new(program).args(arguments).exec();
    if error.kind() == io::ErrorKind::NotFound {
        bail!("{name} is not installed: on Debian, install the package {name}");
    }
    Err(anyhow::Error::new(error).context(format!("cannot run {}", program.display())))
}
