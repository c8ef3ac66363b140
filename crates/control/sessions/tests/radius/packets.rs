//! What sessions become, what is answered, and what is not done.

use crate::common::{BASE, SECRET, World};
use narrows_sessions::radius::attribute::{
    ACCT_DELAY_TIME, ACCT_SESSION_ID, ACCT_STATUS_TYPE, CALLING_STATION_ID, CLASS,
    DELEGATED_IPV6_PREFIX, EVENT_TIMESTAMP, FILTER_ID, FRAMED_IP_ADDRESS, FRAMED_IP_NETMASK,
    FRAMED_IPV6_PREFIX, FRAMED_ROUTE, MIKROTIK_RATE_LIMIT, NAS_IDENTIFIER, SERVICE_TYPE, USER_NAME,
    WISPR_MAX_DOWN, WISPR_MAX_UP,
};
use narrows_sessions::radius::packet::{Code, Request, Type};
use narrows_sessions::radius::{Config, Counters};
use narrows_units::Rate;
use proptest::prelude::*;

const NAS: [u8; 4] = [192, 0, 2, 1];
const OTHER_NAS: [u8; 4] = [192, 0, 2, 2];
const SERVER: [u8; 4] = [192, 0, 2, 65];
const START: (Type, &[u8]) = (ACCT_STATUS_TYPE, &[0, 0, 0, 1]);
const STOP: (Type, &[u8]) = (ACCT_STATUS_TYPE, &[0, 0, 0, 2]);
const INTERIM: (Type, &[u8]) = (ACCT_STATUS_TYPE, &[0, 0, 0, 3]);
const ON: (Type, &[u8]) = (ACCT_STATUS_TYPE, &[0, 0, 0, 7]);
const ANN: (Type, &[u8]) = (USER_NAME, b"ann");
const SESSION: (Type, &[u8]) = (ACCT_SESSION_ID, b"8000001");
const ADDRESS: (Type, &[u8]) = (FRAMED_IP_ADDRESS, &[10, 0, 0, 5]);

const fn mbit(rate: u64) -> Rate {
    Rate::from_bits_per_sec(rate * 1_000_000)
}

/// Error-Cause of an answer, which has no attribute but it and a Message-Authenticator.
fn cause(answer: Option<Vec<u8>>) -> u32 {
    let answer = answer.expect("an answer");
    let at = answer.windows(2).position(|bytes| bytes == [101, 6]).expect("an Error-Cause") + 2;
    u32::from_be_bytes(answer[at..at + 4].try_into().unwrap())
}

fn ceiling(world: &World, identity: &str) -> [Rate; 2] {
    world.stored[identity].plan.ceiling
}

fn addresses(world: &World, identity: &str) -> Vec<String> {
    let addresses = world.stored[identity].addresses.iter();
    addresses.map(|prefix| format!("{}/{}", prefix.ip, prefix.bits)).collect()
}

#[test]
fn a_start_makes_a_subscriber() {
    let mut world = World::new("");
    let mac: (Type, &[u8]) = (CALLING_STATION_ID, b"00-0C-29-AA-BB-CC");
    let nas: (Type, &[u8]) = (NAS_IDENTIFIER, b"bng-1");
    let plan: (Type, &[u8]) = (FILTER_ID, b"fast");
    let attributes = [START, ANN, SESSION, ADDRESS, mac, nas, plan];
    let answer = world.request(NAS, Code::Accounting, &attributes).unwrap();
    assert_eq!(answer[0], 5);
    let subscriber = &world.stored["ann"];
    assert_eq!(subscriber.name, "ann");
    assert_eq!(subscriber.site.as_deref(), Some("west"));
    assert_eq!(subscriber.plan.name.as_deref(), Some("fast"));
    assert_eq!(subscriber.plan.ceiling, [mbit(100), mbit(20)]);
    assert_eq!(subscriber.plan.assured, [mbit(5), mbit(0)]);
    assert_eq!(subscriber.labels["mac"], "00:0c:29:aa:bb:cc");
    assert_eq!(subscriber.labels["nas"], "bng-1");
    assert_eq!(addresses(&world, "ann"), ["10.0.0.5/32"]);
}

#[test]
fn rates_of_vendors_are_the_subscribers_own_directions() {
    let mut world = World::new("");
    let rate: (Type, &[u8]) = (MIKROTIK_RATE_LIMIT, b"10M/50M");
    world.request(NAS, Code::Accounting, &[START, ANN, SESSION, ADDRESS, rate]);
    assert_eq!(ceiling(&world, "ann"), [mbit(50), mbit(10)]);
    let (down, up) = (30_000_000_u32.to_be_bytes(), 6_000_000_u32.to_be_bytes());
    let wispr: [(Type, &[u8]); 2] = [(WISPR_MAX_DOWN, &down), (WISPR_MAX_UP, &up)];
    world.request(NAS, Code::Accounting, &[INTERIM, SESSION, wispr[0], wispr[1]]);
    assert_eq!(ceiling(&world, "ann"), [mbit(30), mbit(6)]);
    // One part leaves the other as it is.
    let up = 7_000_000_u32.to_be_bytes();
    let attributes = [ANN, (WISPR_MAX_UP, &up[..])];
    world.request(SERVER, Code::ChangeOfAuthorization, &attributes);
    assert_eq!(ceiling(&world, "ann"), [mbit(30), mbit(7)]);
}

#[test]
fn no_limit_is_the_highest_rate() {
    let mut world = World::new("limits = { rate_max = \"1gbit\" }\n");
    let rate: (Type, &[u8]) = (MIKROTIK_RATE_LIMIT, b"0/50M");
    world.request(NAS, Code::Accounting, &[START, ANN, SESSION, rate]);
    assert_eq!(ceiling(&world, "ann"), [mbit(50), mbit(1_000)]);
}

#[test]
fn a_rate_beyond_its_bounds_is_not_used_and_counted() {
    let mut world = World::new("limits = { rate_max = \"1gbit\" }\n");
    let rate: (Type, &[u8]) = (MIKROTIK_RATE_LIMIT, b"2G");
    world.request(NAS, Code::Accounting, &[START, ANN, SESSION, rate]);
    assert_eq!(ceiling(&world, "ann"), [mbit(10), mbit(2)], "those of the default plan");
    assert_eq!(world.sessions.counters().unusable_values, 1);
    assert_eq!(cause(world.request(SERVER, Code::ChangeOfAuthorization, &[SESSION, rate])), 407);
}

#[test]
fn an_attribute_of_choice_says_the_plan() {
    // Class is what a RADIUS server gives with an Access-Accept, and sees again in accounting.
    let rule = "[[rate]]\nattribute = \"Class\"\nas = \"plan\"\nprefix = \"plan:\"\n";
    let text = format!("{}\n{rule}", crate::common::CONFIG);
    let mut world = World::new("");
    world.sessions = narrows_sessions::radius::Sessions::new(Config::parse(&text).unwrap());
    let other: (Type, &[u8]) = (CLASS, b"something else");
    let class: (Type, &[u8]) = (CLASS, b"plan:fast");
    world.request(NAS, Code::Accounting, &[START, ANN, SESSION, other, class]);
    assert_eq!(world.stored["ann"].plan.name.as_deref(), Some("fast"));
}

#[test]
fn an_interim_update_that_repeats_the_start_does_not_undo_a_coa() {
    let mut world = World::new("");
    let before: (Type, &[u8]) = (MIKROTIK_RATE_LIMIT, b"10M/50M");
    let after: (Type, &[u8]) = (MIKROTIK_RATE_LIMIT, b"1M/5M");
    let new: (Type, &[u8]) = (MIKROTIK_RATE_LIMIT, b"20M/80M");
    world.request(NAS, Code::Accounting, &[START, ANN, SESSION, ADDRESS, before]);
    let answer = world.request(SERVER, Code::ChangeOfAuthorization, &[SESSION, after]).unwrap();
    assert_eq!(answer[0], 44);
    assert_eq!(ceiling(&world, "ann"), [mbit(5), mbit(1)]);
    assert_eq!(addresses(&world, "ann"), ["10.0.0.5/32"]);
    world.request(NAS, Code::Accounting, &[INTERIM, ANN, SESSION, before]);
    assert_eq!(ceiling(&world, "ann"), [mbit(5), mbit(1)]);
    world.restart();
    world.request(NAS, Code::Accounting, &[INTERIM, ANN, SESSION, before]);
    assert_eq!(ceiling(&world, "ann"), [mbit(5), mbit(1)]);
    world.request(NAS, Code::Accounting, &[INTERIM, ANN, SESSION, new]);
    assert_eq!(ceiling(&world, "ann"), [mbit(80), mbit(20)]);
}

#[test]
fn a_coa_is_refused_with_the_cause() {
    let mut world = World::new("");
    world.request(NAS, Code::Accounting, &[START, ANN, SESSION, ADDRESS]);
    let rate: (Type, &[u8]) = (MIKROTIK_RATE_LIMIT, b"1M/5M");
    let missing = (ACCT_SESSION_ID, &b"8000002"[..]);
    let stranger = (USER_NAME, &b"ben"[..]);
    let elsewhere = (FRAMED_IP_ADDRESS, &[10, 0, 0, 6][..]);
    let other_nas = (NAS_IDENTIFIER, &b"bng-9"[..]);
    let timeout = (Type::standard(27), &[0, 0, 0, 9][..]);
    let authorize_only = (SERVICE_TYPE, &[0, 0, 0, 17][..]);
    let no_plan = (FILTER_ID, &b"none"[..]);
    type Case<'a> = (u32, &'a [(Type, &'a [u8])]);
    let cases: [Case<'_>; 9] = [
        (401, &[SESSION, rate, timeout]),
        (402, &[rate]),
        (402, &[SESSION]),
        (405, &[SESSION, authorize_only]),
        (407, &[SESSION, no_plan]),
        (503, &[missing, rate]),
        (503, &[SESSION, stranger, rate]),
        (503, &[ANN, elsewhere, rate]),
        (503, &[SESSION, other_nas, rate]),
    ];
    for (expected, attributes) in cases {
        let answer = world.request(SERVER, Code::ChangeOfAuthorization, attributes);
        assert_eq!(answer.as_ref().map(|answer| answer[0]), Some(45));
        assert_eq!(cause(answer), expected, "{attributes:?}");
    }
    assert_eq!(cause(world.request(NAS, Code::ChangeOfAuthorization, &[SESSION, rate])), 501);
    assert_eq!(world.sessions.counters().refused, 10);
    assert_eq!(ceiling(&world, "ann"), [mbit(10), mbit(2)]);
}

#[test]
fn a_coa_finds_a_session_by_whatever_names_it() {
    let mut world = World::new("");
    let port: (Type, &[u8]) = (Type::standard(87), b"ge-0/0/1:100");
    let prefix: (Type, &[u8]) = (FRAMED_IPV6_PREFIX, &[0, 64, 0x20, 1, 0xd, 0xb8, 0, 1, 0, 2]);
    world.request(NAS, Code::Accounting, &[START, ANN, SESSION, ADDRESS, port, prefix]);
    for (index, name) in [ANN, SESSION, ADDRESS, port, prefix].into_iter().enumerate() {
        let rate = format!("{}M", index + 1);
        let rate = (MIKROTIK_RATE_LIMIT, rate.as_bytes());
        let answer = world.request(SERVER, Code::ChangeOfAuthorization, &[name, rate]).unwrap();
        assert_eq!(answer[0], 44, "{name:?}");
        assert_eq!(ceiling(&world, "ann"), [mbit(index as u64 + 1); 2]);
    }
}

#[test]
fn unsupported_attributes_of_a_coa_can_be_ignored() {
    let mut world = World::new("unsupported_in_coa = \"ignore\"\n");
    world.request(NAS, Code::Accounting, &[START, ANN, SESSION]);
    let timeout = (Type::standard(27), &[0, 0, 0, 9][..]);
    let rate: (Type, &[u8]) = (MIKROTIK_RATE_LIMIT, b"1M/5M");
    let attributes = [SESSION, timeout, rate];
    let answer = world.request(SERVER, Code::ChangeOfAuthorization, &attributes).unwrap();
    assert_eq!(answer[0], 44);
}

#[test]
fn a_stop_takes_the_addresses_and_the_class_stays_for_a_day() {
    let mut world = World::new("");
    let rate: (Type, &[u8]) = (MIKROTIK_RATE_LIMIT, b"10M/50M");
    world.request(NAS, Code::Accounting, &[START, ANN, SESSION, ADDRESS, rate]);
    world.wait(10);
    world.request(NAS, Code::Accounting, &[STOP, ANN, SESSION]);
    assert!(addresses(&world, "ann").is_empty());
    assert_eq!(ceiling(&world, "ann"), [mbit(50), mbit(10)]);
    world.wait(86_399);
    assert!(world.stored.contains_key("ann"));
    world.wait(1);
    assert!(world.stored.is_empty());
}

#[test]
fn a_disconnect_ends_a_session_and_a_late_interim_does_not_bring_it_back() {
    let mut world = World::new("");
    let stamp = |second: u64| u32::try_from(BASE + second).unwrap().to_be_bytes();
    let early = stamp(1);
    world.wait(5);
    world.request(
        NAS,
        Code::Accounting,
        &[START, ANN, SESSION, ADDRESS, (EVENT_TIMESTAMP, &early)],
    );
    let answer = world.request(SERVER, Code::Disconnect, &[ADDRESS]).unwrap();
    assert_eq!(answer[0], 41);
    assert!(addresses(&world, "ann").is_empty());
    world.wait(1);
    let late = stamp(4);
    world.request(
        NAS,
        Code::Accounting,
        &[INTERIM, ANN, SESSION, ADDRESS, (EVENT_TIMESTAMP, &late)],
    );
    assert!(addresses(&world, "ann").is_empty());
    assert_eq!(world.sessions.counters().late, 1);
    let answer = world.request(SERVER, Code::Disconnect, &[ADDRESS]);
    assert_eq!(answer.as_ref().map(|answer| answer[0]), Some(42));
    assert_eq!(cause(answer), 503);
}

#[test]
fn a_start_that_was_delayed_is_older_than_the_stop_before_it() {
    let mut world = World::new("");
    world.wait(100);
    world.request(NAS, Code::Accounting, &[STOP, SESSION]);
    world.wait(5);
    let delay = (ACCT_DELAY_TIME, &[0, 0, 0, 30][..]);
    assert!(world.request(NAS, Code::Accounting, &[START, ANN, SESSION, ADDRESS, delay]).is_some());
    assert!(world.stored.is_empty());
}

#[test]
fn a_nas_that_starts_has_no_sessions_and_another_keeps_its_own() {
    let mut world = World::new("");
    let ben: (Type, &[u8]) = (USER_NAME, b"ben");
    let other: (Type, &[u8]) = (FRAMED_IP_ADDRESS, &[10, 0, 0, 6]);
    // The same session id at two NASes is two sessions.
    world.request(NAS, Code::Accounting, &[START, ANN, SESSION, ADDRESS]);
    world.request(OTHER_NAS, Code::Accounting, &[START, ben, SESSION, other]);
    assert_eq!(world.sessions.count(), 2);
    world.request(NAS, Code::Accounting, &[ON]);
    assert!(addresses(&world, "ann").is_empty());
    assert_eq!(addresses(&world, "ben"), ["10.0.0.6/32"]);
}

#[test]
fn an_address_belongs_to_the_session_that_got_it_last() {
    let mut world = World::new("");
    let ben: (Type, &[u8]) = (USER_NAME, b"ben");
    world.request(NAS, Code::Accounting, &[START, ANN, SESSION, ADDRESS]);
    world.request(OTHER_NAS, Code::Accounting, &[START, ben, SESSION, ADDRESS]);
    assert!(addresses(&world, "ann").is_empty());
    assert_eq!(addresses(&world, "ben"), ["10.0.0.5/32"]);
    // The session whose Stop was lost does not take it back.
    world.request(NAS, Code::Accounting, &[INTERIM, ANN, SESSION, ADDRESS]);
    assert_eq!(addresses(&world, "ben"), ["10.0.0.5/32"]);
}

#[test]
fn addresses_of_a_kind_that_is_not_mentioned_stay() {
    let mut world = World::new("");
    let delegated: (Type, &[u8]) =
        (DELEGATED_IPV6_PREFIX, &[0, 56, 0x20, 1, 0xd, 0xb8, 0, 5, 0xff, 0]);
    let route: (Type, &[u8]) = (FRAMED_ROUTE, b"198.51.100.0/28 0.0.0.0 1");
    world.request(NAS, Code::Accounting, &[START, ANN, SESSION, ADDRESS, route]);
    world.request(NAS, Code::Accounting, &[INTERIM, ANN, SESSION, delegated]);
    let expected = ["10.0.0.5/32", "198.51.100.0/28", "2001:db8:5:ff00::/56"];
    assert_eq!(addresses(&world, "ann"), expected);
    let other: (Type, &[u8]) = (FRAMED_IP_ADDRESS, &[10, 0, 0, 7]);
    world.request(NAS, Code::Accounting, &[INTERIM, ANN, SESSION, other]);
    assert_eq!(addresses(&world, "ann")[0], "10.0.0.7/32");
}

#[test]
fn a_mask_counts_only_if_the_configuration_says_so() {
    let mask: (Type, &[u8]) = (FRAMED_IP_NETMASK, &[255, 255, 255, 240]);
    let whole: (Type, &[u8]) = (FRAMED_IP_NETMASK, &[255, 255, 0, 0]);
    for (more, mask, expected) in [
        ("", mask, vec!["10.0.0.5/32"]),
        ("use_netmask = true\n", mask, vec!["10.0.0.0/28"]),
        // Shorter than the limit: not one subscriber's.
        ("use_netmask = true\n", whole, vec![]),
    ] {
        let mut world = World::new(more);
        world.request(NAS, Code::Accounting, &[START, ANN, SESSION, ADDRESS, mask]);
        assert_eq!(addresses(&world, "ann"), expected);
    }
}

#[test]
fn addresses_that_nobody_has_are_left_out() {
    for ip in
        [[0, 0, 0, 0], [255, 255, 255, 255], [255, 255, 255, 254], [224, 0, 0, 1], [127, 0, 0, 1]]
    {
        let mut world = World::new("");
        world.request(NAS, Code::Accounting, &[START, ANN, SESSION, (FRAMED_IP_ADDRESS, &ip)]);
        assert!(addresses(&world, "ann").is_empty(), "{ip:?}");
    }
}

#[test]
fn silence_ends_sessions_of_a_nas_that_sends_interim_updates() {
    let mut world = World::new("");
    let ben: (Type, &[u8]) = (USER_NAME, b"ben");
    let other: (Type, &[u8]) = (FRAMED_IP_ADDRESS, &[10, 0, 0, 6]);
    world.request(NAS, Code::Accounting, &[START, ANN, SESSION, ADDRESS]);
    world.request(NAS, Code::Accounting, &[INTERIM, ANN, SESSION, ADDRESS]);
    world.request(OTHER_NAS, Code::Accounting, &[START, ben, SESSION, other]);
    world.wait(3_599);
    assert_eq!(world.sessions.count(), 2);
    world.wait(1);
    assert!(addresses(&world, "ann").is_empty());
    assert_eq!(addresses(&world, "ben"), ["10.0.0.6/32"], "its NAS never sends any");
    assert_eq!(world.sessions.counters().silent, 1);
}

#[test]
fn strangers_and_wrong_secrets_have_no_answer() {
    let mut world = World::new("");
    let datagram = world.signed(Code::Accounting, &[START, ANN, SESSION, ADDRESS]);
    assert_eq!(world.send([198, 51, 100, 1], &datagram), None);
    assert_eq!(world.sessions.counters(), Counters { unknown_client: 1, ..Counters::default() });
    let wrong = Request::new(Code::Accounting, 1).with(ANN.0, ANN.1).signed(b"another one", false);
    assert_eq!(world.send(NAS, &wrong), None);
    assert_eq!(world.send(NAS, &datagram[..19]), None);
    let counters = world.sessions.counters();
    assert_eq!((counters.not_authentic, counters.malformed), (1, 1));
    assert!(world.stored.is_empty());
}

#[test]
fn an_ipv4_client_of_a_socket_for_both_families_is_known() {
    let mut world = World::new("");
    let datagram = world.signed(Code::Accounting, &[START, ANN, SESSION]);
    let from = std::net::Ipv4Addr::from(NAS).to_ipv6_mapped();
    assert!(world.sessions.receive(world.now(), (from, 1).into(), &datagram).is_some());
}

#[test]
fn a_client_can_be_required_to_send_a_message_authenticator() {
    let text = crate::common::CONFIG
        .replace("name = \"bng-1\"", "name = \"bng-1\"\nneeds_message_authenticator = true");
    let mut world = World::new("");
    world.sessions = narrows_sessions::radius::Sessions::new(Config::parse(&text).unwrap());
    let request = || {
        let attributes = [START, ANN, SESSION];
        attributes.iter().fold(Request::new(Code::Accounting, 1), |request, (kind, value)| {
            request.with(*kind, value)
        })
    };
    assert_eq!(world.send(NAS, &request().signed(SECRET, false)), None);
    assert!(world.send(NAS, &request().signed(SECRET, true)).is_some());
}

#[test]
fn a_repeated_packet_is_answered_and_not_done_again() {
    let mut world = World::new("");
    world.request(NAS, Code::Accounting, &[START, ANN, SESSION]);
    let rate: (Type, &[u8]) = (MIKROTIK_RATE_LIMIT, b"1M/5M");
    let datagram = world.signed(Code::ChangeOfAuthorization, &[SESSION, rate]);
    let answer = world.send(SERVER, &datagram);
    let other: (Type, &[u8]) = (MIKROTIK_RATE_LIMIT, b"2M/8M");
    world.request(SERVER, Code::ChangeOfAuthorization, &[SESSION, other]);
    assert_eq!(world.send(SERVER, &datagram), answer);
    assert_eq!(ceiling(&world, "ann"), [mbit(8), mbit(2)]);
    assert_eq!(world.sessions.counters().duplicate, 1);
}

#[test]
fn what_could_not_be_stored_is_taken_again() {
    let mut world = World::new("");
    let datagram = world.signed(Code::Accounting, &[START, ANN, SESSION, ADDRESS]);
    let now = world.now();
    world.sessions.receive(now, (NAS, 40_000).into(), &datagram).unwrap();
    let changes = world.sessions.changes();
    world.sessions.not_stored(changes.clone());
    assert!(world.sessions.is_changed());
    assert!(world.send(NAS, &datagram).is_some());
    assert_eq!(world.sessions.counters().duplicate, 0);
    assert_eq!(world.stored.get("ann"), changes[0].subscriber.as_ref());
}

#[test]
fn old_packets_do_nothing() {
    let mut world = World::new("window = \"5m\"\naccounting_window = \"1h\"\n");
    world.wait(10_000);
    let stamp = |back: u64| u32::try_from(BASE + 10_000 - back).unwrap().to_be_bytes();
    let (old, new) = (stamp(3_601), stamp(3_600));
    let attributes = [START, ANN, SESSION, ADDRESS, (EVENT_TIMESTAMP, &old)];
    assert!(world.request(NAS, Code::Accounting, &attributes).is_some());
    assert!(world.stored.is_empty());
    let attributes = [START, ANN, SESSION, ADDRESS, (EVENT_TIMESTAMP, &new)];
    world.request(NAS, Code::Accounting, &attributes);
    assert!(world.stored.contains_key("ann"));
    let rate: (Type, &[u8]) = (MIKROTIK_RATE_LIMIT, b"1M/5M");
    let old = stamp(301);
    let attributes = [SESSION, rate, (EVENT_TIMESTAMP, &old[..])];
    assert_eq!(world.request(SERVER, Code::ChangeOfAuthorization, &attributes), None);
    assert_eq!(world.sessions.counters().outside_window, 2);
}

#[test]
fn a_session_too_many_is_not_answered_so_that_it_comes_again() {
    let mut world = World::new("limits = { sessions = 1 }\n");
    let ben: (Type, &[u8]) = (USER_NAME, b"ben");
    let second = (ACCT_SESSION_ID, &b"8000002"[..]);
    assert!(world.request(NAS, Code::Accounting, &[START, ANN, SESSION]).is_some());
    assert_eq!(world.request(NAS, Code::Accounting, &[START, ben, second]), None);
    assert_eq!(world.sessions.counters().full, 1);
    world.wait(1);
    world.request(NAS, Code::Accounting, &[STOP, SESSION]);
    assert!(world.request(NAS, Code::Accounting, &[START, ben, second]).is_some());
}

#[test]
fn a_subscriber_has_at_most_64_sessions_and_the_most_silent_one_ends() {
    let mut world = World::new("");
    for number in 0..65_u8 {
        world.wait(1);
        let id = number.to_string();
        let address = [10, 0, 0, number + 1];
        let attributes =
            [START, ANN, (ACCT_SESSION_ID, id.as_bytes()), (FRAMED_IP_ADDRESS, &address)];
        world.request(NAS, Code::Accounting, &attributes);
    }
    assert_eq!(world.sessions.count(), 64);
    let addresses = addresses(&world, "ann");
    assert_eq!(addresses.len(), 64);
    assert!(!addresses.contains(&"10.0.0.1/32".to_owned()));
}

#[test]
fn without_a_plan_there_is_no_subscriber_until_somebody_says_one() {
    let text = crate::common::CONFIG.replace("default_plan = \"basic\"", "");
    let mut world = World::new("");
    world.sessions = narrows_sessions::radius::Sessions::new(Config::parse(&text).unwrap());
    world.request(NAS, Code::Accounting, &[START, ANN, SESSION, ADDRESS]);
    assert!(world.stored.is_empty());
    let plan: (Type, &[u8]) = (FILTER_ID, b"fast");
    world.request(SERVER, Code::ChangeOfAuthorization, &[ANN, plan]);
    assert_eq!(addresses(&world, "ann"), ["10.0.0.5/32"]);
}

fn attribute() -> impl Strategy<Value = (Type, Vec<u8>)> {
    let known = prop::sample::select(vec![
        1_u8, 4, 5, 6, 8, 9, 11, 22, 24, 25, 31, 32, 33, 40, 41, 44, 50, 55, 87, 95, 97, 99, 123,
        168,
    ]);
    let kind = prop_oneof![
        6 => known.prop_map(Type::standard),
        1 => (0..=9_u8).prop_map(|number| Type::vendor(14_122, number)),
        1 => Just(MIKROTIK_RATE_LIMIT),
        1 => any::<u8>().prop_map(Type::standard),
    ];
    let value = prop_oneof![
        3 => (0..16_u32).prop_map(|number| number.to_be_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..20),
        1 => "[0-9kM/ ]{0,12}".prop_map(String::into_bytes),
    ];
    (kind, value)
}

proptest! {
    #[test]
    fn no_signed_attributes_panic(
        packets in prop::collection::vec((0..3, prop::collection::vec(attribute(), 0..12)), 1..12),
    ) {
        let mut world = World::new("use_netmask = true\nunsupported_in_coa = \"ignore\"\n");
        for (code, attributes) in packets {
            let code = match code {
                0 => Code::ChangeOfAuthorization,
                1 => Code::Disconnect,
                _ => Code::Accounting,
            };
            let attributes: Vec<(Type, &[u8])> =
                attributes.iter().map(|(kind, value)| (*kind, value.as_slice())).collect();
            world.request(SERVER, code, &attributes);
            world.wait(1);
            let before = world.stored.clone();
            world.restart();
            prop_assert_eq!(&before, &world.stored);
        }
    }
}

#[test]
fn a_session_number_of_somebody_else_is_another_session() {
    let mut world = World::new("");
    let ben: (Type, &[u8]) = (USER_NAME, b"ben");
    world.request(NAS, Code::Accounting, &[START, ANN, SESSION, ADDRESS]);
    // The NAS lost power, counts from the beginning, and its Accounting-On was lost.
    world.request(NAS, Code::Accounting, &[START, ben, SESSION]);
    assert_eq!(world.sessions.count(), 1);
    assert!(addresses(&world, "ann").is_empty());
    assert!(addresses(&world, "ben").is_empty());
}
