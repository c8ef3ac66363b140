//! A policy shown as JSON and imported is the same policy.

use narrows_import::tc::Printed;
use narrows_policy::Policy;
use narrows_tc::{OfflineHost, execute, load};
use std::collections::HashMap;

fn show(host: &mut OfflineHost, words: &str) -> Vec<u8> {
    let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
    let outcome = execute(&words, host);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    outcome.stdout.into_bytes()
}

/// The policy of `lines` for eth0, and the policy imported from its JSON.
#[track_caller]
fn round_trip(lines: &str) -> (Policy, Policy, String) {
    let policy = load(lines, "given", &OfflineHost::default()).unwrap();
    let mut host = OfflineHost::new(policy.clone());
    let mut printed = Printed::default();
    printed.add(&show(&mut host, "-d -j qdisc show dev eth0"), Some("eth0"), None).unwrap();
    printed.add(&show(&mut host, "-d -j class show dev eth0"), Some("eth0"), None).unwrap();
    for (dev, handles) in printed.handles() {
        for handle in handles {
            let json = show(&mut host, &format!("-j filter show dev {dev} parent {handle}"));
            printed.add(&json, Some(&dev), Some(&handle)).unwrap();
        }
    }
    let imported = printed.import(&HashMap::new()).unwrap();
    let again = load(&imported.policy, "imported", &OfflineHost::default())
        .unwrap_or_else(|why| panic!("{why}\n{}", imported.policy));
    (policy, again, imported.policy.clone() + &imported.report())
}

#[test]
fn the_imported_policy_is_the_shown_one() {
    let mut wrong = String::new();
    for lines in [
        "qdisc add dev eth0 root handle 1: tbf rate 100mbit burst 62500 latency 20ms",
        "qdisc add dev eth0 root handle 1: tbf rate 100mbit burst 62500 latency 20ms\n\
         qdisc add dev eth0 parent 1:1 handle 2: fq_codel limit 1000 noecn",
        "qdisc add dev eth0 root handle 1: cake bandwidth 95mbit docsis besteffort dual-dsthost wash",
        "qdisc add dev eth0 root handle 1: cake bandwidth 95mbit diffserv8 ack-filter-aggressive nat ingress rtt 30ms raw",
        "qdisc add dev eth0 root handle 1: cake unlimited overhead 18 atm mpu 64 memlimit 4mb no-split-gso fwmark 0xff",
        "qdisc add dev eth0 root handle 1: cake_mq bandwidth 1gbit",
        "qdisc add dev eth0 root handle 1: prio bands 4 priomap 0 1 2 3 0 1 2 3 0 1 2 3 0 1 2 3\n\
         qdisc add dev eth0 parent 1:2 handle 2: sfq perturb 10 quantum 2000\n\
         filter add dev eth0 parent 1: protocol ip pref 3 flower ip_proto tcp dst_port 80 classid 1:2\n\
         filter add dev eth0 parent 1: protocol ip pref 4 u32 match ip dport 53 0xffff match ip protocol 17 0xff flowid 1:1\n\
         filter add dev eth0 parent 1: protocol all pref 9 matchall classid 1:4",
        "qdisc add dev eth0 root handle 1: drr\n\
         class add dev eth0 parent 1: classid 1:1 drr quantum 3000\n\
         class add dev eth0 parent 1: classid 1:2 drr\n\
         qdisc add dev eth0 parent 1:1 handle 3: codel target 2ms\n\
         filter add dev eth0 parent 1: protocol ip pref 1 handle 0x7 fw classid 1:1",
        "qdisc add dev eth0 root handle 1: hfsc default 1f\n\
         class add dev eth0 parent 1: classid 1:1 hfsc sc m2 50mbit ul m2 50mbit\n\
         class add dev eth0 parent 1:1 classid 1:20 hfsc rt umax 160b dmax 20ms rate 64kbit\n\
         class add dev eth0 parent 1:1 classid 1:1f hfsc rt m2 1mbit ls m1 9mbit d 7us m2 8mbit\n\
         qdisc add dev eth0 parent 1:20 handle 20: codel\n\
         filter add dev eth0 parent 1: protocol ip pref 1 flower dst_ip 10.0.0.0/8 classid 1:20",
        "qdisc add dev eth0 root handle 1: ets strict 2 quanta 5000 3000 priomap 3 2 1 0",
        "qdisc add dev eth0 root handle 1: fq limit 2000 flow_limit 50 maxrate 20mbit",
        "qdisc add dev eth0 root handle 1: pfifo limit 77",
        "qdisc add dev eth0 root handle 1: tbf rate 1mbit burst 8kb latency 20ms mpu 64",
        "qdisc add dev eth0 root handle 1: stab linklayer atm overhead 10 mpu 53 mtu 1800 pfifo limit 7",
        "qdisc add dev eth0 root handle 1: stab overhead -4 tbf rate 1mbit burst 8kb latency 20ms",
        "qdisc add dev eth0 root handle 1: netem delay 20ms 2ms 25% distribution normal loss 12.5% duplicate 50% corrupt 25% 50% reorder 75% gap 5 rate 1mbit 20 48 -5 limit 33 seed 9",
        "qdisc add dev eth0 root handle 1: netem loss gemodel 25% 50% 12.5% 75% ecn",
        "qdisc add dev eth0 root handle 1: netem loss state 25% 50% 12.5% 75%\n\
         qdisc add dev eth0 parent 1:1 handle 2: sfq",
        "qdisc add dev eth0 root handle 1: htb default 20 r2q 5\n\
         class add dev eth0 parent 1: classid 1:1 htb rate 100mbit\n\
         class add dev eth0 parent 1:1 classid 1:20 htb rate 30mbit ceil 50mbit prio 3 quantum 3000\n\
         class add dev eth0 parent 1:1 classid 1:10 htb rate 20mbit ceil 100mbit\n\
         class add dev eth0 parent 1:10 classid 1:a1 htb rate 10mbit ceil 90mbit burst 40kb quantum 200000\n\
         qdisc add dev eth0 parent 1:a1 handle a1: cake besteffort dual-dsthost\n\
         filter add dev eth0 parent 1: protocol ip pref 1 flower dst_ip 10.0.0.0/8 classid 1:a1\n\
         filter add dev eth0 parent 1: protocol ipv6 pref 2 flower src_ip 2001:db8::/32 action drop",
    ] {
        let (given, again, text) = round_trip(lines);
        if given != again || text.contains("NOTE") {
            wrong += &format!("{lines}\nbecame\n{text}\n{given:?}\n{again:?}\n\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// The output of a Debian host with a shaper of its own: iproute2 6.1, the kernel's defaults, a
/// `u32` hash table with two matches (one key twice), and settings without an equivalent.
const QDISCS: &str = r#"[{"kind":"noqueue","handle":"0:","dev":"lo","root":true,"refcnt":2,"options":{}},
{"kind":"mq","handle":"0:","dev":"eth1","root":true,"options":{}},
{"kind":"fq_codel","handle":"0:","dev":"eth1","parent":":1","options":{"limit":10240,"flows":1024,"quantum":1514,"target":4999,"interval":99999,"memory_limit":33554432,"ecn":true,"drop_batch":64}},
{"kind":"htb","handle":"1:","dev":"eth0","root":true,"refcnt":2,"options":{"r2q":10,"default":"0x30","direct_packets_stat":0,"direct_qlen":1000}},
{"kind":"qfq","handle":"30:","dev":"eth0","parent":"1:30","options":{}},
{"kind":"ingress","handle":"ffff:","dev":"eth0","parent":"ffff:fff1","options":{}}]"#;
const CLASSES: &str = r#"[{"class":"htb","handle":"1:30","parent":"1:1","leaf":"30:","prio":2,"rate":1250000,"ceil":12500000,"burst":1600,"cburst":1600},
{"class":"htb","handle":"1:1","root":true,"rate":12500000,"ceil":12500000,"burst":1600,"cburst":1600},
{"class":"qfq","handle":"30:1","root":true}]"#;
const FILTERS: &str = r#"[{"parent":"1:","protocol":"ip","pref":1,"kind":"u32","chain":0},
{"parent":"1:","protocol":"ip","pref":1,"kind":"u32","chain":0,"options":{"fh":"800:","ht_divisor":1}},
{"parent":"1:","protocol":"ip","pref":1,"kind":"u32","chain":0,"options":{"fh":"800::800","order":2048,"key_ht":"800","bkt":"0","flowid":"1:30","not_in_hw":true,"match":{"value":"a000000","mask":"ff000000","offmask":"","off":16},"match":{"value":"110000","mask":"ff0000","offmask":"","off":8}}},
{"parent":"1:","protocol":"ip","pref":2,"kind":"flower","chain":0,"options":{"handle":1,"classid":"1:30","keys":{"eth_type":"ipv4","ct_state":"+trk"},"not_in_hw":true}},
{"parent":"1:","protocol":"all","pref":3,"kind":"bpf","chain":0,"options":{"handle":"0x1","bpf_name":"x"}}]"#;

#[test]
fn a_debian_host_is_imported_with_notes_for_the_rest() {
    let mut printed = Printed::default();
    printed.add(QDISCS.as_bytes(), None, None).unwrap();
    assert!(printed.add(CLASSES.as_bytes(), None, None).unwrap_err().to_string().contains("--dev"));
    printed.add(CLASSES.as_bytes(), Some("eth0"), None).unwrap();
    printed.add(FILTERS.as_bytes(), Some("eth0"), None).unwrap();
    let renamed = HashMap::from([("eth0".to_owned(), "lan0".to_owned())]);
    let imported = printed.import(&renamed).unwrap();
    load(&imported.policy, "imported", &OfflineHost::default()).unwrap();
    assert!(imported.policy.contains(
        "filter add dev lan0 parent 1: protocol ip pref 1 u32 match u32 0x0a000000 0xff000000 at 16 \
         match u32 0x00110000 0x00ff0000 at 8 classid 1:30"
    ), "{}", imported.policy);
    let report = imported.report();
    for said in [
        "1 qdisc, 2 classes, 1 filter\n",
        "the qdisc qfq of lan0 has no equivalent: left out",
        "its key \"ct_state\" has no equivalent",
        "ingress of lan0 is left out, with its filters",
        "tc has printed no details (tc -d -j qdisc show) of lan0: size tables, mpu and linklayer",
    ] {
        assert!(report.contains(said), "no {said}\n{report}");
    }
}

/// What iproute2 6.1 prints of an `hfsc` with `-j`: the default class and the classes are text.
#[test]
fn an_hfsc_of_iproute2_6_1_is_imported() {
    let qdiscs = r#"[{"kind":"hfsc","handle":"1:","dev":"eth0","root":true,"refcnt":2,"options":{default 1f }}]"#;
    let classes = "class hfsc 1: root \n\
                   class hfsc 1:1f parent 1:1 sc m1 0bit d 7.6ms m2 5Mbit \n \
                   period 0 level 0 \n\
                   class hfsc 1:1 parent 1: ls m1 0bit d 0us m2 9Mbit ul m1 8Mbit d 2.5ms m2 9Mbit \n";
    let mut printed = Printed::default();
    printed.add(qdiscs.as_bytes(), None, None).unwrap();
    printed.add(classes.as_bytes(), Some("eth0"), None).unwrap();
    let imported = printed.import(&HashMap::new()).unwrap();
    let given = "qdisc add dev eth0 root handle 1: hfsc default 1f\n\
                 class add dev eth0 parent 1: classid 1:1 hfsc ls m2 9mbit ul m1 8mbit d 2500us m2 9mbit\n\
                 class add dev eth0 parent 1:1 classid 1:1f hfsc sc d 7600us m2 5mbit\n";
    let load = |text: &str| load(text, "policy", &OfflineHost::default()).unwrap();
    assert_eq!(load(&imported.policy), load(given), "{}", imported.policy);
    assert!(imported.report().contains("1 qdisc, 2 classes"), "{}", imported.report());
}

/// What iproute2 6.1 prints of a `tbf` with `-d -j`, and of a `netem`, whose distribution it lacks.
#[test]
fn details_of_a_tbf_and_a_netem_of_iproute2_6_1_are_imported() {
    let printed = |options: &str| {
        let mut printed = Printed::default();
        printed.add(options.as_bytes(), None, None).unwrap();
        let imported = printed.import(&HashMap::new()).unwrap();
        (imported.policy.clone(), imported.report())
    };
    let (policy, report) = printed(
        r#"[{"kind":"tbf","handle":"1:","dev":"eth0","root":true,"refcnt":3,"options":{"rate":125000,"burst":"11342b/1","mpu":64,"mtu":"2226b/1","mpu":64,"lat":49096,"overhead":4,"linklayer":"atm"},"stab":{"linklayer":"atm","overhead":10,"mpu":53,"mtu":2047,"tsize":512}}]"#,
    );
    let line = "stab linklayer atm overhead 10 mpu 53 mtu 2047 tsize 512 tbf rate 1000000bit burst \
                11342b/1 latency 49096us mpu 64 overhead 4 linklayer atm\n";
    assert!(policy.contains(line), "{policy}");
    assert!(report.contains("tc's JSON lacks the peakrate"), "{report}");
    let (policy, report) = printed(
        r#"[{"kind":"netem","handle":"1:","dev":"eth0","root":true,"refcnt":2,"options":{"limit":1000,"delay":{"delay":0.02,"jitter":0.002,"correlation":0.25},"loss-random":{"loss":0.001,"correlation":0},"ecn":false,"gap":0}}]"#,
    );
    let line = "netem delay 20000us 2000us 25% loss random 0.1% 0% limit 1000\n";
    assert!(policy.contains(line), "{policy}");
    assert!(report.contains("uniform is assumed"), "{report}");
}

#[test]
fn json_that_is_not_from_tc_is_refused() {
    for bytes in [&b"qdisc htb 1: root"[..], b"{}", b"[1]", b"[{\"class\":\"htb\"}]"] {
        assert!(Printed::default().add(bytes, None, None).is_err());
    }
    assert!(Printed::default().import(&HashMap::new()).is_err());
}
