//! The store against a naive model, and against processes that are killed.

use narrows_directory::{Directory, Plan, Site, Subscriber, changes};
use narrows_store::{Edit, Guard, Store, StoreError};
use narrows_units::Rate;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A folder that goes with it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("nrw-store-{}-{next}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("directory.sqlite")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn subscriber(mbit: u64, address: Option<u8>, site: Option<&str>) -> Subscriber {
    let rate = Rate::from_bits_per_sec(mbit * 1_000_000);
    Subscriber {
        name: "Ann".to_owned(),
        plan: Plan { ceiling: [rate; 2], ..Plan::default() },
        addresses: address.iter().map(|last| format!("10.0.0.{last}").parse().unwrap()).collect(),
        site: site.map(str::to_owned),
        ..Subscriber::default()
    }
}

/// What all sources have said.
#[derive(Clone, Default)]
struct Model {
    whole: Directory,
    owners: BTreeMap<(bool, String), &'static str>,
    applied: Option<Directory>,
    numbers: BTreeMap<String, u32>,
}

impl Model {
    /// The directory after `edit`, if it may be made.
    fn after(&self, source: &'static str, edit: &Edit) -> Option<Self> {
        let mut next = self.clone();
        for (identity, site) in &edit.sites {
            let key = (true, identity.clone());
            if next.owners.get(&key).is_some_and(|owner| *owner != source) {
                return None;
            }
            match site {
                Some(site) => {
                    next.owners.insert(key, source);
                    next.whole.sites.insert(identity.clone(), site.clone());
                }
                None => {
                    next.owners.remove(&key);
                    next.whole.sites.remove(identity);
                }
            }
        }
        for (identity, subscriber) in &edit.subscribers {
            let key = (false, identity.clone());
            if next.owners.get(&key).is_some_and(|owner| *owner != source) {
                return None;
            }
            match subscriber {
                Some(subscriber) => {
                    next.owners.insert(key, source);
                    next.whole.subscribers.insert(identity.clone(), subscriber.clone());
                }
                None => {
                    next.owners.remove(&key);
                    next.whole.subscribers.remove(identity);
                }
            }
        }
        next.whole.check().is_empty().then_some(next)
    }

    /// What makes `directory` all of `source`.
    fn replacing(&self, source: &str, directory: &Directory) -> Edit {
        let mut edit = Edit::default();
        for ((is_site, identity), owner) in &self.owners {
            if *owner != source {
                continue;
            }
            match is_site {
                true => drop(edit.sites.insert(identity.clone(), None)),
                false => drop(edit.subscribers.insert(identity.clone(), None)),
            }
        }
        let sites = directory.sites.iter().map(|(it, site)| (it.clone(), Some(site.clone())));
        edit.sites.extend(sites);
        let all = directory.subscribers.iter();
        edit.subscribers.extend(all.map(|(it, one)| (it.clone(), Some(one.clone()))));
        edit
    }
}

#[derive(Clone, Debug)]
enum Step {
    Replace(&'static str, Directory),
    Upsert(&'static str, u8, Subscriber),
    Remove(&'static str, u8),
    Reopen,
    Other,
    Apply { succeeds: bool, ends: bool },
}

fn subscribers() -> impl Strategy<Value = Subscriber> {
    let site = proptest::option::of(prop_oneof![Just("A"), Just("B"), Just("C")]);
    (1..4_u64, proptest::option::of(1..6_u8), site)
        .prop_map(|(mbit, address, site)| subscriber(mbit, address, site))
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let source = || prop_oneof![Just("csv"), Just("http")];
    let site = prop_oneof![Just("A".to_owned()), Just("B".to_owned())];
    let sites = proptest::collection::btree_set(site, 0..3);
    let some = proptest::collection::btree_map(0..6_u8, subscribers(), 0..6);
    let directory = (sites, some).prop_map(|(sites, some)| Directory {
        sites: sites.into_iter().map(|site| (site, Site::default())).collect(),
        subscribers: some.into_iter().map(|(it, one)| (it.to_string(), one)).collect(),
    });
    let step = prop_oneof![
        3 => (source(), directory).prop_map(|(source, it)| Step::Replace(source, it)),
        4 => (source(), 0..6_u8, subscribers())
            .prop_map(|(source, it, one)| Step::Upsert(source, it, one)),
        2 => (source(), 0..6_u8).prop_map(|(source, it)| Step::Remove(source, it)),
        1 => Just(Step::Reopen),
        1 => Just(Step::Other),
        2 => (any::<bool>(), any::<bool>())
            .prop_map(|(succeeds, ends)| Step::Apply { succeeds, ends }),
    ];
    proptest::collection::vec(step, 1..25)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn it_holds_what_a_model_holds(steps in steps()) {
        let folder = Folder::new();
        let mut store = Store::open(&folder.file()).unwrap();
        let mut other = Store::open(&folder.file()).unwrap();
        let mut model = Model::default();
        let mut revision = 0;
        for step in steps {
            let (source, edit, outcome) = match &step {
                Step::Replace(source, it) => {
                    let edit = model.replacing(source, it);
                    let planned = store.plan(source, it);
                    let outcome = store.replace(source, it, Guard::NONE);
                    prop_assert_eq!(planned.ok(), outcome.as_ref().ok().cloned());
                    (*source, edit, outcome)
                }
                Step::Upsert(source, it, one) => {
                    let subscribers = [(it.to_string(), Some(one.clone()))].into();
                    let edit = Edit { subscribers, ..Edit::default() };
                    (*source, edit, store.upsert(source, &it.to_string(), one.clone()))
                }
                Step::Remove(source, it) => {
                    let subscribers = [(it.to_string(), None)].into();
                    let edit = Edit { subscribers, ..Edit::default() };
                    (*source, edit, store.remove(source, &it.to_string()))
                }
                Step::Reopen => {
                    drop(store);
                    store = Store::open(&folder.file()).unwrap();
                    continue;
                }
                Step::Other => {
                    std::mem::swap(&mut store, &mut other);
                    continue;
                }
                Step::Apply { succeeds, ends } => {
                    let begun = store.begin().unwrap();
                    let now = store.directory().unwrap();
                    let before = begun.before.map(|before| before.directory(now));
                    prop_assert_eq!(&before, &model.applied);
                    match (succeeds, ends) {
                        (_, false) => model.applied = None,
                        (true, true) => {
                            store.finish("how").unwrap();
                            model.applied = Some(model.whole.clone());
                        }
                        (false, true) if model.applied.is_some() => store.give_up().unwrap(),
                        (false, true) => {}
                    }
                    continue;
                }
            };
            let next = model.after(source, &edit);
            prop_assert_eq!(outcome.is_ok(), next.is_some(), "{:?} {:?}", step, outcome);
            if let (Ok(said), Some(next)) = (outcome, next) {
                prop_assert_eq!(&said, &changes(&model.whole, &next.whole));
                revision += u64::from(!said.is_empty());
                model = next;
            }
            prop_assert_eq!(store.directory().unwrap(), &model.whole);
            prop_assert_eq!(store.revision().unwrap(), revision);
            for identity in model.whole.subscribers.keys() {
                let number = store.numbers().unwrap().of_subscriber(identity).unwrap();
                prop_assert_eq!(*model.numbers.entry(identity.clone()).or_insert(number), number);
            }
        }
    }
}

fn many(count: usize, mbit: u64) -> Directory {
    let one = |index: usize| (index.to_string(), subscriber(mbit, None, None));
    Directory { subscribers: (0..count).map(one).collect(), ..Directory::default() }
}

#[test]
fn a_source_that_lost_its_data_is_refused() {
    let folder = Folder::new();
    let mut store = Store::open(&folder.file()).unwrap();
    let guard = Guard { max_removed_share: 0.1 };
    store.replace("csv", &many(100, 1), guard).unwrap();
    let refused = store.replace("csv", &many(50, 1), guard).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "nothing is changed: 50 of the 100 subscribers of csv would be removed, and at most 10 may \
         be: look at the source, or allow more with --max-removed 50%"
    );
    assert_eq!(store.directory().unwrap().subscribers.len(), 100);
    store.replace("csv", &many(90, 1), guard).unwrap();
    // What another source has does not count.
    let other = Directory {
        subscribers: [("x".to_owned(), subscriber(1, None, None))].into(),
        ..Directory::default()
    };
    store.replace("http", &other, guard).unwrap();
    assert!(store.replace("http", &Directory::default(), guard).is_err());
    store.replace("http", &Directory::default(), Guard::NONE).unwrap();
}

#[test]
fn two_sources_that_say_the_same_are_both_named() {
    let folder = Folder::new();
    let mut store = Store::open(&folder.file()).unwrap();
    store.upsert("csv", "1042", subscriber(1, Some(1), None)).unwrap();
    let why = |refused: Result<_, StoreError>| refused.map(drop).unwrap_err().to_string();
    let same = why(store.upsert("http", "1042", subscriber(2, None, None)));
    assert!(same.contains("1042") && same.contains("csv") && same.contains("http"), "{same}");
    let address = why(store.upsert("http", "7", subscriber(1, Some(1), None)));
    assert!(address.contains("10.0.0.1 belongs to subscriber 1042 of the source csv"), "{address}");
    assert_eq!(store.revision().unwrap(), 1);
}

#[test]
fn a_change_at_an_old_revision_is_refused() {
    let folder = Folder::new();
    let mut store = Store::open(&folder.file()).unwrap();
    store.upsert("api", "1", subscriber(1, None, None)).unwrap();
    let late = store.change_at(0, "api", Edit::default()).unwrap_err();
    assert!(matches!(late, StoreError::Moved { expected: 0, now: 1 }), "{late}");
    store.change_at(1, "api", Edit::default()).unwrap();
}

#[test]
fn a_file_of_another_program_or_of_a_newer_version_is_left_alone() {
    let folder = Folder::new();
    Store::open(&folder.file()).unwrap();
    let mode = std::fs::metadata(folder.file()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let db = rusqlite::Connection::open(folder.file()).unwrap();
    db.execute_batch("PRAGMA user_version = 99").unwrap();
    drop(db);
    assert!(matches!(Store::open(&folder.file()), Err(StoreError::Newer { version: 99, .. })));
    let foreign = folder.0.join("foreign");
    let db = rusqlite::Connection::open(&foreign).unwrap();
    db.execute_batch("CREATE TABLE it (a)").unwrap();
    drop(db);
    let why = Store::open(&foreign).unwrap_err().to_string();
    assert!(why.contains("another program"), "{why}");
    std::fs::write(folder.0.join("text"), "not a database, but a text that is long enough")
        .unwrap();
    assert!(Store::open(&folder.0.join("text")).is_err());
}

/// Run by the test below in a process of its own: all subscribers get one more, again and again.
#[test]
fn writer_that_is_killed() {
    let Ok(file) = std::env::var("NRW_STORE_WRITER") else { return };
    let mut store = Store::open(Path::new(&file)).unwrap();
    let first = store.revision().unwrap();
    for round in first + 1.. {
        store.replace("csv", &many(200, round), Guard::NONE).unwrap();
        println!("round {round}");
    }
}

#[test]
fn a_killed_writer_leaves_a_whole_change_or_none() {
    let folder = Folder::new();
    for kill_after in 1..6 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["writer_that_is_killed", "--exact", "--nocapture"])
            .env("NRW_STORE_WRITER", folder.file())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let rounds = lines.map_while(Result::ok).filter(|line| line.starts_with("round"));
        let last = rounds.take(kill_after).last().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let said: u64 = last.trim_start_matches("round ").parse().unwrap();
        let mut store = Store::open(&folder.file()).unwrap();
        let revision = store.revision().unwrap();
        assert!(revision >= said);
        assert_eq!(store.directory().unwrap(), &many(200, revision));
    }
}
