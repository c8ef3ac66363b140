//! Through which ports packets leave that have lately arrived at one.
//!
//! In a router what arrives next may leave through any port, so a worker listens to all, and wakes
//! up for each batch that a driver receives. While a queue waits for its rate that is a waste:
//! another wake-up is due soon, and takes in whatever has come. Where all that lately arrived at a
//! port waits like that, what comes next most likely has to wait, too. Otherwise a packet that
//! could leave at once would be late because of others' limit.
//!
//! Non-goals: classes of a queue, some of which may have to wait and others not; on a wire neither.

use narrows_forwarding::{PortId, PortSet};
use narrows_units::Nanos;

/// How long a packet counts at least, and half of how long it counts at most.
const SPAN: Nanos = Nanos::from_millis(1);

/// The ports through which packets leave that arrived at a port.
#[derive(Clone, Copy, Default)]
pub(crate) struct Lately {
    /// When the present span began,
    begun: Nanos,
    /// its ports,
    now: PortSet,
    /// and those of the span before.
    before: PortSet,
}

impl Lately {
    /// Packets that arrived at `now` leave through `egress`.
    #[inline]
    pub(crate) fn leave_through(&mut self, egress: PortId, now: Nanos) {
        self.follow(now);
        self.now.insert(egress);
    }

    /// Whether packets have arrived lately, as of `now`, and all of them leave through `ports`.
    #[inline]
    pub(crate) fn all_leave_through(&mut self, ports: PortSet, now: Nanos) -> bool {
        self.follow(now);
        let all = self.now.and(self.before);
        all != PortSet::NONE && all.is_within(ports)
    }

    #[inline]
    fn follow(&mut self, now: Nanos) {
        let age = now.since(self.begun);
        if age >= SPAN {
            self.before = if age < SPAN + SPAN { self.now } else { PortSet::NONE };
            self.now = PortSet::NONE;
            self.begun = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Nanos = Nanos::from_secs(1);

    fn only(port: PortId) -> PortSet {
        let mut set = PortSet::NONE;
        set.insert(port);
        set
    }

    #[test]
    fn what_has_never_arrived_or_long_ago_does_not_count() {
        let mut lately = Lately::default();
        assert!(!lately.all_leave_through(PortSet::ALL, START));
        lately.leave_through(PortId::FIRST, START);
        assert!(lately.all_leave_through(PortSet::ALL, START));
        assert!(lately.all_leave_through(PortSet::ALL, START + SPAN));
        assert!(!lately.all_leave_through(PortSet::ALL, START + SPAN + SPAN));
        lately.leave_through(PortId::FIRST, START + Nanos::from_secs(1));
        assert!(!lately.all_leave_through(PortSet::ALL, START + Nanos::from_secs(2)));
    }

    #[test]
    fn one_packet_through_another_port_counts_for_a_span() {
        let mut lately = Lately::default();
        lately.leave_through(PortId::FIRST, START);
        lately.leave_through(PortId::SECOND, START);
        for micros in (0..1_000).step_by(100) {
            let now = START + Nanos::from_micros(micros);
            lately.leave_through(PortId::FIRST, now);
            assert!(!lately.all_leave_through(only(PortId::FIRST), now), "{micros}");
        }
        let now = START + SPAN + SPAN;
        lately.leave_through(PortId::FIRST, now);
        assert!(lately.all_leave_through(only(PortId::FIRST), now + SPAN));
    }
}
