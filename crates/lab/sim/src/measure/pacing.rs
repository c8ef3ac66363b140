//! How well flows keep their pace, as the receiver sees it.
//!
//! *Deviation.* A flow's rate over windows: each begins with the packet with which the previous one
//! ended and lasts until the first packet after its time has passed, so that no packet is split and
//! none is left out. The figure is the absolute deviation of the rate, in percent of the pace.
//! Windows in which a flow has less than four packets are ignored.
//!
//! *Bursts.* The time from a packet to the next but one of its flow. Below a quarter of two packet
//! times at the pace, three were there at once.
//!
//! Both as in `narrows bench pacing`. Cost: 104 bytes per flow, some comparisons per packet.

use super::delays::Delays;
use super::{GroupMeasure, Measure};
use crate::setup::{Kind, Setup};
use narrows_units::{Nanos, Rate};
use std::collections::BTreeMap;

/// The windows.
const WINDOWS: [Nanos; 3] =
    [Nanos::from_millis(1), Nanos::from_millis(10), Nanos::from_millis(100)];
/// A window with fewer packets than this depends more on its start than on the rate.
const PACKETS_MIN: f64 = 4.0;
/// Three at once: nearer than this part of two packets' time.
const AT_ONCE: f64 = 0.25;

/// A window that is being filled.
#[derive(Clone, Copy, Default)]
struct Window {
    begin: Option<Nanos>,
    bytes: u64,
}

impl Window {
    /// A packet of `len` bytes at `at`. Where the window has taken `length`: by how many percent
    /// of `pace` (bytes a nanosecond) it is off, and the next one begins.
    #[inline]
    fn came(&mut self, at: Nanos, len: u32, pace: f64, length: Nanos) -> Option<f64> {
        let Some(begin) = self.begin else {
            self.begin = Some(at);
            return None;
        };
        self.bytes += u64::from(len);
        let span = at.since(begin);
        if span < length {
            return None;
        }
        let due = span.0 as f64 * pace;
        let off = (self.bytes as f64 / due - 1.0) * 100.0;
        *self = Self { begin: Some(at), bytes: 0 };
        (pace * length.0 as f64 >= PACKETS_MIN * f64::from(len)).then_some(off.abs())
    }
}

/// By how much windows were off.
#[derive(Clone, Copy, Default)]
struct Off {
    sum: f64,
    most: f64,
    windows: u64,
}

impl Off {
    fn add(&mut self, off: f64) {
        self.sum += off;
        self.most = self.most.max(off);
        self.windows += 1;
    }

    fn mean(&self) -> Option<f64> {
        (self.windows > 0).then(|| self.sum / self.windows as f64)
    }

    fn most(&self) -> Option<f64> {
        (self.windows > 0).then_some(self.most)
    }

    fn merge(&mut self, other: &Self) {
        self.sum += other.sum;
        self.most = self.most.max(other.most);
        self.windows += other.windows;
    }
}

/// The observations of a flow.
#[derive(Clone, Copy, Default)]
struct Flow {
    windows: [Window; 3],
    /// When its last packet came, and the one before that.
    last: Option<Nanos>,
    before: Option<Nanos>,
}

/// The observations of a group of flows with one pace.
struct Group {
    /// In bytes a nanosecond.
    pace: f64,
    off: [Off; 3],
    gaps: Delays,
    counted: u64,
    at_once: u64,
}

impl Group {
    fn new(pace: Rate) -> Self {
        let pace = pace.bits_per_sec() as f64 / 8e9;
        Self { pace, off: Default::default(), gaps: Delays::new(), counted: 0, at_once: 0 }
    }

    #[inline]
    fn came(&mut self, flow: &mut Flow, at: Nanos, len: u32) {
        let windows = flow.windows.iter_mut().zip(WINDOWS).zip(&mut self.off);
        for ((window, length), off) in windows {
            if let Some(percent) = window.came(at, len, self.pace, length) {
                off.add(percent);
            }
        }
        if let Some(before) = flow.before {
            let gap = at.since(before);
            self.gaps.record(gap);
            self.counted += 1;
            let near = AT_ONCE * 2.0 * f64::from(len) / self.pace;
            self.at_once += u64::from((gap.0 as f64) < near);
        }
        flow.before = flow.last.replace(at);
    }

    fn measures(&self) -> [(GroupMeasure, Option<f64>); 8] {
        let [ms1, ms10, _] = self.off;
        let gap = |percent| self.gaps.percentile_us(percent);
        [
            (GroupMeasure::Off1ms, ms1.mean()),
            (GroupMeasure::Off10ms, ms10.mean()),
            (GroupMeasure::GapLeast, gap(0.0)),
            (GroupMeasure::GapP01, gap(0.1)),
            (GroupMeasure::GapP1, gap(1.0)),
            (GroupMeasure::GapP50, gap(50.0)),
            (GroupMeasure::GapP99, gap(99.0)),
            (GroupMeasure::ThreeAtOnce, percent(self.at_once, self.counted)),
        ]
    }
}

/// The part of `some` in `all`.
fn percent(some: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| some as f64 / all as f64 * 100.0)
}

/// Looks at all flows that have a pace.
pub(super) struct Pacing {
    /// By flow; empty if none has a pace.
    flows: Vec<Flow>,
    /// By group, those that have one.
    groups: Vec<Option<Group>>,
    /// All of them together, as one flow.
    together: [(Window, Off); 3],
    /// In bytes a nanosecond.
    pace_of_all: f64,
}

impl Pacing {
    /// Of `flows` flows.
    pub(super) fn new(setup: &Setup, flows: usize) -> Self {
        let group = |kind| match kind {
            Kind::Backlogged { pace, .. } => Some(Group::new(pace)),
            _ => None,
        };
        let groups: Vec<Option<Group>> =
            setup.traffic.iter().map(|traffic| group(traffic.kind)).collect();
        let paces = groups.iter().zip(&setup.traffic).map(|(group, traffic)| {
            group.as_ref().map_or(0.0, |group| group.pace * f64::from(traffic.flows))
        });
        let pace_of_all: f64 = paces.sum();
        let any = groups.iter().any(Option::is_some);
        Self {
            flows: vec![Flow::default(); if any { flows } else { 0 }],
            groups,
            together: Default::default(),
            pace_of_all,
        }
    }

    /// A packet of `flow`, which is of `group`, came at `at`. In order of time.
    #[inline]
    pub(super) fn came(&mut self, at: Nanos, len: u32, flow: u32, group: u16) {
        let Some(flow) = self.flows.get_mut(flow as usize) else { return };
        let Some(Some(group)) = self.groups.get_mut(usize::from(group)) else { return };
        group.came(flow, at, len);
        for ((window, off), length) in self.together.iter_mut().zip(WINDOWS) {
            if let Some(percent) = window.came(at, len, self.pace_of_all, length) {
                off.add(percent);
            }
        }
    }

    /// The result for `group`.
    pub(super) fn of_group(&self, group: usize) -> BTreeMap<GroupMeasure, f64> {
        let Some(Some(group)) = self.groups.get(group) else { return BTreeMap::new() };
        let known = |(measure, value): (_, Option<f64>)| Some((measure, value?));
        group.measures().into_iter().filter_map(known).collect()
    }

    /// The result for all flows.
    pub(super) fn of_all(&self) -> BTreeMap<Measure, f64> {
        let mut off: [Off; 3] = Default::default();
        let (mut at_once, mut counted) = (0, 0);
        for group in self.groups.iter().flatten() {
            off.iter_mut().zip(&group.off).for_each(|(off, more)| off.merge(more));
            at_once += group.at_once;
            counted += group.counted;
        }
        let [ms1, ms10, ms100] = off;
        let [_, _, (_, together)] = self.together;
        let measures = [
            (Measure::Off1ms, ms1.mean()),
            (Measure::OffMost1ms, ms1.most()),
            (Measure::Off10ms, ms10.mean()),
            (Measure::Off100ms, ms100.mean()),
            (Measure::AllOff100ms, together.mean()),
            (Measure::ThreeAtOnce, percent(at_once, counted)),
        ];
        measures.into_iter().filter_map(|(measure, value)| Some((measure, value?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time of a packet, in nanoseconds.
    const PACKET: u64 = 100_000;
    const LEN: u32 = 1250;

    /// A group whose pace is a packet each [`PACKET`], with packets at `times`.
    fn group(times: impl IntoIterator<Item = u64>) -> Group {
        let mut group = Group::new(Rate::from_bits_per_sec(100_000_000));
        let mut flow = Flow::default();
        times.into_iter().for_each(|at| group.came(&mut flow, Nanos(at), LEN));
        group
    }

    #[test]
    fn packets_at_their_times_have_no_error() {
        let even = group((0..1001).map(|n| n * PACKET));
        assert_eq!(even.off.map(|off| off.windows), [100, 10, 1]);
        assert!(even.off[0].most < 1e-9);
        assert_eq!((even.at_once, even.counted), (0, 999));
        let gap = even.gaps.percentile_us(1.0).unwrap();
        assert!((gap - 200.0).abs() < 0.2, "{gap}");
    }

    #[test]
    fn a_flow_s_wrong_rate_is_its_error_in_every_window() {
        for (percent, packet) in [(1.0, PACKET * 100 / 101), (1.0, PACKET * 100 / 99)] {
            let off = group((0..2000).map(|n| n * packet)).off[0];
            assert!((off.mean().unwrap() - percent).abs() < 0.01, "{:?}", off.mean());
            assert!((off.most - percent).abs() < 0.01, "{}", off.most);
        }
    }

    #[test]
    fn pairs_are_no_bursts_but_three_at_once_are() {
        assert_eq!(group((0..1000).map(|n| n / 2 * 2 * PACKET)).at_once, 0);
        let threes = group((0..999).map(|n| n / 3 * 3 * PACKET));
        assert_eq!((threes.at_once, threes.counted), (333, 997));
    }

    #[test]
    fn windows_of_too_few_packets_do_not_count() {
        let slow = group((0..100).map(|n| n * 3 * PACKET));
        let mut slower = Group::new(Rate::from_bits_per_sec(30_000_000));
        let mut flow = Flow::default();
        (0..100).for_each(|n| slower.came(&mut flow, Nanos(n * 3 * PACKET), LEN));
        assert!(slow.off[0].mean().unwrap() > 60.0);
        assert_eq!(slower.off[0].mean(), None);
        assert!(slower.off[1].windows > 0);
    }
}
