//! Running actions: one instance for all queues.
//!
//! When a policy is installed, each action becomes a [`Running`]. It stays while the action is
//! unchanged, so filters that refer to it can change.
//!
//! Cost: a packet that meets an action pays one atomic update per counter, and for a policer one
//! compare-and-swap. Queues that share an action share its cache line. Other packets pay nothing.
//!
//! Memory ordering: relaxed. Each counter is independent, and none of them publishes other data.

use crate::{Action, ActionId, Control, PaceRate, Police, Random, Subject};
use narrows_units::Nanos;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Keeps the rate of a [`Police`] action, over all queues.
pub trait Policer: Send + Sync {
    /// Whether a packet of `cost` bytes conforms at `now`. If so, it is charged.
    fn conforms(&self, cost: u64, now: Nanos) -> bool;
}

/// A running action: its counters and its policer, which all queues share.
pub struct Running {
    action: Action,
    counters: Arc<Counters>,
    policer: Option<Box<dyn Policer>>,
}

/// The counters of an action, over all queues.
#[derive(Default)]
#[repr(align(64))]
pub struct Counters {
    packets: AtomicU64,
    bytes: AtomicU64,
    drops: AtomicU64,
    overlimits: AtomicU64,
}

/// A snapshot of an action's counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ActionStats {
    /// Packets that met the action.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets that it dropped.
    pub drops: u64,
    /// Packets above its rate,
    pub overlimits: u64,
    /// because their source is blocked,
    pub blocked: u64,
    /// or because their source was unknown and too many unknown sources arrived.
    pub newcomers: u64,
}

impl Running {
    /// Runs `action`. It continues the counts in `counters`; `policer` keeps the rate of a
    /// [`Police`].
    pub fn new(action: Action, counters: Arc<Counters>, policer: Option<Box<dyn Policer>>) -> Self {
        Self { action, counters, policer }
    }

    /// The parameters.
    pub fn action(&self) -> &Action {
        &self.action
    }

    /// The counters.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Applies the action, whose name is `id`, to `subject` at `now`.
    pub(crate) fn act(&self, id: ActionId, subject: &mut Subject<'_>, now: Nanos) -> Control {
        let len = subject.len();
        let before = self.counters.packets.fetch_add(1, Relaxed);
        self.counters.bytes.fetch_add(len, Relaxed);
        let control = match &self.action {
            Action::Gact { random: Some(random), .. } if random.is_one(before) => random.control,
            Action::Police(police) => self.police(police, len, now),
            _ => self.apply(id, subject),
        };
        if control == Control::Drop {
            self.counters.drops.fetch_add(1, Relaxed);
        }
        control
    }

    /// What the action makes of `subject` where nothing is counted: no packet exceeds a rate, or is
    /// selected at random.
    pub(crate) fn apply(&self, id: ActionId, subject: &mut Subject<'_>) -> Control {
        match &self.action {
            Action::Gact { control, .. } => *control,
            Action::Police(police) => police.conform,
            Action::Mirred(_) => Control::Pass,
            Action::Pace { rate: PaceRate::Of(rate), control } => {
                if let Some(id) = id.pace() {
                    subject.pace(id, *rate);
                }
                *control
            }
            Action::Pace { rate: PaceRate::Member { set, is_source }, control } => {
                subject.pace_by_member(set, *is_source);
                *control
            }
            Action::Skbedit { priority, mark, control, .. } => {
                subject.priority = priority.unwrap_or(subject.priority);
                if let Some(mark) = mark {
                    subject.set_mark(subject.mark() & !mark.mask | mark.value & mark.mask);
                }
                *control
            }
        }
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
    /// A snapshot of the counts.
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
    /// Whether the packet with index `before` is selected.
    fn is_one(&self, before: u64) -> bool {
        let of = u64::from(self.of.max(1));
        if self.is_determined {
            return (before + 1).is_multiple_of(of);
        }
        // A fixed pseudo-random sequence (splitmix64, Steele et al. 2014).
        let mut bits = before.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ bits >> 31).is_multiple_of(of)
    }
}

/// Prints the parameters only: the counters change all the time.
impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.action.fmt(f)
    }
}

/// Two are equal if they share counters and have the same parameters.
impl PartialEq for Running {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.counters, &other.counters) && self.action == other.action
    }
}
