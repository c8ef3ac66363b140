//! The limits that routers have at the port where packets leave.

use crate::bed::PORT_B;
use narrows_units::Rate;

/// A limit far above what any system passes.
pub(super) const FAR_ABOVE: Rate = Rate::from_bits_per_sec(100_000_000_000);
/// How many classes are above each other.
const DEPTH: u32 = 4;
/// The burst of each class.
const BURST: &str = "1mb";

/// What is at the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// A chain of classes, each with the limit; packets are in the lowest.
    Tree,
    /// One `cake`.
    Cake,
}

impl Shape {
    /// The lines for `narrows tc -batch` that give it the limit `rate`.
    pub(super) fn lines(self, rate: Rate) -> String {
        let rate = format!("{}bit", rate.bits_per_sec());
        match self {
            Self::Cake => format!("qdisc replace dev {PORT_B} root cake bandwidth {rate}\n"),
            Self::Tree => {
                let mut lines =
                    format!("qdisc replace dev {PORT_B} root handle 1: htb default {DEPTH}\n");
                for class in 1..=DEPTH {
                    let parent = if class == 1 { String::new() } else { (class - 1).to_string() };
                    lines.push_str(&format!(
                        "class add dev {PORT_B} parent 1:{parent} classid 1:{class} htb \
                         rate {rate} burst {BURST} cburst {BURST}\n"
                    ));
                }
                lines
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_a_chain_of_four_classes_below_the_root() {
        let lines = Shape::Tree.lines(Rate::from_bits_per_sec(8_000));
        let parents: Vec<&str> = lines
            .lines()
            .filter_map(|line| line.split(' ').skip_while(|it| *it != "parent").nth(1))
            .collect();
        assert_eq!(parents, ["1:", "1:1", "1:2", "1:3"]);
        assert!(
            lines.lines().nth(4).is_some_and(|line| line.contains("classid 1:4 htb rate 8000bit"))
        );
    }
}
