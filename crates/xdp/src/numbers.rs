//! The numbers of classes, which stay the same from plan to plan.

use narrows_bpf::tree::layout::CLASSES_MAX;
use narrows_policy::Handle;
use std::collections::BTreeMap;

/// The identity of a class across plans: its qdisc and its number there; 0 for a qdisc that is one
/// class, and [`DIRECT`] for what an `htb` sends without a class.
pub type Name = (Handle, u32);

/// In a [`Name`], what an `htb` sends without a class. No class has this number.
pub const DIRECT: u32 = u32::MAX;

/// See the module's documentation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Numbers(BTreeMap<Name, u32>);

impl Numbers {
    /// Numbers for `names`: their present ones, or else free ones. `None` if there are not enough.
    pub fn next(&self, names: impl IntoIterator<Item = Name>) -> Option<Self> {
        let (mut kept, mut new) = (BTreeMap::new(), Vec::new());
        for name in names {
            match self.0.get(&name) {
                Some(&number) => drop(kept.insert(name, number)),
                None => new.push(name),
            }
        }
        // A number that was in use a moment ago is not given away at once: the program may still
        // count under it.
        let is_taken = |number: &u32, of: &BTreeMap<_, u32>| of.values().any(|used| used == number);
        let mut free: Vec<u32> =
            (1..CLASSES_MAX).filter(|number| !is_taken(number, &kept)).collect();
        free.sort_by_key(|number| is_taken(number, &self.0));
        if free.len() < new.len() {
            return None;
        }
        kept.extend(new.into_iter().zip(free));
        Some(Self(kept))
    }

    /// The number of a class.
    pub fn get(&self, name: Name) -> Option<u32> {
        self.0.get(&name).copied()
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.values().copied()
    }

    /// All of them, by the classes' names.
    pub(crate) fn names(&self) -> impl Iterator<Item = (Name, u32)> + '_ {
        self.0.iter().map(|(name, number)| (*name, *number))
    }

    /// The numbers of classes that `before` did not have.
    pub fn new_since(&self, before: &Self) -> Vec<u32> {
        let is_new = |(name, _): &(&Name, &u32)| !before.0.contains_key(name);
        self.0.iter().filter(is_new).map(|(_, number)| *number).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_keeps_its_number_and_a_number_rests_before_it_is_another_s() {
        let htb = Handle::FIRST_AUTOMATIC;
        let first = Numbers::default().next([(htb, 10), (htb, 20)]).unwrap();
        assert_eq!((first.get((htb, 10)), first.get((htb, 20))), (Some(1), Some(2)));
        let second = first.next([(htb, 20), (htb, 30)]).unwrap();
        assert_eq!((second.get((htb, 20)), second.get((htb, 30))), (Some(2), Some(3)));
        assert_eq!(second.new_since(&first), [3]);
        assert_eq!(second.get((htb, 10)), None);
    }

    #[test]
    fn there_is_an_end_to_them() {
        let names = |most| (0..most).map(|class| (Handle::FIRST_AUTOMATIC, class));
        assert!(Numbers::default().next(names(CLASSES_MAX - 1)).is_some());
        assert_eq!(Numbers::default().next(names(CLASSES_MAX)), None);
    }
}
