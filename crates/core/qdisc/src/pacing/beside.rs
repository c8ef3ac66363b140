//! A second rate beside that of flows: of hosts where flows are connections, or the other way
//! round.
//!
//! A packet leaves at the latest of its times: by its flow's rate, and by the rate of what it
//! belongs to beside that. Each clock counts the packets that are accepted, in the order of their
//! arrival, so one that waits for its flow keeps its place in the other clock.
//!
//! Source: D. Shan et al. (ToN 2025), section II.B: of several policies, the largest time counts.
//!
//! Cost: a look-up in a table of 32 bytes a host or connection, of those that have sent lately.

use super::flows::Flows;
use super::stamp::{Moment, Terms};
use super::{Config, Key};
use narrows_packet::{PacketId, Packets};
use narrows_units::Nanos;

/// The clocks beside those of flows.
pub(super) struct Beside {
    key: Key,
    terms: Terms,
    clocks: Flows,
}

impl Beside {
    /// That of `config`, if it has one.
    pub(super) fn of(config: &Config) -> Option<Self> {
        let terms = Self::terms(config)?;
        Some(Self { key: config.key.other(), terms, clocks: Flows::new() })
    }

    fn terms(config: &Config) -> Option<Terms> {
        let rate = config.beside.filter(|rate| !rate.is_zero())?;
        Some(Terms::new(&Config { maxrate: Some(rate), ..*config }))
    }

    /// The earliest time of `id`.
    #[inline]
    pub(super) fn earliest(&mut self, packets: &Packets, id: PacketId, now: Nanos) -> Moment {
        self.clocks.get(self.key.of(packets, id), now).next()
    }

    /// `id`, of `len` bytes, is accepted at `now`.
    #[inline]
    pub(super) fn accept(&mut self, packets: &Packets, id: PacketId, len: u32, now: Nanos) {
        let clock = self.clocks.get(self.key.of(packets, id), now);
        clock.set_next(self.terms.after(clock.next().max(Moment::at(now)), len));
    }

    /// What a packet may owe at a rate that has risen: no longer than a frame takes.
    pub(super) fn bring_forward(&mut self, config: &Config, now: Nanos) {
        self.clocks.bring_idle_forward(self.terms.after(Moment::at(now), config.frame));
    }

    /// These clocks under `config`. Returns whether the rate has risen.
    pub(super) fn retune(this: &mut Option<Self>, config: &Config) -> bool {
        let Some(terms) = Self::terms(config) else {
            return this.take().is_some();
        };
        match this {
            Some(beside) => {
                let has_risen = terms.is_faster_than(&beside.terms);
                beside.terms = terms;
                has_risen
            }
            None => {
                *this = Self::of(config);
                false
            }
        }
    }

    /// The memory that it has allocated, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.clocks.memory()
    }
}
