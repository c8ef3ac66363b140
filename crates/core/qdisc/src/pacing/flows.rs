//! The state of flows: when the next packet may leave, and how many are queued.
//!
//! A hash table with open addressing: half a cache line for each flow, in the table itself, so that
//! a packet touches one line however many flows there are. Keys are hashes already; they are
//! multiplied once more since their lower bits may be what spreads packets over queues.
//!
//! *Bounded steps.* A table that becomes full is replaced by another one, of twice the size if most
//! of a sample is still needed. First the new one is allocated, then flows move, both in steps of a
//! few for each new flow; so no packet waits for millions of others.
//!
//! *Forgetting.* A flow without packets whose next one might leave at once need not be remembered.
//! Such flows are left behind when others move; nothing visits them in between. If a low rate would
//! keep flows for long, those without packets are forgotten earlier, beyond a bound
//! ([`OWING_MAX`]); otherwise a sender with ever new addresses would take all memory.
//!
//! Cost: an expected 1.5 lookups per packet, in one or two lines. Memory: 32 bytes per slot, of
//! which up to three quarters are taken; it is not freed.
//!
//! Non-goals: the meaning of the figures (`pacer.rs`).

use super::stamp::Moment;
use narrows_cpu::prefetch;
use narrows_units::Nanos;

/// The initial number of places: a page half full.
const LEAST: usize = 64;
/// Places of the new table that are made for each flow that appears.
const MAKE: usize = 16;
/// Places of the old table that are emptied for each flow that appears.
const MOVE: usize = 8;
/// Places of a table that is made larger only for flows with packets,
const PLACES_MAX: usize = 1 << 20;
/// and the part of them for flows without.
const OWING_MAX: usize = 4;
/// The number of places that are sampled to estimate how many flows are still needed.
const SAMPLE: usize = 64;
/// 2^32 divided by the golden ratio.
const SPREAD: u32 = 0x9e37_79b1;

/// A flow.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub(super) struct Flow {
    /// When the next packet may leave: whole nanoseconds,
    next: u64,
    /// When the last one leaves.
    pub(super) slot: Nanos,
    /// and 2^-32 of them.
    fraction: u32,
    /// Bytes that leave then.
    pub(super) bytes: u32,
    key: u32,
    /// The number of queued packets plus one, or another state of the place.
    state: u32,
}

/// Never used.
const VACANT: u32 = 0;
/// Its flow has moved to the new table.
const MOVED: u32 = u32::MAX;

impl Flow {
    const NOBODY: Self =
        Self { next: 0, slot: Nanos::ZERO, fraction: 0, bytes: 0, key: 0, state: VACANT };

    const fn new(key: u32) -> Self {
        Self { key, state: 1, ..Self::NOBODY }
    }

    /// When the next packet may leave.
    #[inline]
    pub(super) const fn next(&self) -> Moment {
        Moment { nanos: self.next, fraction: self.fraction }
    }

    #[inline]
    pub(super) const fn set_next(&mut self, next: Moment) {
        Moment { nanos: self.next, fraction: self.fraction } = next;
    }

    /// Its next packet may leave at `next`, if not before.
    pub(super) fn bring_forward(&mut self, next: Moment) {
        self.set_next(self.next().min(next));
    }

    /// Packets that are queued.
    #[inline]
    pub(super) const fn queued(&self) -> u32 {
        self.state - 1
    }

    /// One packet more is queued. Returns whether it is the first one; then call [`Flows::stands`].
    #[inline]
    pub(super) const fn push(&mut self) -> bool {
        self.state += 1;
        self.state == 2
    }

    /// Whether it has to be remembered.
    const fn is_needed(&self, now: Nanos) -> bool {
        self.queued() > 0 || self.next >= now.0
    }

    const fn is_there(&self) -> bool {
        self.state != VACANT && self.state != MOVED
    }
}

/// Places for flows, a power of two of them, or fewer while they are being made.
struct Table {
    places: Vec<Flow>,
    /// How many bits of a spread key are not used.
    shift: u32,
}

impl Table {
    /// A table of `size` slots, all uninitialised.
    fn with_room(size: usize) -> Self {
        Self { places: Vec::with_capacity(size), shift: u32::BITS - size.ilog2() }
    }

    fn new(size: usize) -> Self {
        let mut table = Self::with_room(size);
        table.places.resize(size, Flow::NOBODY);
        table
    }

    const NONE: Self = Self { places: Vec::new(), shift: 0 };

    #[inline]
    fn home(&self, key: u32) -> usize {
        (key.wrapping_mul(SPREAD) >> self.shift) as usize
    }

    /// The place of the flow `key`, or else a free one for it.
    #[inline]
    fn find(&self, key: u32) -> Result<usize, usize> {
        let last = self.places.len() - 1;
        let mut at = self.home(key) & last;
        loop {
            let flow = &self.places[at];
            if flow.state == VACANT {
                return Err(at);
            }
            if flow.key == key && flow.state != MOVED {
                return Ok(at);
            }
            at = (at + 1) & last;
        }
    }
}

/// The phase that the table is in.
enum Stage {
    /// Nothing.
    Steady,
    /// Its successor is being made, with this many places.
    Making(Table, usize),
    /// Flows move in from the one before, all up to this place have.
    Moving(Table, usize),
}

/// All flows that are remembered.
pub(super) struct Flows {
    table: Table,
    stage: Stage,
    /// Flows in the table.
    taken: usize,
    /// Flows that are remembered, here and in the table before.
    remembered: u32,
    /// Those with packets.
    standing: u32,
}

impl Flows {
    pub(super) fn new() -> Self {
        let table = Table::new(LEAST);
        Self { table, stage: Stage::Steady, taken: 0, remembered: 0, standing: 0 }
    }

    /// The flow `key`, which is new where nothing is known of it.
    #[inline]
    pub(super) fn get(&mut self, key: u32, now: Nanos) -> &mut Flow {
        let at = match self.table.find(key) {
            Ok(at) => at,
            Err(_) => self.add(key, now),
        };
        &mut self.table.places[at]
    }

    /// Flows without packets may send at `next`, if not before.
    pub(super) fn bring_idle_forward(&mut self, next: Moment) {
        let before = match &mut self.stage {
            Stage::Moving(before, _) => before.places.as_mut_slice(),
            _ => &mut [],
        };
        let all = self.table.places.iter_mut().chain(before);
        let idle = all.filter(|flow| flow.is_there() && flow.queued() == 0);
        idle.for_each(|flow| flow.bring_forward(next));
    }

    /// A flow has its first packet, as [`Flow::push`] returned.
    #[inline]
    pub(super) fn stands(&mut self, first: bool) {
        self.standing += u32::from(first);
    }

    /// A packet of the flow `key` is queued no longer.
    #[inline]
    pub(super) fn left(&mut self, key: u32) {
        let flow = match (self.table.find(key), &mut self.stage) {
            (Ok(at), _) => &mut self.table.places[at],
            (Err(_), Stage::Moving(old, _)) => match old.find(key) {
                Ok(at) => &mut old.places[at],
                Err(_) => return,
            },
            (Err(_), _) => return,
        };
        debug_assert!(flow.queued() > 0, "{flow:?}");
        flow.state -= 1;
        self.standing -= u32::from(flow.state == 1);
    }

    /// Prefetches the place of the flow `key`.
    #[inline]
    pub(super) fn prefetch(&self, key: u32) {
        prefetch(&self.table.places[self.table.home(key)]);
    }

    /// Flows that are remembered.
    pub(super) const fn remembered(&self) -> u32 {
        self.remembered
    }

    /// Those with packets.
    pub(super) const fn standing(&self) -> u32 {
        self.standing
    }

    /// The memory that it has allocated, in bytes.
    pub(super) fn memory(&self) -> usize {
        let other = match &self.stage {
            Stage::Steady => 0,
            Stage::Making(other, _) | Stage::Moving(other, _) => other.places.capacity(),
        };
        (self.table.places.capacity() + other) * size_of::<Flow>()
    }

    /// Where the flow `key` is from now on, which was not in the table.
    #[cold]
    #[inline(never)]
    fn add(&mut self, key: u32, now: Nanos) -> usize {
        self.proceed(now);
        let at = match self.table.find(key) {
            Ok(at) => return at,
            Err(at) => at,
        };
        let known = match &mut self.stage {
            Stage::Moving(old, _) => old.find(key).ok().map(|at| {
                let flow = old.places[at];
                old.places[at].state = MOVED;
                flow
            }),
            _ => None,
        };
        self.remembered += u32::from(known.is_none());
        self.table.places[at] = known.unwrap_or(Flow::new(key));
        self.taken += 1;
        at
    }

    /// A step on the way to another table.
    fn proceed(&mut self, now: Nanos) {
        let size = self.table.places.len();
        match &mut self.stage {
            Stage::Steady if self.taken >= size / 2 => {
                let size = self.next_size(now);
                self.stage = Stage::Making(Table::with_room(size), size);
            }
            Stage::Steady => {}
            Stage::Making(new, wanted) if new.places.len() < *wanted => {
                let more = (new.places.len() + MAKE).min(*wanted);
                new.places.resize(more, Flow::NOBODY);
            }
            Stage::Making(new, _) => {
                let new = std::mem::replace(new, Table::NONE);
                let old = std::mem::replace(&mut self.table, new);
                self.taken = 0;
                self.stage = Stage::Moving(old, 0);
            }
            Stage::Moving(old, done) => {
                let end = (*done + MOVE).min(old.places.len());
                for at in *done..end {
                    let flow = old.places[at];
                    if !flow.is_there() {
                        continue;
                    }
                    old.places[at].state = MOVED;
                    let has_room = self.taken < self.table.places.len().max(PLACES_MAX) / OWING_MAX;
                    if !flow.is_needed(now) || flow.queued() == 0 && !has_room {
                        self.remembered -= 1;
                        continue;
                    }
                    if let Err(free) = self.table.find(flow.key) {
                        self.table.places[free] = flow;
                        self.taken += 1;
                    }
                }
                *done = end;
                if end == old.places.len() {
                    self.stage = Stage::Steady;
                }
            }
        }
    }

    /// The size of the next table: the same, if most flows of a sample will be left behind.
    fn next_size(&self, now: Nanos) -> usize {
        let size = self.table.places.len();
        if size >= PLACES_MAX && self.standing as usize <= size / OWING_MAX {
            return size;
        }
        let sample = self.table.places.iter().take(SAMPLE).filter(|flow| flow.is_there());
        let (needed, all) = sample.fold((0, 0), |(needed, all), flow| {
            (needed + usize::from(flow.is_needed(now)), all + 1)
        });
        // The estimate may be too low, but there is room for one mistake only.
        let has_room = self.taken * 8 <= size * 5;
        if has_room && needed * 3 <= all { size } else { size * 2 }
    }
}

#[cfg(test)]
mod tests;
