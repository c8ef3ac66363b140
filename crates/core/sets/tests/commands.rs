//! What `ipset` does, line by line.

use narrows_sets::{Host, Key, Match, Named, Reply, Restore, Sets};
use narrows_units::Nanos;
use proptest::prelude::*;

/// A host of filters that use the set `used`.
struct Filters;

impl Host for Filters {
    fn references(&self, name: &str) -> usize {
        usize::from(name == "used")
    }

    fn counted(&self, named: &Named, key: &Key) -> (u64, u64) {
        named.set.initial(key)
    }
}

fn at(seconds: u64) -> Nanos {
    Nanos::from_secs(seconds)
}

fn ask(sets: &mut Sets, line: &str) -> Reply {
    let words = shlex(line);
    sets.run(&words, at(0), &Filters)
}

/// Cut as a shell does.
fn shlex(line: &str) -> Vec<String> {
    let parts = line.split('"').enumerate();
    let words = parts.flat_map(|(index, part)| match index % 2 {
        0 => part.split_whitespace().map(str::to_owned).collect(),
        _ => vec![part.to_owned()],
    });
    words.collect()
}

#[track_caller]
fn ok(sets: &mut Sets, line: &str) -> String {
    let reply = ask(sets, line);
    assert_eq!((reply.code, reply.stderr.as_str()), (0, ""), "{line}");
    reply.stdout
}

#[track_caller]
fn refused(sets: &mut Sets, line: &str) -> String {
    let before = sets.save(at(0), &Filters);
    let reply = ask(sets, line);
    assert_ne!(reply.code, 0, "{line}");
    assert_eq!(sets.save(at(0), &Filters), before, "{line} changed something");
    reply.stderr
}

fn restore(text: &str, may_exist: bool) -> (Sets, Reply) {
    let mut sets = Sets::default();
    let mut restore = Restore::new(text.to_owned(), 1, may_exist);
    while restore.step(&mut sets, at(0), &Filters) {}
    let reply = restore.end();
    (sets, reply)
}

const SAVED: &str =
    "create bad hash:net family inet hashsize 4096 maxelem 200000 timeout 600 counters \
comment bucketsize 12 initval 0xd3fd5e6b
add bad 10.0.0.0/8 timeout 60 packets 3 bytes 180 comment \"a \u{fc}ber, list\"
add bad 10.1.0.0/16 timeout 0 nomatch packets 0 bytes 0
add bad 192.0.2.1 timeout 600 packets 0 bytes 0
create bad6 hash:net family inet6 hashsize 1024 maxelem 65536
add bad6 2001:db8::/32
add bad6 2001:db8:1::1
create cameras hash:mac hashsize 1024 maxelem 65536
add cameras 02:00:00:00:00:0A
create mail hash:net,port family inet hashsize 1024 maxelem 65536
add mail 192.0.2.0/24,tcp:25
add mail 192.0.2.0/24,89:0
create single hash:ip family inet hashsize 1024 maxelem 65536 netmask 24
add single 192.0.2.0
";

#[test]
fn a_file_may_begin_with_the_mark_of_an_editor_and_end_lines_as_it_does() {
    let (_, reply) = restore("\u{feff}create a hash:net\r\nadd a 192.0.2.0/24\r\n", false);
    assert_eq!(reply, Reply::default());
}

#[test]
fn lines_saved_by_ipset_survive_restore_and_save() {
    let (sets, reply) = restore(SAVED, false);
    assert_eq!(reply, Reply::default());
    assert_eq!(sets.save(at(0), &Filters), SAVED);
    let (_, again) = restore(&format!("# twice\n\n{SAVED}COMMIT\n{SAVED}"), false);
    let expected =
        "Error in line 18: Set cannot be created: set with the same name already exists\n";
    assert_eq!(again.stderr, format!("narrows set: {expected}"));
    let (sets, twice) = restore(&format!("{SAVED}{SAVED}"), true);
    assert_eq!(twice, Reply::default());
    assert_eq!(sets.save(at(0), &Filters), SAVED);
}

#[test]
fn lines_before_a_failing_one_are_in_force() {
    let (sets, reply) =
        restore("create a hash:ip\nadd a 192.0.2.1\nadd a nonsense\nadd a ::1", false);
    assert_eq!(reply.code, 1);
    assert!(
        reply.stderr.contains("Error in line 3: \"nonsense\" is no address"),
        "{}",
        reply.stderr
    );
    assert_eq!(sets.get("a").unwrap().set.len(), 1);
}

#[test]
fn the_longest_prefix_decides() {
    let (mut sets, _) = restore(SAVED, false);
    let test = |sets: &mut Sets, line: &str| (ask(sets, line).code, ask(sets, line));
    let (code, reply) = test(&mut sets, "test bad 10.2.3.4");
    assert_eq!((code, reply.stdout.as_str()), (0, "10.2.3.4 is in set bad.\n"));
    let (code, reply) = test(&mut sets, "test bad 10.1.3.4");
    assert_eq!((code, reply.stderr.as_str()), (1, "10.1.3.4 is NOT in set bad.\n"));
    assert_eq!(test(&mut sets, "test bad6 2001:db8:ffff::").0, 0);
    assert_eq!(test(&mut sets, "test bad6 2001:db9::").0, 1);
    assert_eq!(test(&mut sets, "test mail 192.0.2.9,25").0, 0);
    assert_eq!(test(&mut sets, "test mail 192.0.2.9,26").0, 1);
    assert_eq!(test(&mut sets, "test single 192.0.2.77").0, 0);
    assert_eq!(test(&mut sets, "test cameras 2:0:0:0:0:a").0, 0);
    // A prefix is in a set if it is a member itself, regardless of covering ones.
    assert_eq!(test(&mut sets, "test bad 10.2.0.0/16").0, 1);
}

#[test]
fn members_go_when_their_time_is_over() {
    let mut sets = Sets::default();
    ok(&mut sets, "create a hash:ip timeout 10");
    ok(&mut sets, "add a 192.0.2.1");
    ok(&mut sets, "add a 192.0.2.2 timeout 5");
    ok(&mut sets, "add a 192.0.2.3 timeout 0");
    assert_eq!(sets.next_end(), Some(at(5)));
    assert!(!sets.expire(at(4)));
    assert!(sets.expire(at(5)));
    let left = "create a hash:ip family inet hashsize 1024 maxelem 65536 timeout 10\n\
                add a 192.0.2.1 timeout 5\nadd a 192.0.2.3 timeout 0\n";
    assert_eq!(sets.save(at(5), &Filters), left);
    // Adding a member again restarts its time-out.
    ok(&mut sets, "-exist add a 192.0.2.1 timeout 100");
    assert!(!sets.expire(at(50)));
    assert!(sets.expire(at(100)));
    assert_eq!(sets.next_end(), None);
}

#[test]
fn swap_exchanges_the_members_of_two_sets_only() {
    let mut sets = Sets::default();
    ok(&mut sets, "create live hash:net");
    ok(&mut sets, "create next hash:net maxelem 9 counters");
    ok(&mut sets, "create six hash:net family inet6");
    ok(&mut sets, "add next 192.0.2.0/24");
    let slot =
        |sets: &Sets, name| sets.get(name).map(|named| (named.slot, named.contents)).unwrap();
    let (live, next) = (slot(&sets, "live"), slot(&sets, "next"));
    ok(&mut sets, "swap live next");
    assert_eq!(slot(&sets, "live"), (live.0, next.1));
    assert_eq!(slot(&sets, "next"), (next.0, live.1));
    assert!(sets.get("live").unwrap().set.kind().counters);
    let packet = Match { address: "192.0.2.7".parse().unwrap(), port: (0, 0) };
    assert!(sets.get("live").unwrap().set.contains(&packet));
    assert!(refused(&mut sets, "swap live six").contains("their type does not match"));
    assert!(refused(&mut sets, "swap live none").contains("\"none\" does not exist"));
    ok(&mut sets, "swap live live");
}

#[test]
fn refusals_say_what_to_do() {
    let mut sets = Sets::default();
    ok(&mut sets, "create a hash:ip maxelem 2");
    ok(&mut sets, "create used hash:ip");
    ok(&mut sets, "add a 192.0.2.0/31");
    assert!(refused(&mut sets, "add a 192.0.2.0").contains("it's already added"));
    ok(&mut sets, "-exist add a 192.0.2.0");
    assert!(refused(&mut sets, "add a 192.0.2.9").contains("Hash is full"));
    assert!(refused(&mut sets, "del a 192.0.2.9").contains("it's not added"));
    ok(&mut sets, "-exist del a 192.0.2.9");
    assert!(refused(&mut sets, "add a 192.0.2.9 timeout 3").contains("created without timeout"));
    assert!(refused(&mut sets, "add a 192.0.2.9 comment x").contains("created without comment"));
    assert!(refused(&mut sets, "add a 192.0.2.9 nomatch").contains("not for hash:ip"));
    assert!(refused(&mut sets, "add b 192.0.2.9").contains("narrows set create b"));
    assert!(refused(&mut sets, "destroy used").contains("in use by 1 filter"));
    assert!(refused(&mut sets, "destroy").contains("in use by 1 filter"));
    assert!(refused(&mut sets, "rename used b").contains("in use by a filter"));
    assert!(refused(&mut sets, "rename a used").contains("already exists"));
    assert!(refused(&mut sets, "create a hash:net").contains("already exists"));
    ok(&mut sets, "-exist create a hash:ip");
    ok(&mut sets, "rename a b");
    ok(&mut sets, "flush b");
    assert!(sets.get("b").unwrap().set.is_empty());
    ok(&mut sets, "destroy b");
    assert!(refused(&mut sets, "-q destroy b").is_empty());
    for number in 1..narrows_sets::SETS_MAX {
        ok(&mut sets, &format!("create s{number} hash:mac"));
    }
    assert!(refused(&mut sets, "create more hash:mac").contains("destroy one"));
}

#[test]
fn members_have_rates_in_a_set_that_is_made_with_them() {
    let mut sets = Sets::default();
    ok(&mut sets, "create plans hash:net rate");
    ok(&mut sets, "add plans 10.0.0.0/24 rate 5mbit");
    ok(&mut sets, "add plans 10.0.0.7 rate 1.5gbit");
    ok(&mut sets, "add plans 10.0.0.8");
    ok(&mut sets, "add plans 10.0.0.9 nomatch");
    let saved = "create plans hash:net family inet hashsize 1024 maxelem 65536 rate\n\
                 add plans 10.0.0.0/24 rate 5000000bit\nadd plans 10.0.0.7 rate 1500000000bit\n\
                 add plans 10.0.0.8\nadd plans 10.0.0.9 nomatch\n";
    assert_eq!(ok(&mut sets, "save"), saved);
    let (again, reply) = restore(saved, false);
    assert_eq!((reply.code, again.save(at(0), &Filters)), (0, saved.to_owned()));
    ok(&mut sets, "-exist add plans 10.0.0.7 rate 77777777");
    // 9722222 bytes per second, of which six digits are kept.
    let saved = ok(&mut sets, "save");
    assert!(saved.contains("add plans 10.0.0.7 rate 77777760bit"), "{saved}");
    let (again, _) = restore(&saved, false);
    assert_eq!(again.save(at(0), &Filters), saved);
    for rate in ["0", "4bit", "fast", "-1mbit", "1e30gbit"] {
        let why = refused(&mut sets, &format!("add plans 10.0.0.1 rate {rate}"));
        assert!(why.contains("a rate from 8bit on"), "{why}");
    }
    ok(&mut sets, "create plain hash:net");
    let why = refused(&mut sets, "add plain 10.0.0.1 rate 5mbit");
    assert!(why.contains("the set was created without rate"), "{why}");
    assert!(refused(&mut sets, "swap plain plans").contains("type does not match"));
    for kind in ["hash:net,port", "hash:mac"] {
        assert!(
            refused(&mut sets, &format!("create more {kind} rate")).contains("rate is not for")
        );
    }
}

#[test]
fn list_prints_as_ipset_does() {
    let mut sets = Sets::default();
    ok(&mut sets, "create used hash:ip timeout 9");
    ok(&mut sets, "add used 192.0.2.1");
    let header = "Name: used\nType: hash:ip\nRevision: 5\n\
                  Header: family inet hashsize 1024 maxelem 65536 timeout 9\n\
                  Size in memory: 48\nReferences: 1\nNumber of entries: 1\n";
    assert_eq!(ok(&mut sets, "list -t"), header);
    assert_eq!(ok(&mut sets, "list used"), format!("{header}Members:\n192.0.2.1 timeout 9\n"));
    ok(&mut sets, "create b hash:mac");
    assert_eq!(ok(&mut sets, "list -n"), "b\nused\n");
    assert_eq!(ok(&mut sets, "list -o save b"), "create b hash:mac hashsize 1024 maxelem 65536\n");
}

fn word() -> impl Strategy<Value = String> {
    let words = [
        "create",
        "add",
        "del",
        "test",
        "swap",
        "rename",
        "flush",
        "destroy",
        "list",
        "save",
        "a",
        "b",
        "hash:ip",
        "hash:net",
        "hash:net,port",
        "hash:mac",
        "timeout",
        "0",
        "7",
        "counters",
        "comment",
        "\"x y\"",
        "nomatch",
        "family",
        "inet6",
        "10.0.0.0/8",
        "10.0.0.1",
        "::/1",
        "2001:db8::1",
        "10.0.0.1-10.0.3.9",
        "10.0.0.0/24,80-90",
        "02:00:00:00:00:01",
        "maxelem",
        "-exist",
        "-o",
    ];
    prop_oneof![9 => prop::sample::select(words.to_vec()).prop_map(str::to_owned), 1 => ".{0,9}"]
}

proptest! {
    /// And the result can be saved and restored.
    #[test]
    fn no_lines_are_trusted(
        lines in prop::collection::vec(prop::collection::vec(word(), 0..8), 0..20),
    ) {
        let lines: Vec<String> = lines.into_iter().map(|words| words.join(" ")).collect();
        let mut sets = Sets::default();
        for line in lines.join("\n").lines() {
            let mut one = Restore::new(line.to_owned(), 1, false);
            while one.step(&mut sets, at(0), &Filters) {}
        }
        let saved = sets.save(at(0), &Filters);
        let (again, reply) = restore(&saved, false);
        prop_assert_eq!(reply, Reply::default());
        prop_assert_eq!(again.save(at(0), &Filters), saved);
    }
}
