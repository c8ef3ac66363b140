//! The routers that are compared.

use super::limit::Shape;
use super::{PORT_A, PORT_B};
use crate::Testbed;
use crate::cpu;
use crate::narrows::Instance;
use crate::process;
use anyhow::{Context, Result, bail, ensure};
use narrows_snapshot::Queue;
use narrows_units::Rate;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The program of xdp-tools that routes in the driver. Debian 12 has a release without it.
const XDP_FORWARD: &str = "xdp-forward";
/// The drop reason that no limit causes.
const RING_FULL: &str = "ring_full";

/// A router, or what one with a limit is compared with.
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
    /// [`Self::NarrowsXdp`] with a tree of classes whose limit is far above what passes.
    NarrowsXdpTree,
    /// The same with a limit that binds.
    NarrowsXdpTreeBinding,
    /// Narrows with workers as a wire, with `cake` whose limit is far above what passes.
    WireXskCake,
    /// [`Self::NarrowsXsk`] with the same.
    NarrowsXskCake,
    /// [`Self::WireXskCake`] with a limit that binds.
    WireXskCakeBinding,
    /// [`Self::NarrowsXskCake`] with the same.
    NarrowsXskCakeBinding,
}

/// What a system with a limit has, and what it is compared with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limited {
    pub(super) shape: Shape,
    /// Whether the limit binds.
    pub(super) binds: bool,
    /// Half of what this one passes is a limit that binds.
    pub(super) unlimited: System,
    /// What the same packet takes in this one is what it is beside.
    pub(super) beside: Option<System>,
}

impl System {
    /// In the order of a round: what others are compared with comes before them.
    pub(super) const ALL: [Self; 10] = [
        Self::Kernel,
        Self::XdpForward,
        Self::NarrowsXdp,
        Self::NarrowsXsk,
        Self::NarrowsXdpTree,
        Self::NarrowsXdpTreeBinding,
        Self::WireXskCake,
        Self::NarrowsXskCake,
        Self::WireXskCakeBinding,
        Self::NarrowsXskCakeBinding,
    ];

    /// Those with these `names`, and those that they are compared with.
    pub(super) fn named(names: &[String]) -> Vec<Self> {
        let mut chosen: Vec<Self> = Vec::new();
        for system in Self::ALL.into_iter().rev() {
            let is_named = names.iter().any(|name| name == system.name());
            if is_named || chosen.iter().any(|other| other.is_compared_with(system)) {
                chosen.insert(0, system);
            }
        }
        chosen
    }

    /// Whether its own figures need those of `other`.
    fn is_compared_with(self, other: Self) -> bool {
        self.limit().is_some_and(|limit| {
            limit.beside == Some(other) || limit.binds && limit.unlimited == other
        })
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::XdpForward => XDP_FORWARD,
            Self::NarrowsXdp => "narrows-xdp",
            Self::NarrowsXsk => "narrows-xsk",
            Self::NarrowsXdpTree => "narrows-xdp-tree",
            Self::NarrowsXdpTreeBinding => "narrows-xdp-tree-binding",
            Self::WireXskCake => "wire-xsk-cake",
            Self::NarrowsXskCake => "narrows-xsk-cake",
            Self::WireXskCakeBinding => "wire-xsk-cake-binding",
            Self::NarrowsXskCakeBinding => "narrows-xsk-cake-binding",
        }
    }

    /// The limit that it has.
    pub(super) const fn limit(self) -> Option<Limited> {
        let tree = Limited {
            shape: Shape::Tree,
            binds: false,
            unlimited: Self::NarrowsXdp,
            beside: Some(Self::NarrowsXdp),
        };
        let cake = Limited {
            shape: Shape::Cake,
            binds: false,
            unlimited: Self::WireXskCake,
            beside: None,
        };
        match self {
            Self::Kernel | Self::XdpForward | Self::NarrowsXdp | Self::NarrowsXsk => None,
            Self::NarrowsXdpTree => Some(tree),
            Self::NarrowsXdpTreeBinding => Some(Limited { binds: true, ..tree }),
            Self::WireXskCake => Some(cake),
            Self::NarrowsXskCake => Some(Limited { beside: Some(Self::WireXskCake), ..cake }),
            Self::WireXskCakeBinding => Some(Limited { binds: true, ..cake }),
            Self::NarrowsXskCakeBinding => {
                Some(Limited { binds: true, beside: Some(Self::WireXskCakeBinding), ..cake })
            }
        }
    }

    /// Whether it joins the ports as a wire, through which frames go to the server's own address.
    pub(super) const fn is_wire(self) -> bool {
        matches!(self, Self::WireXskCake | Self::WireXskCakeBinding)
    }

    /// Whether it is Narrows, and has a table of routes.
    pub(super) const fn has_routes(self) -> bool {
        !self.is_wire() && !matches!(self, Self::Kernel | Self::XdpForward)
    }

    /// What it needs besides the threads that receive.
    pub(super) const fn needs(self) -> Option<&'static str> {
        match self {
            Self::Kernel => None,
            Self::XdpForward => Some("newer xdp-tools than 1.3, as in Debian 13"),
            Self::NarrowsXdp | Self::NarrowsXdpTree | Self::NarrowsXdpTreeBinding => {
                Some("drivers that send what is redirected to them")
            }
            Self::NarrowsXsk
            | Self::WireXskCake
            | Self::NarrowsXskCake
            | Self::WireXskCakeBinding
            | Self::NarrowsXskCakeBinding => {
                Some("a worker on each core that routes, beside what receives")
            }
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
        let words: [&[&str]; 2] = match self {
            Self::Kernel => return Ok(Running::Kernel),
            Self::XdpForward => {
                bed.shaper().run(XDP_FORWARD, &["load", "-m", "native", PORT_A, PORT_B])?;
                return Ok(Running::XdpForward(bed));
            }
            Self::NarrowsXdp | Self::NarrowsXdpTree | Self::NarrowsXdpTreeBinding => {
                [&["--router", &ports], &["--plane", "xdp", "--xdp", "native"]]
            }
            Self::NarrowsXsk | Self::NarrowsXskCake | Self::NarrowsXskCakeBinding => {
                [&["--router", &ports], &["--cores", &cores]]
            }
            Self::WireXskCake | Self::WireXskCakeBinding => {
                [&["--ports", &ports, "--fail-closed"], &["--cores", &cores]]
            }
        };
        let words = [&["run"][..], words[0], words[1]].concat();
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
    /// Gives it the limit of `system` at `rate`.
    pub(super) fn set_limit(&self, system: System, rate: Rate) -> Result<()> {
        match (self, system.limit()) {
            (Self::Narrows(instance), Some(limit)) => instance.tc_batch(&limit.shape.lines(rate)),
            _ => bail!("{} has no limit", system.name()),
        }
    }

    /// The run time of its own threads.
    pub(super) fn cpu(&self) -> Result<Duration> {
        match self {
            Self::Narrows(instance) => cpu::of_process(instance.id()),
            Self::Kernel | Self::XdpForward(_) => Ok(Duration::ZERO),
        }
    }

    /// What its limit has dropped so far.
    pub(super) fn dropped(&self) -> Result<u64> {
        let Self::Narrows(instance) = self else { return Ok(0) };
        let total = total_of(instance)?;
        Ok(total.drops - total.drops_by_reason.get(RING_FULL).copied().unwrap_or_default())
    }

    /// Fails if it has sent less than these packets, which arrived meanwhile: then others were
    /// forwarded by the kernel, past it.
    pub(super) fn has_sent(&self, packets: f64) -> Result<()> {
        let Self::Narrows(instance) = self else { return Ok(()) };
        let sent = total_of(instance)?.tx_packets;
        ensure!(sent as f64 >= packets, "Narrows has sent {sent} of {packets:.0} packets");
        Ok(())
    }
}

/// What has left through port B.
fn total_of(instance: &Instance) -> Result<Queue> {
    let show = instance.show()?;
    Ok(show.port(PORT_B).context("narrows show does not list port B")?.total.clone())
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
    fn what_a_system_is_compared_with_is_measured_before_it() {
        for (number, system) in System::ALL.into_iter().enumerate() {
            let Some(limit) = system.limit() else { continue };
            let before = &System::ALL[..number];
            assert!(!limit.binds || before.contains(&limit.unlimited), "{system:?}");
            assert!(limit.beside.is_none_or(|other| before.contains(&other)), "{system:?}");
        }
    }

    #[test]
    fn with_a_system_comes_what_it_is_compared_with() {
        let named = |name: &str| System::named(&[name.to_owned()]);
        assert_eq!(named("kernel"), [System::Kernel]);
        assert_eq!(named("narrows-xdp-tree"), [System::NarrowsXdp, System::NarrowsXdpTree]);
        assert_eq!(
            named("narrows-xsk-cake-binding"),
            [System::WireXskCake, System::WireXskCakeBinding, System::NarrowsXskCakeBinding]
        );
    }

    #[test]
    fn a_program_is_found_where_the_path_leads() {
        assert!(found("sh").is_some());
        assert_eq!(found("nrw-no-such-program"), None);
    }
}
