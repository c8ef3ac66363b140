//! Rates that several boxes share.

use crate::host::TwoPorts;
use narrows_policy::{FleetLimit, FleetName, Policy};
use narrows_tc::{OfflineHost, load, save};
use narrows_units::Rate;
use proptest::prelude::*;

const TBF: &str = "qdisc replace dev left root handle 1: tbf rate 1gbit burst 100k limit 1mb";
const CLASS: &str = "class replace dev right parent 1: classid 1:10 htb rate 100mbit ceil 1gbit";
const CAKE: &str = "qdisc replace dev left root handle 1: cake bandwidth 1gbit";

fn with_htb() -> TwoPorts {
    let mut host = TwoPorts::with_queues(2);
    host.ok("qdisc add dev right root handle 1: htb default 10");
    host
}

/// All rates that can be shared, each with its way to show them.
const SHARED: [(&str, &str); 3] =
    [(TBF, "qdisc show dev left"), (CLASS, "class show dev right"), (CAKE, "qdisc show dev left")];

#[test]
fn every_rate_that_can_be_shared_is_shown_with_the_safe_share() {
    for (words, show) in SHARED {
        let mut host = with_htb();
        host.ok(&format!("{words} fleet site-7.a_B safe 250mbit"));
        let shown = host.ok(show);
        assert!(shown.contains("fleet site-7.a_B safe 250Mbit"), "{shown}");
        let json = host.ok(&format!("-j {show}"));
        assert!(json.contains(r#""fleet":{"name":"site-7.a_B","safe":31250000}"#), "{json}");
        host.ok(&format!("{words} fleet site boxes 4"));
        let shown = host.ok(show);
        assert!(shown.contains("fleet site boxes 4"), "{shown}");
        let json = host.ok(&format!("-j {show}"));
        assert!(json.contains(r#""fleet":{"name":"site","safe":31250000,"boxes":4}"#), "{json}");
        let saved = save(&host.policy);
        assert_eq!(load(&saved, "saved", &OfflineHost::default()).unwrap(), host.policy);
    }
}

#[test]
fn a_share_that_may_be_another_box_s_after_a_start_is_shown_so() {
    for (words, show) in SHARED {
        for safe in ["safe 250Mbit", "boxes 4"] {
            let mut host = with_htb();
            host.ok(&format!("{words} fleet site {safe} rejoin"));
            let shown = host.ok(show);
            assert!(shown.contains(&format!("fleet site {safe} rejoin ")), "{shown}");
            let json = host.ok(&format!("-j {show}"));
            assert!(json.contains(r#""rejoin":true}"#), "{json}");
            let saved = save(&host.policy);
            assert_eq!(load(&saved, "saved", &OfflineHost::default()).unwrap(), host.policy);
        }
    }
}

#[test]
fn a_limit_that_boxes_share_whatever_their_flows_is_shown_so() {
    for (words, show) in SHARED {
        for (given, shown) in [
            ("boxes 4 by-box", "boxes 4 by-box "),
            ("safe 250Mbit rejoin by-box", "safe 250Mbit rejoin by-box "),
            ("boxes 4 by-box rejoin", "boxes 4 rejoin by-box "),
        ] {
            let mut host = with_htb();
            host.ok(&format!("{words} fleet site {given}"));
            let text = host.ok(show);
            assert!(text.contains(&format!("fleet site {shown}")), "{text}");
            let json = host.ok(&format!("-j {show}"));
            assert!(json.contains(r#""by-box":true}"#), "{json}");
            assert!(host.policy.shared_limit("site").unwrap().1.by_box);
            let saved = save(&host.policy);
            assert_eq!(load(&saved, "saved", &OfflineHost::default()).unwrap(), host.policy);
        }
        let mut host = with_htb();
        host.ok(&format!("{words} fleet site boxes 4"));
        assert!(!host.policy.shared_limit("site").unwrap().1.by_box, "flows count otherwise");
    }
}

#[test]
fn a_change_without_the_words_makes_a_rate_one_s_own_again() {
    for (words, show) in SHARED {
        let mut host = with_htb();
        host.ok(&format!("{words} fleet site boxes 4"));
        host.ok(words);
        let is_cake = words == CAKE;
        assert_eq!(host.ok(show).contains("fleet"), is_cake, "a cake keeps what is not named");
        if is_cake {
            host.ok(&format!("{CAKE} nofleet"));
            assert!(!host.ok(show).contains("fleet"));
        }
        // The name is free again.
        host.ok("qdisc replace dev left root handle 2: tbf rate 1mbit burst 10k limit 1mb fleet site boxes 2");
    }
}

#[test]
fn complaints_say_what_to_give_instead() {
    let long = format!("fleet {} boxes 2", "x".repeat(64));
    for (rest, words) in [
        ("fleet site", &["site", "safe RATE", "boxes N"][..]),
        ("fleet site safe 1mbit boxes 2", &["safe", "boxes", "one of them"]),
        ("fleet site boxes 2 safe 1mbit", &["safe", "boxes", "one of them"]),
        ("fleet site boxes 0", &["boxes", "from 1"]),
        ("fleet site safe 0", &["safe"]),
        ("fleet a/b boxes 2", &["a/b", "letters"]),
        ("fleet", &["fleet"]),
        ("fleet site boxes 2 by-box rejoin by-box", &["duplicate", "by-box"]),
        ("fleet site boxes 2 fleet other boxes 2", &["duplicate", "fleet"]),
        (&long, &["63"]),
    ] {
        for (line, _) in SHARED {
            let mut host = with_htb();
            let outcome = host.tc(&format!("{line} {rest}"));
            assert_ne!(outcome.code, 0, "{line} {rest}");
            for word in words {
                assert!(outcome.stderr.contains(word), "{line} {rest}:\n{}", outcome.stderr);
            }
            assert_eq!(host.policy, with_htb().policy);
        }
    }
}

#[test]
fn what_is_no_part_of_a_rate_is_refused() {
    for (line, _) in SHARED {
        let mut host = with_htb();
        let above = host.fails(&format!("{line} fleet site safe 2gbit"), 2);
        assert!(above.contains("2 Gbit/s is above the"), "{above}");
        let less = host.fails(&format!("{line} fleet site boxes 4294967295"), 2);
        assert!(less.contains("fewer boxes"), "{less}");
    }
    let mut host = with_htb();
    for (words, why) in [
        ("cake unlimited fleet site boxes 2", "give bandwidth RATE, or nofleet"),
        ("cake fleet site boxes 2", "give bandwidth RATE, or nofleet"),
    ] {
        let said = host.fails(&format!("qdisc add dev left root {words}"), 2);
        assert!(said.contains(why), "{said}");
    }
    let mut one = TwoPorts::with_queues(1);
    let said = one.fails(
        "qdisc add dev left root cake bandwidth 1gbit autorate-ingress fleet site boxes 2",
        2,
    );
    assert!(said.contains("autorate-ingress") && said.contains("nofleet"), "{said}");
    host.ok(&format!("{CAKE} fleet site safe 900mbit"));
    let lower = host.fails("qdisc change dev left root cake bandwidth 100mbit", 2);
    assert!(lower.contains("site"), "{lower}");
    host.fails("qdisc change dev left root cake unlimited", 2);
    for words in [
        "qdisc add dev left parent 1:1 handle 5: fq_codel fleet site boxes 2",
        "qdisc add dev left root htb fleet site boxes 2",
        "class add dev right parent 1: classid 1:1 hfsc sc rate 1mbit fleet site boxes 2",
    ] {
        let said = host.tc(words).stderr;
        assert!(said.contains("tbf") && said.contains("cake") && said.contains("class"), "{said}");
    }
}

#[test]
fn a_name_is_one_limit_of_a_box() {
    let mut host = with_htb();
    host.ok(&format!("{TBF} fleet site boxes 2"));
    for line in [
        &format!("{CLASS} fleet site boxes 2"),
        "qdisc add dev left parent 1:1 handle 2: tbf rate 1mbit burst 10k limit 1mb fleet site boxes 2",
    ] {
        let said = host.fails(line, 2);
        assert!(said.contains("site") && said.contains("1:") && said.contains("another"), "{said}");
    }
    // The same place may have it again, also as another kind.
    host.ok(&format!("{TBF} fleet site boxes 3"));
    host.ok("qdisc replace dev left root handle 2: cake bandwidth 1gbit fleet site boxes 3");
    host.ok("qdisc del dev left root");
    host.ok(&format!("{CLASS} fleet site boxes 2"));
    let other = CLASS.replace("1:10", "1:11");
    host.fails(&format!("{other} fleet site boxes 2"), 2);
    host.ok(&format!("{CLASS} fleet other boxes 2"));
    host.ok(&format!("{other} fleet site boxes 2"));
    host.ok("class del dev right classid 1:10");
    host.ok(&format!("{TBF} fleet other boxes 2"));
    host.ok("qdisc del dev right root");
    host.ok("qdisc replace dev right root tbf rate 1mbit burst 10k limit 1mb fleet site boxes 2");
}

/// Half of each safe share.
fn halves(_: &FleetName, limit: &FleetLimit) -> Rate {
    Rate::from_bits_per_sec(limit.safe.bits_per_sec() / 2)
}

fn whole(_: &FleetName, limit: &FleetLimit) -> Rate {
    limit.limit
}

#[test]
fn the_enforced_class_keeps_its_proportions_and_its_weight() {
    let mut host = with_htb();
    host.ok(&format!("{CLASS} fleet site safe 250mbit"));
    let none = Policy::default();
    let enforced = host.policy.enforced(&none, &none, halves);
    let mut shown = TwoPorts { policy: enforced, ..TwoPorts::with_queues(2) };
    let [before, after] =
        [&mut host, &mut shown].map(|host| host.ok("-d class show dev right").replace('\n', ""));
    let word = |text: &str, name: &str| -> String {
        let mut words = text.split_whitespace().skip_while(|word| *word != name);
        words.nth(1).unwrap().to_owned()
    };
    assert_eq!([word(&after, "rate"), word(&after, "ceil")], ["12500Kbit", "125Mbit"], "{after}");
    assert_eq!(word(&after, "quantum"), word(&before, "quantum"));
    let (dev, limit) = host.policy.shared_limit("site").unwrap();
    assert_eq!((dev, limit.place.to_string().as_str(), limit.within), ("right", "1:10", None));
}

#[test]
fn a_limit_knows_the_nearest_one_above_it() {
    let mut host = TwoPorts::with_queues(2);
    host.ok(&format!("{TBF} fleet root boxes 2"));
    host.ok("qdisc add dev left parent 1:1 handle 2: htb default 20");
    let class = "class add dev left classid";
    host.ok(&format!("{class} 2:1 parent 2: htb rate 90mbit"));
    host.ok(&format!("{class} 2:10 parent 2:1 htb rate 40mbit fleet mid boxes 2"));
    host.ok(&format!("{class} 2:20 parent 2:10 htb rate 10mbit fleet leaf boxes 2"));
    let within = |name: &str| host.policy.shared_limit(name).unwrap().1.within;
    let names = ["root", "mid", "leaf"].map(|name| within(name).map(|name| name.to_string()));
    assert_eq!(names, [None, Some("root".to_owned()), Some("mid".to_owned())]);
}

/// One of a few commands about few places and names, most of which apply.
fn line() -> impl Strategy<Value = String> {
    let name = || {
        prop::sample::select(vec![
            "",
            "",
            " fleet a boxes 2",
            " fleet b safe 1mbit",
            " fleet c boxes 5",
        ])
    };
    let class = (1..6_u32, 0..6_u32, 1..9_u64, name()).prop_map(|(minor, above, mbit, name)| {
        let above = if above % 2 == 0 { 0 } else { above };
        format!(
            "class replace dev left parent 1:{above} classid 1:{minor} htb rate {mbit}mbit{name}"
        )
    });
    let gone = (1..6_u32).prop_map(|minor| format!("class del dev left classid 1:{minor}"));
    let leaf = (1..6_u32, 1..9_u32).prop_map(|(minor, limit)| {
        format!("qdisc replace dev left parent 1:{minor} pfifo limit {limit}")
    });
    let tbf = (prop::sample::select(vec!["left", "right"]), name()).prop_map(|(dev, name)| {
        format!("qdisc replace dev {dev} root handle 9: tbf rate 3mbit burst 10k limit 1mb{name}")
    });
    let htb =
        (10..12_u32).prop_map(|r2q| format!("qdisc replace dev left root handle 1: htb r2q {r2q}"));
    let none = prop::sample::select(vec!["left", "right"])
        .prop_map(|dev| format!("qdisc del dev {dev} root"));
    prop_oneof![8 => class, 3 => gone, 2 => leaf, 1 => tbf, 2 => htb, 1 => none]
}

proptest! {
    #[test]
    fn what_is_enforced_after_a_change_is_what_is_enforced_anew(
        lines in prop::collection::vec(line(), 1..30),
        together in 1..4_usize,
    ) {
        let none = Policy::default();
        let mut host = TwoPorts::with_queues(2);
        host.ok("qdisc replace dev left root handle 1: htb");
        let (mut before, mut enforced) = (none.clone(), none.clone());
        for lines in lines.chunks(together) {
            lines.iter().for_each(|line| drop(host.tc(line)));
            let next = host.policy.enforced(&before, &enforced, halves);
            prop_assert_eq!(&next, &host.policy.enforced(&none, &none, halves));
            for (name, is_here) in host.policy.shared_limits_since(&before) {
                let elsewhere = host.policy.shared_limit(name.as_str()).is_some();
                prop_assert!(is_here == elsewhere || elsewhere, "{} has another port", name);
            }
            // Each name has one place, and each place its name.
            let saved = save(&host.policy);
            let mut names: Vec<String> = host.policy.shared_limits().map(|name| name.to_string()).collect();
            for name in &names {
                prop_assert_eq!(saved.matches(&format!(" fleet {name} ")).count(), 1, "{}", saved);
            }
            prop_assert_eq!(saved.matches(" fleet ").count(), names.len());
            names.truncate(1);
            let names = names.iter().map(String::as_str);
            let raised = host.policy.enforced_with(&next, names.clone(), whole);
            let mixed = host.policy.enforced(&none, &none, |name, limit| {
                if names.clone().any(|raised| raised == name.as_str()) { whole(name, limit) } else { halves(name, limit) }
            });
            prop_assert_eq!(raised, mixed);
            (before, enforced) = (host.policy.clone(), next);
        }
    }
}
