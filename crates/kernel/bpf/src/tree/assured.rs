//! Assured rates that those above leave room for.

use super::layout::{Class, Rules};
use std::collections::BTreeMap;

/// Lowers the assured rate of each class under HTB's rules to what the classes above it may send.
/// The programs divide a rate when a class below it is asked, and until they first do, that class
/// sends at its assured rate. A limit above would not hold so long.
pub fn fit(classes: &mut BTreeMap<u32, Class>) {
    let most: Vec<u64> = classes.values().map(|class| most_above(classes, class)).collect();
    for (class, most) in classes.values_mut().zip(most) {
        if class.rules == Rules::Htb {
            class.rate = class.rate.min(most);
        }
    }
}

/// What all classes above let pass.
fn most_above(classes: &BTreeMap<u32, Class>, class: &Class) -> u64 {
    let above = |class: &Class| classes.get(&class.parent).copied();
    std::iter::successors(above(class), above).map(|it| let_pass(&it)).min().unwrap_or(u64::MAX)
}

/// What `class` lets pass of all that is below it, in bytes per second: its ceiling, or the rate of
/// the root. It has not been lowered itself.
pub fn let_pass(class: &Class) -> u64 {
    match *class {
        Class { rate: 0, .. } => u64::MAX,
        Class { rate, parent: 0, .. } => rate,
        Class { ceil, .. } => ceil,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_assured_no_more_than_those_above_it_may_send() {
        let class = |rate, ceil, parent| Class { rate, ceil, parent, ..Class::default() };
        let mut classes = BTreeMap::from([
            (1, class(100, 200, 0)),
            (2, class(20, 30, 1)),
            (3, class(0, 0, 2)),
            (4, class(90, 95, 3)),
            (5, class(25, 95, 3)),
            (6, class(120, 130, 1)),
            (7, Class { rules: Rules::FlowValve, ..class(120, 130, 1) }),
        ]);
        fit(&mut classes);
        let rates: Vec<u64> = classes.values().map(|class| class.rate).collect();
        assert_eq!(rates, [100, 20, 0, 30, 25, 100, 120]);
        assert_eq!(classes[&4].ceil, 95, "the ceiling above holds by itself");
    }
}
