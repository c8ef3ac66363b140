//! A pod's limits: what was asked for and is possible.

use crate::CniError;
use crate::wishes::{Wish, Wishes};
use narrows_policy::{ClassId, Parent};
use narrows_tc::number;
use std::ops::RangeInclusive;

/// Rates that Kubernetes accepts in its annotations, in bits a second.
const RATES: RangeInclusive<u64> = 1_000..=1_000_000_000_000_000;
/// A burst is no less, in bytes: a veth carries super-packets of 64 KiB.
const BURST_MIN: u64 = 1 << 16;
/// What is counted of a burst is below 4 GiB.
const BURST_MAX: u64 = u32::MAX as u64;
/// The largest burst that is derived from a rate, in bytes.
const DERIVED_MAX: u64 = 1 << 28;
/// `htb`'s priorities.
const PRIORITIES: RangeInclusive<u64> = 0..=7;

/// The limits of a pod; none in a direction that has no limit.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// Into the pod.
    pub ingress: Option<Queue>,
    /// Out of the pod.
    pub egress: Option<Policer>,
}

/// Packets wait for a rate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Queue {
    /// In bits a second.
    pub rate: u64,
    /// In bytes.
    pub burst: u64,
    /// The class that has the rate; none if the whole device has.
    pub class: Option<Class>,
}

/// A class of a tree that the device has already.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Class {
    /// Its number.
    pub id: ClassId,
    /// That of the class or the qdisc above.
    pub parent: ClassId,
    /// What it has even if its siblings want everything, in bits a second.
    pub assured: u64,
    /// Who borrows first, 0 to 7.
    pub priority: u8,
}

/// Packets above a rate are dropped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policer {
    /// In bits a second.
    pub rate: u64,
    /// In bytes.
    pub burst: u64,
}

impl Limits {
    /// Whether nothing is limited.
    pub fn is_empty(&self) -> bool {
        self.ingress.is_none() && self.egress.is_none()
    }

    pub(crate) fn of(wishes: &Wishes) -> Result<Self, CniError> {
        Ok(Self { ingress: queue(&wishes.ingress)?, egress: policer(&wishes.egress)? })
    }
}

fn queue(wish: &Wish) -> Result<Option<Queue>, CniError> {
    let Some(rate) = rate("ingress", wish)? else { return Ok(None) };
    // 10 ms of the rate.
    let burst = burst("ingress", wish, rate / 8 / 100)?;
    Ok(Some(Queue { rate, burst, class: class(wish, rate)? }))
}

fn class(wish: &Wish, rate: u64) -> Result<Option<Class>, CniError> {
    let (parent, id) = match (&wish.parent, &wish.class) {
        (Some(parent), Some(id)) => (parent, id),
        (None, None) if wish.assured.is_none() && wish.priority.is_none() => return Ok(None),
        (None, None) => {
            return Err(CniError::Config(
                "an assured rate and a priority say what a class gets beside its siblings, and a \
                 pod that has its device alone has none: give ingressParent and ingressClass, a \
                 place in a tree of the device; what pods have beside each other belongs to a \
                 tree at the port that they share"
                    .to_owned(),
            ));
        }
        _ => {
            return Err(CniError::Config(
                "ingressParent and ingressClass go together: the class that gets the rate, as \
                 1:10, and the one above it, as 1:1"
                    .to_owned(),
            ));
        }
    };
    let assured = wish.assured.unwrap_or(rate);
    if !RATES.contains(&assured) || assured > rate {
        return Err(CniError::Config(format!(
            "the assured rate is {assured} bit/s, and the limit {rate}: assure at least {} bit/s, \
             and no more than the limit",
            RATES.start()
        )));
    }
    let priority = wish.priority.unwrap_or(0);
    let priority = u8::try_from(priority).ok().filter(|it| PRIORITIES.contains(&u64::from(*it)));
    let priority = priority.ok_or_else(|| {
        CniError::Config("a priority is a number from 0, which borrows first, to 7".to_owned())
    })?;
    Ok(Some(Class {
        id: place("ingressClass", id)?,
        parent: place("ingressParent", parent)?,
        assured,
        priority,
    }))
}

fn place(key: &str, word: &str) -> Result<ClassId, CniError> {
    match number::parent(word) {
        Some(Some(Parent::Class(id))) => Ok(id),
        _ => Err(CniError::Config(format!(
            "{key} is \"{word}\": write the number of a class as tc does, 1:10"
        ))),
    }
}

fn policer(wish: &Wish) -> Result<Option<Policer>, CniError> {
    let asks_for_a_class = wish.assured.is_some()
        || wish.priority.is_some()
        || wish.parent.is_some()
        || wish.class.is_some();
    if asks_for_a_class {
        return Err(CniError::Config(
            "what a pod sends is policed where it arrives, without a queue and classes, so nothing \
             can be assured there and nobody goes first: limit it with egressRate, and give it a \
             class of a tree at the port where it leaves this host"
                .to_owned(),
        ));
    }
    let Some(rate) = rate("egress", wish)? else { return Ok(None) };
    // 250 ms of the rate. A TCP that has lost all of its window tries again after 200 ms, and could
    // not use what would be free meanwhile.
    Ok(Some(Policer { rate, burst: burst("egress", wish, rate / 8 / 4)? }))
}

fn rate(direction: &str, wish: &Wish) -> Result<Option<u64>, CniError> {
    match wish.rate {
        Some(rate) if !RATES.contains(&rate) => Err(CniError::Config(format!(
            "{direction}Rate is {rate} bit/s: it is from {} to {}, or 0 for no limit",
            RATES.start(),
            RATES.end()
        ))),
        None if *wish != Wish::default() => Err(CniError::Config(format!(
            "without {direction}Rate the other settings of that direction say nothing: give a \
             rate, with the annotation kubernetes.io/{direction}-bandwidth or in the configuration"
        ))),
        rate => Ok(rate),
    }
}

/// The burst in bytes: what is asked for, otherwise `derived`.
fn burst(direction: &str, wish: &Wish, derived: u64) -> Result<u64, CniError> {
    let bytes = wish.burst_bits.map_or(derived.min(DERIVED_MAX), |bits| bits / 8);
    if bytes >= BURST_MAX {
        return Err(CniError::Config(format!(
            "the burst of {direction} is {bytes} bytes: give less than 4 GiB"
        )));
    }
    Ok(bytes.max(BURST_MIN))
}
