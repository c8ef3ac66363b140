//! Lease files as they grow and are cleaned up, and whose leases are.

use narrows_directory::{Directory, Prefix, Subscriber};
use narrows_sessions::leases::kea_file::{Follower, Log};
use narrows_sessions::leases::{Assignments, Config, Field, Leases, News, Table, kea_socket};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

const HEADER4: &str = "address,hwaddr,client_id,valid_lifetime,expire,subnet_id,fqdn_fwd,\
                       fqdn_rev,hostname,state,user_context,pool_id\n";
const HEADER6: &str = "address,duid,valid_lifetime,expire,subnet_id,pref_lifetime,lease_type,\
                       iaid,prefix_len,fqdn_fwd,fqdn_rev,hostname,hwaddr,state,user_context\n";

fn line4(last: u8, mac: u8, lifetime: u32) -> String {
    format!("10.0.0.{last},00:0c:29:00:00:{mac:02x},,{lifetime},1800003600,1,0,0,,0,,0\n")
}

fn addresses(table: &Table) -> Vec<String> {
    let mut addresses: Vec<_> =
        table.keys().map(|one| format!("{}/{}", one.ip, one.bits)).collect();
    addresses.sort();
    addresses
}

/// A folder of its own, which goes with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("nrw-leases-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn append(&self, name: &str, text: &str) {
        let file = fs::File::options().create(true).append(true).open(self.file(name));
        file.unwrap().write_all(text.as_bytes()).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_last_line_of_an_address_counts() {
    let mut log = Log::default();
    log.feed(HEADER4.as_bytes());
    log.feed((line4(1, 1, 3600) + &line4(2, 2, 3600) + &line4(1, 1, 0)).as_bytes());
    assert_eq!(addresses(log.table()), ["10.0.0.2/32"]);
    // Declined, and reclaimed after its end.
    let line = line4(3, 3, 3600);
    log.feed(line.replace(",,0,,0\n", ",,1,,0\n").as_bytes());
    log.feed(line4(2, 2, 3600).replace(",,0,,0\n", ",,2,,0\n").as_bytes());
    assert!(log.table().is_empty());
}

#[test]
fn columns_are_found_by_their_names() {
    let mut log = Log::default();
    log.feed(
        b"address,state,expire,valid_lifetime,hwaddr\n10.0.0.9,0,1800003600,60,000c29000001\n",
    );
    let lease = log.table().values().next().unwrap();
    assert_eq!(lease.fields[&Field::HwAddress], "00:0c:29:00:00:01");
    assert_eq!(lease.expires, Some(1_800_003_600));
}

#[test]
fn prefixes_and_relays_of_dhcpv6_are_read() {
    let mut log = Log::default();
    log.feed(HEADER6.as_bytes());
    // Interface-Id "eth/7".
    let context =
        r#"{ "ISC": { "relay-info": [ { "hop": 0, "options": "0x001200056574682F37" } ] } }"#;
    let context = context.replace(',', "&#x2c");
    let line =
        format!("2001:db8:5:ff00::,00:01:02,3600,1800003600,1,1800,2,7,56,0,0,,,0,{context}\n");
    log.feed(line.as_bytes());
    let (address, lease) = log.table().iter().next().unwrap();
    assert_eq!((address.ip.to_string().as_str(), address.bits), ("2001:db8:5:ff00::", 56));
    assert_eq!(lease.fields[&Field::CircuitId], "eth/7");
    assert_eq!(lease.fields[&Field::Duid], "00:01:02");
}

#[test]
fn a_user_context_names_the_line_and_more() {
    let mut log = Log::default();
    log.feed(HEADER4.as_bytes());
    let context = r#"{ "ISC": { "relay-agent-info": "0x0103612F31" }, "contract": "1042" }"#;
    let context = context.replace(',', "&#x2c");
    let line = line4(1, 1, 3600).replace(",0,,0\n", &format!(",0,{context},0\n"));
    log.feed(line.as_bytes());
    let lease = log.table().values().next().unwrap();
    assert_eq!(lease.fields[&Field::CircuitId], "a/1");
    assert_eq!(lease.context["contract"], "1042");
}

#[test]
fn a_file_is_followed_as_it_grows() {
    let folder = Folder::new("grows");
    let mut follower = Follower::new(folder.file("leases4.csv"));
    assert!(follower.poll().is_err(), "there is none");
    folder.append("leases4.csv", &(HEADER4.to_owned() + &line4(1, 1, 3600)));
    assert!(follower.poll().unwrap());
    assert!(!follower.poll().unwrap());
    // Kea writes a line in two parts.
    let line = line4(2, 2, 3600);
    folder.append("leases4.csv", &line[..20]);
    follower.poll().unwrap();
    assert_eq!(addresses(follower.table()), ["10.0.0.1/32"]);
    folder.append("leases4.csv", &line[20..]);
    follower.poll().unwrap();
    assert_eq!(addresses(follower.table()), ["10.0.0.1/32", "10.0.0.2/32"]);
    assert_eq!(follower.news(), News::All(follower.table().clone()), "the first time");
    folder.append("leases4.csv", &(line4(2, 9, 3600) + &line4(1, 1, 0)));
    follower.poll().unwrap();
    let News::Some(mut changes) = follower.news() else { panic!("it says all") };
    changes.sort_by_key(|(address, _)| *address);
    let two = Prefix { ip: [10, 0, 0, 2].into(), bits: 32 };
    let changes: Vec<_> = changes.iter().map(|(at, lease)| (*at, lease.is_some())).collect();
    assert_eq!(changes, [(Prefix { ip: [10, 0, 0, 1].into(), bits: 32 }, false), (two, true)]);
    assert_eq!(follower.news(), News::Some(Vec::new()));
}

#[test]
fn nothing_is_lost_at_any_step_of_a_cleanup() {
    let folder = Folder::new("cleanup");
    let file = |name: &str| folder.file(&format!("leases4.csv{name}"));
    folder.append("leases4.csv.2", &(HEADER4.to_owned() + &line4(1, 1, 3600) + &line4(2, 2, 3600)));
    folder.append("leases4.csv", &(HEADER4.to_owned() + &line4(3, 3, 3600) + &line4(1, 1, 0)));
    let mut follower = Follower::new(file(""));
    let mut check = |expected: &[&str]| {
        follower.poll().unwrap();
        assert_eq!(addresses(follower.table()), expected);
        // One that starts now sees the same.
        let mut other = Follower::new(file(""));
        other.poll().unwrap();
        assert_eq!(addresses(other.table()), expected);
    };
    check(&["10.0.0.2/32", "10.0.0.3/32"]);
    // Kea moves its file away, and begins another.
    fs::rename(file(""), file(".1")).unwrap();
    folder.append("leases4.csv", &(HEADER4.to_owned() + &line4(4, 4, 3600)));
    check(&["10.0.0.2/32", "10.0.0.3/32", "10.0.0.4/32"]);
    // The cleanup writes one file of the two that are old.
    folder.append("leases4.csv.output", &(HEADER4.to_owned() + &line4(2, 2, 3600)));
    check(&["10.0.0.2/32", "10.0.0.3/32", "10.0.0.4/32"]);
    folder.append("leases4.csv.output", &line4(3, 3, 3600));
    fs::rename(file(".output"), file(".completed")).unwrap();
    check(&["10.0.0.2/32", "10.0.0.3/32", "10.0.0.4/32"]);
    fs::remove_file(file(".1")).unwrap();
    fs::remove_file(file(".2")).unwrap();
    fs::rename(file(".completed"), file(".2")).unwrap();
    check(&["10.0.0.2/32", "10.0.0.3/32", "10.0.0.4/32"]);
    folder.append("leases4.csv", &line4(2, 2, 0));
    check(&["10.0.0.3/32", "10.0.0.4/32"]);
}

#[test]
fn a_page_of_the_control_socket_is_read() {
    let answer = br#"{ "result": 0, "text": "2 IPv4 lease(s) found.", "arguments": { "count": 2,
      "leases": [
        { "ip-address": "10.0.0.5", "hw-address": "00:0c:29:00:00:05", "client-id": "01:00",
          "cltt": 1800000000, "valid-lft": 3600, "state": 0, "subnet-id": 1, "hostname": "ann",
          "user-context": { "ISC": { "relay-agent-info": { "sub-options": "0x0103612F31" } } } },
        { "ip-address": "10.0.0.6", "cltt": 1800000000, "valid-lft": 3600, "state": 1 }
      ] } }"#;
    let page = kea_socket::page(answer).unwrap();
    assert_eq!((page.leases.len(), page.next), (1, None));
    let lease = &page.leases[0];
    assert_eq!(lease.expires, Some(1_800_003_600));
    assert_eq!(lease.fields[&Field::CircuitId], "a/1");
    assert!(kea_socket::page(br#"{ "result": 3, "text": "0 leases" }"#).unwrap().leases.is_empty());
    let refused = kea_socket::page(br#"{ "result": 2, "text": "unsupported command" }"#);
    assert!(refused.unwrap_err().to_string().contains("libdhcp_lease_cmds.so"));
    for other in [&b""[..], b"[]", b"{}", b"\"result\""] {
        assert!(kea_socket::page(other).is_err());
    }
}

fn directory(labels: &[(&str, &str, &str)]) -> Directory {
    let one = |(identity, label, value): &(&str, &str, &str)| {
        let labels = BTreeMap::from([((*label).to_owned(), (*value).to_owned())]);
        ((*identity).to_owned(), Subscriber { labels, ..Subscriber::default() })
    };
    Directory { subscribers: labels.iter().map(one).collect(), ..Directory::default() }
}

fn leases(rules: &str, lines: &[String]) -> Leases {
    let config = format!("[[server]]\nkea_file = \"/leases4.csv\"\n{rules}");
    let mut leases = Leases::new(Config::parse(&config).unwrap());
    let mut log = Log::default();
    log.feed(HEADER4.as_bytes());
    log.feed(lines.concat().as_bytes());
    leases.set(0, News::All(log.table().clone()));
    leases
}

/// Whose they are at `unix`, where these addresses are `fixed`.
fn assignments(
    mut leases: Leases,
    unix: u64,
    directory: &Directory,
    fixed: &[Prefix],
) -> Assignments {
    leases.know(directory, fixed.iter().copied());
    let changes = leases.changes(unix);
    assert_eq!(changes, leases.assignments(), "nobody had any before");
    changes
}

const BY_MAC: &str = "[[match]]\nlease = \"hw-address\"\nlabel = \"mac\"\n";

#[test]
fn a_lease_is_the_one_of_the_subscriber_with_its_mac_address() {
    let directory = directory(&[
        ("ann", "mac", "000C.2900.0001, 00-0c-29-00-00-02"),
        ("ben", "mac", "00:0c:29:00:00:03"),
        ("cid", "other", "00:0c:29:00:00:04"),
    ]);
    let lines = [line4(1, 1, 60), line4(2, 2, 60), line4(3, 3, 60), line4(4, 4, 60)];
    let mut leases = leases(BY_MAC, &lines);
    leases.know(&directory, []);
    let assignments = leases.changes(1_800_000_000);
    assert_eq!(assignments.keys().collect::<Vec<_>>(), ["ann", "ben"]);
    assert_eq!(assignments["ann"].len(), 2);
    assert!(leases.changes(1_800_003_599).is_empty(), "nothing is new");
    // When they are over, they are nobody's.
    let none = BTreeSet::new();
    let over = [("ann".to_owned(), none.clone()), ("ben".to_owned(), none)].into();
    assert_eq!(leases.changes(1_800_003_600), over);
    assert!(leases.assignments().is_empty());
}

#[test]
fn who_has_the_same_label_as_another_is_not_guessed() {
    let mac = "00:0c:29:00:00:01";
    let directory = directory(&[("ann", "mac", mac), ("ben", "mac", mac)]);
    assert!(assignments(leases(BY_MAC, &[line4(1, 1, 60)]), 0, &directory, &[]).is_empty());
}

#[test]
fn a_fixed_address_is_nobodys_lease() {
    let directory = directory(&[("ann", "mac", "00:0c:29:00:00:01")]);
    let fixed = [Prefix { ip: [10, 0, 0, 1].into(), bits: 32 }];
    let lines = [line4(1, 1, 60)];
    assert!(assignments(leases(BY_MAC, &lines), 0, &directory, &fixed).is_empty());
    assert_eq!(assignments(leases(BY_MAC, &lines), 0, &directory, &[]).len(), 1);
}

#[test]
fn an_identity_can_be_what_a_lease_says() {
    let directory = directory(&[("00:0c:29:00:00:01", "", "")]);
    let rules = "[[match]]\nlease = \"circuit-id\"\nlabel = \"circuit\"\n\n\
                 [[match]]\nlease = \"hw-address\"\n";
    let assignments = assignments(leases(rules, &[line4(1, 1, 60)]), 0, &directory, &[]);
    assert_eq!(assignments["00:0c:29:00:00:01"].len(), 1);
}

#[test]
fn configurations_that_cannot_be_say_what_to_write() {
    let server = "[[server]]\nkea_file = \"/x\"\n";
    for (text, word) in [
        (String::new(), "[[server]]"),
        (server.to_owned(), "[[match]]"),
        (format!("{server}family = 4\n{BY_MAC}"), "kea_socket"),
        (format!("[[server]]\nkea_socket = \"/x\"\n{BY_MAC}"), "4 or 6"),
        (format!("[[server]]\nkea_file = \"/x\"\ndnsmasq_file = \"/y\"\n{BY_MAC}"), "one of"),
        (format!("{server}[[match]]\nlabel = \"mac\"\n"), "`lease`"),
        (format!("{server}[[match]]\nlease = \"mac\"\n"), "hw-address"),
        (format!("[[server]]\nkea_socket = \"/x\"\nfamily = 4\nevery = \"0s\"\n{BY_MAC}"), "time"),
    ] {
        let error = Config::parse(&text).unwrap_err().to_string();
        assert!(error.contains(word), "{text}: {error}");
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..6)) {
        let mut log = Log::default();
        log.feed(HEADER4.as_bytes());
        for part in parts {
            log.feed(&part);
        }
        log.feed(b"\n");
    }

    #[test]
    fn it_does_not_matter_where_bytes_are_cut(
        lines in prop::collection::vec((1..5_u8, 0..3_u8, prop::bool::ANY), 0..20),
        cuts in prop::collection::vec(1..90_usize, 1..20),
    ) {
        let lines = lines.iter().map(|(last, mac, is_on)| line4(*last, *mac, u32::from(*is_on) * 60));
        let text = HEADER4.to_owned() + &lines.collect::<String>();
        let mut whole = Log::default();
        whole.feed(text.as_bytes());
        let mut parts = Log::default();
        let mut rest = text.as_bytes();
        for cut in cuts {
            let (part, behind) = rest.split_at(cut.min(rest.len()));
            parts.feed(part);
            rest = behind;
        }
        parts.feed(rest);
        prop_assert_eq!(whole.table(), parts.table());
    }
}
