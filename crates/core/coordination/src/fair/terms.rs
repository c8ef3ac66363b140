//! The figures that follow from a limit and the number of its meters.
//!
//! Nothing here needs tuning: each figure follows from the configuration and from a constant that
//! is a property of machines (how long reading a cache line takes, how late a timer is), not of
//! loads.

use crate::Limit;
use narrows_units::{Bytes, Nanos, Rate};

/// A full Ethernet frame as a wire carries it: 1500 + 14 + 4 + 20. The usual packet of shapers, and
/// so the unit of small figures.
const FULL_FRAME: Bytes = Bytes(1538);

/// A smaller burst counts as this: timers and batches are late by as much. In a window of 10 ms it
/// is 0.32 %.
const LEAST_BURST: Nanos = Nanos::from_micros(32);

/// For how long a meter buys in advance, and keeps what it bought. At rates at which a full frame
/// takes longer, packets are paid for one by one: few enough not to contend.
const LEASE: Nanos = Nanos::from_micros(16);

/// Credit that is left to queues within their share. Also how far the limit can be
/// exceeded when queues wake up together, which is why it is not more. Chosen by measurement:
/// with a third of it, shares of 32 queues differ by tens of percent; with twice as much they are
/// no fairer, and the overshoot is twice as large (`narrows sim mqcake-induced`,
/// `mqcake-imbalance`).
const CUSHION: Nanos = Nanos::from_micros(1);

/// This part of the cushion is the reserve: room for a short packet at once, and for a full frame
/// after half its time. A whole one would leave nothing of a burst of three frames to cores that
/// are late (`narrows sim cake-light`, `cake-call`, `cake-hosts-far`).
const RESERVE_PART: u64 = 2;

/// Time between two divisions for each meter: reading its line takes 50 to 200 ns if another core
/// has written it, so the division takes 3 to 10 % of one core in total.
const SYNC_TIME_PER_METER: Nanos = Nanos::from_micros(2);

/// Dividing more often than this gains nothing: a core is late by as much.
const LEAST_SYNC_TIME: Nanos = Nanos::from_micros(20);

/// Otherwise a new queue would count only after seconds at very low rates.
const LONGEST_SYNC_TIME: Nanos = Nanos::from_millis(10);

/// The least time before a queue asks again for surplus.
const LEAST_RETRY: Nanos = Nanos::from_micros(1);
const LONGEST_RETRY: Nanos = Nanos::from_micros(20);

/// See [`Terms::sample`].
const SAMPLE_FRAMES: u64 = 8;

/// The figures of a limit that all its meters use: bytes, times and rates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Terms {
    pub(super) rate: Rate,
    /// The most credit that the ledger keeps, in time at the rate.
    pub(super) depth: Nanos,
    /// Credit that only queues within their share may use.
    pub(super) cushion: Nanos,
    /// Extra credit reserved for packets that do not yield, if some do. Zero where meters buy in
    /// advance: an urgent packet waits no longer than a lease there.
    pub(super) reserve: Nanos,
    /// For how long a meter buys in advance; zero if it pays for each packet.
    pub(super) lease: Nanos,
    /// Between two divisions.
    pub(super) sync_time: Nanos,
    /// The time before asking again for surplus.
    pub(super) retry: Nanos,
    /// The least credit of a share: a full frame and one behind it.
    pub(super) least_allowance: Bytes,
    /// The bytes that a queue must send, in time, before its rate is meaningful.
    pub(super) sample: Bytes,
}

impl Terms {
    pub(super) fn new(limit: Limit, meters: usize, sync_time: Option<Nanos>) -> Self {
        let meters = (meters as u64).max(1);
        let rate = limit.rate;
        let frame = Bytes(FULL_FRAME.0.min(limit.burst.0));
        let leased = rate.bytes_in(LEASE);
        let leases = leased >= FULL_FRAME;
        let burst = burst(limit, frame, leases);
        let (lease, leased) = if leases { (LEASE, leased) } else { (Nanos::ZERO, Bytes::ZERO) };
        // All unused leases are part of the burst.
        let depth = burst - leased;
        // A packet beyond a share needs the cushion, its own cost, and some time for lateness.
        let spare = Bytes(depth.0 - frame.0);
        let cushion = Bytes(rate.bytes_in(CUSHION).0.max(frame.0).min(spare.0 / 2));
        let late = rate.time_for(Bytes(spare.0 - cushion.0));
        let round = Nanos(rate.time_for(frame).0.saturating_mul(meters)).min(LONGEST_SYNC_TIME);
        let derived = round.max(LEAST_SYNC_TIME).max(Nanos(SYNC_TIME_PER_METER.0 * meters));
        let (depth, cushion) = (rate.time_for(depth), rate.time_for(cushion));
        let reserve = if leases { Nanos::ZERO } else { Nanos(cushion.0 / RESERVE_PART) };
        Self {
            rate,
            depth,
            cushion,
            reserve,
            lease,
            sync_time: sync_time.unwrap_or(derived),
            retry: Nanos(late.0 / 2).clamp(LEAST_RETRY, LONGEST_RETRY),
            least_allowance: Bytes(frame.0 * 2),
            sample: Bytes(frame.0 * SAMPLE_FRAMES),
        }
    }
}

/// The burst in force: the configured one, but at least what clocks can keep, with room for the
/// cushion and a packet while all others hold leases.
fn burst(limit: Limit, frame: Bytes, leases: bool) -> Bytes {
    let frames = if leases { 6 } else { 3 };
    limit.burst.max(limit.rate.bytes_in(LEAST_BURST)).max(Bytes(frame.0 * frames))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn terms(mbit: u64, burst: u64, meters: usize) -> Terms {
        let rate = Rate::from_bits_per_sec(mbit * 1_000_000);
        let limit = Limit { rate, burst: Bytes(burst), peak: None, backlog: Bytes(1 << 20) };
        Terms::new(limit, meters, None)
    }

    #[test]
    fn leases_and_the_ledger_s_depth_add_up_to_the_burst() {
        for (mbit, burst, meters) in [(15_000, 1_514, 40), (1_000, 100_000, 4), (400_000, 1, 64)] {
            let terms = terms(mbit, burst, meters);
            let all = terms.rate.bytes_in(terms.depth + terms.lease).0;
            let least = terms.rate.bytes_in(LEAST_BURST).0;
            assert!(all <= burst.max(least).max(6 * FULL_FRAME.0) + 1_000, "{mbit}: {terms:?}");
            assert!(terms.lease == LEASE && terms.depth >= LEASE, "{mbit}: {terms:?}");
        }
    }

    #[test]
    fn at_low_rates_a_queue_pays_packet_by_packet() {
        let terms = terms(200, 1_514, 4);
        assert_eq!(terms.lease, Nanos::ZERO);
        assert_eq!(terms.cushion, terms.rate.time_for(Bytes(1_514)));
        assert_eq!(terms.depth, terms.rate.time_for(Bytes(4_542)));
    }

    #[test]
    fn the_sync_time_follows_queues_and_rate() {
        assert_eq!(terms(100_000, 1_514, 4).sync_time, LEAST_SYNC_TIME);
        assert_eq!(terms(100_000, 1_514, 64).sync_time, Nanos::from_micros(128));
        assert_eq!(terms(200, 1_538, 4).sync_time, Nanos(61_520 * 4));
        assert_eq!(terms(1, 1_514, 4).sync_time, LONGEST_SYNC_TIME);
    }

    #[test]
    fn any_limit_has_terms() {
        for mbit in [0, 1, u64::MAX / 1_000_000] {
            for burst in [0, 1, 1_514, u64::MAX / 8] {
                for meters in [1, 128] {
                    terms(mbit, burst, meters);
                }
            }
        }
    }
}
