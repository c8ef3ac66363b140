//! What a plan writes, over the plan that had its place.

use super::*;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

/// A plan with these rates, labels, further scopes (the class of what they do not know), and rules
/// for so many ports.
fn image(
    mut rates: BTreeMap<u32, u64>,
    labels: BTreeMap<u32, u64>,
    inner: &[u32],
    ports: u8,
) -> Image {
    // A plan has the classes that it names.
    for class in 1..=3 {
        rates.entry(class).or_insert(1);
    }
    let port = Key { destination_port: u16::MAX, has: 1, ..Key::default() };
    let rule = |port: u8| Rule {
        scope: 0,
        mask: 0,
        key: Key { destination_port: port.into(), has: 1, ..Key::default() },
        order: port.into(),
        class: 1,
    };
    let label = |(class, burst)| (class, Label { burst, ..Label::default() });
    let scope = |unknown: &u32| Scope { unknown: *unknown, ..Scope::default() };
    Image {
        masks: vec![Mask { bits: port, first: 0 }; usize::from(ports > 0)],
        rules: (0..ports).map(rule).collect(),
        outermost: Scope { unknown: inner.len() as u32, ..Scope::default() },
        inner: inner.iter().map(scope).collect(),
        classes: rates.into_iter().map(|(number, rate)| (number, class(rate))).collect(),
        labels: labels.into_iter().map(label).collect(),
        ..Image::default()
    }
}

fn images() -> impl Strategy<Value = Vec<Image>> {
    let few = |most: usize| btree_map(1..6_u32, 1..4_u64, 0..most);
    let image = (few(5), few(3), vec(0..3_u32, 0..3), 0..3_u8)
        .prop_map(|(rates, labels, inner, ports)| image(rates, labels, &inner, ports));
    vec(image, 1..5)
}

/// What the maps have of the plan in force, which is `image`.
fn in_force(tree: &Tree, image: &Image) -> Vec<Vec<u8>> {
    let number = tree.in_force;
    let entry = |map: &MapHandle, index: u32| {
        map.lookup(&index.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap()
    };
    let first = number * layout::CLASSES_MAX;
    let classes = image.classes.keys().map(|class| entry(&tree.maps.classes, first + class));
    let labels = image.labels.keys().map(|class| entry(&tree.maps.labels, first + class));
    let first = number * layout::SCOPES_MAX as u32;
    let scopes = (0..=image.inner.len()).map(|at| entry(&tree.maps.scopes, first + at as u32));
    classes.chain(labels).chain(scopes).chain([entry(&tree.maps.plans, number)]).collect()
}

#[test]
fn over_any_plans_one_has_in_the_maps_what_it_has_over_none() {
    // Where programs cannot be loaded, this says so.
    if tree().is_none() {
        return;
    }
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(10) };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let changes = vec(btree_map(1..6_u32, 1..4_u64, 0..4), 0..4);
    let outcome = runner.run(&vec((images(), changes), 1..4), |steps| {
        let (mut tree, mut fresh) = (tree().unwrap(), tree().unwrap());
        let mut last = Image::default();
        for (images, changes) in &steps {
            for image in images {
                tree.install(image.clone(), &[]).unwrap();
                last = image.clone();
            }
            for change in changes {
                let classes: Vec<(u32, Class)> =
                    change.iter().map(|(number, rate)| (*number, class(*rate))).collect();
                let is_there = change.keys().all(|number| last.classes.contains_key(number));
                prop_assert_eq!(tree.change(&classes).unwrap().is_some(), is_there);
                if is_there {
                    last.classes.extend(classes);
                }
                prop_assert_eq!(tree.there[tree.in_force as usize].as_ref(), Some(&last));
            }
        }
        let last = &last;
        fresh.install(last.clone(), &[]).unwrap();
        prop_assert_eq!(in_force(&tree, last), in_force(&fresh, last));
        for port in 0..4 {
            let frame = frame(port, 0, 100);
            let both = [&tree, &fresh].map(|tree| run(tree, &frame, 1).0);
            prop_assert_eq!(both[0], both[1]);
        }
        Ok(())
    });
    outcome.unwrap();
}

#[test]
fn a_changed_rate_of_a_thousand_classes_is_one_entry() {
    let Some(mut tree) = tree() else { return };
    let all = |rate: u64| {
        let mut rates: BTreeMap<u32, u64> = (1..=1000).map(|class| (class, 1_000_000)).collect();
        rates.insert(7, rate);
        image(rates, BTreeMap::new(), &[1, 2], 2)
    };
    let new: Vec<u32> = (1..=1000).collect();
    assert!(tree.install(all(1), &new).unwrap() > 3000);
    // There is room for two plans.
    assert!(tree.install(all(2), &[]).unwrap() > 1000);
    for rate in [3, 1_000_000, 5] {
        // The class, and the number of the plan in force.
        assert_eq!(tree.install(all(rate), &[]).unwrap(), 2);
        let index = tree.in_force * layout::CLASSES_MAX + 7;
        let class = tree.maps.classes.lookup(&index.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
        assert_eq!(class[..8], rate.to_ne_bytes());
    }
    assert_eq!(tree.install(all(1_000_000), &[]).unwrap(), 1, "its place has it already");
}

#[test]
fn changed_classes_are_written_and_those_of_the_change_before() {
    let Some(mut tree) = tree() else { return };
    assert_eq!(tree.change(&[(1, class(5))]).unwrap(), None, "no plan is installed");
    let rates: BTreeMap<u32, u64> = (1..=1000).map(|number| (number, 1_000_000)).collect();
    let numbers: Vec<u32> = rates.keys().copied().collect();
    tree.install(image(rates, BTreeMap::new(), &[1, 2], 2), &numbers).unwrap();
    // There is room for two plans.
    assert!(tree.change(&[(7, class(5))]).unwrap().unwrap() > 1000);
    for rate in [6, 7] {
        assert_eq!(tree.change(&[(7, class(rate))]).unwrap(), Some(2));
    }
    assert_eq!(tree.change(&[(8, class(5)), (9, class(5))]).unwrap(), Some(4));
    assert_eq!(tree.change(&[]).unwrap(), Some(0));
    assert_eq!(tree.change(&[(1001, class(5))]).unwrap(), None, "there is no such class");
    let rate = |number: u32| {
        let index = tree.in_force * layout::CLASSES_MAX + number;
        let class = tree.maps.classes.lookup(&index.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
        u64::from_ne_bytes(class[..8].try_into().unwrap())
    };
    assert_eq!([7, 8, 9, 10].map(rate), [7, 5, 5, 1_000_000]);
}
