//! Compiled directories against the real parser and policy: what is written loads, and commands
//! lead from any directory to any other and back.

use narrows_directory::{
    Command, Directory, Draft, Form, Numbers, Options, Plan, Ports, Prefix, Queueing, Site,
    Subscriber, changes, compile,
};
use narrows_policy::Policy;
use narrows_tc::{OfflineHost, execute_batch, load};
use narrows_units::Rate;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn options(numbers: &Numbers) -> Options {
    let ports = Ports { internet: "wan0".to_owned(), subscribers: "lan0".to_owned() };
    Options { ports, uplink: [None, Some(mbit(500))], numbers: numbers.clone() }
}

fn mbit(mbit: u64) -> Rate {
    Rate::from_bits_per_sec(mbit * 1_000_000)
}

fn text(directory: &Directory, numbers: &Numbers) -> String {
    let mut draft = Draft::default();
    compile(directory, &options(numbers)).write(&mut draft);
    draft.finish().0
}

#[track_caller]
fn policy(text: &str) -> Policy {
    load(text, "compiled", &OfflineHost::default()).unwrap_or_else(|why| panic!("{why}\n{text}"))
}

/// Small numbers of sites and subscribers, so that two directories have many in common. A site's
/// parent has a lower number; an address belongs to one subscriber.
fn directories() -> impl Strategy<Value = Directory> {
    let site = (0..8_u32, proptest::option::of(1..1000_u64), proptest::option::of(1..1000_u64));
    let sites = proptest::collection::btree_map(1..8_u32, site, 0..7);
    let queueing = prop_oneof![Just(Queueing::Cake), Just(Queueing::FqCodel), Just(Queueing::Fifo)];
    let subscriber = (0..8_u32, 1..100_u64, 1..100_u64, queueing);
    let subscribers = proptest::collection::btree_map(0..12_u32, subscriber, 0..12);
    let address = (0..12_u32, 0..4_u8, any::<bool>());
    let addresses = proptest::collection::vec(address, 0..20);
    (sites, subscribers, addresses).prop_map(|(sites, subscribers, addresses)| {
        let mut directory = Directory::default();
        for (number, (above, down, up)) in &sites {
            let parent = Some(above % number).filter(|above| sites.contains_key(above));
            let site = Site {
                name: format!("Site {number}"),
                parent: parent.map(|it| it.to_string()),
                capacity: [*down, *up].map(|rate| rate.map(mbit)),
            };
            directory.sites.insert(number.to_string(), site);
        }
        for (number, (site, down, up, queueing)) in subscribers {
            let plan = Plan {
                assured: [mbit(1); 2],
                ceiling: [mbit(down), mbit(up)],
                queueing: [queueing, Queueing::Cake],
                name: None,
            };
            let site = Some(site).filter(|site| sites.contains_key(site));
            let site = site.map(|site| site.to_string());
            let subscriber =
                Subscriber { name: format!("Name {number}"), site, plan, ..Subscriber::default() };
            directory.subscribers.insert(number.to_string(), subscriber);
        }
        let mut taken = BTreeMap::new();
        for (of, number, is_six) in addresses {
            let address: Prefix = match is_six {
                true => format!("2001:db8:{number:x}::/{}", 48 + number % 2),
                false => format!("10.0.{number}.0/{}", if number == 0 { 32 } else { 24 }),
            }
            .parse()
            .unwrap();
            if let Some(owner) = directory.subscribers.get_mut(&of.to_string())
                && taken.insert(address, of).is_none()
            {
                owner.addresses.push(address);
            }
        }
        directory
    })
}

fn batch(commands: &[Command]) -> String {
    commands.iter().map(|command| command.line() + "\n").collect()
}

#[track_caller]
fn run(host: &mut OfflineHost, commands: &[Command]) {
    let outcome = execute_batch(&batch(commands), "b", &narrows_tc::Options::default(), host);
    assert_eq!(outcome.code, 0, "{}\n{}", outcome.stderr, batch(commands));
}

/// What is saved of a policy: equal texts are equal trees.
fn saved(policy: &Policy) -> String {
    narrows_tc::save(policy)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn commands_lead_from_any_directory_to_any_other_and_back(
        one in directories(),
        other in directories(),
        stops in any::<prop::sample::Index>(),
    ) {
        prop_assert_eq!(one.check(), Vec::<String>::new());
        let mut numbers = Numbers::default();
        for directory in [&one, &other] {
            for (key, number) in numbers.missing(directory) {
                numbers.keep(key, number);
            }
        }
        let form = |directory| {
            let form = Form::compile(directory, &options(&numbers)).0;
            assert_eq!(form, Form::of(&compile(directory, &options(&numbers))));
            form
        };
        let commands = form(&one).towards(&form(&other));
        let [before, after] = [&one, &other].map(|it| policy(&text(it, &numbers)));
        let mut host = OfflineHost::new(before.clone());
        run(&mut host, &commands);
        prop_assert_eq!(saved(&narrows_tc::Host::policy(&host)), saved(&after));
        // As it is after a batch that was refused in the middle.
        let mut host = OfflineHost::new(before.clone());
        let done = &commands[..stops.index(commands.len() + 1)];
        run(&mut host, done);
        let undo: Vec<Command> = done.iter().rev().map(Command::inverse).collect();
        run(&mut host, &undo);
        prop_assert_eq!(saved(&narrows_tc::Host::policy(&host)), saved(&before));
        prop_assert_eq!(commands.is_empty(), saved(&before) == saved(&after));
    }

    #[test]
    fn commands_build_any_directory_from_nothing(directory in directories()) {
        let numbers = Numbers::default();
        let form = Form::of(&compile(&directory, &options(&numbers)));
        let mut host = OfflineHost::default();
        run(&mut host, &Form::default().towards(&form));
        let whole = policy(&text(&directory, &numbers));
        prop_assert_eq!(saved(&narrows_tc::Host::policy(&host)), saved(&whole));
    }

    #[test]
    fn the_json_form_is_read_again(directory in directories()) {
        let json = serde_json::to_string(&directory).unwrap();
        prop_assert_eq!(serde_json::from_str::<Directory>(&json).unwrap(), directory);
    }

    #[test]
    fn changes_are_there_if_anything_differs(one in directories(), other in directories()) {
        let found = changes(&one, &other);
        prop_assert_eq!(found.is_empty(), one == other);
        let lines = found.to_string().lines().count();
        prop_assert_eq!(lines, found.sites.len() + found.subscribers.len());
    }
}

fn ann() -> Directory {
    let plan = Plan { ceiling: [mbit(50), mbit(10)], ..Plan::default() };
    let name = "Ann Smith".to_owned();
    let addresses = vec!["10.0.0.1".parse().unwrap()];
    let ann = Subscriber { name, plan, addresses, ..Subscriber::default() };
    Directory { subscribers: [("1042".to_owned(), ann)].into(), ..Directory::default() }
}

#[test]
fn a_changed_plan_is_one_line_for_people_and_two_commands() {
    let (old, mut new) = (ann(), ann());
    new.subscribers.get_mut("1042").unwrap().plan.ceiling = [mbit(100), mbit(20)];
    let said = changes(&old, &new).to_string();
    assert_eq!(said, "subscriber 1042 (Ann Smith): plan 50/10 → 100/20 Mbit/s\n");
    let numbers = Numbers::default();
    let uplink = Options { uplink: [Some(mbit(1000)); 2], ..options(&numbers) };
    let form = |directory| Form::of(&compile(directory, &uplink));
    let commands = form(&old).towards(&form(&new));
    let minor = numbers.assign(&["circuit 1042".to_owned()])[0];
    assert_eq!(
        batch(&commands),
        format!(
            "class change dev lan0 parent 1:1 classid 1:{minor:x} htb rate 64kbit ceil 100mbit\n\
             class change dev wan0 parent 1:1 classid 1:{minor:x} htb rate 64kbit ceil 20mbit\n"
        )
    );
}

#[test]
fn a_subscriber_who_moves_is_made_anew_at_the_other_site() {
    let mut old = ann();
    for site in ["A", "B"] {
        old.sites.insert(site.to_owned(), Site::default());
    }
    let mut new = old.clone();
    new.subscribers.get_mut("1042").unwrap().site = Some("B".to_owned());
    let said = changes(&old, &new).to_string();
    assert_eq!(said, "subscriber 1042 (Ann Smith): site the top → B\n");
    let numbers = Numbers::default();
    let form = |directory| Form::of(&compile(directory, &options(&numbers)));
    let commands = form(&old).towards(&form(&new));
    assert!(commands.iter().any(Command::removes));
    let mut host = OfflineHost::new(policy(&text(&old, &numbers)));
    run(&mut host, &commands);
}

#[test]
fn what_is_unsound_is_said_with_whom_it_concerns() {
    let site = |parent: Option<&str>| Site { parent: parent.map(str::to_owned), ..Site::default() };
    let mut directory = ann();
    let mut bob = directory.subscribers["1042"].clone();
    bob.name = "Bob".to_owned();
    bob.site = Some("Z".to_owned());
    bob.plan.assured = [mbit(60), mbit(1)];
    directory.subscribers.insert("7".to_owned(), bob);
    directory.sites.insert("A".to_owned(), site(Some("B")));
    directory.sites.insert("B".to_owned(), site(Some("A")));
    directory.sites.insert("C".to_owned(), site(Some("D")));
    let faults = directory.check().join("\n");
    for said in [
        "10.0.0.1 belongs to subscriber 1042 (Ann Smith) and to subscriber 7 (Bob): take it from one",
        "subscriber 7 (Bob): its site, Z, is not there",
        "subscriber 7 (Bob): 60 Mbit/s is assured downstream, above its maximum of 50 Mbit/s",
        "site A: it is above itself",
        "site C: the site above it, D, is not there",
    ] {
        assert!(faults.contains(said), "{said} is not in\n{faults}");
    }
    // It compiles all the same.
    text(&directory, &Numbers::default());
}

#[test]
fn a_site_without_a_capacity_has_room_for_what_is_below_it() {
    let mut directory = ann();
    directory.sites.insert("A".to_owned(), Site::default());
    directory.subscribers.get_mut("1042").unwrap().site = Some("A".to_owned());
    let options = Options { uplink: [None; 2], ..options(&Numbers::default()) };
    let [down, up] = compile(&directory, &options).trees;
    assert_eq!([down.whole, up.whole], [mbit(50), mbit(10)]);
}

#[test]
fn a_chain_of_sites_is_as_deep_as_an_htb_allows() {
    let chain = |levels: u32| {
        let mut directory = ann();
        for level in 1..=levels {
            let parent = (level > 1).then(|| format!("{:02}", level - 1));
            directory.sites.insert(format!("{level:02}"), Site { parent, ..Site::default() });
        }
        directory.subscribers.get_mut("1042").unwrap().site = Some(format!("{levels:02}"));
        directory
    };
    assert_eq!(chain(14).check(), Vec::<String>::new());
    policy(&text(&chain(14), &Numbers::default()));
    assert!(chain(15).check().join("\n").contains("levels deep"));
}
