//! `narrows demo`.
use clap::Args;
use std::process::ExitCode;
/// todo
#[derive(Args)]
pub struct Demo {}
impl Demo {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        todo!()
    }
}
