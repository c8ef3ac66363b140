//! Actions at work: one for all queues.
//!
//! The installer of a policy makes a [`Running`] of each action and keeps it while the action stays
//! the same, so that the filters around it can change.
//!
//! Cost: a packet that meets an action pays an atomic update for each counter, and a policer's
//! compare-and-swap. Queues that share an action share its cache line. Other packets pay nothing.
//!
//! Memory ordering: relaxed. Each counter stands by itself, and nothing is reached through it.

use crate::{Action, Control, Police, Random, Subject};
use narrows_units::Nanos;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Who keeps the rate of a [`Police`], over all queues.
pub trait Policer: Send + Sync {
    /// Whether a packet that is charged `cost` bytes conforms at `now`. If so, it is charged.
    fn conforms(&self, cost: u64, now: Nanos) -> bool;
}

/// See the module's documentation.
pub struct Running {
    action: Action,
    counters: Arc<Counters>,
    policer: Option<Box<dyn Policer>>,
}

/// What an action has done, over all queues.
#[derive(Default)]
#[repr(align(64))]
pub struct Counters {
    packets: AtomicU64,
    bytes: AtomicU64,
    drops: AtomicU64,
    overlimits: AtomicU64,
}

/// What an action has done, as it was at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ActionStats {
    /// Packets that met it.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Those of them that it dropped.
    pub drops: u64,
    /// Those that exceeded its rate,
    pub overlimits: u64,
    /// as they came from a source that is blocked,
    pub blocked: u64,
    /// or from a source that was not known while too many such came.
    pub newcomers: u64,
}

impl Running {
    /// `action` at work, which goes on counting in `counters`; `policer` keeps the rate of a
    /// [`Police`].
    pub fn new(action: Action, counters: Arc<Counters>, policer: Option<Box<dyn Policer>>) -> Self {
        Self { action, counters, policer }
    }

    /// What it does.
    pub fn action(&self) -> &Action {
        &self.action
    }

    /// What it counts in.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Acts on `subject` at `now`.
    pub(crate) fn act(&self, subject: &mut Subject<'_>, now: Nanos) -> Control {
        let len = subject.len();
        let before = self.counters.packets.fetch_add(1, Relaxed);
        self.counters.bytes.fetch_add(len, Relaxed);
        let control = match &self.action {
            Action::Gact { control, random } => match random {
                Some(random) if random.is_one(before) => random.control,
                _ => *control,
            },
            Action::Police(police) => self.police(police, len, now),
            Action::Skbedit { priority, mark, control } => {
                subject.priority = priority.unwrap_or(subject.priority);
                if let Some(mark) = mark {
                    subject.set_mark(subject.mark() & !mark.mask | mark.value & mark.mask);
                }
                *control
            }
        };
        if control == Control::Drop {
            self.counters.drops.fetch_add(1, Relaxed);
        }
        control
    }

    fn police(&self, police: &Police, len: u64, now: Nanos) -> Control {
        let cost = police.overhead.cost(narrows_units::Bytes(len)).0;
        let is_short = police.mtu.0 == 0 || cost <= police.mtu.0;
        let policer = self.policer.as_ref();
        if is_short && policer.is_none_or(|policer| policer.conforms(cost, now)) {
            return police.conform;
        }
        self.counters.overlimits.fetch_add(1, Relaxed);
        police.exceed
    }
}

impl ActionStats {
    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.drops += other.drops;
        self.overlimits += other.overlimits;
        self.blocked += other.blocked;
        self.newcomers += other.newcomers;
    }
}

impl Counters {
    /// What they say.
    pub fn stats(&self) -> ActionStats {
        ActionStats {
            packets: self.packets.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            drops: self.drops.load(Relaxed),
            overlimits: self.overlimits.load(Relaxed),
            ..ActionStats::default()
        }
    }
}

impl Random {
    /// Whether the packet before which `before` came is one of those.
    fn is_one(&self, before: u64) -> bool {
        let of = u64::from(self.of.max(1));
        if self.is_determined {
            return (before + 1).is_multiple_of(of);
        }
        // A fixed sequence without a pattern (splitmix64, Steele et al. 2014).
        let mut bits = before.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ bits >> 31).is_multiple_of(of)
    }
}

/// What it does; what it has counted changes all the time.
impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.action.fmt(f)
    }
}

/// Two are the same if they count in the same place and do the same.
impl PartialEq for Running {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.counters, &other.counters) && self.action == other.action
    }
}
