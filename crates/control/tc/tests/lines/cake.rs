//! `cake` and `cake_mq`, word by word: the effect of each on the output, what both refuse, and what
//! is Narrows' own. `cake_samples` compares the printed statistics with `tc`'s.

use crate::host::TwoPorts;
use narrows_policy::{CakeParams, Kind};

const KINDS: [&str; 2] = ["cake", "cake_mq"];
/// The output for one created without any words.
const DEFAULT: &str = "bandwidth unlimited diffserv3 triple-isolate nonat nowash no-ack-filter \
                       split-gso rtt 100ms raw overhead 0 ";

/// The options shown on a port with four queues, the same for the root and for each queue.
#[track_caller]
fn shown(kind: &str, words: &str) -> String {
    let mut host = TwoPorts::with_queues(4);
    let outcome = host.tc(&format!("qdisc add dev right handle 1: root {kind} {words}"));
    assert_eq!(outcome.code, 0, "{words}: {}", outcome.stderr);
    let text = host.ok("qdisc show dev right");
    let lines: Vec<_> = text.lines().collect();
    let Some(options) = lines[0].strip_prefix("qdisc cake_mq 1: root ") else {
        assert_eq!(lines.len(), 1);
        return lines[0].strip_prefix("qdisc cake 1: root refcnt 5 ").unwrap().to_owned();
    };
    let queues: Vec<_> =
        (1..=4).rev().map(|queue| format!("qdisc cake 0: parent 1:{queue} {options}")).collect();
    assert_eq!(lines[1..], queues);
    options.to_owned()
}

/// The options with `from` replaced by `to`.
fn default_with(changes: &[(&str, &str)]) -> String {
    changes.iter().fold(DEFAULT.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    })
}

fn params(host: &TwoPorts) -> CakeParams {
    match &host.policy.port("right").root().unwrap().kind {
        Kind::Cake(cake) => cake.params.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn parameters_of_tc_testing_are_shown() {
    const RAW: &str = "raw overhead 0 ";
    const NO_FILTER: &str = "no-ack-filter";
    let bandwidth = ("unlimited", "1Kbit");
    for (words, changes) in [
        ("", vec![]),
        ("bandwidth 1000", vec![bandwidth]),
        ("rtt 200", vec![("100ms", "200us")]),
        ("besteffort", vec![("diffserv3", "besteffort")]),
        ("diffserv8", vec![("diffserv3", "diffserv8")]),
        ("diffserv4", vec![("diffserv3", "diffserv4")]),
        ("diffserv", vec![("diffserv3", "diffserv4")]),
        ("flowblind", vec![("triple-isolate", "flowblind")]),
        ("dsthost nat", vec![("triple-isolate nonat", "dsthost nat")]),
        ("hosts wash", vec![("triple-isolate nonat nowash", "hosts nonat wash")]),
        (
            "flowblind no-split-gso",
            vec![("triple-isolate", "flowblind"), ("split-gso", "no-split-gso")],
        ),
        (
            "dual-srchost ack-filter",
            vec![("triple-isolate", "dual-srchost"), (NO_FILTER, "ack-filter")],
        ),
        (
            "dual-dsthost ack-filter-aggressive",
            vec![("triple-isolate", "dual-dsthost"), (NO_FILTER, "ack-filter-aggressive")],
        ),
        ("memlimit 10000 ptm", vec![(RAW, "raw ptm overhead 0 memlimit 10000b ")]),
        ("fwmark 8 atm", vec![(RAW, "raw atm overhead 0 fwmark 0x8 ")]),
        ("overhead 128 mpu 256", vec![(RAW, "noatm overhead 128 mpu 256 ")]),
        ("conservative ingress", vec![("nowash", "nowash ingress"), (RAW, "atm overhead 48 ")]),
    ] {
        for kind in KINDS {
            assert_eq!(shown(kind, words), default_with(&changes), "{kind} {words}");
        }
    }
}

#[test]
fn round_trips_have_names() {
    for (name, rtt) in [
        ("datacentre", "100us"),
        ("lan", "1ms"),
        ("metro", "10ms"),
        ("regional", "30ms"),
        ("internet", "100ms"),
        ("oceanic", "300ms"),
        ("satellite", "1s"),
        ("interplanetary", "1e+03s"),
    ] {
        assert_eq!(shown("cake", name), default_with(&[("100ms", rtt)]), "{name}");
    }
    let mut host = TwoPorts::with_queues(1);
    host.ok("qdisc add dev right root cake datacentre");
    assert_eq!(params(&host).config.target.0, 5_000);
}

#[test]
fn what_links_add_adds_up_in_order() {
    for (words, expected) in [
        ("pppoa-vcmux", "atm overhead 10 "),
        ("pppoa-llc", "atm overhead 14 "),
        ("pppoe-vcmux", "atm overhead 32 "),
        ("pppoe-llcsnap", "atm overhead 40 "),
        ("bridged-vcmux", "atm overhead 24 "),
        ("bridged-llcsnap", "atm overhead 32 "),
        ("ipoa-vcmux", "atm overhead 8 "),
        ("ipoa-llcsnap", "atm overhead 16 "),
        ("pppoe-ptm", "ptm overhead 30 "),
        ("bridged-ptm", "ptm overhead 22 "),
        ("docsis", "noatm overhead 18 mpu 64 "),
        ("ethernet", "noatm overhead 38 mpu 84 "),
        ("atm ethernet", "atm overhead 38 mpu 84 "),
        ("docsis atm", "atm overhead 18 mpu 64 "),
        ("atm docsis", "noatm overhead 18 mpu 64 "),
        ("ether-vlan ether-vlan ethernet", "noatm overhead 46 mpu 84 "),
        ("conservative ether-vlan", "atm overhead 52 "),
        ("ether-vlan conservative", "atm overhead 48 "),
        ("overhead 10 ether-vlan", "noatm overhead 14 "),
        ("overhead 10 overhead 3", "noatm overhead 3 "),
        ("pppoe-vcmux pppoa-llc", "atm overhead 46 "),
        ("overhead -64", "noatm overhead -64 "),
        ("overhead +5", "noatm overhead 5 "),
        ("overhead 010", "noatm overhead 10 "),
        ("overhead 0", "noatm overhead 0 "),
        ("raw", "raw overhead 0 "),
        ("raw overhead 5", "raw overhead 5 "),
        ("raw ethernet", "raw overhead 38 mpu 84 "),
        ("ethernet raw", "raw overhead 0 mpu 84 "),
        ("conservative raw", "raw overhead 0 "),
        ("ethernet mpu 0", "noatm overhead 38 "),
        ("mpu 64", "raw overhead 0 mpu 64 "),
        ("via-ethernet", "raw overhead 0 "),
    ] {
        assert_eq!(shown("cake", words), default_with(&[("raw overhead 0 ", expected)]), "{words}");
    }
}

#[test]
fn of_words_that_exclude_each_other_the_last_one_holds() {
    assert_eq!(shown("cake", "wash nowash nat nonat ingress egress"), DEFAULT);
    assert_eq!(shown("cake", "besteffort diffserv3 flows triple-isolate"), DEFAULT);
    assert_eq!(shown("cake", "ack-filter no-ack-filter no-split-gso split-gso"), DEFAULT);
    assert_eq!(shown("cake", "bandwidth 1mbit unlimited"), DEFAULT);
    assert_eq!(shown("cake", "rtt 5ms internet inner noinner"), DEFAULT);
    let rate = default_with(&[("unlimited", "1Mbit")]);
    assert_eq!(shown("cake", "unlimited bandwidth 1mbit"), rate);
    assert_eq!(shown("cake", "autorate-ingress bandwidth 1mbit"), rate);
}

#[test]
fn a_change_sets_what_it_names_and_nothing_else() {
    for kind in KINDS {
        let mut host = TwoPorts::with_queues(4);
        host.ok(&format!(
            "qdisc add dev right handle 1: root {kind} bandwidth 1mbit diffserv4 flows wash \
             memlimit 1mb overhead 18 mpu 64 rtt 20ms"
        ));
        let before = params(&host);
        host.ok(&format!("qdisc change dev right root {kind}"));
        assert_eq!(params(&host), before);
        host.ok(&format!("qdisc change dev right root {kind} bandwidth 2mbit"));
        assert_eq!(params(&host).config.rate.unwrap().bits_per_sec(), 2_000_000);
        host.ok(&format!("qdisc replace dev right root {kind} nowash"));
        let mut expected = before;
        expected.config.rate = params(&host).config.rate;
        expected.config.wash = false;
        assert_eq!(params(&host), expected);
        // Zero counts as not given.
        let zeros =
            host.tc(&format!("qdisc change dev right root {kind} bandwidth 0 memlimit 0 mpu 0"));
        assert_eq!(zeros.stderr, "Warning: bandwidth 0 is no rate at all, so it limits nothing.\n");
        assert_eq!(params(&host), expected);
        host.ok(&format!("qdisc change dev right root {kind} unlimited"));
        assert_eq!(params(&host).config.rate, None);
        // Another handle is another qdisc, which starts from the defaults.
        host.ok(&format!("qdisc replace dev right handle 2: root {kind}"));
        assert_eq!(params(&host), CakeParams::new(1514));
        host.ok("qdisc del dev right root");
        assert_eq!(host.policy.ports().count(), 0);
    }
}

#[test]
fn frames_are_as_long_as_those_of_the_port() {
    let mut host = TwoPorts::with_queues(1);
    host.facts.mtu = 9000;
    host.ok("qdisc add dev right root cake");
    assert_eq!(params(&host).config.frame, 9014);
}

#[test]
fn the_queues_of_a_cake_mq_are_its_own() {
    let mut host = TwoPorts::with_queues(4);
    host.ok("qdisc add dev right root handle 1: cake_mq bandwidth 1mbit");
    for verb in ["add", "change", "replace"] {
        for kind in ["cake", "cake bandwidth 5mbit", "pfifo", "cake_mq"] {
            for handle in ["", "handle 5:"] {
                let complaint =
                    host.fails(&format!("qdisc {verb} dev right parent 1:1 {handle} {kind}"), 2);
                let sentence = "Error: can't replace cake_mq sub-qdiscs.";
                assert!(complaint.starts_with(sentence), "{complaint}");
            }
        }
    }
    assert!(host.fails("qdisc del dev right parent 1:1", 2).contains("handle of zero"));
    assert!(host.fails("qdisc add dev right parent 1:5 pfifo", 2).contains("1:1 to 1:4"));
    host.ok("qdisc replace dev right root cake");
    assert!(host.fails("qdisc add dev right parent 8001:1 pfifo", 2).contains("not classful"));
}

#[test]
fn cake_mq_needs_queues_and_the_root() {
    let mut one = TwoPorts::with_queues(1);
    assert!(one.fails("qdisc add dev right root cake_mq", 2).contains("use cake"));
    let mut four = TwoPorts::with_queues(4);
    four.ok("qdisc add dev right root handle 1: mq");
    assert!(
        four.fails("qdisc add dev right parent 1:1 cake_mq", 2).contains("only be at the root")
    );
    four.ok("qdisc add dev right parent 1:1 cake bandwidth 1mbit");
    four.ok("qdisc replace dev right root handle 2: tbf rate 1mbit burst 32k latency 5ms");
    four.ok("qdisc add dev right parent 2:1 cake");
}

#[test]
fn autorate_needs_a_single_queue() {
    let mut four = TwoPorts::with_queues(4);
    for kind in KINDS {
        let line = format!("qdisc add dev right root {kind} bandwidth 1mbit autorate-ingress");
        let complaint = four.fails(&line, 2);
        assert!(complaint.contains("autorate-ingress") && complaint.contains("bandwidth"));
    }
    four.ok("qdisc add dev right root handle 1: mq");
    four.ok("qdisc add dev right parent 1:1 cake autorate-ingress");
    let mut one = TwoPorts::with_queues(1);
    one.ok("qdisc add dev right root cake bandwidth 1mbit autorate-ingress");
    assert!(one.ok("qdisc show dev right").contains("bandwidth 1Mbit autorate-ingress diffserv3"));
    one.ok("qdisc change dev right root cake bandwidth 2mbit");
    assert!(!params(&one).config.autorate);
}

#[test]
fn words_that_are_wrong_are_named() {
    let mut host = TwoPorts::with_queues(4);
    for (words, code, named) in [
        ("bandwidth foo", 1, "\"foo\""),
        ("bandwidth 10%", 1, "bottleneck"),
        ("bandwidth -5mbit", 1, "\"-5mbit\""),
        ("bandwidth", 255, "\"bandwidth\""),
        ("band 10mbit", 1, "What is \"band\"?"),
        ("bandwith 10mbit", 1, "Perhaps \"bandwidth\"?"),
        ("datacenter", 1, "\"datacentre\""),
        ("BESTEFFORT", 1, "What is \"BESTEFFORT\"?"),
        ("diffserv5", 1, "\"diffserv5\""),
        ("rtt foo", 1, "\"foo\""),
        ("rtt 0", 1, "1us"),
        ("rtt", 255, "\"rtt\""),
        ("internet lan", 255, "\"internet\""),
        ("overhead 257", 1, "-64 to 256"),
        ("overhead -65", 1, "-64 to 256"),
        ("overhead 0x10", 1, "\"0x10\""),
        ("overhead 10b", 1, "\"10b\""),
        ("overhead", 255, "\"overhead\""),
        ("overhead 250 ethernet", 1, "288"),
        ("mpu 257", 1, "0 to 256"),
        ("mpu -1", 1, "0 to 256"),
        ("memlimit foo", 1, "\"foo\""),
        ("memlimit 5g", 1, "\"5g\""),
        ("fwmark foo", 1, "\"foo\""),
        ("fwmark 4294967296", 1, "\"4294967296\""),
        ("fwmark", 255, "\"fwmark\""),
        ("coordination fast", 1, "\"fast\""),
        ("coordination lock sync 1ms", 1, "\"sync\""),
        ("h", 1, "What is \"h\"?"),
    ] {
        for kind in KINDS {
            let complaint = host.fails(&format!("qdisc add dev right root {kind} {words}"), code);
            assert!(complaint.contains(named), "{words}: {complaint}");
        }
    }
    assert!(host.fails("qdisc add dev right root cake help", 1).starts_with("Usage: "));
}

#[test]
fn impossible_options_on_a_port_are_reported() {
    let mut host = TwoPorts::with_queues(4);
    let said = host.tc("qdisc add dev right root cake nat fwmark 0xff").stderr;
    assert_eq!(said.matches("Warning: cake: ").count(), 2, "{said}");
    assert!(said.contains("translation") && said.contains("code points"), "{said}");
    assert_eq!(host.tc("qdisc change dev right root cake nonat split-gso").stderr, "");
}

#[test]
fn translation_is_warned_of_only_where_the_kernel_does_not_tell_of_it() {
    for (looks_up, warnings) in [(false, 1), (true, 0)] {
        let mut host = TwoPorts { looks_up, ..TwoPorts::with_queues(4) };
        let said = host.tc("qdisc add dev right root cake nat").stderr;
        assert_eq!(said.matches("conntrack look-up").count(), warnings, "{said}");
        let said = host.tc("qdisc replace dev right root fq_codel hosts src nat").stderr;
        assert_eq!(said.matches("conntrack look-up").count(), warnings, "{said}");
        assert_eq!(host.tc("qdisc change dev right root fq_codel hosts src").stderr, "");
    }
}

#[test]
fn our_own_words_are_shown_only_when_used() {
    assert!(shown("cake", "inner").ends_with("raw overhead 0 inner "));
    for kind in KINDS {
        for words in ["coordination lock", "coordination equal sync 500us"] {
            assert!(
                shown(kind, &format!("bandwidth 1mbit {words}")).ends_with(&format!(" {words} "))
            );
        }
        let silent = shown(kind, "bandwidth 1mbit coordination fair");
        assert!(silent.ends_with("raw overhead 0 "), "{silent}");
    }
    let mut one = TwoPorts::with_queues(1);
    one.ok("qdisc add dev right root cake bandwidth 1mbit coordination lock");
    assert!(!one.ok("qdisc show dev right").contains("coordination"));
    let mut mq = TwoPorts::with_queues(4);
    mq.ok("qdisc add dev right root handle 1: mq");
    assert!(mq.fails("qdisc add dev right parent 1:1 cake coordination lock", 2).contains("mq"));
}

#[test]
fn one_queue_of_a_cake_mq_can_be_asked_for() {
    let mut host = TwoPorts::with_queues(4);
    host.ok("qdisc add dev right root handle 1: cake_mq");
    let shown = host.ok("qdisc show dev right parent 1:3");
    assert_eq!(shown, format!("qdisc cake 0: parent 1:3 {DEFAULT}\n"));
    let text = host.ok("qdisc show dev right root");
    assert_eq!(text, format!("qdisc cake_mq 1: root {DEFAULT}\n"));
}
