//! `narrows bench`.
use clap::Args;
use std::process::ExitCode;
/// todo
#[derive(Args)]
pub struct Bench {}
impl Bench {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        todo!()
    }
}
