//! `narrows demo`.

use super::report::print;
use clap::Args;
use narrows_testbed::demo;
use std::process::ExitCode;
use std::time::Duration;

/// See Narrows shape real traffic on this machine, between network namespaces of its own.
///
/// Makes three namespaces with 4-queue veth pairs, joins them, and sends UDP and TCP in
/// many flows with ping alongside: without a limit, then at 100 Mbit/s, 500 Mbit/s and
/// 1 Gbit/s. Takes below two minutes and cleans up whatever happens. Needs root.
#[derive(Args)]
pub struct Demo {
    /// Seconds for which each limit is measured with each load.
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Demo {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let report = demo::run(&demo::Options {
            program: std::env::current_exe()?,
            window: Duration::from_secs(self.seconds),
        })?;
        print(&report, self.json)
    }
}
