//! The routers that are compared.

use super::{PORT_A, PORT_B};
use crate::Testbed;
use crate::cpu;
use crate::narrows::Instance;
use crate::process;
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The program of xdp-tools that routes in the driver. Debian 12 has a release without it.
const XDP_FORWARD: &str = "xdp-forward";

/// A router.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum System {
    /// The kernel's own forwarding.
    Kernel,
    /// xdp-tools' program in the driver, which asks the kernel's tables.
    XdpForward,
    /// Narrows on the XDP plane, in the drivers.
    NarrowsXdp,
    /// Narrows with workers, each on the core of a thread that receives.
    NarrowsXsk,
}

impl System {
    pub(super) const ALL: [Self; 4] =
        [Self::Kernel, Self::XdpForward, Self::NarrowsXdp, Self::NarrowsXsk];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::XdpForward => XDP_FORWARD,
            Self::NarrowsXdp => "narrows-xdp",
            Self::NarrowsXsk => "narrows-xsk",
        }
    }

    /// What it needs besides the threads that receive.
    pub(super) const fn needs(self) -> Option<&'static str> {
        match self {
            Self::Kernel => None,
            Self::XdpForward => Some("newer xdp-tools than 1.3, as in Debian 13"),
            Self::NarrowsXdp => Some("drivers that send what is redirected to them"),
            Self::NarrowsXsk => Some("a worker on each core that routes, beside what receives"),
        }
    }

    /// Why it cannot run here.
    pub(super) fn absent(self) -> Option<String> {
        let is_there = self != Self::XdpForward || found(XDP_FORWARD).is_some();
        (!is_there).then(|| {
            format!("{XDP_FORWARD} is not there: newer xdp-tools have it, as in Debian 13")
        })
    }

    /// Starts it in the middle of `bed`, on `cores`.
    pub(super) fn start<'a>(
        self,
        bed: &'a Testbed,
        program: &Path,
        cores: &[usize],
    ) -> Result<Running<'a>> {
        let ports = format!("{PORT_A},{PORT_B}");
        let cores = cores.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        let plane: &[&str] = match self {
            Self::Kernel => return Ok(Running::Kernel),
            Self::XdpForward => {
                bed.shaper().run(XDP_FORWARD, &["load", "-m", "native", PORT_A, PORT_B])?;
                return Ok(Running::XdpForward(bed));
            }
            Self::NarrowsXdp => &["--plane", "xdp", "--xdp", "native"],
            Self::NarrowsXsk => &["--cores", &cores],
        };
        let words = [&["run", "--router", &ports], plane].concat();
        Ok(Running::Narrows(Instance::start_command(bed, program, &words)?))
    }
}

/// One that routes; ends when dropped.
pub(super) enum Running<'a> {
    Kernel,
    XdpForward(&'a Testbed),
    Narrows(Instance),
}

impl Running<'_> {
    /// Whether it is Narrows.
    pub(super) fn is_narrows(&self) -> bool {
        matches!(self, Self::Narrows(_))
    }

    /// The run time of its own threads.
    pub(super) fn cpu(&self) -> Result<Duration> {
        match self {
            Self::Narrows(instance) => cpu::of_process(instance.id()),
            Self::Kernel | Self::XdpForward(_) => Ok(Duration::ZERO),
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Self::XdpForward(bed) = self {
            // The namespace, if nothing else, takes it with it.
            let mut unload = bed.shaper().command(XDP_FORWARD);
            let _ = process::run(unload.args(["unload", PORT_A, PORT_B]));
        }
    }
}

/// Where a program is, in this process's `PATH`.
fn found(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_where_the_path_leads() {
        assert!(found("sh").is_some());
        assert_eq!(found("nrw-no-such-program"), None);
    }
}
