//! Checks that packets leave when they should.
//!
//! *Early* is how long before its earliest departure time a packet left.
//!
//! *Late* is how long a packet was refused after that time: from then, or from its insertion if
//! that was later, to the last poll that did not return it. The time from there to the next poll is
//! the clock's step, which no structure can avoid. So lateness is never overstated, and understated
//! by one step at most.

use anyhow::{Result, ensure};
use narrows_packet::PacketId;
use narrows_units::Nanos;

/// Sees every packet come and go.
pub(super) trait Witness {
    /// `id` of flow `flow` was put in at `now`, to leave at `at` or later.
    fn inserted(&mut self, id: PacketId, flow: u32, at: Nanos, now: Nanos);
    /// At `now` it was asked what may leave, and these might.
    fn asked(&mut self, left: &[PacketId], now: Nanos);
}

/// No witness, while time is measured.
impl Witness for () {
    #[inline(always)]
    fn inserted(&mut self, _: PacketId, _: u32, _: Nanos, _: Nanos) {}
    #[inline(always)]
    fn asked(&mut self, _: &[PacketId], _: Nanos) {}
}

/// The observations.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Findings {
    /// Packets a call that returned any.
    pub mean_batch: f64,
    /// By how much a packet left before its time, at most.
    pub max_early: Nanos,
    /// For how long a packet was refused after its time, at most.
    pub max_late: Nanos,
}

/// A packet that is in.
#[derive(Clone, Copy)]
struct Standing {
    flow: u32,
    at: Nanos,
    inserted: Nanos,
}

/// Writes down all that happens.
pub(super) struct Clerk {
    standing: Vec<Option<Standing>>,
    /// The due time of each flow's last departed packet.
    last: Vec<Nanos>,
    asked: Nanos,
    calls: u64,
    left: u64,
    /// Packets that left and were not in.
    unknown: u64,
    /// Packets that left behind one of their flow that was due later.
    overtaken: u64,
    max_early: Nanos,
    max_late: Nanos,
}

impl Clerk {
    pub(super) fn new(packets: u32, flows: u32) -> Self {
        Self {
            standing: vec![None; packets as usize],
            last: vec![Nanos::ZERO; flows as usize],
            asked: Nanos::ZERO,
            calls: 0,
            left: 0,
            unknown: 0,
            overtaken: 0,
            max_early: Nanos::ZERO,
            max_late: Nanos::ZERO,
        }
    }

    /// The observations so far.
    pub(super) fn findings(&self) -> Findings {
        Findings {
            mean_batch: self.left as f64 / self.calls as f64,
            max_early: self.max_early,
            max_late: self.max_late,
        }
    }

    /// Fails where a packet was lost, came twice or was overtaken, or is still in.
    pub(super) fn close(&self) -> Result<()> {
        let standing = self.standing.iter().flatten().count();
        ensure!(standing == 0, "{standing} packets never left");
        ensure!(self.unknown == 0, "{} packets left more than once", self.unknown);
        ensure!(self.overtaken == 0, "{} packets were overtaken in their flow", self.overtaken);
        Ok(())
    }
}

impl Witness for Clerk {
    fn inserted(&mut self, id: PacketId, flow: u32, at: Nanos, now: Nanos) {
        self.standing[id.0 as usize] = Some(Standing { flow, at, inserted: now });
    }

    fn asked(&mut self, left: &[PacketId], now: Nanos) {
        self.calls += u64::from(!left.is_empty());
        self.left += left.len() as u64;
        for id in left {
            let Some(packet) = self.standing[id.0 as usize].take() else {
                self.unknown += 1;
                continue;
            };
            self.max_early = self.max_early.max(packet.at.since(now));
            self.max_late = self.max_late.max(self.asked.since(packet.at.max(packet.inserted)));
            let last = &mut self.last[packet.flow as usize];
            self.overtaken += u64::from(packet.at < *last);
            *last = packet.at;
        }
        self.asked = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: PacketId = PacketId(0);

    fn after(ask: impl FnOnce(&mut Clerk)) -> Clerk {
        let mut clerk = Clerk::new(2, 1);
        clerk.inserted(ID, 0, Nanos(100), Nanos(10));
        ask(&mut clerk);
        clerk
    }

    #[test]
    fn a_packet_that_leaves_before_its_time_is_early() {
        let clerk = after(|clerk| clerk.asked(&[ID], Nanos(70)));
        assert_eq!(clerk.findings().max_early, Nanos(30));
        assert_eq!(clerk.findings().max_late, Nanos::ZERO);
    }

    #[test]
    fn a_refused_packet_is_late_and_an_unpolled_one_is_not() {
        let idle = after(|clerk| {
            clerk.asked(&[], Nanos(99));
            clerk.asked(&[ID], Nanos(500));
        });
        assert_eq!(idle.findings().max_late, Nanos::ZERO);
        let refused = after(|clerk| {
            clerk.asked(&[], Nanos(140));
            clerk.asked(&[ID], Nanos(500));
        });
        assert_eq!(refused.findings().max_late, Nanos(40));
        assert_eq!(refused.findings().max_early, Nanos::ZERO);
        let put_in_late = after(|clerk| {
            clerk.inserted(PacketId(1), 0, Nanos(5), Nanos(130));
            clerk.asked(&[ID], Nanos(140));
            clerk.asked(&[PacketId(1)], Nanos(150));
        });
        assert_eq!(put_in_late.findings().max_late, Nanos(10));
        assert!(put_in_late.close().unwrap_err().to_string().contains("1 packets were overtaken"));
    }

    #[test]
    fn only_calls_that_return_packets_make_a_batch() {
        let clerk = after(|clerk| {
            clerk.inserted(PacketId(1), 0, Nanos(100), Nanos(10));
            clerk.asked(&[], Nanos(20));
            clerk.asked(&[ID, PacketId(1)], Nanos(120));
        });
        assert_eq!(clerk.findings().mean_batch, 2.0);
        assert!(clerk.close().is_ok());
    }

    #[test]
    fn lost_and_duplicated_packets_are_noticed() {
        assert!(after(|_| ()).close().unwrap_err().to_string().contains("never left"));
        let twice = after(|clerk| clerk.asked(&[ID, ID], Nanos(120)));
        assert!(twice.close().unwrap_err().to_string().contains("more than once"));
    }
}
