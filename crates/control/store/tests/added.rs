//! Addresses that somebody adds to the subscribers of other sources.

use narrows_directory::{Directory, Plan, Prefix, Subscriber};
use narrows_store::{Guard, Store, added_addresses};
use narrows_units::Rate;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// A store that goes with its file.
struct Scratch(PathBuf, Store);

impl Scratch {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("nrw-added-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let store = Store::open(&folder.join("store")).unwrap();
        Self(folder, store)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn address(last: u8) -> Prefix {
    format!("10.0.0.{last}").parse().unwrap()
}

fn subscriber(addresses: &[u8]) -> Subscriber {
    let rate = Rate::from_bits_per_sec(1_000_000);
    let plan = Plan { ceiling: [rate; 2], ..Plan::default() };
    let addresses = addresses.iter().copied().map(address).collect();
    Subscriber { plan, addresses, ..Subscriber::default() }
}

fn directory(of: &[(&str, &[u8])]) -> Directory {
    let one =
        |(identity, addresses): &(&str, &[u8])| ((*identity).to_owned(), subscriber(addresses));
    Directory { subscribers: of.iter().map(one).collect(), ..Directory::default() }
}

fn assigned(of: &[(&str, &[u8])]) -> BTreeMap<String, BTreeSet<Prefix>> {
    let one = |(identity, addresses): &(&str, &[u8])| {
        ((*identity).to_owned(), addresses.iter().copied().map(address).collect())
    };
    of.iter().map(one).collect()
}

fn addresses(store: &mut Store, identity: &str) -> Vec<Prefix> {
    let mut addresses = store.directory().unwrap().subscribers[identity].addresses.clone();
    addresses.sort();
    addresses
}

#[test]
fn a_sync_of_the_source_leaves_added_addresses() {
    let mut scratch = Scratch::new("sync");
    let store = &mut scratch.1;
    let said = directory(&[("ann", &[1]), ("ben", &[])]);
    store.replace("csv", &said, Guard::NONE).unwrap();
    assert_eq!(
        store.add_addresses("leases", &assigned(&[("ann", &[5]), ("ben", &[6])])).unwrap(),
        2
    );
    assert_eq!(addresses(store, "ann"), [address(1), address(5)]);
    let changes = store.replace("csv", &said, Guard::NONE).unwrap();
    assert!(changes.is_empty(), "nothing is different");
    assert_eq!(store.source_of("ann").unwrap().as_deref(), Some("csv"));
    // Its own address changes, and what was added stays.
    store.replace("csv", &directory(&[("ann", &[2]), ("ben", &[])]), Guard::NONE).unwrap();
    assert_eq!(addresses(store, "ann"), [address(2), address(5)]);
    let ann = store.directory().unwrap().subscribers["ann"].clone();
    assert_eq!(added_addresses(&ann), BTreeSet::from([address(5)]));
}

#[test]
fn an_address_goes_from_one_to_another_of_two_sources() {
    let mut scratch = Scratch::new("moves");
    let store = &mut scratch.1;
    store.replace("csv", &directory(&[("ann", &[])]), Guard::NONE).unwrap();
    store.replace("api", &directory(&[("ben", &[])]), Guard::NONE).unwrap();
    store.add_addresses("leases", &assigned(&[("ben", &[5]), ("nobody", &[7])])).unwrap();
    store.add_addresses("leases", &assigned(&[("ann", &[5])])).unwrap();
    assert_eq!(addresses(store, "ann"), [address(5)]);
    assert!(addresses(store, "ben").is_empty());
    let ben = &store.directory().unwrap().subscribers["ben"];
    assert!(ben.labels.is_empty(), "no trace is left");
}

#[test]
fn changes_of_another_process_are_read_and_its_own_are_not() {
    let mut scratch = Scratch::new("reads");
    let mut other = Store::open(&scratch.0.join("store")).unwrap();
    let store = &mut scratch.1;
    store.replace("csv", &directory(&[("ann", &[])]), Guard::NONE).unwrap();
    let reads = store.reads().unwrap();
    store.add_addresses("leases", &assigned(&[("ann", &[5])])).unwrap();
    store.begin().unwrap();
    store.finish("how").unwrap();
    // It notes what it applies, too.
    other.begin().unwrap();
    other.finish("how").unwrap();
    assert_eq!(store.reads().unwrap(), reads);
    other.upsert("csv", "ben", subscriber(&[6])).unwrap();
    assert_eq!(store.reads().unwrap(), reads + 1);
    assert_eq!(addresses(store, "ben"), [address(6)]);
}

#[test]
fn an_address_that_its_source_says_stays_when_the_lease_ends() {
    let mut scratch = Scratch::new("own");
    let store = &mut scratch.1;
    store.replace("csv", &directory(&[("ann", &[])]), Guard::NONE).unwrap();
    store.add_addresses("leases", &assigned(&[("ann", &[5])])).unwrap();
    store.replace("csv", &directory(&[("ann", &[5])]), Guard::NONE).unwrap();
    assert_eq!(addresses(store, "ann"), [address(5)]);
    store.add_addresses("leases", &BTreeMap::new()).unwrap();
    assert_eq!(addresses(store, "ann"), [address(5)]);
}

/// What a source says, or what is added: for each of three subscribers, addresses of its own range.
type Said = [BTreeSet<u8>; 3];

fn said() -> impl Strategy<Value = Said> {
    let one = |base: u8| prop::collection::btree_set(base..base + 4, 0..4);
    (one(10), one(20), one(30)).prop_map(|(a, b, c)| [a, b, c])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn a_subscriber_has_what_both_say(
        steps in prop::collection::vec((0..3_u8, said()), 1..12),
    ) {
        let mut scratch = Scratch::new("model");
        let store = &mut scratch.1;
        let names = ["a", "b", "c"];
        let (mut own, mut added) = (Said::default(), Said::default());
        let named = |said: &Said| -> Vec<(&'static str, Vec<u8>)> {
            names.into_iter().zip(said.iter().map(|one| one.iter().copied().collect())).collect()
        };
        store.replace("csv", &directory(&[("a", &[]), ("b", &[]), ("c", &[])]), Guard::NONE).unwrap();
        for (kind, mut said) in steps {
            let is_own = kind == 0;
            let list = named(&said);
            let list: Vec<(&str, &[u8])> = list.iter().map(|(name, it)| (*name, it.as_slice())).collect();
            if is_own {
                store.replace("csv", &directory(&list), Guard::NONE).unwrap();
                own = said;
            } else if kind == 1 {
                store.add_addresses("leases", &assigned(&list)).unwrap();
                added = said;
            } else {
                // Only some of them have others.
                store.add_addresses_to("leases", &assigned(&list[..1])).unwrap();
                added[0] = std::mem::take(&mut said[0]);
            }
            for (index, name) in names.into_iter().enumerate() {
                let both: Vec<Prefix> =
                    own[index].union(&added[index]).copied().map(address).collect();
                // An address that was added, and that its source then says and takes back, is
                // added anew when leases are looked at the next time.
                let shown = addresses(store, name);
                let is_stale = is_own && shown.iter().all(|it| both.contains(it));
                prop_assert!(shown == both || is_stale, "{} has {:?}, not {:?}", name, shown, both);
            }
            let list = named(&added);
            let list: Vec<(&str, &[u8])> = list.iter().map(|(name, it)| (*name, it.as_slice())).collect();
            store.add_addresses("leases", &assigned(&list)).unwrap();
            for (index, name) in names.into_iter().enumerate() {
                let both: Vec<Prefix> =
                    own[index].union(&added[index]).copied().map(address).collect();
                prop_assert_eq!(addresses(store, name), both);
            }
        }
    }
}
