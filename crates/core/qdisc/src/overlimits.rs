//! How often something was queued and might not leave: `overlimits`, counted as Linux does.
//!
//! Linux asks a qdisc for packets when one comes in (`qdisc_run`), when the time has come for which
//! the qdisc has asked (`qdisc_watchdog`), and again after each packet that it got. While packets
//! wait, each arrival and each departure therefore ends with one refusal.
//!
//! A worker asks when it suits it: early, late, for many packets at once. So this does not count
//! its calls, but how often Linux would have been refused in between, derived from arrivals and
//! departures. Asking early, with nothing new, counts nothing.
//!
//! *Where it differs.* An arrival while packets wait counts once, also if a late worker sends it
//! with those before it. Several single packets that a parent takes at the same time count as one.
//! On a device with several queues Linux asks a qdisc at the root twice after each packet; this
//! counts once, as below `mq`.
//!
//! Cost: some twenty instructions each time that a qdisc is empty or has to wait; none a packet.

use crate::Stats;

/// The state at the last call.
#[derive(Default)]
pub(crate) struct Overlimits {
    /// Packets that had come, those dropped included.
    came: u64,
    /// Packets that had left.
    left: u64,
    /// Whether something waited for its time.
    waits: bool,
}

impl Overlimits {
    /// The qdisc, with `queued` packets left, must wait: counts in `stats`.
    #[inline]
    pub(crate) fn refused(&mut self, stats: &mut Stats, queued: u32) {
        let (came, left) = self.since(stats, queued);
        stats.overlimits += if self.waits {
            came + left
        } else {
            // The first to come left at once.
            came.saturating_sub(left).max(1)
        };
        self.waits = true;
    }

    /// The qdisc does not have to wait: it is empty, or its parent has taken a packet and decides
    /// when to ask for the next one.
    #[inline]
    pub(crate) fn passed(&mut self, stats: &mut Stats, queued: u32) {
        let (came, left) = self.since(stats, queued);
        if self.waits {
            // Nothing is refused after the last departure.
            stats.overlimits += (came + left).saturating_sub(1);
            self.waits = false;
        }
    }

    /// A packet of another qdisc is queued.
    pub(crate) fn adopted(&mut self) {
        self.came += 1;
    }

    /// How many packets have arrived and left since the last call.
    #[inline]
    fn since(&mut self, stats: &Stats, queued: u32) -> (u64, u64) {
        let left = stats.sent_packets;
        let came = left + stats.drops + u64::from(queued);
        // Packets that were taken out to be queued elsewhere have neither left nor been dropped.
        let since = (came.saturating_sub(self.came), left - self.left);
        (self.came, self.left) = (came, left);
        since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A qdisc with its figures.
    #[derive(Default)]
    struct Bench {
        overlimits: Overlimits,
        stats: Stats,
        queued: u32,
    }

    impl Bench {
        fn come(&mut self, packets: u32) -> &mut Self {
            self.queued += packets;
            self
        }

        fn dropped(&mut self, packets: u32) -> &mut Self {
            self.stats.drops += u64::from(packets);
            self
        }

        fn leave(&mut self, packets: u32) -> &mut Self {
            self.queued -= packets;
            self.stats.sent_packets += u64::from(packets);
            self
        }

        /// The worker asks, and has taken all that may leave.
        fn asked(&mut self) -> u64 {
            if self.queued == 0 {
                self.overlimits.passed(&mut self.stats, self.queued);
            } else {
                self.overlimits.refused(&mut self.stats, self.queued);
            }
            self.stats.overlimits
        }
    }

    #[test]
    fn packets_that_leave_at_once_count_nothing() {
        let mut bench = Bench::default();
        assert_eq!(bench.come(1).leave(1).asked(), 0);
        assert_eq!(bench.come(9).leave(9).asked(), 0);
    }

    #[test]
    fn each_arrival_that_has_to_wait_counts() {
        let mut bench = Bench::default();
        assert_eq!(bench.come(5).leave(2).asked(), 3);
        assert_eq!(bench.come(1).asked(), 4);
        assert_eq!(bench.dropped(6).asked(), 10, "those that are dropped, too");
    }

    #[test]
    fn each_departure_counts_that_leaves_something_waiting() {
        let mut bench = Bench::default();
        assert_eq!(bench.come(3).asked(), 3);
        assert_eq!(bench.leave(1).asked(), 4);
        assert_eq!(bench.leave(1).asked(), 5);
        assert_eq!(bench.leave(1).asked(), 5, "it was the last");
    }

    #[test]
    fn asking_with_nothing_new_counts_nothing() {
        let mut bench = Bench::default();
        assert_eq!(bench.come(1).asked(), 1);
        assert_eq!(bench.asked(), 1);
        assert_eq!(bench.leave(1).asked(), 1);
        assert_eq!(bench.asked(), 1);
    }

    #[test]
    fn a_late_worker_counts_as_much_as_a_punctual_one() {
        let mut late = Bench::default();
        late.come(5).asked();
        let mut punctual = Bench::default();
        punctual.come(5).asked();
        (0..3).for_each(|_| assert!(punctual.leave(1).asked() > 5));
        assert_eq!(late.leave(3).asked(), punctual.stats.overlimits);
    }

    #[test]
    fn packets_of_another_qdisc_do_not_count_as_arrivals() {
        let mut bench = Bench::default();
        bench.come(100);
        (0..100).for_each(|_| bench.overlimits.adopted());
        assert_eq!(bench.asked(), 1);
    }

    #[test]
    fn while_a_parent_takes_single_packets_arrivals_count_nothing() {
        let mut bench = Bench::default();
        bench.come(2);
        for _ in 0..9 {
            bench.come(1).leave(1);
            bench.overlimits.passed(&mut bench.stats, bench.queued);
        }
        assert_eq!(bench.stats.overlimits, 0);
        assert_eq!(bench.asked(), 1);
    }
}
