//! The rate that a flow is held to: `maxrate`, or a packet's own where that is lower.
//!
//! A filter may give a packet a rate ([`narrows_packet::Paces`]); the packet's flow pays for it at
//! this rate when it leaves. So packets of one flow may have different rates, and a rate that
//! changes applies from the next packet on. If it becomes higher, its flows wait no longer than a
//! quantum takes from then on, as if `maxrate` had changed.
//!
//! Bytes become time with a multiplication: the time of a byte has 32 bits behind the point, and a
//! flow keeps 8 of those of its next time. So full frames at 10 Gbit/s are late by some
//! millionths, where whole nanoseconds would make it a thousandth.
//!
//! Cost: two multiplications a packet, no division.

use super::Config;
use super::flow::Flow;
use super::table::Table;
use narrows_packet::{Paces, PacketId, Packets};
use narrows_units::{ByteTime, Bytes, Nanos, Rate};

/// The most that lateness makes up for: half of a round.
const PART_OF_ROUND: u64 = 2;

/// Bits behind the point of the time of a byte ([`ByteTime::in_fractions`]), and those that a flow
/// keeps.
const POINT: u32 = 32;
const KEPT: u32 = 8;

/// A rate for a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pace {
    /// The time of a byte in 2^-32 ns, rounded up.
    per_byte: u64,
    /// Every packet is a round of its own.
    by_packet: bool,
    /// The time that a quantum takes.
    round: Nanos,
}

impl Pace {
    /// The pace of `config`, if it sets one.
    pub(super) fn of(config: &Config) -> Option<Self> {
        let rate = config.max_rate.filter(|_| config.pacing)?;
        let rate = rate.max(Rate::from_bits_per_sec(1));
        Some(Self::at(rate, ByteTime::of(rate), config))
    }

    /// The pace at `rate`, at which a byte takes `byte_time`.
    #[inline]
    fn at(rate: Rate, byte_time: ByteTime, config: &Config) -> Self {
        Self {
            per_byte: byte_time.in_fractions(),
            by_packet: rate <= config.low_rate_threshold,
            round: byte_time.rounded_up(config.quantum),
        }
    }

    /// The pace for `id`, if `all` is that of all flows.
    #[inline]
    pub(super) fn of_packet(
        all: Option<Self>,
        packets: &Packets,
        id: PacketId,
        config: &Config,
    ) -> Option<Self> {
        let Some(own) = packets.pace(id).filter(|_| config.pacing) else { return all };
        let own = Self::at(own.rate, own.byte_time, config);
        Some(all.filter(|all| all.per_byte >= own.per_byte).unwrap_or(own))
    }

    /// The time that a quantum takes.
    pub(super) fn round(&self) -> Nanos {
        self.round
    }

    /// `flow` has sent a packet of `len` bytes at `now` and pays for it.
    #[inline]
    pub(super) fn pay(&self, flow: &mut Flow, len: Bytes, now: Nanos) {
        let exact = u128::from(len.0) * u128::from(self.per_byte);
        let kept = exact.div_ceil(1 << (POINT - KEPT)) + u128::from(flow.fraction);
        let time = Nanos(u64::try_from(kept >> KEPT).unwrap_or(u64::MAX));
        flow.fraction = kept as u8;
        let round = if self.by_packet { time } else { self.round };
        let earliest = now.since(Nanos(round.0 / PART_OF_ROUND));
        flow.due = flow.due.max(earliest) + time;
        if self.by_packet {
            flow.credit = flow.credit.min(0);
        }
    }
}

/// Of each flow whose rate is higher than in `before`: at `now` it waits no longer than a quantum
/// takes. Returns whether there are any.
#[cold]
pub(super) fn bring_forward(
    table: &mut Table,
    all: Option<Pace>,
    before: &Paces,
    packets: &Packets,
    config: &Config,
    now: Nanos,
) -> bool {
    let mut any = false;
    for flow in table.flows.iter_mut() {
        let Some(head) = flow.queue.front() else { continue };
        if packets.paces().is_raised_since(before, packets.headers(head).pace) {
            let pace = Pace::of_packet(all, packets, head, config);
            flow.due = flow.due.min(pace.map_or(now, |pace| now + pace.round()));
            any = true;
        }
    }
    any
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn pace(low_rate_threshold: u64) -> Pace {
        let rate = |mbit: u64| Rate::from_bits_per_sec(mbit * 1_000_000);
        let config = Config {
            max_rate: Some(rate(8)),
            quantum: 3000,
            low_rate_threshold: rate(low_rate_threshold),
            ..Config::default()
        };
        Pace::of(&config).unwrap()
    }

    /// When a flow that could leave at 100 ms and pays for 1000 bytes at `now` is due.
    fn due(pace: Pace, now: u64) -> u64 {
        let mut flow = Flow { due: Nanos(100 * MS), ..Flow::new(0, 500) };
        pace.pay(&mut flow, Bytes(1000), Nanos(now));
        assert_eq!(flow.credit, if pace.by_packet { 0 } else { 500 });
        flow.due.0
    }

    #[test]
    fn a_short_delay_is_made_up_for_and_a_long_one_is_lost() {
        // A quantum takes 3 ms, a packet 1 ms.
        assert_eq!(due(pace(1), 100 * MS), 101 * MS);
        assert_eq!(due(pace(1), 101 * MS), 101 * MS);
        assert_eq!(due(pace(1), 105 * MS), 105 * MS - 3 * MS / 2 + MS);
        assert_eq!(due(pace(8), 100 * MS + MS / 2), 101 * MS);
        assert_eq!(due(pace(8), 105 * MS), 105 * MS - MS / 2 + MS);
    }

    #[test]
    fn a_packet_pays_for_its_length_to_a_part_of_a_nanosecond_and_never_too_little() {
        for (mbit, len) in [(10_000, 1514), (25_000, 61), (100_000, 60), (7, 1), (1, 1514)] {
            let max_rate = Some(Rate::from_bits_per_sec(mbit * 1_000_000));
            let pace = Pace::of(&Config { max_rate, ..Config::default() }).unwrap();
            let mut flow = Flow::new(0, 0);
            (0..100_000).for_each(|_| pace.pay(&mut flow, Bytes(len), Nanos::ZERO));
            let exact = 100_000.0 * len as f64 * 8e3 / mbit as f64;
            let late = flow.due.0 as f64 + f64::from(flow.fraction) / 256.0 - exact;
            assert!((0.0..100_000.0 / 128.0).contains(&late), "{mbit} Mbit/s, {len}: {late}");
        }
    }

    #[test]
    fn without_a_rate_or_without_pacing_there_is_no_pace() {
        assert_eq!(Pace::of(&Config::default()), None);
        let max_rate = Some(Rate::from_bits_per_sec(8));
        let config = Config { max_rate, pacing: false, ..Config::default() };
        assert_eq!(Pace::of(&config), None);
    }
}
