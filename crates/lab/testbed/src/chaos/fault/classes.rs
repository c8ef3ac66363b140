//! Classes and filters are added, changed, moved and deleted under load, by `narrows tc`. The limit
//! of the port holds, no flow is out for longer than an overloaded queue explains, and every loss
//! is counted. Packets in a deleted class are dropped with it, and flows that a filter moves may be
//! reordered. A change that would break the tree is refused.

use super::policy::set;
use super::{Fault, NOISE, Trace};
use crate::bed::PORT_B;
use crate::chaos::policy::with_classes;
use crate::chaos::rng::Rng;
use crate::chaos::world::World;
use anyhow::Result;
use std::thread;
use std::time::Duration;

/// A class may get a tenth of what its flows send. Tail drop then takes the packets of a flow at
/// random, and by chance no packet of one of two dozen flows passes for this long.
const UNLUCKY: Duration = Duration::from_millis(700);

/// The change of each round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Round {
    /// An existing class, and its new rate in Mbit/s.
    class: u32,
    rate: u64,
    ceil: u64,
    /// Whether by `replace`, and not by `change`.
    replaces: bool,
    /// The class of its own for some flows, before it is deleted.
    moved_to: u32,
    /// How long each state lasts.
    pause: Duration,
}

#[derive(Debug)]
pub(super) struct Classes {
    rounds: Vec<Round>,
}

impl Classes {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        let round = |rng: &mut Rng| {
            let rate = 5 + rng.below(20) as u64;
            Round {
                class: rng.pick(&[10, 20, 30]),
                rate,
                ceil: rate + rng.below(30) as u64,
                replaces: rng.below(2) == 1,
                moved_to: rng.pick(&[10, 20]),
                pause: rng.millis(5..40),
            }
        };
        let count = 2 + rng.below(4);
        Self { rounds: (0..count).map(|_| round(rng)).collect() }
    }
}

impl Round {
    /// The commands, in their order.
    fn lines(&self) -> Vec<String> {
        let Self { class, rate, ceil, moved_to, .. } = self;
        let change = if self.replaces { "replace" } else { "change" };
        let filter = |verb: &str, class: u32| {
            format!(
                "filter {verb} dev {PORT_B} parent 1: protocol ip pref 3 handle 1 flower \
                 ip_proto udp src_port 20022-20026 classid 1:{class}"
            )
        };
        vec![
            format!(
                "class {change} dev {PORT_B} parent 1:1 classid 1:{class} htb rate {rate}mbit \
                 ceil {ceil}mbit burst 32000 cburst 64000 prio {}",
                class / 10
            ),
            format!(
                "class add dev {PORT_B} parent 1:1 classid 1:40 htb rate 3mbit ceil 55mbit \
                 burst 32000 cburst 64000 prio 1"
            ),
            format!("qdisc add dev {PORT_B} parent 1:40 handle 40: pfifo limit 40"),
            filter("add", 40),
            filter("replace", *moved_to),
            filter("replace", 40),
            format!("filter del dev {PORT_B} parent 1: protocol ip pref 3"),
            format!("class del dev {PORT_B} classid 1:40"),
        ]
    }
}

/// Changes that every tree must refuse: deleting a class with children, and a filter to a class
/// that does not exist.
fn refused() -> [String; 2] {
    [
        format!("class del dev {PORT_B} classid 1:1"),
        format!("filter add dev {PORT_B} parent 1: protocol ip pref 9 matchall classid 1:99"),
    ]
}

impl Fault for Classes {
    fn describe(&self) -> String {
        format!("{} rounds of class and filter add, change, replace, del", self.rounds.len())
    }

    fn outage(&self) -> Option<Duration> {
        Some(NOISE + UNLUCKY)
    }

    fn strike(&self, world: &mut World<'_>) -> Result<Trace> {
        let mut trace = set(world, with_classes(world.plane))?;
        for round in &self.rounds {
            for line in round.lines() {
                world.tc(&line)?;
                thread::sleep(round.pause);
            }
            let accepted = refused().into_iter().find(|line| world.tc(line).is_ok());
            trace.broken = trace.broken.or(accepted.map(|line| format!("not refused: {line}")));
        }
        // As the policy file has it, from here on.
        for line in world.policy().lines().iter().filter(|line| line.starts_with("class ")) {
            world.tc(line)?;
        }
        Ok(trace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_leaves_no_class_and_no_filter_of_its_own() {
        let classes = Classes::draw(&mut Rng::new(1));
        for round in &classes.rounds {
            assert!(round.rate <= round.ceil, "{round:?}");
            let lines = round.lines();
            let count = |words: &str| lines.iter().filter(|line| line.starts_with(words)).count();
            assert_eq!(count("class add"), count("class del"));
            assert_eq!(count("filter add"), count("filter del"));
            assert_eq!(count("class change") + count("class replace"), 1);
        }
    }
}
