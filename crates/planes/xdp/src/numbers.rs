//! The numbers of classes and of actions, which stay the same from plan to plan.

use crate::Refusal;
use narrows_bpf::tree::layout::CLASSES_MAX;
use narrows_bpf::tree::term::COUNTED_MAX;
use narrows_classify::ActionId;
use narrows_policy::Handle;
use std::collections::{BTreeMap, BTreeSet};

/// The identity of a class across plans: its qdisc and its number there; 0 for a qdisc that is one
/// class, and [`DIRECT`] for what an `htb` sends without a class.
pub type Name = (Handle, u32);

/// In a [`Name`], what an `htb` sends without a class. No class has this number.
pub const DIRECT: u32 = u32::MAX;

/// The numbers of classes and actions, which stay the same from plan to plan.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Numbers {
    classes: Series<Name>,
    actions: Series<ActionId>,
}

impl Numbers {
    /// Numbers for `classes` and `actions`: their present ones, or else free ones.
    ///
    /// # Errors
    /// If there are not enough.
    pub fn next(
        &self,
        classes: impl IntoIterator<Item = Name>,
        actions: impl IntoIterator<Item = ActionId>,
    ) -> Result<Self, Refusal> {
        let classes = self.classes.next(classes, "classes", CLASSES_MAX)?;
        let actions = self.actions.next(actions, "actions of filters at qdiscs", COUNTED_MAX)?;
        Ok(Self { classes, actions })
    }

    /// Those of another process.
    pub fn of(
        classes: impl IntoIterator<Item = (Name, u32)>,
        actions: impl IntoIterator<Item = (ActionId, u32)>,
    ) -> Self {
        let classes = Series(classes.into_iter().collect());
        Self { classes, actions: Series(actions.into_iter().collect()) }
    }

    /// The number of a class.
    pub fn get(&self, name: Name) -> Option<u32> {
        self.classes.0.get(&name).copied()
    }

    /// Those of all classes.
    pub fn all(&self) -> impl Iterator<Item = u32> + '_ {
        self.classes.0.values().copied()
    }

    /// All classes, with their numbers.
    pub fn named(&self) -> impl Iterator<Item = (Name, u32)> + '_ {
        self.classes.0.iter().map(|(name, number)| (*name, *number))
    }

    /// The numbers of classes that `before` did not have.
    pub fn new_since(&self, before: &Self) -> Vec<u32> {
        self.classes.new_since(&before.classes)
    }

    /// The number of an action.
    pub fn action(&self, id: ActionId) -> Option<u32> {
        self.actions.0.get(&id).copied()
    }

    /// All actions, with their numbers.
    pub fn actions(&self) -> impl Iterator<Item = (ActionId, u32)> + '_ {
        self.actions.0.iter().map(|(id, number)| (*id, *number))
    }

    /// The numbers of actions that `before` did not have.
    pub fn new_actions_since(&self, before: &Self) -> Vec<u32> {
        self.actions.new_since(&before.actions)
    }
}

/// The numbers of one kind of things.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Series<N>(BTreeMap<N, u32>);

impl<N> Default for Series<N> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<N: Ord + Copy> Series<N> {
    /// Numbers below `end` for `names`, which are `what`, and not 0.
    fn next(
        &self,
        names: impl IntoIterator<Item = N>,
        what: &'static str,
        end: u32,
    ) -> Result<Self, Refusal> {
        let (mut kept, mut new) = (BTreeMap::new(), BTreeSet::new());
        for name in names {
            match self.0.get(&name) {
                Some(&number) => drop(kept.insert(name, number)),
                None => drop(new.insert(name)),
            }
        }
        let taken = |of: &BTreeMap<N, u32>| of.values().copied().collect::<BTreeSet<u32>>();
        let (taken_now, taken_before) = (taken(&kept), taken(&self.0));
        // A number that was in use a moment ago is not given away at once: the program may still
        // count under it.
        let mut free: Vec<u32> = (1..end).filter(|number| !taken_now.contains(number)).collect();
        free.sort_by_key(|number| taken_before.contains(number));
        if free.len() < new.len() {
            let (room, needed) = (end as usize - 1, kept.len() + new.len());
            return Err(Refusal::Room { what, room, needed });
        }
        kept.extend(new.into_iter().zip(free));
        Ok(Self(kept))
    }

    fn new_since(&self, before: &Self) -> Vec<u32> {
        let is_new = |(name, _): &(&N, &u32)| !before.0.contains_key(name);
        self.0.iter().filter(is_new).map(|(_, number)| *number).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_classify::ActionKind;

    #[test]
    fn a_class_keeps_its_number_and_a_number_rests_before_it_is_another_s() {
        let htb = Handle::FIRST_AUTOMATIC;
        let first = Numbers::default().next([(htb, 10), (htb, 20)], []).unwrap();
        assert_eq!((first.get((htb, 10)), first.get((htb, 20))), (Some(1), Some(2)));
        let second = first.next([(htb, 20), (htb, 30)], []).unwrap();
        assert_eq!((second.get((htb, 20)), second.get((htb, 30))), (Some(2), Some(3)));
        assert_eq!(second.new_since(&first), [3]);
        assert_eq!(second.get((htb, 10)), None);
    }

    #[test]
    fn there_is_an_end_to_them() {
        let names = |most| (0..most).map(|class| (Handle::FIRST_AUTOMATIC, class));
        assert!(Numbers::default().next(names(CLASSES_MAX - 1), []).is_ok());
        assert!(Numbers::default().next(names(CLASSES_MAX), []).is_err());
    }

    #[test]
    fn an_action_has_one_number_however_many_filters_have_it() {
        let gact = |index| ActionId { kind: ActionKind::Gact, index };
        let first = Numbers::default().next([], [gact(7), gact(5), gact(7)]).unwrap();
        assert_eq!((first.action(gact(5)), first.action(gact(7))), (Some(1), Some(2)));
        let second = first.next([], [gact(7), gact(9)]).unwrap();
        assert_eq!(second.actions().collect::<Vec<_>>(), [(gact(7), 2), (gact(9), 3)]);
        assert_eq!(second.new_actions_since(&first), [3]);
    }
}
