//! The persistent map against a `BTreeMap`.

use narrows_classify::PersistentMap;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn edits() -> impl Strategy<Value = Vec<(u64, Option<u32>)>> {
    proptest::collection::vec((0..900_u64, proptest::option::weighted(0.8, 0..4_u32)), 0..3_000)
}

fn edit(
    map: &mut PersistentMap<u32>,
    model: &mut BTreeMap<u64, u32>,
    edits: &[(u64, Option<u32>)],
) {
    for (key, value) in edits {
        match value {
            Some(value) => {
                map.insert(*key, *value);
                model.insert(*key, *value);
            }
            None => assert_eq!(map.remove(*key), model.remove(key)),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn it_holds_what_a_tree_map_holds(first in edits(), second in edits(), probe in 0..1_000_u64) {
        let (mut map, mut model) = (PersistentMap::default(), BTreeMap::new());
        edit(&mut map, &mut model, &first);
        let (before, model_before) = (map.clone(), model.clone());
        edit(&mut map, &mut model, &second);
        let list = |map: &PersistentMap<u32>| map.iter().map(|(k, v)| (k, *v)).collect::<Vec<_>>();
        prop_assert_eq!(list(&map), model.clone().into_iter().collect::<Vec<_>>());
        prop_assert_eq!(map.len(), model.len());
        prop_assert_eq!(list(&before), model_before.clone().into_iter().collect::<Vec<_>>());
        prop_assert_eq!(map.get(probe), model.get(&probe));
        let from: Vec<_> = map.from(probe).map(|(k, v)| (k, *v)).collect();
        prop_assert_eq!(from, model.range(probe..).map(|(k, v)| (*k, *v)).collect::<Vec<_>>());
        let last = model.range(..probe).next_back().map(|(k, v)| (*k, *v));
        prop_assert_eq!(map.before(probe).map(|(k, v)| (k, *v)), last);
        // Applying the changes turns one into the other.
        let mut made = model_before;
        before.changes(&map, |key, old, new| {
            assert_eq!(made.get(&key), old);
            match new {
                Some(new) => made.insert(key, *new),
                None => made.remove(&key),
            };
        });
        prop_assert_eq!(&made, &model);
        prop_assert_eq!(before == map, list(&before) == list(&map));
    }
}

#[test]
fn a_change_among_many_is_found_without_a_look_at_the_others() {
    let one: PersistentMap<u32> = (0..100_000).map(|key| (key, 1)).collect();
    let mut other = one.clone();
    other.insert(50_000, 2);
    let mut seen = Vec::new();
    one.changes(&other, |key, old, new| seen.push((key, old.copied(), new.copied())));
    assert_eq!(seen, [(50_000, Some(1), Some(2))]);
}
