//! `carousel`: a timing wheel that is searched slot by slot.
//!
//! Source: A. Saeed et al., "Carousel: Scalable Traffic Shaping at End Hosts" (SIGCOMM 2017); as a
//! peer in D. Shan et al. (ToN 2025), sections II.B and VI.
//!
//! Where ours differs: slots that were scanned once without a new insertion are not scanned again,
//! an empty wheel is not scanned at all, and the caller is told when to ask again and need not ask
//! at every slot.
//!
//! Cost: O(1) on arrival: the packet and its slot. At departure the same, and the four bytes of
//! every slot that has passed since the last one, sixteen per cache line: cheap if slots are dense,
//! expensive if not. After a pause with a packet waiting far ahead the whole wheel may be scanned,
//! once.
//!
//! Non-goals: speed with sparse slots; that is [`Eiffel`](super::Eiffel).

use super::wheel::{Search, Wheel};

/// A single timing wheel, searched slot by slot.
pub type Carousel = Wheel<Scan>;

/// Looks at one slot after the other, and so needs no memory.
pub struct Scan;

impl Search for Scan {
    fn new(_: usize) -> Self {
        Self
    }

    #[inline]
    fn filled(&mut self, _: usize) {}

    #[inline]
    fn emptied(&mut self, _: usize) {}

    #[inline]
    fn search(&self, slots: &[u32], from: u64, until: u64) -> u64 {
        let start = from as usize & (slots.len() - 1);
        let (behind, ahead) = slots.split_at(start);
        let wanted = usize::try_from(until - from).unwrap_or(usize::MAX);
        let looked_at = ahead.iter().chain(behind).take(wanted);
        let passed = looked_at.take_while(|&&top| top == 0).count();
        from + passed as u64
    }

    fn memory(&self) -> usize {
        0
    }
}
