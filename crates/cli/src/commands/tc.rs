//! `narrows tc`.
use clap::Args;
use std::process::ExitCode;
/// todo
#[derive(Args)]
pub struct Tc {}
impl Tc {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        todo!()
    }
}
pub fn load_policy(_: &std::path::Path) -> anyhow::Result<narrows_policy::Policy> {
    todo!()
}
