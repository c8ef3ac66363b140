//! The lease file of ISC's dhcpd, as it grows and is written anew.

use narrows_sessions::leases::isc_file::{Follower, Log};
use narrows_sessions::leases::{Config, Field, Leases, News, Server, Source, Table};
use narrows_units::Nanos;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

/// What a server writes at its start.
const HEAD: &str = "# The format of this file is documented in the dhcpd.leases(5) manual page.\n\
                    # This lease file was written by isc-dhcp-4.4.3-P1\n\n\
                    # authoring-byte-order entry is generated, DO NOT DELETE\n\
                    authoring-byte-order little-endian;\n\n\
                    server-duid \"\\000\\001\\000\\001/\\012\\\"{}\\000\";\n\n";

fn lease4(last: u8, state: &str, mac: u8) -> String {
    format!(
        "lease 10.0.0.{last} {{\n  starts 1 2026/11/30 15:00:00;\n  \
         ends 1 2026/11/30 16:00:00;\n  cltt 1 2026/11/30 15:00:00;\n  \
         binding state {state};\n  next binding state free;\n  rewind binding state free;\n  \
         hardware ethernet 00:0c:29:00:00:{mac:02x};\n}}\n"
    )
}

fn read(text: &str) -> Table {
    let mut log = Log::default();
    log.feed(text.as_bytes());
    log.table().clone()
}

fn addresses(table: &Table) -> Vec<String> {
    let mut addresses: Vec<_> =
        table.keys().map(|one| format!("{}/{}", one.ip, one.bits)).collect();
    addresses.sort();
    addresses
}

#[test]
fn a_lease_says_its_client_its_line_and_its_end() {
    let text = HEAD.to_owned()
        + r#"lease 10.0.0.5 {
  starts 1 2026/11/30 15:00:00;
  ends 1 2026/11/30 16:00:00;
  tstp 1 2026/11/30 16:00:00;
  cltt 1 2026/11/30 15:00:00;
  binding state active;
  next binding state free;
  rewind binding state free;
  hardware ethernet 00:0c:29:aa:bb:cc;
  uid "\001\000\014)\252\273\314";
  set vendor-class-identifier = "MSFT 5.0";
  set contract = "1042";
  option agent.circuit-id "eth0/1:7";
  option agent.remote-id 0:4:a:b;
  client-hostname "ann";
  on commit {
    execute ("/bin/true", "}");
    if true {
      set seen = "1";
    }
  }
}
"#;
    let table = read(&text);
    assert_eq!(addresses(&table), ["10.0.0.5/32"]);
    let lease = table.values().next().unwrap();
    assert_eq!(lease.expires, Some(1_796_054_400));
    let expected = BTreeMap::from([
        (Field::HwAddress, "00:0c:29:aa:bb:cc"),
        (Field::ClientId, "01:00:0c:29:aa:bb:cc"),
        (Field::Hostname, "ann"),
        (Field::CircuitId, "eth0/1:7"),
        (Field::RemoteId, "0x00040a0b"),
    ]);
    let expected: BTreeMap<_, _> =
        expected.into_iter().map(|(field, text)| (field, text.to_owned())).collect();
    assert_eq!(lease.fields, expected);
    assert_eq!(lease.context["contract"], "1042");
}

/// Files of isc-dhcp 4.4.3-P1, with one client.
#[test]
fn what_a_server_has_written_is_read() {
    let table = read(include_str!("isc/dhcpd.leases"));
    assert_eq!(addresses(&table), ["10.77.0.10/32"]);
    let lease = table.values().next().unwrap();
    assert_eq!(lease.expires, Some(1_796_055_929));
    assert_eq!(lease.fields[&Field::HwAddress], "8a:ad:9e:5a:b2:c5");
    assert_eq!(lease.fields[&Field::Hostname], "ann");
    assert_eq!(lease.context["contract"], "1042");
    assert_eq!(lease.context["mac"], "8a:ad:9e:5a:b2:c5");
    let table = read(include_str!("isc/dhcpd6.leases"));
    assert_eq!(addresses(&table), ["2001:db8:55ff::/56", "2001:db8:77::200/128"]);
    let duid = "00:01:00:01:32:a0:5d:a2:8a:ad:9e:5a:b2:c5";
    assert!(table.values().all(|lease| lease.fields[&Field::Duid] == duid));
}

#[test]
fn the_last_declaration_of_an_address_counts() {
    let three = lease4(1, "active", 1) + &lease4(2, "active", 2) + &lease4(3, "backup", 3);
    assert_eq!(addresses(&read(&three)), ["10.0.0.1/32", "10.0.0.2/32"]);
    for state in ["free", "expired", "released", "abandoned", "reset", "backup"] {
        assert_eq!(addresses(&read(&(three.clone() + &lease4(1, state, 1)))), ["10.0.0.2/32"]);
    }
    let other = read(&(three + &lease4(1, "active", 9)));
    let macs: Vec<_> = other.values().map(|one| &one.fields[&Field::HwAddress]).collect();
    assert!(macs.contains(&&"00:0c:29:00:00:09".to_owned()));
}

#[test]
fn ends_are_times_seconds_or_never() {
    let with = |ends: &str| {
        let text = lease4(1, "active", 1).replace("ends 1 2026/11/30 16:00:00;", ends);
        read(&text).values().next().map(|lease| lease.expires)
    };
    assert_eq!(with("ends never;"), Some(None));
    let local = "ends epoch 1796054400; # Mon Nov 30 17:00:00 2026";
    assert_eq!(with(local), Some(Some(1_796_054_400)));
    assert_eq!(with("ends 1 2026/13/30 16:00:00;"), None, "no such time: nobody's");
    assert_eq!(with(""), None);
}

#[test]
fn addresses_and_prefixes_of_dhcpv6_have_the_duid_of_their_client() {
    let text = r#"ia-na "\007\000\000\000\000\001\000\001\"{" {
  cltt 1 2026/11/30 15:00:00;
  iaaddr 2001:db8::5 {
    binding state active;
    preferred-life 2250;
    max-life 3600;
    ends 1 2026/11/30 16:00:00;
  }
  iaaddr 2001:db8::6 {
    binding state expired;
    preferred-life 2250;
    max-life 3600;
    ends 1 2026/11/30 16:00:00;
  }
}

ia-pd "\007\000\000\000\000\001\000\001\"{" {
  cltt 1 2026/11/30 15:00:00;
  iaprefix 2001:db8:5:ff00::/56 {
    binding state active;
    preferred-life 2250;
    max-life 3600;
    ends 1 2026/11/30 16:00:00;
    set contract = "7";
  }
}
"#;
    let table = read(text);
    assert_eq!(addresses(&table), ["2001:db8:5:ff00::/56", "2001:db8::5/128"]);
    assert!(table.values().all(|lease| lease.fields[&Field::Duid] == "00:01:00:01:22:7b"));
    let released = text.replace("state active", "state released");
    assert!(read(&(text.to_owned() + &released)).is_empty());
}

#[test]
fn a_declaration_without_its_end_does_not_hide_the_next_ones() {
    let broken = lease4(1, "active", 1);
    let (half, _) = broken.split_at(broken.find("cltt").unwrap());
    let text = half.to_owned() + "\n" + &lease4(2, "active", 2);
    assert_eq!(addresses(&read(&text)), ["10.0.0.2/32"]);
    let unquoted = half.to_owned() + "  uid \"\\001\n" + &lease4(2, "active", 2);
    assert_eq!(addresses(&read(&unquoted)), ["10.0.0.2/32"]);
}

#[test]
fn what_else_is_in_the_file_is_passed_over() {
    let text = HEAD.to_owned()
        + "failover peer \"a\" state {\n  my state normal at 1 2026/11/30 15:00:00;\n}\n"
        + "host ann {\n  dynamic;\n  hardware ethernet 00:0c:29:00:00:01;\n}\n"
        + &lease4(1, "active", 1)
        + &"x".repeat(200_000)
        + " {\n lease 10.0.0.9 { ends never; }\n}\n"
        + &lease4(2, "active", 2);
    assert_eq!(addresses(&read(&text)), ["10.0.0.1/32", "10.0.0.2/32"]);
}

#[test]
fn a_file_is_followed_as_it_grows_and_when_it_is_written_anew() {
    let folder = std::env::temp_dir().join(format!("nrw-leases-isc-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join("dhcpd.leases");
    let append = |text: &str| {
        let file = fs::File::options().create(true).append(true).open(&path);
        file.unwrap().write_all(text.as_bytes()).unwrap();
    };
    let mut follower = Follower::new(path.clone());
    assert!(follower.poll().is_err(), "there is none");
    append(&(HEAD.to_owned() + &lease4(1, "active", 1)));
    assert!(follower.poll().unwrap());
    assert!(!follower.poll().unwrap());
    let two = lease4(2, "active", 2);
    append(&two[..40]);
    follower.poll().unwrap();
    assert_eq!(addresses(follower.table()), ["10.0.0.1/32"]);
    append(&two[40..]);
    follower.poll().unwrap();
    assert_eq!(addresses(follower.table()), ["10.0.0.1/32", "10.0.0.2/32"]);
    // The server writes a whole file beside it, and renames both.
    let new: PathBuf = folder.join("dhcpd.leases.1796054400");
    fs::write(&new, HEAD.to_owned() + &lease4(2, "active", 2) + &lease4(3, "active", 3)).unwrap();
    fs::rename(&path, folder.join("dhcpd.leases~")).unwrap();
    fs::rename(&new, &path).unwrap();
    assert!(follower.poll().unwrap());
    assert_eq!(addresses(follower.table()), ["10.0.0.2/32", "10.0.0.3/32"]);
    let mut source = Source::new(&Server::IscFile(path));
    let now = Nanos::from_secs(1);
    assert_eq!(source.poll(now).unwrap(), Some(News::All(follower.table().clone())));
    assert!(source.poll(now).unwrap().is_none());
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_configuration_names_the_file() {
    let text = "[[server]]\nisc_file = \"/var/lib/dhcp/dhcpd.leases\"\n\
                [[match]]\nlease = \"hw-address\"\nlabel = \"mac\"\n";
    let config = Config::parse(text).unwrap();
    assert_eq!(config.servers, [Server::IscFile("/var/lib/dhcp/dhcpd.leases".into())]);
    assert_eq!(Leases::new(config).count(), 0);
    let both = text.replace("[[match]]", "kea_file = \"/k\"\n[[match]]");
    assert!(Config::parse(&both).unwrap_err().to_string().contains("isc_file"));
    let family = text.replace("[[match]]", "family = 4\n[[match]]");
    assert!(Config::parse(&family).is_err());
}

/// A change of an address: active with a client, or not.
fn events() -> impl Strategy<Value = Vec<(u8, u8, bool)>> {
    prop::collection::vec((1u8..6, 0u8..9, any::<bool>()), 0..40)
}

proptest! {
    /// The table is that of a map which takes each declaration, however the bytes come.
    #[test]
    fn any_parts_of_a_file_give_what_a_map_gives(events in events(), length in 1usize..300) {
        let mut model = BTreeMap::new();
        let mut text = HEAD.to_owned();
        for (last, mac, is_active) in events {
            text += &lease4(last, if is_active { "active" } else { "free" }, mac);
            match is_active {
                true => model.insert(format!("10.0.0.{last}"), format!("00:0c:29:00:00:{mac:02x}")),
                false => model.remove(&format!("10.0.0.{last}")),
            };
        }
        let mut log = Log::default();
        text.as_bytes().chunks(length).for_each(|part| log.feed(part));
        let found: BTreeMap<_, _> = log
            .table()
            .values()
            .map(|lease| (lease.address.ip.to_string(), lease.fields[&Field::HwAddress].clone()))
            .collect();
        prop_assert_eq!(found, model);
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), text in "[a-z{};\"\\\\ \n0-9]*") {
        let mut log = Log::default();
        log.feed(&bytes);
        log.feed(text.as_bytes());
    }
}
