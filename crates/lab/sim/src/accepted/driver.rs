//! The same policy on the XDP plane: compiled for its program, and run by the program's own meter.
//!
//! Each class's packets come faster than it may send, in turns on several CPUs. What passes stays
//! below its ceiling, and that of each class above: but for the burst, a virtual queue, and what
//! CPUs have bought in advance.

use super::{BEGIN, PORT};
use narrows_bpf::stepped::{Answer, Stepped};
use narrows_bpf::tree::layout::{CLASSES_MAX, Class, LEVELS_MAX, Label};
use narrows_policy::{Plan, Policy};
use narrows_units::Nanos;
use narrows_xdp::{Enforcement, Numbers, compile};
use std::collections::BTreeMap;

/// Bytes on the wire of a packet.
const COST: u64 = 1514;
/// Packets of a class.
const PACKETS: u64 = 200;
/// The most classes that send.
const CLASSES: usize = 8;
/// An epoch of FlowValve's, or more.
const EPOCH: Nanos = Nanos::from_millis(4);
/// How long they send, which is much longer than a burst.
const LENGTH: Nanos = Nanos::from_secs(2);

/// Compiles `policy` for the plane and runs it on `cpus` CPUs, if the plane takes it.
///
/// # Panics
/// If a class passes more than it may.
pub(super) fn trial(policy: &Policy, cpus: usize) {
    let port = policy.port(PORT);
    let Ok(plan) = Plan::of(port, 1).and_then(|plan| plan.without_workers(port)) else { return };
    let Ok(compiled) = compile(&plan, &Numbers::default(), Enforcement::Policing) else { return };
    let classes = &compiled.image.classes;
    assert!(classes.keys().all(|number| (1..CLASSES_MAX).contains(number)));
    for number in classes.keys() {
        assert!(path(classes, *number).count() <= LEVELS_MAX, "class {number} is below itself");
    }
    let leaves: Vec<u32> = compiled.leaves.values().copied().take(CLASSES).collect();
    let mut tree = Stepped::new(cpus as u32, classes).labelled(&compiled.image.labels);
    let mut passed: BTreeMap<u32, u64> = BTreeMap::new();
    for number in 0..PACKETS {
        let now = BEGIN + Nanos(LENGTH.0 / PACKETS * number);
        for (leaf, cpu) in leaves.iter().zip((0..cpus as u32).cycle()) {
            let (answer, _) = tree.meter(now, cpu, *leaf, COST);
            // Packets that are not ECN-capable.
            if answer == Answer::Send {
                for class in path(classes, *leaf) {
                    *passed.entry(class).or_default() += COST;
                }
            }
        }
    }
    for (number, bytes) in passed {
        if let Some(class) = classes.get(&number) {
            let most = match compiled.image.labels.get(&number) {
                Some(label) => most_by_label(class, label),
                None => most(class, cpus as u64),
            };
            assert!(bytes as f64 <= most, "class {number} passed {bytes} bytes of {most}");
        }
    }
}

/// The most bytes that a class may pass in [`LENGTH`].
fn most(class: &Class, cpus: u64) -> f64 {
    if class.ceil == 0 {
        // It only counts.
        return f64::INFINITY;
    }
    let batches = u64::from(class.batch).saturating_mul(cpus);
    let span = [LENGTH.0, class.burst, class.limit, batches].map(|ns| ns as f64 / 1e9);
    let packets = (CLASSES as u64 + cpus) * COST;
    class.ceil as f64 * span.iter().sum::<f64>() + packets as f64
}

/// The most bytes that a class may pass in [`LENGTH`] by FlowValve's rules: only the ceiling of a
/// leaf is metered, and the sum of leaves may be more than the class above has while they come and
/// go.
fn most_by_label(class: &Class, label: &Label) -> f64 {
    if class.child != 0 || !label.is_limited {
        return f64::INFINITY;
    }
    // A bucket is filled at the end of an epoch.
    let span = (LENGTH.0 + 2 * EPOCH.0) as f64 / 1e9;
    class.ceil as f64 * span + (label.cburst + COST) as f64
}

/// The numbers of a class and of those above it.
fn path(classes: &BTreeMap<u32, Class>, number: u32) -> impl Iterator<Item = u32> + '_ {
    let parent = |number: &u32| classes.get(number).map(|class| class.parent);
    let above = move |number: &u32| parent(number).filter(|parent| *parent != 0);
    std::iter::successors(Some(number), above).take(LEVELS_MAX + 1)
}
