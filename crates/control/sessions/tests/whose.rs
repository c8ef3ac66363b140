//! Whose leases are, kept from change to change, against a search among all leases.

use narrows_directory::{Directory, Prefix, Subscriber};
use narrows_sessions::leases::{Assignments, Config, Field, Lease, Leases, News, Table};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

const SERVERS: usize = 2;
/// By a label, which may have several values, and then by the identity.
const CONFIG: &str = "[[server]]\nkea_file = \"/a\"\n[[server]]\nisc_file = \"/b\"\n\
                      [[match]]\nlease = \"circuit-id\"\nlabel = \"line\"\n\
                      [[match]]\nlease = \"hostname\"\n";

/// A lease of an address: its end, the line, and the name.
type Leased = (u8, Option<u64>, u8, u8);

#[derive(Clone, Debug)]
enum Event {
    /// All leases of a server.
    All(usize, Vec<Leased>),
    /// Some change, or are gone.
    Some(usize, Vec<Leased>, Vec<u8>),
    /// The lines of subscribers, and addresses that are fixed.
    Know(BTreeMap<u8, Vec<u8>>, Vec<u8>),
    /// It is so late now.
    Time(u64),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let leased = || {
        let leased = (0..6_u8, proptest::option::weighted(0.7, 0..20_u64), 0..5_u8, 0..5_u8);
        proptest::collection::vec(leased, 0..6)
    };
    let numbers = || proptest::collection::vec(0..6_u8, 0..3);
    let lines = proptest::collection::btree_map(0..5_u8, numbers(), 0..5);
    let event = prop_oneof![
        1 => (0..SERVERS, leased()).prop_map(|(server, all)| Event::All(server, all)),
        4 => (0..SERVERS, leased(), numbers())
            .prop_map(|(server, new, gone)| Event::Some(server, new, gone)),
        1 => (lines, numbers()).prop_map(|(lines, fixed)| Event::Know(lines, fixed)),
        2 => (0..20_u64).prop_map(Event::Time),
    ];
    proptest::collection::vec(event, 1..30)
}

fn address(number: u8) -> Prefix {
    Prefix { ip: [10, 0, 0, number].into(), bits: 32 }
}

fn lease((number, expires, line, name): &Leased) -> Lease {
    let fields = [(Field::CircuitId, format!("line-{line}")), (Field::Hostname, name.to_string())];
    let (fields, context) = (fields.into(), BTreeMap::new());
    Lease { address: address(*number), expires: *expires, fields, context }
}

fn directory(lines: &BTreeMap<u8, Vec<u8>>) -> Directory {
    let one = |(identity, lines): (&u8, &Vec<u8>)| {
        let lines: Vec<String> = lines.iter().map(|line| format!("LINE-{line}")).collect();
        let labels = BTreeMap::from([("line".to_owned(), lines.join(", "))]);
        (identity.to_string(), Subscriber { labels, ..Subscriber::default() })
    };
    Directory { subscribers: lines.iter().map(one).collect(), ..Directory::default() }
}

/// The same by a search.
#[derive(Default)]
struct Model {
    tables: [HashMap<Prefix, Lease>; SERVERS],
    lines: BTreeMap<u8, Vec<u8>>,
    fixed: HashSet<Prefix>,
    unix: u64,
}

impl Model {
    fn assignments(&self) -> Assignments {
        let mut assignments = Assignments::new();
        for number in 0..=u8::MAX {
            let address = address(number);
            if self.fixed.contains(&address) {
                continue;
            }
            let leases = self.tables.iter().filter_map(|table| table.get(&address));
            let mut owners = leases
                .filter(|lease| lease.expires.is_none_or(|expires| expires > self.unix))
                .filter_map(|lease| self.owner(lease));
            if let Some(owner) = owners.next() {
                assignments.entry(owner.to_string()).or_default().insert(address);
            }
        }
        assignments
    }

    fn owner(&self, lease: &Lease) -> Option<u8> {
        let has_line = |(_, lines): &(&u8, &Vec<u8>)| {
            lines.iter().any(|line| lease.fields[&Field::CircuitId] == format!("line-{line}"))
        };
        let by_line: Vec<u8> =
            self.lines.iter().filter(has_line).map(|(identity, _)| *identity).collect();
        let mut identities = self.lines.keys().copied();
        let by_name =
            identities.find(|identity| lease.fields[&Field::Hostname] == identity.to_string());
        by_line.first().copied().filter(|_| by_line.len() == 1).or(by_name)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn after_any_changes_leases_are_whose_a_search_says(events in events()) {
        let mut leases = Leases::new(Config::parse(CONFIG).expect("a configuration"));
        let mut model = Model::default();
        // What somebody has who only hears of changes.
        let mut heard = Assignments::new();
        for event in events {
            match event {
                Event::All(server, all) => {
                    let all: Table = all.iter().map(lease).map(|it| (it.address, it)).collect();
                    model.tables[server] = all.clone();
                    leases.set(server, News::All(all));
                }
                Event::Some(server, new, gone) => {
                    let new = new.iter().map(lease).map(|it| (it.address, Some(it)));
                    let gone = gone.into_iter().map(|number| (address(number), None));
                    let changes: Vec<_> = new.chain(gone).collect();
                    for (address, lease) in changes.clone() {
                        match lease {
                            Some(lease) => drop(model.tables[server].insert(address, lease)),
                            None => drop(model.tables[server].remove(&address)),
                        }
                    }
                    leases.set(server, News::Some(changes));
                }
                Event::Know(lines, fixed) => {
                    model.fixed = fixed.into_iter().map(address).collect();
                    leases.know(&directory(&lines), model.fixed.iter().copied());
                    model.lines = lines;
                }
                Event::Time(unix) => model.unix = unix,
            }
            for (identity, addresses) in leases.changes(model.unix) {
                prop_assert_ne!(heard.get(&identity), Some(&addresses), "{}", identity);
                match addresses.is_empty() {
                    true => drop(heard.remove(&identity)),
                    false => drop(heard.insert(identity, addresses)),
                }
            }
            let expected = model.assignments();
            prop_assert_eq!(&leases.assignments(), &expected);
            prop_assert_eq!(&heard, &expected);
        }
    }
}

#[test]
fn a_renewal_changes_nobodys_addresses() {
    let mut leases = Leases::new(Config::parse(CONFIG).expect("a configuration"));
    leases.know(&directory(&[(1, vec![1])].into()), []);
    let at = |expires| News::Some(vec![(address(1), Some(lease(&(1, Some(expires), 1, 0))))]);
    leases.set(0, at(100));
    assert_eq!(leases.changes(50), [("1".to_owned(), BTreeSet::from([address(1)]))].into());
    leases.set(0, at(200));
    assert!(leases.changes(100).is_empty());
    assert_eq!(leases.changes(200), [("1".to_owned(), BTreeSet::new())].into());
}
