//! Applications one after another, with all that can come between, against a compilation of the
//! store from nothing.

use super::*;
use narrows_control::Answer;
use narrows_directory::{Draft, Plan, Prefix, Queueing, Site, Subscriber, compile};
use narrows_store::Edit;
use narrows_tc::{Host, OfflineHost, execute, execute_batch, load};
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

#[test]
fn what_runs_is_known_of_the_same_instance_only() {
    let how = |instance: Option<&str>| How::new(&Settings::default(), instance.map(Into::into));
    assert!(how(Some("a")).is_of(Some("a")));
    assert!(!how(Some("a")).is_of(Some("b")));
    assert!(!how(Some("a")).is_of(None) && !how(None).is_of(None));
}

/// An instance without ports: its `tc` and its policy are those of a real one.
#[derive(Default)]
struct Offline {
    host: RefCell<OfflineHost>,
    /// How often it was started.
    starts: u32,
    /// How many of the next batches it refuses in the middle.
    refuses: Cell<u32>,
    /// The next batch takes back what was done of the one before.
    is_undone: Cell<bool>,
    /// How often it was asked for its policy.
    asked: Cell<u32>,
    /// The lines of the last batch.
    lines: Cell<usize>,
}

impl Offline {
    fn policy(&self) -> String {
        narrows_tc::save(&self.host.borrow().policy())
    }

    fn run(&self, text: &str) -> Answer {
        let mut host = self.host.borrow_mut();
        execute_batch(text, "batch", &narrows_tc::Options::default(), &mut *host).into()
    }
}

impl Instance for Offline {
    fn ports(&self) -> Vec<String> {
        vec!["lan0".to_owned(), "wan0".to_owned()]
    }

    fn identity(&self) -> Option<String> {
        Some(self.starts.to_string())
    }

    fn save(&self) -> Result<Answer, ControlError> {
        self.asked.set(self.asked.get() + 1);
        Ok(execute(&["save".to_owned()], &mut *self.host.borrow_mut()).into())
    }

    fn batch(&self, text: &str) -> Result<Answer, ControlError> {
        self.lines.set(text.lines().count());
        if self.is_undone.take() || self.refuses.get() == 0 {
            return Ok(self.run(text));
        }
        self.refuses.set(self.refuses.get() - 1);
        let mut lines: Vec<&str> = text.lines().collect();
        let middle = lines.len() / 2;
        if let Some(line) = lines.get_mut(middle) {
            *line = "qdisc add dev lan0 root nothing";
        }
        self.is_undone.set(middle > 0);
        Ok(self.run(&lines.join("\n")))
    }
}

/// The site, the rate and the addresses of subscribers; none for one that goes.
type Wanted = BTreeMap<u8, Option<(u8, u64, Vec<u8>)>>;

/// What comes before an application.
#[derive(Clone, Debug)]
enum Event {
    /// Subscribers become what is said, or go.
    Subscribers(Wanted),
    /// A site gets this capacity, or goes.
    Site(u8, Option<u64>),
    /// The instance refuses so many batches.
    Refuses(u32),
    /// The instance starts anew, without its policy.
    InstanceStarts,
    /// This process starts anew.
    ProcessStarts,
    /// Another process applies the store.
    AnotherApplies,
    /// Another process has begun to, and was killed.
    AnotherIsKilled,
    /// Somebody deletes the classes of a port.
    Deleted,
    /// No instance runs this time.
    NoInstance,
    /// Another capacity of the uplink.
    Uplink(Option<u64>),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let addresses = proptest::collection::vec(0..9_u8, 0..3);
    let subscriber = proptest::option::weighted(0.8, (0..5_u8, 1..90_u64, addresses));
    let subscribers = proptest::collection::btree_map(0..8_u8, subscriber, 1..4);
    let event = prop_oneof![
        12 => subscribers.prop_map(Event::Subscribers),
        2 => (0..4_u8, proptest::option::of(1..60_u64)).prop_map(|(it, rate)| Event::Site(it, rate)),
        3 => (1..3_u32).prop_map(Event::Refuses),
        1 => Just(Event::InstanceStarts),
        1 => Just(Event::ProcessStarts),
        1 => Just(Event::AnotherApplies),
        1 => Just(Event::AnotherIsKilled),
        1 => Just(Event::Deleted),
        1 => Just(Event::NoInstance),
        1 => proptest::option::of(10..200_u64).prop_map(Event::Uplink),
    ];
    proptest::collection::vec(event, 1..25)
}

fn mbit(mbit: u64) -> Rate {
    Rate::from_bits_per_sec(mbit * 1_000_000)
}

fn address(number: u8) -> Prefix {
    let text = match number % 2 {
        0 => format!("10.0.0.{number}"),
        _ => format!("2001:db8:{number}::/48"),
    };
    text.parse().expect("an address")
}

/// Who wants another's address, or has a site that is not there, is refused by the store.
fn change_subscribers(store: &mut Store, wanted: &Wanted) {
    for (identity, wanted) in wanted {
        let subscriber = wanted.as_ref().map(|(site, rate, addresses)| {
            let mut addresses: Vec<Prefix> = addresses.iter().map(|it| address(*it)).collect();
            addresses.sort_unstable();
            addresses.dedup();
            let queueing = [[Queueing::Cake, Queueing::Fifo][*rate as usize % 2]; 2];
            let ceiling = [mbit(*rate), mbit(rate % 7 + 1)];
            let plan = Plan { ceiling, queueing, ..Plan::default() };
            let site = (*site < 4).then(|| site.to_string());
            Subscriber { site, plan, addresses, ..Subscriber::default() }
        });
        let subscribers = [(identity.to_string(), subscriber)].into();
        let _ = store.change("it", Edit { subscribers, ..Edit::default() });
    }
}

fn change_site(store: &mut Store, site: u8, capacity: Option<u64>) {
    let parent = (site > 1).then(|| (site - 1).to_string());
    let it =
        capacity.map(|rate| Site { parent, capacity: [Some(mbit(rate)), None], ..Site::default() });
    let sites = [(site.to_string(), it)].into();
    let _ = store.change("it", Edit { sites, ..Edit::default() });
}

/// The policy of all that is in the store, as it is written to a file.
fn whole(store: &mut Store, settings: &Settings) -> String {
    let options = settings.options(&store.numbers().expect("numbers").clone());
    let mut draft = Draft::default();
    compile(store.directory().expect("a directory"), &options).write(&mut draft);
    let policy = load(&draft.finish().0, "it", &OfflineHost::default()).expect("a policy");
    narrows_tc::save(&policy)
}

fn settings() -> Settings {
    let ports = Ports { internet: "wan0".to_owned(), subscribers: "lan0".to_owned() };
    Settings { ports, ..Settings::default() }
}

fn apply(
    applier: &mut Applier,
    store: &mut Store,
    instance: Option<&Offline>,
) -> Result<Applied, ApplyError> {
    let instance = instance.map(|instance| instance as &dyn Instance);
    applier.apply_on(store, instance, Instant::now())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn whatever_comes_between_the_instance_has_what_the_store_has_or_what_it_had(
        events in events(),
    ) {
        let mut store = Store::in_memory().expect("a store");
        let mut applier = Applier::new(settings());
        let mut instance = Offline::default();
        for (number, event) in events.iter().enumerate() {
            instance.refuses.set(0);
            let mut is_there = true;
            match event {
                Event::Subscribers(wanted) => change_subscribers(&mut store, wanted),
                Event::Site(site, capacity) => change_site(&mut store, *site, *capacity),
                Event::Refuses(batches) => {
                    let wanted = [(1, Some((9, 20 + u64::from(*batches), vec![])))].into();
                    change_subscribers(&mut store, &wanted);
                    instance.refuses.set(*batches);
                }
                Event::InstanceStarts => {
                    instance = Offline { starts: instance.starts + 1, ..Offline::default() };
                }
                Event::ProcessStarts => applier = Applier::new(applier.settings().clone()),
                Event::AnotherApplies => {
                    change_subscribers(&mut store, &[(2, Some((9, 33, vec![2])))].into());
                    let mut other = Applier::new(applier.settings().clone());
                    apply(&mut other, &mut store, Some(&instance)).expect("it takes it");
                    change_subscribers(&mut store, &[(2, Some((9, 34, vec![4])))].into());
                }
                Event::AnotherIsKilled => drop(store.begin().expect("a store")),
                Event::Deleted => {
                    let words = ["qdisc", "del", "dev", "lan0", "root"].map(str::to_owned);
                    execute(&words, &mut *instance.host.borrow_mut());
                    // Without a command, nobody sees it.
                    let new = [(100 + number as u8, Some((9, 20, vec![])))].into();
                    change_subscribers(&mut store, &new);
                }
                Event::NoInstance => is_there = false,
                Event::Uplink(rate) => {
                    let uplink = [rate.map(mbit), None];
                    let settings = Settings { uplink, ..applier.settings().clone() };
                    applier = Applier { settings, ..applier };
                }
            }
            let before = instance.policy();
            match apply(&mut applier, &mut store, Some(&instance).filter(|_| is_there)) {
                Ok(Applied { commands: Some(_), report, .. }) => {
                    let all = whole(&mut store, applier.settings());
                    prop_assert_eq!(instance.policy(), all);
                    let options = applier.settings().options(store.numbers().expect("numbers"));
                    let directory = store.directory().expect("a directory");
                    prop_assert_eq!(report, compile(directory, &options).report);
                }
                Ok(_) => prop_assert!(!is_there),
                Err(ApplyError::Refused { .. }) => {
                    prop_assert!(matches!(event, Event::Refuses(_)));
                    prop_assert_eq!(instance.policy(), before);
                }
                Err(error) => prop_assert!(false, "{}", error),
            }
        }
    }
}

#[test]
fn one_changed_plan_is_one_command_a_direction_also_after_a_refusal() {
    let mut store = Store::in_memory().expect("a store");
    let mut applier = Applier::new(Settings { uplink: [Some(mbit(1000)); 2], ..settings() });
    let instance = Offline::default();
    let all = (0..100).map(|number| (number, Some((9, 20, vec![])))).collect();
    change_subscribers(&mut store, &all);
    apply(&mut applier, &mut store, Some(&instance)).expect("it takes it");
    let asked = instance.asked.get();

    change_subscribers(&mut store, &[(7, Some((9, 22, vec![])))].into());
    let applied = apply(&mut applier, &mut store, Some(&instance)).expect("it takes it");
    assert_eq!(applied.commands, Some(2));

    // Both attempts: by what is known, and by what it says.
    instance.refuses.set(2);
    change_subscribers(&mut store, &[(8, Some((9, 24, vec![])))].into());
    let refused = apply(&mut applier, &mut store, Some(&instance));
    assert!(matches!(refused, Err(ApplyError::Refused { .. })), "{refused:?}");
    assert_eq!(instance.asked.get(), asked + 1);

    change_subscribers(&mut store, &[(9, Some((9, 26, vec![])))].into());
    let applied = apply(&mut applier, &mut store, Some(&instance)).expect("it takes it");
    assert_eq!((applied.commands, instance.lines.get()), (Some(4), 4), "both changes");
    assert_eq!(instance.asked.get(), asked + 1, "what runs is known");
    assert_eq!(instance.policy(), whole(&mut store, applier.settings()));
}
