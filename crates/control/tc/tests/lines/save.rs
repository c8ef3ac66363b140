//! `tc save`: its output creates the same policy again, on any host.

use crate::host::TwoPorts;
use narrows_policy::Handle;
use narrows_tc::{OfflineHost, load, save};
use proptest::prelude::*;

const LIMITED: &str = "qdisc add dev right root handle 1: tbf rate 1gbit burst 32k latency 5ms";

/// A word or none.
fn maybe<T: std::fmt::Debug>(
    value: impl Strategy<Value = T>,
    say: impl Fn(T) -> String + 'static,
) -> impl Strategy<Value = String> {
    prop::option::of(value).prop_map(move |value| value.map_or(String::new(), &say))
}

fn fq_words() -> impl Strategy<Value = String> {
    let counts = (
        maybe(any::<u32>(), |n| format!(" limit {n}")),
        maybe(any::<u32>(), |n| format!(" flow_limit {n}")),
        maybe(1u32..1 << 20, |n| format!(" quantum {n}")),
        maybe(any::<u32>(), |n| format!(" initial_quantum {n}")),
        maybe(0u32..20, |n| format!(" buckets {}", 1u32 << n)),
        maybe(any::<u32>(), |n| format!(" orphan_mask {n}")),
    );
    let rates = (
        maybe(0u64..1 << 40, |n| format!(" maxrate {n}bit")),
        maybe(0u64..1 << 35, |n| format!(" defrate {n}bit")),
        maybe(0u64..1 << 35, |n| format!(" low_rate_threshold {n}bit")),
        maybe(any::<bool>(), |on| if on { " pacing" } else { " nopacing" }.to_owned()),
    );
    let times = (
        maybe(any::<u32>(), |n| format!(" refill_delay {n}us")),
        maybe(any::<u32>(), |n| format!(" ce_threshold {n}us")),
        maybe(any::<u32>(), |n| format!(" timer_slack {n}ns")),
        maybe(any::<u32>(), |n| format!(" horizon {n}us")),
        maybe(any::<bool>(), |cap| format!(" horizon_{}", if cap { "cap" } else { "drop" })),
    );
    let bands = (
        maybe(prop::array::uniform16(0u8..3), |map| {
            format!(" bands 3 priomap {}", map.map(|band| band.to_string()).join(" "))
        }),
        maybe(prop::array::uniform3(16u32..1 << 30), |weights| {
            format!(" weights {}", weights.map(|weight| weight.to_string()).join(" "))
        }),
    );
    (counts, rates, times, bands).prop_map(
        |((a, b, c, d, e, f), (g, h, i, j), (k, l, m, n, o), (p, q))| {
            [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q].concat()
        },
    )
}

/// One of every kind, as short as possible: the defaults depend on the port.
const KINDS: [&str; 24] = [
    "pfifo",
    "bfifo",
    "noqueue",
    "tbf rate 100mbit burst 32k latency 5ms",
    "tbf rate 100mbit burst 32k latency 5ms coordination equal sync 300us",
    "cake",
    "cake bandwidth 10mbit nat ack-filter coordination edt",
    "cake_mq bandwidth 1gbit",
    "fq",
    "carousel",
    "eiffel maxrate 1mbit",
    "flowbundler hosts",
    "fq_codel",
    "fq_codel flows 64 ce_threshold 1ms ce_threshold_selector 0x1/0x3 noecn",
    "codel limit 100 ecn",
    "sfq perturb 10 headdrop",
    "netem delay 20ms 2ms 25% distribution normal loss 1% 25% corrupt 0.1% seed 42",
    "netem delay 20ms reorder 25% 50% gap 5 loss gemodel 1% 10% 70% 0.1% ecn",
    "netem loss state 5% slot 800us 1ms packets 20 bytes 32k",
    "netem rate 10mbit 20 48 5 limit 500",
    "stab overhead 44 linklayer atm pfifo",
    "netem delay 5ms duplicate 1% 30%",
    "red limit 400k avpkt 1000",
    "red limit 400000 min 30000 max 90000 avpkt 1000 burst 55 ecn nodrop adaptive probability 0.1 bandwidth 3mbit",
];

proptest! {
    #[test]
    fn saved_parameters_of_fq_load_the_same(first in fq_words(), second in fq_words(), mtu in 68u32..9001) {
        let mut host = TwoPorts::with_queues(2);
        host.facts.mtu = mtu;
        for words in [first, second] {
            host.tc(&format!("qdisc replace dev right root fq{words}"));
        }
        let text = host.ok("save");
        let loaded = load(&text, "file", &OfflineHost::default()).unwrap();
        prop_assert_eq!(loaded, host.policy, "{}", text);
    }

    #[test]
    fn saved_qdiscs_of_every_kind_load_the_same_on_another_host(
        lines in prop::collection::vec((any::<bool>(), 0u16..5, prop::sample::select(&KINDS[..])), 1..9),
        mtu in 68u32..9001,
    ) {
        let mut here = TwoPorts::with_queues(4);
        here.facts.mtu = mtu;
        for (right, class, kind) in lines {
            let dev = if right { "right" } else { "left" };
            let place = if class == 0 { "root".to_owned() } else { format!("parent 1:{class}") };
            let kind = if class == 0 && kind == "noqueue" { "mq" } else { kind };
            let handle = if class == 0 { "handle 1:" } else { "" };
            here.tc(&format!("qdisc replace dev {dev} {place} {handle} {kind}"));
        }
        let text = here.ok("save");
        prop_assert_eq!(&load(&text, "file", &here).unwrap(), &here.policy, "{}", text);
        // cake's full frame is a property of the port, not of the policy.
        for policy in [
            load(&text, "file", &TwoPorts::with_queues(4)),
            load(&text, "file", &OfflineHost::default()),
        ] {
            prop_assert_eq!(&save(&policy.unwrap()), &text);
        }
    }
}

#[test]
fn one_port_is_saved_by_name() {
    let mut host = TwoPorts::with_queues(2);
    assert_eq!(host.ok("save"), "");
    host.ok(LIMITED);
    host.ok("qdisc add dev left root pfifo limit 7");
    let right =
        "qdisc replace dev right root handle 1: tbf rate 1000000000bit burst 32768 limit 657768\n";
    let left = "qdisc replace dev left root handle 8001: pfifo limit 7\n";
    assert_eq!(host.ok("save dev right"), right);
    assert_eq!(host.ok("sa dev left"), left);
    assert_eq!(host.ok("save"), format!("{left}{right}"));
}

#[test]
fn options_unknown_to_save_are_refused() {
    let mut host = TwoPorts::with_queues(2);
    assert!(host.fails("save dev eth9", 1).contains("eth9"));
    assert!(host.fails("save dev", 255).contains("dev eth0"));
    assert!(host.fails("save left", 255).contains("\"left\""));
    assert!(host.fails("save dev left twice", 255).contains("\"twice\""));
    assert_eq!(host.tc("save help").code, 0);
}

#[test]
fn a_file_read_again_keeps_the_handles_that_it_does_not_name() {
    let mut host = TwoPorts::with_queues(2);
    let file = "qdisc add dev right root tbf rate 1gbit burst 32k latency 5ms\n";
    host.policy = load(file, "file", &host).unwrap();
    host.ok("qdisc change dev right root tbf rate 5mbit burst 32k latency 5ms");
    let longer = format!("qdisc add dev left root pfifo\n{file}");
    let again = load(&longer, "file", &host).unwrap();
    let handle = |dev| again.port(dev).root().unwrap().handle;
    assert_eq!(handle("right"), Handle::FIRST_AUTOMATIC);
    assert_eq!(handle("left").major(), 0x8002);
    // Another kind in that place, with or without a handle, is what the file says.
    let named = "qdisc add dev right root handle 8001: pfifo\nqdisc add dev left root pfifo\n";
    let again = load(named, "file", &host).unwrap();
    assert_eq!(again.port("right").root().unwrap().kind.name(), "pfifo");
    // Later handles continue the usual numbering.
    host.policy = again;
    host.ok("qdisc del dev right root");
    host.ok("qdisc add dev right root pfifo limit 3");
    assert_eq!(host.policy.port("right").root().unwrap().handle.major(), 0x8003);
}
