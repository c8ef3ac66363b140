//! Properties that hold for any words.

use crate::host::TwoPorts;
use narrows_tc::{Options, execute, execute_batch, load, save};
use proptest::prelude::{
    Just, Strategy, any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest,
};

/// Words that are valid somewhere, among some that never are.
fn word() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "qdisc",
        "q",
        "add",
        "replace",
        "change",
        "del",
        "show",
        "ls",
        "dev",
        "left",
        "right",
        "root",
        "parent",
        "handle",
        "1:",
        "1:1",
        "2:",
        "8001:",
        "ffff:fff1",
        "none",
        "htb",
        "hfsc",
        "sc",
        "ul",
        "m2",
        "class",
        "filter",
        "classid",
        "flower",
        "u32",
        "match",
        "ip",
        "dst_ip",
        "matchall",
        "pref",
        "ceil",
        "pfifo",
        "bfifo",
        "tbf",
        "mq",
        "noqueue",
        "cake",
        "cake_mq",
        "carousel",
        "eiffel",
        "flowbundler",
        "maxrate",
        "flow_limit",
        "horizon",
        "horizon_cap",
        "granularity",
        "slots",
        "flows",
        "hosts",
        "1024",
        "bandwidth",
        "autorate-ingress",
        "diffserv4",
        "rtt",
        "raw",
        "ethernet",
        "memlimit",
        "fwmark",
        "limit",
        "rate",
        "burst",
        "latency",
        "peakrate",
        "mtu",
        "overhead",
        "mpu",
        "linklayer",
        "atm",
        "ptm",
        "coordination",
        "lock",
        "edt",
        "equal",
        "sync",
        "fleet",
        "autorate",
        "noautorate",
        "line",
        "safe",
        "boxes",
        "nofleet",
        "1mbit",
        "2mbit",
        "32k",
        "5ms",
        "0",
        "1",
        "4294967295",
        "18446744073709551616",
        "1e309",
        "0x1p1024bit",
        "-1",
        "nan",
        "%",
        "/",
        "1/8",
        "-s",
        "-d",
        "-j",
        "-p",
        "-b",
        "-force",
        "invisible",
        "help",
        "ingress",
        "stab",
        "",
    ]);
    let number =
        (any::<u64>(), prop::sample::select(vec!["", "bit", "kbit", "gb", "us", "s", ":"]))
            .prop_map(|(number, unit)| format!("{number}{unit}"));
    prop_oneof![
        12 => known.prop_map(str::to_owned),
        2 => number,
        1 => any::<String>(),
    ]
}

/// Words of `cake` with arbitrary values, in any order.
fn cake_words() -> impl Strategy<Value = String> {
    let flag = prop::sample::select(vec![
        "unlimited",
        "datacentre",
        "interplanetary",
        "besteffort",
        "precedence",
        "diffserv3",
        "diffserv4",
        "diffserv8",
        "flowblind",
        "srchost",
        "dsthost",
        "hosts",
        "flows",
        "dual-srchost",
        "dual-dsthost",
        "triple-isolate",
        "nat",
        "nonat",
        "inner",
        "noinner",
        "wash",
        "nowash",
        "ingress",
        "egress",
        "ack-filter",
        "ack-filter-aggressive",
        "no-ack-filter",
        "split-gso",
        "no-split-gso",
        "raw",
        "conservative",
        "ethernet",
        "ether-vlan",
        "docsis",
        "pppoe-ptm",
        "bridged-llcsnap",
        "atm",
        "ptm",
        "noatm",
        "autorate-ingress",
    ]);
    let valued = prop_oneof![
        any::<u64>().prop_map(|bits| format!("bandwidth {}bit", bits >> 4)),
        any::<u32>().prop_map(|micros| format!("rtt {}", micros.max(1))),
        (-64i32..=256).prop_map(|bytes| format!("overhead {bytes}")),
        (0u32..=256).prop_map(|bytes| format!("mpu {bytes}")),
        any::<u32>().prop_map(|bytes| format!("memlimit {bytes}")),
        any::<u32>().prop_map(|mask| format!("fwmark {mask:#x}")),
    ];
    let word = prop_oneof![3 => flag.prop_map(str::to_owned), 2 => valued];
    let shared = prop_oneof![
        3 => Just(String::new()),
        1 => Just(" coordination edt".to_owned()),
        1 => any::<u32>().prop_map(|sync| format!(" coordination equal sync {sync}us")),
        1 => (1u32..).prop_map(|sync| format!(" sync {sync}us")),
    ];
    (prop::collection::vec(word, 0..8), shared)
        .prop_map(|(words, shared)| format!("{}{shared}", words.join(" ")))
}

/// A pacing qdisc with arbitrary values, in any order.
fn pacing_words() -> impl Strategy<Value = String> {
    let kind = prop::sample::select(vec!["carousel", "eiffel", "flowbundler"]);
    let flag = prop::sample::select(vec!["flows", "hosts", "horizon_drop", "horizon_cap"]);
    let word = prop_oneof![
        3 => flag.prop_map(str::to_owned),
        1 => any::<u64>().prop_map(|bits| format!("maxrate {}bit", bits >> 4)),
        1 => (1u32..).prop_map(|packets| format!("limit {packets}")),
        1 => (1u32..).prop_map(|packets| format!("flow_limit {packets}")),
        1 => (1u32..).prop_map(|micros| format!("horizon {micros}us")),
        1 => (1u32..=1_000_000_000).prop_map(|nanos| format!("granularity {nanos}ns")),
        1 => prop::sample::select(vec!["codel", "nocodel", "ecn", "noecn"]).prop_map(str::to_owned),
        1 => (1u32..=100_000).prop_map(|micros| format!("target {micros}us")),
        1 => (100_000u32..=10_000_000).prop_map(|micros| format!("interval {micros}us")),
    ];
    let slots = prop_oneof![
        2 => Just(String::new()),
        1 => (6u32..=12).prop_map(|power| format!(" slots {}", 1 << power)),
        1 => Just(" apart hosts safeguard".to_owned()),
    ];
    (kind, prop::collection::vec(word, 0..8), slots).prop_map(|(kind, words, slots)| {
        let words = words.join(" ");
        // `apart` excludes queue management.
        let (slots, last) = match (kind, slots.contains("apart")) {
            ("flowbundler", true) => (slots.as_str(), " nocodel"),
            ("flowbundler", false) => (slots.as_str(), " apart flows nosafeguard"),
            _ => ("", ""),
        };
        format!("{kind} {words}{slots}{last}")
    })
}

/// Lines that are probably valid.
fn good_line() -> impl Strategy<Value = String> {
    let dev = prop::sample::select(vec!["left", "right"]);
    let place = prop_oneof![
        Just("root".to_owned()),
        (1u16..4, 0u16..6).prop_map(|(major, minor)| format!("parent {major}:{minor}")),
    ];
    let handle = (0u16..4).prop_map(|handle| match handle {
        0 => String::new(),
        handle => format!("handle {handle:x}:"),
    });
    let tbf =
        (1u64..10_000_000_000_000, 1u32.., 1u32.., 0u16.., 0u16.., 0usize..4, 0usize..5, 1u32..)
            .prop_map(|(rate, burst, limit, overhead, mpu, layer, coordination, sync)| {
                let layer = ["ethernet", "atm", "adsl", "ptm"][layer];
                let coordination = [
                    String::new(),
                    "coordination lock".to_owned(),
                    "coordination edt".to_owned(),
                    "coordination equal".to_owned(),
                    format!("coordination equal sync {sync}us"),
                ][coordination]
                    .clone();
                format!(
                    "tbf rate {}bit burst {burst} limit {limit} peakrate {}bit mtu {burst} \
                 overhead {overhead} mpu {mpu} linklayer {layer} {coordination}",
                    rate + 8,
                    rate * 2 + 16,
                )
            });
    let kind = prop_oneof![
        4 => tbf,
        1 => any::<u32>().prop_map(|limit| format!("pfifo limit {limit}")),
        1 => any::<u32>().prop_map(|limit| format!("bfifo limit {limit}")),
        1 => Just("bfifo".to_owned()),
        1 => Just("noqueue".to_owned()),
        2 => Just("mq".to_owned()),
        2 => cake_words().prop_map(|words| format!("cake {words}")),
        1 => cake_words().prop_map(|words| format!("cake_mq {words}")),
        3 => pacing_words(),
    ];
    (dev, place, handle, kind).prop_map(|(dev, place, handle, kind)| {
        format!("qdisc replace dev {dev} {place} {handle} {kind}")
    })
}

proptest! {
    #[test]
    fn a_saved_cake_loads_the_same(
        queues in 1u16..3, first in cake_words(), second in cake_words(), multi in any::<bool>(),
    ) {
        let mut host = TwoPorts::with_queues(queues);
        let kind = if multi { "cake_mq" } else { "cake" };
        for words in [first, second] {
            host.tc(&format!("qdisc replace dev right root {kind} {words}"));
        }
        let text = save(&host.policy);
        let loaded = load(&text, "file", &host).unwrap();
        prop_assert_eq!(&loaded, &host.policy, "{}", text);
        prop_assert_eq!(save(&loaded), text);
    }

    #[test]
    fn saved_pacing_loads_the_same(first in pacing_words(), second in pacing_words()) {
        let mut host = TwoPorts::with_queues(2);
        for words in [first, second] {
            host.ok(&format!("qdisc replace dev right root {words}"));
        }
        let text = save(&host.policy);
        let loaded = load(&text, "file", &host).unwrap();
        prop_assert_eq!(&loaded, &host.policy, "{}", text);
        prop_assert_eq!(save(&loaded), text);
    }

    #[test]
    fn a_saved_policy_survives_loading(lines in prop::collection::vec(good_line(), 1..12)) {
        let mut host = TwoPorts::with_queues(4);
        for line in lines {
            host.tc(&line);
        }
        let text = save(&host.policy);
        let loaded = load(&text, "file", &host).unwrap();
        prop_assert_eq!(&loaded, &host.policy, "{}", text);
        prop_assert_eq!(save(&loaded), text);
    }

    #[test]
    fn no_words_do_harm(lines in prop::collection::vec(prop::collection::vec(word(), 0..14), 1..12)) {
        let mut host = TwoPorts::with_queues(4);
        for args in lines {
            let before = host.policy.clone();
            let outcome = execute(&args, &mut host);
            if outcome.code != 0 {
                prop_assert_eq!(&host.policy, &before, "{:?}", &args);
                prop_assert!(!outcome.stderr.is_empty(), "{:?}", &args);
            }
        }
    }

    #[test]
    fn words_that_nearly_make_sense_do_no_harm(
        line in good_line(), at in any::<prop::sample::Index>(), other in word(), cut in any::<bool>(),
    ) {
        let mut args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let at = at.index(args.len());
        if cut { args.truncate(at) } else { args[at] = other }
        let mut host = TwoPorts::with_queues(4);
        let outcome = execute(&args, &mut host);
        prop_assert!(outcome.code == 0 || host.policy.ports().count() == 0);
        for options in ["-s -d", "-j", "-j -p -s -d"] {
            let shown = host.ok(&format!("{options} qdisc show invisible"));
            if options.starts_with("-j") {
                prop_assert!(serde_json::from_str::<serde_json::Value>(&shown).is_ok());
            }
        }
    }

    #[test]
    fn no_bytes_do_harm(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let text = String::from_utf8_lossy(&bytes);
        let mut host = TwoPorts::with_queues(4);
        let force = Options { force: true, ..Options::default() };
        execute_batch(&text, "-", &force, &mut host);
    }
}
