//! A pod's limits as `tc` commands.
//!
//! What this plugin sets has numbers of its own, [`HANDLE`] and [`PREF`], so that it finds them
//! again, and leaves what others have set.

use crate::limits::{Limits, Policer, Queue};
use std::fmt::Write;

/// The handle of the qdisc at the device's root.
const HANDLE: &str = "c41:";
/// The preference of the filter for arrivals. Filters with lower ones come first: what an operator
/// lets pass there is not limited.
const PREF: u32 = 3137;
/// How much may wait for the rate, as a part of a second.
const QUEUE_PART: u64 = 10;

/// The commands that put `limits` in force at `dev`, a line each. They may run again.
pub fn set(dev: &str, limits: &Limits) -> String {
    let mut lines = String::new();
    if let Some(queue) = &limits.ingress {
        queued(dev, queue, &mut lines);
    }
    if let Some(policer) = &limits.egress {
        arriving(dev, policer, &mut lines);
    }
    lines
}

/// The commands that take away what [`set`] has put in force; `saved` is what holds at `dev`, as
/// `tc save` prints it.
pub fn unset(dev: &str, limits: &Limits, saved: &str) -> String {
    let mut lines = String::new();
    let holds = |what: &str| saved.lines().any(|line| line.starts_with(what));
    if holds(&format!("qdisc replace dev {dev} root handle {HANDLE} ")) {
        let _ = writeln!(lines, "qdisc del dev {dev} root");
    }
    if let Some(class) = limits.ingress.as_ref().and_then(|queue| queue.class.as_ref()) {
        let (id, parent) = (class.id, class.parent);
        if holds(&format!("class replace dev {dev} parent {parent} classid {id} ")) {
            let _ = writeln!(lines, "class del dev {dev} classid {id}");
        }
    }
    if holds(&format!("filter replace dev {dev} ingress protocol all pref {PREF} ")) {
        let _ = writeln!(lines, "filter del dev {dev} ingress protocol all pref {PREF}");
    }
    lines
}

/// What leaves the host through `dev`, into the pod.
fn queued(dev: &str, queue: &Queue, lines: &mut String) {
    let Queue { rate, burst, class } = queue;
    // Writing to a string cannot fail.
    let _ = match class {
        None => {
            let limit = (rate / 8 / QUEUE_PART + burst).min(u64::from(u32::MAX));
            writeln!(
                lines,
                "qdisc replace dev {dev} root handle {HANDLE} tbf rate {rate}bit burst {burst} \
                 limit {limit}"
            )
        }
        Some(class) => writeln!(
            lines,
            "class replace dev {dev} parent {} classid {} htb rate {}bit ceil {rate}bit burst \
             {burst} cburst {burst} prio {}",
            class.parent, class.id, class.assured, class.priority
        ),
    };
}

/// What arrives at `dev` from the pod. This is the only place that knows how it is limited.
fn arriving(dev: &str, policer: &Policer, lines: &mut String) {
    let Policer { rate, burst } = policer;
    let _ = write!(
        lines,
        "qdisc replace dev {dev} clsact\n\
         filter replace dev {dev} ingress protocol all pref {PREF} handle 0x1 matchall action \
         police rate {rate}bit burst {burst} mtu 65536 conform-exceed drop/continue\n"
    );
}
