//! A kept compilation against compilations from nothing: after any changes of subscribers both
//! lead to the same commands, the same notes, and the same kept state.

use narrows_directory::{
    Change, Directory, Form, Incremental, Numbers, Options, Plan, Ports, Prefix, Queueing, Site,
    Subscriber, compile,
};
use narrows_units::Rate;
use proptest::prelude::*;
use std::collections::BTreeMap;

const SITES: u32 = 7;
const SUBSCRIBERS: u32 = 10;
const ADDRESSES: u8 = 12;

/// What becomes of a subscriber: its site, its ceilings, what is assured, its queues, and the
/// addresses that it wants; none if it goes.
type Wanted = Option<(u32, [u64; 2], u64, Queueing, Vec<u8>)>;

/// Some changes at once, and whether the instance refuses them.
#[derive(Clone, Debug)]
struct Step {
    wanted: BTreeMap<u32, Wanted>,
    is_refused: bool,
}

fn mbit(mbit: u64) -> Rate {
    Rate::from_bits_per_sec(mbit.saturating_mul(1_000_000))
}

/// Mostly rates near the capacities of sites, so that some are above; and the highest there is.
fn rates() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 1..60_u64, 1 => Just(0), 1 => Just(u64::MAX)]
}

fn sites() -> impl Strategy<Value = BTreeMap<String, Site>> {
    let capacity = || proptest::option::of(rates().prop_map(mbit));
    let site = (0..SITES, capacity(), capacity());
    proptest::collection::btree_map(1..SITES, site, 0..6).prop_map(|sites| {
        let parent = |number: u32, above: u32| {
            let above = above % number;
            sites.contains_key(&above).then(|| above.to_string())
        };
        let site = |(number, (above, down, up)): (&u32, &(u32, _, _))| {
            let (name, parent) = (format!("Site {number}"), parent(*number, *above));
            (number.to_string(), Site { name, parent, capacity: [*down, *up] })
        };
        sites.iter().map(site).collect()
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let queueing = prop_oneof![Just(Queueing::Cake), Just(Queueing::FqCodel), Just(Queueing::Fifo)];
    let addresses = proptest::collection::vec(0..ADDRESSES, 0..4);
    let subscriber = (0..SITES, [rates(), rates()], 0..70_u64, queueing, addresses).prop_map(Some);
    let wanted = prop_oneof![4 => subscriber, 1 => Just(None)];
    let wanted = proptest::collection::btree_map(0..SUBSCRIBERS, wanted, 0..5);
    let step = (wanted, proptest::bool::weighted(0.2))
        .prop_map(|(wanted, is_refused)| Step { wanted, is_refused });
    proptest::collection::vec(step, 1..12)
}

fn address(number: u8) -> Prefix {
    let text = match number % 3 {
        0 => format!("10.0.0.{number}"),
        1 => format!("10.{number}.0.0/16"),
        _ => format!("2001:db8:{number}::/{}", 48 + u32::from(number) / 6),
    };
    text.parse().expect("an address")
}

/// `directory` after `step`: an address stays with who has it, unless that one changes, too.
fn next(directory: &Directory, step: &Step) -> Directory {
    let mut next = directory.clone();
    for identity in step.wanted.keys() {
        next.subscribers.remove(&identity.to_string());
    }
    for (identity, wanted) in &step.wanted {
        let Some((site, ceiling, assured, queueing, addresses)) = wanted else { continue };
        let mut own: Vec<Prefix> = Vec::new();
        for address in addresses.iter().map(|number| address(*number)) {
            let mut taken = next.subscribers.values().flat_map(|it| &it.addresses);
            if !own.contains(&address) && !taken.any(|taken| *taken == address) {
                own.push(address);
            }
        }
        let plan = Plan {
            assured: [mbit(*assured), mbit(1)],
            ceiling: ceiling.map(mbit),
            queueing: [*queueing, Queueing::Cake],
            name: None,
        };
        let site = Some(site.to_string()).filter(|site| next.sites.contains_key(site));
        let name = format!("Name {identity} at {assured}");
        let it = Subscriber { name, site, plan, addresses: own, ..Subscriber::default() };
        next.subscribers.insert(identity.to_string(), it);
    }
    next
}

/// What differs in the subscribers of `before` and `after`.
fn differences<'a>(
    step: &Step,
    before: &'a Directory,
    after: &'a Directory,
) -> Vec<Change<&'a Subscriber>> {
    let change = |identity: &u32| {
        let identity = identity.to_string();
        let (old, new) = (before.subscribers.get(&identity), after.subscribers.get(&identity));
        Change { identity, old, new }
    };
    step.wanted.keys().map(change).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn changes_of_subscribers_lead_where_a_compilation_from_nothing_leads(
        sites in sites(),
        steps in steps(),
        uplink in proptest::array::uniform2(proptest::option::of(rates().prop_map(mbit))),
    ) {
        let ports = Ports { internet: "wan0".to_owned(), subscribers: "lan0".to_owned() };
        let mut options = Options { ports, uplink, numbers: Numbers::default() };
        let mut directory = Directory { sites, ..Directory::default() };
        for (key, number) in options.numbers.missing(&directory) {
            options.numbers.keep(key, number);
        }
        let mut kept = Incremental::new(&directory, &options);
        for step in &steps {
            let after = next(&directory, step);
            for (key, number) in options.numbers.missing(&after) {
                options.numbers.keep(key, number);
            }
            let former = kept.clone();
            let changes = differences(step, &directory, &after);
            let [from, to] = kept.change(&changes, &options.numbers).expect("all have numbers");
            let whole = |directory| Form::of(&compile(directory, &options));
            let expected = whole(&directory).towards(&whole(&after));
            prop_assert_eq!(from.towards(&to), expected);
            prop_assert_eq!(kept.report(&after), compile(&after, &options).report);
            prop_assert_eq!(&kept, &Incremental::new(&after, &options));
            if step.is_refused {
                let back = differences(step, &after, &directory);
                kept.change(&back, &options.numbers).expect("all have numbers");
                prop_assert_eq!(&kept, &former);
            } else {
                directory = after;
            }
        }
    }
}

#[test]
fn a_change_of_one_gives_the_rows_that_it_touches_and_those_above() {
    let ports = Ports { internet: "wan0".to_owned(), subscribers: "lan0".to_owned() };
    let mut options = Options { ports, uplink: [Some(mbit(10_000)); 2], ..Options::default() };
    let mut directory = Directory::default();
    for (site, parent) in [("A", None), ("B", Some("A")), ("C", None)] {
        let (parent, capacity) = (parent.map(str::to_owned), [Some(mbit(100)); 2]);
        let site = (site.to_owned(), Site { parent, capacity, ..Site::default() });
        directory.sites.extend([site]);
    }
    for number in 0..1000_u32 {
        let site = Some(if number % 2 == 0 { "B" } else { "C" }.to_owned());
        let plan = Plan { ceiling: [mbit(50); 2], ..Plan::default() };
        let ip = std::net::Ipv4Addr::from(0x0a00_0000 + number);
        let addresses = vec![Prefix { ip: ip.into(), bits: 32 }];
        let it = Subscriber { site, plan, addresses, ..Subscriber::default() };
        directory.subscribers.insert(number.to_string(), it);
    }
    for (key, number) in options.numbers.missing(&directory) {
        options.numbers.keep(key, number);
    }
    let mut kept = Incremental::new(&directory, &options);
    let old = &directory.subscribers["8"];
    let mut new = old.clone();
    new.plan.ceiling = [mbit(80); 2];
    let change = Change { identity: "8".to_owned(), old: Some(old), new: Some(&new) };
    let [from, to] = kept.change(&[change], &options.numbers).expect("it has a number");
    for form in [&from, &to] {
        // The uplink, others, sites A and B, and the subscriber.
        assert_eq!(form.ports.each_ref().map(|port| port.classes.len()), [5; 2]);
        assert_eq!(form.ports.each_ref().map(|port| port.filters.len()), [1; 2]);
    }
    assert_eq!(from.towards(&to).len(), 2);
    let nobody = Change { identity: "nobody".to_owned(), old: None, new: Some(&new) };
    let before = kept.clone();
    assert_eq!(kept.change(&[nobody], &options.numbers), None, "it has no number");
    assert_eq!(kept, before);
}
