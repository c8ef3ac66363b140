//! Rates that follow a line.

use crate::host::TwoPorts;
use narrows_policy::Policy;
use narrows_tc::{OfflineHost, load, save};
use narrows_units::Rate;

const TBF: &str = "qdisc replace dev left root handle 1: tbf rate 20mbit burst 10k limit 100k";
const TOO_MANY: &str = "autorate 2mbit 40mbit reflector 192.0.2.1 reflector 192.0.2.2 reflector \
    192.0.2.3 reflector 192.0.2.4 reflector 192.0.2.5 reflector 192.0.2.6 reflector 192.0.2.7 \
    reflector 192.0.2.8 reflector 192.0.2.9";
const CAKE: &str = "qdisc replace dev left root handle 1: cake bandwidth 20mbit";

fn in_force(policy: &Policy) -> u64 {
    policy.port("left").autorate().unwrap().1.bits_per_sec()
}

#[test]
fn the_bounds_and_the_line_are_shown_and_saved() {
    for words in [TBF, CAKE] {
        let mut host = TwoPorts::with_queues(2);
        host.ok(&format!("{words} autorate 2mbit 40mbit line right"));
        let shown = host.ok("qdisc show dev left");
        assert!(shown.contains("autorate 2Mbit 40Mbit line right"), "{shown}");
        let json = host.ok("-j qdisc show dev left");
        let expected = r#""follows":{"least":250000,"most":5000000,"line":"right"}"#;
        assert!(json.contains(expected), "{json}");
        let saved = save(&host.policy);
        assert_eq!(load(&saved, "saved", &OfflineHost::default()).unwrap(), host.policy);
    }
}

#[test]
fn reflectors_are_shown_and_saved() {
    for words in [TBF, CAKE] {
        let mut host = TwoPorts::with_queues(2);
        let reflectors = "line right reflector 192.0.2.1 reflector 2001:db8::7";
        host.ok(&format!("{words} autorate 2mbit 40mbit {reflectors}"));
        let shown = host.ok("qdisc show dev left");
        assert!(shown.contains(reflectors), "{shown}");
        let json = host.ok("-j qdisc show dev left");
        assert!(json.contains(r#""reflectors":["192.0.2.1","2001:db8::7"]"#), "{json}");
        let saved = save(&host.policy);
        assert_eq!(load(&saved, "saved", &OfflineHost::default()).unwrap(), host.policy);
    }
}

#[test]
fn what_is_enforced_is_within_the_bounds_and_nothing_else_changes() {
    for words in [TBF, CAKE] {
        let mut host = TwoPorts::with_queues(2);
        host.ok(&format!("{words} autorate 2mbit 40mbit"));
        for (found, enforced) in [(7, 7), (1, 2), (90, 40)] {
            let rate = Rate::from_bits_per_sec(found * 1_000_000);
            let policy = host.policy.clone().following(|_| Some(rate));
            assert_eq!(in_force(&policy), enforced * 1_000_000);
        }
        assert_eq!(host.policy.clone().following(|_| None), host.policy);
    }
}

#[test]
fn a_cake_keeps_its_bounds_until_they_are_taken_away() {
    let mut host = TwoPorts::with_queues(2);
    host.ok(&format!("{CAKE} autorate 2mbit 40mbit"));
    host.ok("qdisc change dev left root cake bandwidth 10mbit");
    assert_eq!(in_force(&host.policy), 10_000_000);
    host.ok("qdisc change dev left root cake noautorate");
    assert!(host.policy.port("left").autorate().is_none());
}

#[test]
fn complaints_say_what_to_give_instead() {
    for (rest, words) in [
        ("autorate", &["autorate"][..]),
        ("autorate 2mbit", &["autorate"]),
        ("autorate 2mbit fast", &["fast"]),
        ("autorate 40mbit 2mbit", &["least rate first"]),
        ("autorate 30mbit 40mbit", &["not between"]),
        ("autorate 2mbit 40mbit line", &["line"]),
        ("autorate 2mbit 40mbit reflector", &["reflector"]),
        ("autorate 2mbit 40mbit reflector ns.example", &["address of a host", "192.0.2.1"]),
        ("autorate 2mbit 40mbit reflector ::", &["2001:db8::1"]),
        ("autorate 2mbit 40mbit reflector ff02::1", &["ff02::1"]),
        ("autorate 2mbit 40mbit reflector fe80::1", &["fe80::1"]),
        ("autorate 2mbit 40mbit reflector ::ffff:192.0.2.1", &["::ffff:192.0.2.1"]),
        ("autorate 2mbit 40mbit reflector 2001:db8::1 reflector 2001:db8:0::1", &["twice"]),
        ("autorate 2mbit 40mbit reflector 224.0.0.1", &["224.0.0.1"]),
        ("autorate 2mbit 40mbit reflector 192.0.2.1 reflector 192.0.2.1", &["twice"]),
        (TOO_MANY, &["at most 8"]),
        ("autorate 2mbit 40mbit autorate 2mbit 40mbit", &["duplicate"]),
        ("autorate 2mbit 40mbit fleet site boxes 2", &["fleet"]),
    ] {
        for line in [TBF, CAKE] {
            let mut host = TwoPorts::with_queues(2);
            let before = host.policy.clone();
            let outcome = host.tc(&format!("{line} {rest}"));
            assert_ne!(outcome.code, 0, "{line} {rest}");
            for word in words {
                assert!(outcome.stderr.contains(word), "{line} {rest}:\n{}", outcome.stderr);
            }
            assert_eq!(host.policy, before);
        }
    }
}

#[test]
fn only_the_root_of_a_port_follows_a_line() {
    let mut host = TwoPorts::with_queues(2);
    host.ok("qdisc add dev left root handle 1: prio");
    let said = host.fails(
        "qdisc add dev left parent 1:1 tbf rate 20mbit burst 10k limit 100k autorate 2mbit 40mbit",
        2,
    );
    assert!(said.contains("root"), "{said}");
    let said = host.fails("qdisc replace dev left root cake unlimited autorate 2mbit 40mbit", 2);
    assert!(said.contains("bandwidth RATE"), "{said}");
}
