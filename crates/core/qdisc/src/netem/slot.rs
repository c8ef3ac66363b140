//! Slots: packets gather, and leave together when their time has come.

use super::chance::{Chances, Draw};
use super::config::{Distribution, Probability, SlotDelay, Slotting};
use narrows_units::Nanos;

/// The slots of one instance.
#[derive(Default)]
pub(super) struct Slots {
    /// When the present slot began, or the next one begins.
    begins: Nanos,
    packets_left: u64,
    bytes_left: u64,
    draw: Draw,
    is_running: bool,
}

impl Slots {
    /// When a packet that arrived at `arrived` may leave, for a call at `now`.
    pub(super) fn open(
        &mut self,
        slotting: &Slotting,
        arrived: Nanos,
        now: Nanos,
        chances: &mut Chances,
    ) -> Nanos {
        if !self.is_running {
            self.is_running = true;
            self.begin(slotting, now);
        }
        if self.begins < arrived {
            // A packet that arrived after the slot began leaves in the next one.
            self.advance(slotting, now, chances);
        }
        self.begins.max(arrived)
    }

    /// A packet of `len` bytes leaves at `now`.
    pub(super) fn leaves(
        &mut self,
        slotting: &Slotting,
        len: u32,
        now: Nanos,
        chances: &mut Chances,
    ) {
        self.packets_left -= 1;
        self.bytes_left = self.bytes_left.saturating_sub(u64::from(len));
        if self.packets_left == 0 || self.bytes_left == 0 {
            self.advance(slotting, now, chances);
        }
    }

    fn advance(&mut self, slotting: &Slotting, now: Nanos, chances: &mut Chances) {
        let (mean, jitter, distribution) = match slotting.delay {
            SlotDelay::Between(from, to) => {
                let half = Nanos((to - from).0 / 2);
                (from + half, half, Distribution::Uniform)
            }
            SlotDelay::Spread(mean, jitter, distribution) => (mean, jitter, distribution),
        };
        let pause = self.draw.time(mean, jitter, distribution, Probability::NEVER, chances);
        self.begin(slotting, now + pause);
    }

    fn begin(&mut self, slotting: &Slotting, at: Nanos) {
        let or_any = |limit: u32| if limit == 0 { u64::MAX } else { u64::from(limit) };
        self.begins = at;
        self.packets_left = or_any(slotting.packets);
        self.bytes_left = or_any(slotting.bytes);
    }
}
