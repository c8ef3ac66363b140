//! The compared systems, each as it is put at the egress of the port, or of its ifb.

use super::place::Place;
use crate::bed::{PORT_B, Testbed, tc};
use crate::narrows::Instance;
use anyhow::{Context, Result};
use narrows_snapshot::OwnTraffic;
use narrows_units::{Nanos, Rate};
use std::path::Path;

/// The bucket of the plain limit holds this much time at the limit, and as much at least, in bytes:
/// a super-packet.
const BURST: Nanos = Nanos::from_millis(4);
const BURST_MIN: u64 = 65_536;

/// Among whom a system that can choose shares first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Among {
    Flows,
    Hosts,
}

/// A system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum System {
    /// What the kernel has by itself.
    Unlimited,
    /// The kernel's token bucket over a queue.
    Plain,
    /// The kernel's `htb` over `fq_codel`.
    HtbFqCodel,
    /// The kernel's `cake`.
    Cake,
    /// The host plane.
    Narrows,
}

impl System {
    /// Those of the kernel with a limit.
    const OF_THE_KERNEL: [Self; 3] = [Self::Plain, Self::HtbFqCodel, Self::Cake];

    /// Its name in tables and JSON.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Unlimited => "no shaper",
            Self::Plain => "tbf",
            Self::HtbFqCodel => "htb + fq_codel",
            Self::Cake => "cake besteffort",
            Self::Narrows => "narrows host plane",
        }
    }

    /// Those with a limit that this kernel has, and why it has no others.
    pub(super) fn there_are(bed: &Testbed, place: Place, among: Among) -> (Vec<Self>, Vec<String>) {
        let (mut there, mut notes) = (Vec::new(), Vec::new());
        for system in Self::OF_THE_KERNEL {
            let limit = Some(Rate::from_bits_per_sec(10_000_000));
            match Kernel::put(bed, place, &system.words((limit, among), place.device())) {
                Ok(_) => there.push(system),
                Err(error) => {
                    let why: Vec<String> =
                        error.to_string().lines().map(|line| line.trim().to_owned()).collect();
                    notes.push(format!("{} is not there: {}", system.name(), why.join("; ")));
                }
            }
        }
        there.push(Self::Narrows);
        (there, notes)
    }

    /// The words of `tc` that put it at `limit` at `device`, where nothing is.
    pub(super) fn words(self, (limit, among): (Option<Rate>, Among), device: &str) -> Vec<String> {
        let root = format!("qdisc add dev {device} root");
        let Some(limit) = limit else { return Vec::new() };
        let rate = format!("{}bit", limit.bits_per_sec());
        let burst = limit.bytes_in(BURST).0.max(BURST_MIN);
        let hosts = match (self, among) {
            (Self::Cake, Among::Hosts) => " dual-dsthost",
            (Self::Narrows, Among::Hosts) => " hosts dst",
            _ => "",
        };
        match self {
            Self::Unlimited => Vec::new(),
            Self::Plain => vec![format!("{root} tbf rate {rate} burst {burst} latency 400ms")],
            Self::HtbFqCodel | Self::Narrows => vec![
                format!("{root} handle 1: htb default 10"),
                format!("class add dev {device} parent 1: classid 1:10 htb rate {rate}"),
                format!("qdisc add dev {device} parent 1:10 handle 10: fq_codel{hosts}"),
            ],
            Self::Cake => vec![format!("{root} cake bandwidth {rate} besteffort{hosts}")],
        }
    }
}

/// A system in its place; taken away again when dropped.
pub(super) enum Running<'a> {
    Kernel(#[expect(dead_code, reason = "it is there")] Kernel<'a>),
    Narrows(Box<Instance>),
}

/// What a run of Narrows says of itself.
pub(super) struct Said {
    /// Packets that its counters do not explain.
    pub(super) unaccounted: i64,
    /// Whether packets wait, or are dropped for lack of `fq`.
    pub(super) shapes: bool,
}

impl<'a> Running<'a> {
    pub(super) fn start(
        bed: &'a Testbed,
        place: Place,
        system: System,
        limit: (Option<Rate>, Among),
        program: &Path,
    ) -> Result<Self> {
        if system != System::Narrows {
            let words = system.words(limit, place.device());
            return Ok(Self::Kernel(Kernel::put(bed, place, &words)?));
        }
        let (device, run) = place.of_narrows();
        let instance = Instance::start_in(bed.shaper(), program, &run)?;
        system.words(limit, device).iter().try_for_each(|words| instance.tc(words).map(drop))?;
        Ok(Self::Narrows(Box::new(instance)))
    }

    /// Takes it away. Returns what it says of itself, if it is Narrows.
    pub(super) fn stop(self) -> Result<Option<Said>> {
        let Self::Narrows(instance) = self else { return Ok(None) };
        let show = instance.show()?;
        let port = show.port(PORT_B).context("narrows does not show its port")?;
        let shapes = port.own_traffic == Some(OwnTraffic::Shaped);
        Ok(Some(Said { unaccounted: show.conservation.unaccounted, shapes }))
    }
}

/// A qdisc of the kernel at the port.
pub(super) struct Kernel<'a> {
    bed: &'a Testbed,
    place: Place,
}

impl<'a> Kernel<'a> {
    fn put(bed: &'a Testbed, place: Place, words: &[String]) -> Result<Self> {
        // From here on, whatever is there is taken away again.
        let here = Self { bed, place };
        if !words.is_empty() {
            place.redirect(bed)?;
        }
        words.iter().try_for_each(|words| tc(bed.shaper(), words).map(drop))?;
        Ok(here)
    }
}

impl Drop for Kernel<'_> {
    fn drop(&mut self) {
        // There may be none; and the namespace, if nothing else, takes all with it.
        self.place.clear(self.bed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_plane_gets_the_words_of_the_kernel_s_classes() {
        let limit = (Some(Rate::from_bits_per_sec(50_000_000)), Among::Flows);
        assert_eq!(System::Narrows.words(limit, "a"), System::HtbFqCodel.words(limit, "a"));
        let by_host = System::Narrows.words((limit.0, Among::Hosts), "a");
        assert!(by_host[2].ends_with("fq_codel hosts dst"), "{by_host:?}");
        let tbf = System::Plain.words(limit, "a").concat();
        assert!(tbf.contains("rate 50000000bit burst 65536"), "{tbf}");
        assert!(System::Unlimited.words((None, Among::Flows), "a").is_empty());
    }
}
