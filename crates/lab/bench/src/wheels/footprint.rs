//! The memory of structures as the paper sets them up, measured in a process of its own for each.
//!
//! Each has a slot for every time within ten seconds: `carousel` and `eiffel` at the granularity
//! that 10 Gbit/s need, and at that of 100 Gbit/s. *Reserved* is the structure's own account;
//! *touched* is by how much the process's memory has grown once every slot has held a packet, which
//! is what a kernel's allocation takes at once.
//!
//! Source: D. Shan et al., "Fast and Accurate Software Traffic Shaping With Inter-Flow Batching"
//! (ToN 2025), section VI.D, Fig. 13. Its wheels have 24 bytes a slot, those here four.

use crate::callgrind::Program;
use crate::tree::footprint::resident;
use anyhow::{Context, Result, ensure};
use narrows_packet::{PacketId, Packets};
use narrows_qdisc::pacing::{Calendar, Carousel, Eiffel, Mltw, Slot};
use narrows_units::Nanos;
use serde::{Deserialize, Serialize};
use std::process::Command;

/// The slots of each wheel of `flowbundler`, as in the paper.
const SLOTS: u32 = 1024;
/// Its wheels whose slots are within [`HORIZON`] of each other: of 2^33 ns, 8.6 s, at most.
const WHEELS: u32 = 34;
/// How far ahead packets have slots.
const HORIZON: Nanos = Nanos::from_secs(10);

/// A structure with its parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Weighed {
    /// The multi-level timing wheel, 64 x 1024 slots.
    FlowBundler,
    /// A single wheel, with slots of this length.
    Carousel(Nanos),
    /// A single wheel with bitmaps, with slots of this length.
    Eiffel(Nanos),
}

/// What it takes, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Footprint {
    /// By the structure's own account.
    pub reserved: u64,
    /// In use when every slot has held a packet.
    pub touched: u64,
}

/// What a structure takes, beside what the paper's takes.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub structure: &'static str,
    /// How long its shortest slots are.
    pub granularity_ns: u64,
    /// In bytes.
    #[serde(flatten)]
    pub footprint: Footprint,
    /// In megabytes.
    pub paper_mb: f64,
}

impl Weighed {
    /// All that the paper has.
    pub const ALL: [Self; 5] = [
        Self::FlowBundler,
        Self::Carousel(Nanos(1000)),
        Self::Eiffel(Nanos(1000)),
        Self::Carousel(Nanos(100)),
        Self::Eiffel(Nanos(100)),
    ];

    /// The one that is called `name` and has slots of `granularity`.
    pub fn find(name: &str, granularity: Nanos) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name && it.granularity() == granularity)
    }

    const fn name(self) -> &'static str {
        match self {
            Self::FlowBundler => "flowbundler",
            Self::Carousel(_) => "carousel",
            Self::Eiffel(_) => "eiffel",
        }
    }

    const fn granularity(self) -> Nanos {
        match self {
            Self::FlowBundler => Nanos(1),
            Self::Carousel(granularity) | Self::Eiffel(granularity) => granularity,
        }
    }

    /// What the paper says, in megabytes.
    const fn paper_mb(self) -> f64 {
        match self {
            Self::FlowBundler => 1.1,
            Self::Carousel(Nanos(1000)) => 236.0,
            Self::Carousel(_) => 2300.0,
            Self::Eiffel(Nanos(1000)) => 540.0,
            Self::Eiffel(_) => 6900.0,
        }
    }

    /// Builds it in this process, which has done nothing before, and puts a packet into every slot.
    ///
    /// # Errors
    /// If a packet does not leave at its time, or the system does not say how much memory is used.
    pub fn measure(self) -> Result<Footprint> {
        let mut packets = Packets::new(1);
        let before = resident()?;
        match self {
            Self::FlowBundler => fill(Mltw::new(SLOTS), multiples(), &mut packets, before),
            Self::Carousel(granularity) => {
                let wheel = Carousel::new(granularity, HORIZON);
                fill(wheel, turn(granularity), &mut packets, before)
            }
            Self::Eiffel(granularity) => {
                let wheel = Eiffel::new(granularity, HORIZON);
                fill(wheel, turn(granularity), &mut packets, before)
            }
        }
    }

    /// Measures it in a process of its own.
    fn of(self, program: &Program) -> Result<Row> {
        let output = Command::new(&program.path)
            .args(&program.arguments)
            .args([self.name(), &self.granularity().0.to_string()])
            .output()
            .context("cannot start a process to find out how much memory a structure takes")?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "the memory of {}: {complaint}", self.name());
        Ok(Row {
            structure: self.name(),
            granularity_ns: self.granularity().0,
            footprint: serde_json::from_slice(&output.stdout)?,
            paper_mb: self.paper_mb(),
        })
    }
}

/// Measures all of them with `program`.
pub(super) fn run(program: &Program) -> Result<Vec<Row>> {
    Weighed::ALL.into_iter().map(|weighed| weighed.of(program)).collect()
}

/// The times of all slots of a single wheel, one after the other.
fn turn(granularity: Nanos) -> impl Iterator<Item = Nanos> {
    let slots = HORIZON.0.div_ceil(granularity.0).next_power_of_two();
    (1..=slots).map(move |slot| Nanos(slot * granularity.0))
}

/// The times of all slots of the first wheels of a multi-level one, wheel by wheel: odd multiples
/// of a power of two of nanoseconds.
fn multiples() -> impl Iterator<Item = Nanos> {
    let mut now = 0_u64;
    (0..WHEELS).flat_map(move |wheel| {
        let first = (now >> (wheel + 1)) + 1;
        let of_wheel = move |number: u64| Nanos(((first + number) << (wheel + 1)) | (1 << wheel));
        now = of_wheel(u64::from(SLOTS) - 1).0;
        (0..u64::from(SLOTS)).map(of_wheel)
    })
}

/// Puts a packet into the slot for each of `times`, and takes it out at that time.
fn fill(
    mut calendar: impl Calendar,
    times: impl Iterator<Item = Nanos>,
    packets: &mut Packets,
    before: u64,
) -> Result<Footprint> {
    let (id, mut now) = (PacketId(0), Nanos::ZERO);
    for at in times {
        packets.arrive(id, 1500, now);
        let slot = Slot { at, behind: now, spacing: 0 };
        let leaves = calendar.insert(packets, id, slot, now);
        ensure!(calendar.pop(packets, leaves) == Some(id), "a packet does not leave at {leaves}");
        now = leaves;
    }
    let touched = resident()?.saturating_sub(before);
    Ok(Footprint { reserved: calendar.memory() as u64, touched })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_of_every_wheel_gets_a_packet() {
        let mut by_wheel = vec![std::collections::BTreeSet::new(); WHEELS as usize];
        let mut last = Nanos::ZERO;
        for at in multiples() {
            assert!(at > last, "{at} after {last}");
            last = at;
            let wheel = at.0.trailing_zeros();
            by_wheel[wheel as usize].insert((at.0 >> wheel >> 1) % u64::from(SLOTS));
        }
        assert!(by_wheel.iter().all(|slots| slots.len() == SLOTS as usize));
        let granularity = Nanos::from_millis(1);
        let slots: Vec<Nanos> = turn(granularity).collect();
        assert_eq!((slots.len(), slots[0]), (1 << 14, granularity));
    }

    #[test]
    fn what_is_touched_is_at_most_what_is_reserved_and_the_chunks() {
        // Other tests of this process use memory, too: only the order of magnitude is certain.
        let footprint = Weighed::FlowBundler.measure().unwrap();
        assert!((500_000..1_200_000).contains(&footprint.reserved), "{footprint:?}");
        let coarse = Carousel::new(Nanos::from_millis(1), HORIZON);
        let times = turn(Nanos::from_millis(1));
        let footprint = fill(coarse, times, &mut Packets::new(1), 0).unwrap();
        assert_eq!(footprint.reserved / 4096, (4 << 14) / 4096);
    }

    #[test]
    fn each_is_found_by_its_name_and_granularity() {
        for weighed in Weighed::ALL {
            assert_eq!(Weighed::find(weighed.name(), weighed.granularity()), Some(weighed));
        }
        assert_eq!(Weighed::find("carousel", Nanos(5)), None);
    }
}
