//! `narrows doctor`.
use clap::Args;
use std::process::ExitCode;
/// todo
#[derive(Args)]
pub struct Doctor {}
impl Doctor {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        todo!()
    }
}
