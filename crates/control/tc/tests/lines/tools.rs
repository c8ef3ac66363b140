//! The commands that other people's programs send, in our own form: with these they must work.

use crate::host::TwoPorts;

/// Runs all lines of one program on a fresh port, `{}` being its name.
#[track_caller]
fn takes(lines: &[&str]) -> TwoPorts {
    let mut host = TwoPorts::with_queues(1);
    for line in lines {
        let line = line.replace("{}", "right");
        let outcome = host.tc(&line);
        assert_eq!(outcome.code, 0, "tc {line}\n{}", outcome.stderr);
        // What the lines became is also what a restart reads.
        let text = narrows_tc::save(&host.policy);
        let again = narrows_tc::load(&text, "saved", &TwoPorts::with_queues(1));
        assert_eq!(again.as_ref(), Ok(&host.policy), "tc {line}\n{text}");
    }
    host
}

#[test]
fn lxd_limits_an_instance() {
    let host = takes(&[
        "qdisc replace dev {} root handle 1:0 htb default 10",
        "class add dev {} parent 1:0 classid 1:10 htb rate 100000000bit",
        // This class is never made: packets go to the default one.
        "filter add dev {} parent 1:0 protocol all u32 match u32 0 0 flowid 1:1",
        "qdisc add dev {} handle ffff:0 ingress",
        "filter add dev {} parent ffff:0 protocol all u32 match u32 0 0 police rate 50000000bit burst 1024k mtu 64kb drop",
    ]);
    assert_eq!(host.policy.actions().count(), 1);
}

#[test]
fn libvirt_limits_an_interface_and_a_network() {
    takes(&[
        "qdisc add dev {} root handle 1: htb default 1",
        "class add dev {} parent 1: classid 1:1 htb rate 1000kbps ceil 5000kbps burst 1024kb quantum 87",
        "qdisc add dev {} parent 1:1 handle 2: sfq perturb 10",
        "filter add dev {} parent 1:0 prio 1 handle 1 fw flowid 1",
        "qdisc add dev {} ingress",
        "filter add dev {} parent ffff: protocol all u32 match u32 0 0 police rate 1000kbps burst 1024kb mtu 64kb drop flowid :1",
        "qdisc del dev {} root",
        "qdisc del dev {} ingress",
    ]);
    takes(&[
        "qdisc add dev {} root handle 1: htb default 2",
        "class add dev {} parent 1: classid 1:1 htb rate 10000kbps ceil 20000kbps quantum 87",
        "class add dev {} parent 1:1 classid 1:2 htb rate 5000kbps ceil 20000kbps quantum 87",
        "qdisc add dev {} parent 1:2 handle 2: sfq perturb 10",
        "class add dev {} parent 1:1 classid 1:3 htb rate 1000kbps ceil 20000kbps quantum 87",
        "qdisc add dev {} parent 1:3 handle 3: sfq perturb 10",
        "filter add dev {} protocol ip prio 2 handle 800::3 u32 match u16 0x0800 0xffff at -2 match u32 0x00123456 0xffffffff at -12 match u16 0x5254 0xffff at -14 flowid 1:3",
        "class change dev {} classid 1:2 htb rate 4000kbps",
        "filter del dev {} prio 2 handle 800::3 u32",
        "qdisc del dev {} handle 3: parent 1:3",
        "class del dev {} classid 1:3",
    ]);
}

#[test]
fn kubelet_limits_a_pod() {
    let mut host = takes(&[
        "qdisc add dev {} root handle 1: htb default 30",
        "class show dev {}",
        "class add dev {} parent 1: classid 1:1 htb rate 10000kbit",
        "filter add dev {} protocol ip parent 1:0 prio 1 u32 match ip dst 10.1.2.3/32 flowid 1:1",
        "class add dev {} parent 1: classid 1:2 htb rate 5000kbit",
        "filter add dev {} protocol ip parent 1:0 prio 1 u32 match ip src 10.1.2.3/32 flowid 1:2",
    ]);
    // It looks for its filter by the hexadecimal selector after the line with the handle.
    let shown = host.ok("filter show dev right");
    let lines: Vec<&str> = shown.lines().collect();
    let at = lines.iter().position(|line| line.contains("match 0a010203/ffffffff at 16")).unwrap();
    let words: Vec<&str> = lines[at - 1].split(' ').collect();
    assert_eq!((words[0], words.iter().filter(|word| **word == "800::800").count()), ("filter", 1));
    host.ok("filter del dev right parent 1: proto ip prio 1 handle 800::800 u32");
    host.ok("class del dev right parent 1: classid 1:1");
}

#[test]
fn sqm_scripts_shapes_a_link() {
    takes(&[
        "qdisc add dev {} root handle 1: htb default 12",
        "class add dev {} parent 1: classid 1:1 htb quantum 1514 rate 10000kbit ceil 10000kbit burst 1514b cburst 1514b",
        "class add dev {} parent 1:1 classid 1:10 htb quantum 1514 rate 128kbit ceil 3333kbit prio 0",
        "class add dev {} parent 1:1 classid 1:11 htb quantum 1514 rate 128kbit ceil 3333kbit prio 1 burst 1514b cburst 1514b",
        "class add dev {} parent 1:1 classid 1:12 htb quantum 1514 rate 1666kbit ceil 9984kbit prio 2",
        "class add dev {} parent 1:1 classid 1:13 htb quantum 1514 rate 1666kbit ceil 9984kbit prio 3",
        "qdisc add dev {} parent 1:11 handle 110: fq_codel limit 1001 target 15.0ms interval 110.0ms noecn quantum 300",
        "qdisc add dev {} parent 1:12 handle 120: fq_codel limit 1001 target 15.0ms interval 110.0ms ecn quantum 300",
        "filter add dev {} parent 1:0 protocol all prio 999 u32 match ip protocol 0 0x00 flowid 1:12",
        "filter add dev {} parent 1:0 protocol ip prio 1 u32 match ip dsfield 0xb8 0xfc flowid 1:11",
        "filter add dev {} parent 1:0 protocol ipv6 prio 2 u32 match ip6 priority 0xb8 0xfc flowid 1:11",
        "filter add dev {} parent 1:0 protocol arp prio 7 u32 match u32 0 0 flowid 1:11",
        "filter add dev {} parent 1:0 protocol ip prio 8 handle 2 fw classid 1:12",
        "filter add dev {} parent 1:0 protocol ip prio 10 u32 match ip protocol 6 0xff match u8 0x05 0x0f at 0 match u16 0x0000 0xffc0 at 2 match u8 0x10 0xff at 33 flowid 1:11",
    ]);
    takes(&["qdisc add dev {} root cake bandwidth 10000kbit besteffort nat dual-srchost"]);
}

#[test]
fn fireqos_nests_classes() {
    takes(&[
        "qdisc add dev {} root handle 1: htb default 8000 r2q 8",
        "class add dev {} parent 1: classid 1:1 htb rate 10000kbit ceil 10000kbit quantum 1500",
        "class add dev {} parent 1:1 classid 1:11 htb rate 2000kbit ceil 5000kbit prio 2 quantum 1500",
        "class add dev {} parent 1:11 classid 1:12 htb rate 500kbit ceil 5000kbit prio 0 quantum 1500",
        "qdisc add dev {} parent 1:12 handle 12: sfq perturb 10 quantum 1500",
        "filter add dev {} parent 1:11 protocol ip prio 30 u32 match ip protocol 6 0xff match ip sport 22 0xffff flowid 1:12",
        "class add dev {} parent 1:11 classid 1:8001 htb rate 100kbit ceil 5000kbit prio 2 quantum 1500",
        "filter add dev {} parent 1:11 protocol ip prio 0xfffe u32 match ip protocol 0 0x00 flowid 1:8001",
        "filter add dev {} parent 1:0 protocol ip prio 20 u32 match ip dst 10.0.0.0/8 flowid 1:11",
        "class add dev {} parent 1:1 classid 1:8000 htb rate 1000kbit ceil 10000kbit prio 3 quantum 1500",
        "qdisc add dev {} parent 1:8000 handle 17: sfq perturb 10 quantum 1500",
    ]);
}

#[test]
fn fireqos_matches_at_a_group() {
    takes(&[
        "qdisc add dev {} root handle 1: htb default 8000 r2q 8",
        "class add dev {} parent 1: classid 1:1 htb rate 10000kbit ceil 10000kbit quantum 1500",
        "class add dev {} parent 1:1 classid 1:11 htb rate 2000kbit ceil 5000kbit prio 2 quantum 1500",
        "filter add dev {} parent 1:0 protocol ip prio 20 u32 match ip dst 10.0.0.0/8 flowid 1:11",
        "class add dev {} parent 1:11 classid 1:12 htb rate 500kbit ceil 5000kbit prio 0 quantum 1500",
        "qdisc add dev {} parent 1:12 handle 12: sfq perturb 10 quantum 1500",
        "filter add dev {} parent 1:11 protocol ip prio 30 u32 match ip protocol 6 0xff match ip sport 22 0xffff flowid 1:12",
        "class add dev {} parent 1:11 classid 1:8001 htb rate 100kbit ceil 5000kbit prio 2 quantum 1500",
        "filter add dev {} parent 1:11 protocol ip prio 0xfffe u32 match ip protocol 0 0x00 flowid 1:8001",
        "class add dev {} parent 1:1 classid 1:8000 htb rate 1000kbit ceil 10000kbit prio 3 quantum 1500",
    ]);
}

#[test]
fn wondershaper_shapes_both_ways() {
    takes(&[
        "qdisc add dev {} root handle 1: htb default 20",
        "class add dev {} parent 1: classid 1:1 htb rate 5000kbit prio 5",
        "class add dev {} parent 1:1 classid 1:10 htb rate 2000kbit ceil 4750kbit prio 1",
        "class add dev {} parent 1:1 classid 1:20 htb rate 2000kbit ceil 4500kbit prio 2",
        "class add dev {} parent 1:1 classid 1:30 htb rate 1000kbit ceil 4500kbit prio 3",
        "qdisc add dev {} parent 1:10 handle 10: sfq perturb 10 quantum 1514",
        "filter add dev {} parent 1: protocol ip prio 10 u32 match ip tos 0x10 0xff flowid 1:10",
        "filter add dev {} parent 1: protocol ip prio 11 u32 match ip protocol 1 0xff flowid 1:10",
        "filter add dev {} parent 1: protocol ip prio 12 u32 match ip protocol 6 0xff match u8 0x05 0x0f at 0 match u16 0x0000 0xffc0 at 2 flowid 1:10",
        "filter add dev {} parent 1: protocol ip prio 18 u32 match ip dst 0.0.0.0/0 flowid 1:20",
        "qdisc add dev {} handle ffff: ingress",
        "filter add dev {} parent ffff: protocol ip prio 50 u32 match ip src 0.0.0.0/0 police rate 8000kbit burst 10k drop flowid :1",
    ]);
}

#[test]
fn tcconfig_adds_rules() {
    let mut host = takes(&[
        "qdisc add dev {} root handle 1f09: htb default 1",
        "class add dev {} parent 1f09: classid 1f09:1 htb rate 10000000.0kbit",
        "class add dev {} parent 1f09: classid 1f09:2 htb rate 10000.0Kbit ceil 10000.0Kbit burst 1600b cburst 1600b",
        "qdisc add dev {} parent 1f09:2 handle 28fc: netem loss 0.100000% delay 100.0ms",
        "filter add dev {} protocol ip parent 1f09: prio 5 u32 match ip dst 0.0.0.0/0 match ip src 0.0.0.0/0 match ip dport 80 0xffff flowid 1f09:2",
        "filter show dev {} root",
    ]);
    // It goes on if the qdisc is there, and knows that from this line.
    let complaint = host.fails("qdisc add dev right root handle 1f09: htb default 1", 2);
    assert!(complaint.contains("RTNETLINK answers: File exists"));
}

#[test]
fn vyos_makes_its_policies() {
    takes(&[
        "qdisc replace dev {} root handle 1: htb r2q 444 default b",
        "class replace dev {} parent 1: classid 1:1 htb rate 100000000 burst 15k quantum 1514 prio 0",
        "class replace dev {} parent 1:1 classid 1:a htb rate 5000000 ceil 10000000 burst 15k quantum 1514 prio 4",
        "qdisc replace dev {} parent 1:a handle 8001: fq_codel quantum 1514 flows 1024 limit 10240 interval 100000 target 5000 noecn",
        "class replace dev {} parent 1:1 classid 1:b htb rate 20000000 ceil 100000000 burst 15k quantum 1514 prio 20",
        "qdisc replace dev {} parent 1:b sfq",
        "filter replace dev {} parent 1: protocol all prio 1 u32 match ip dst 10.0.0.0/8 match ip dsfield 0xb8 0xff flowid 1:a",
        "filter replace dev {} parent 1: protocol ipv6 prio 2 u32 match ip6 dst 2001:db8::/32 match ip6 dport 22 0xffff flowid 1:a",
        "filter replace dev {} parent 1: protocol all prio 3 handle 5 fw flowid 1:a",
        "filter replace dev {} parent 1: prio 4 protocol all u32 match u16 0x0000 0xff80 at 2 match u8 0x10 0xff at nexthdr+13 flowid 1:b",
        "filter replace dev {} parent 1: prio 255 protocol all basic match meta(vlan mask 4095 eq 10) action police rate 10000000 burst 15360 conform-exceed drop/ok flowid 1:b",
    ]);
    takes(&[
        "qdisc replace dev {} root handle 1: tbf rate 1000000 burst 15k latency 50ms",
        "qdisc replace dev {} root handle 2: prio bands 4 priomap 3 3 3 3 3 3 3 3 3 3 3 3 3 3 3 3",
        "qdisc replace dev {} parent 2:4 pfifo limit 1000",
        "qdisc replace dev {} root handle 3: drr",
        "class replace dev {} parent 3: classid 3:1 drr quantum 1500",
        "qdisc replace dev {} root sfq perturb 10 limit 127",
        "qdisc replace dev {} root fq_codel quantum 1514 flows 1024 limit 10240 interval 100ms target 5ms",
        "qdisc replace dev {} root cake bandwidth 1000000 flowblind rtt 200000",
        "qdisc replace dev {} root netem limit 1000 delay 100ms loss 5% corrupt 1% reorder 3% rate 1000000",
        "qdisc replace dev {} ingress",
        "filter add dev {} ingress protocol all prio 255 basic action police rate 1000000 burst 15k conform-exceed drop",
        "filter add dev {} parent ffff: protocol ip prio 10 u32 match ip src 10.0.0.0/8 action police rate 1000000 burst 15k mtu 1600 conform-exceed drop/ok flowid :1",
    ]);
}

#[test]
fn tools_shape_what_comes_in_by_an_ifb() {
    // sqm-scripts
    takes(&[
        "qdisc add dev {} handle ffff: ingress",
        "qdisc add dev ifb4{} root stab mtu 2047 tsize 512 mpu 64 overhead 34 linklayer atm handle 1: htb default 10",
        "class add dev ifb4{} parent 1: classid 1:1 htb quantum 1514 rate 40000kbit ceil 40000kbit",
        "class add dev ifb4{} parent 1:1 classid 1:10 htb quantum 1514 rate 40000kbit ceil 40000kbit prio 0",
        "qdisc add dev ifb4{} parent 1:10 handle 110: fq_codel limit 1001 target 15.0ms interval 110.0ms ecn flows 1024 quantum 1514",
        "filter add dev {} parent ffff: protocol all prio 10 u32 match u32 0 0 flowid 1:1 action mirred egress redirect dev ifb4{}",
        "qdisc del dev {} ingress",
        "qdisc del dev ifb4{} root",
    ]);
    // FireQOS 3.1.7, an interface with "input" and "adsl"
    takes(&[
        "qdisc add dev {}-ifb root handle 1: stab linklayer adsl overhead 26 mtu 1492 htb default 8000 r2q 8",
        "qdisc add dev {} ingress",
        "filter add dev {} parent ffff: protocol all prio 39999 u32 match u32 0 0 action mirred egress redirect dev {}-ifb",
        "class add dev {}-ifb parent 1: classid 1:1 htb rate 10500kbit ceil 10500kbit quantum 1492",
        "class add dev {}-ifb parent 1:1 classid 1:12 htb rate 2100kbit ceil 10500kbit prio 1 quantum 1492",
        "qdisc add dev {}-ifb parent 1:12 handle 12: sfq perturb 10 quantum 1492",
        "filter add dev {}-ifb parent 1:0 protocol ip prio 40 u32 match ip protocol 6 0xff match u8 0x02 0x02 at 33 flowid 1:12",
        "class add dev {}-ifb parent 1:1 classid 1:8000 htb rate 105kbit ceil 10500kbit prio 7 quantum 1492",
        "qdisc del dev {} ingress",
        "qdisc del dev {}-ifb root",
    ]);
    // wondershaper
    takes(&[
        "qdisc add dev {} handle ffff: ingress",
        "filter add dev {} parent ffff: protocol ip u32 match u32 0 0 action mirred egress redirect dev ifb0",
        "qdisc add dev ifb0 root handle 1: htb default 10",
        "class add dev ifb0 parent 1: classid 1:1 htb rate 8000kbit",
        "class add dev ifb0 parent 1:1 classid 1:10 htb rate 8000kbit",
        "qdisc del dev {} ingress",
        "qdisc del dev ifb0 root",
    ]);
    // tcconfig
    takes(&[
        "qdisc add dev {} ingress",
        "filter add dev {} parent ffff: protocol ip u32 match u32 0 0 flowid 1f87: action mirred egress redirect dev ifb8071",
        "qdisc add dev ifb8071 root handle 1f87: htb default 1",
        "class add dev ifb8071 parent 1f87: classid 1f87:1 htb rate 10000000.0kbit",
        "class add dev ifb8071 parent 1f87: classid 1f87:2 htb rate 100.0Kbit ceil 100.0Kbit burst 12.5KB cburst 12.5KB",
        "qdisc add dev ifb8071 parent 1f87:2 handle 2007: netem delay 100.0ms duplicate 1%",
        "filter add dev ifb8071 protocol ip parent 1f87: prio 5 u32 match ip dst 0.0.0.0/0 match ip src 192.168.0.10/32 flowid 1f87:2",
        "qdisc del dev {} ingress",
        "qdisc del dev ifb8071 root",
    ]);
    // VyOS
    takes(&[
        "qdisc replace dev ifb0 root handle 1: htb r2q 444 default b",
        "class replace dev ifb0 parent 1: classid 1:1 htb rate 10000000",
        "class replace dev ifb0 parent 1:1 classid 1:b htb rate 8000000 ceil 10000000 burst 15360 quantum 1514 prio 20",
        "qdisc replace dev ifb0 parent 1:b sfq",
        "qdisc add dev {} handle ffff: ingress",
        "filter add dev {} parent ffff: protocol all prio 10 u32 match u32 0 0 flowid 1:1 action mirred egress redirect dev ifb0",
    ]);
    // A bandwidth limit behind a delay, as tc-netem(8) has it.
    takes(&[
        "qdisc add dev {} root handle 1:0 netem delay 100ms",
        "qdisc add dev {} parent 1:1 handle 10: tbf rate 256kbit buffer 1600 limit 3000",
    ]);
}
