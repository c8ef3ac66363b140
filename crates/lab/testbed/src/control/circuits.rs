//! Policy files of many circuits, as `narrows import libreqos` writes them.

use std::fmt::Write;

/// Circuits below a node.
const NODE: u32 = 1000;
/// The class of the first circuit; nodes come before.
const FIRST: u32 = 0x1000;

/// A policy of `circuits` at both ports: for each a class with `mbit` assured, a `cake` and a
/// filter for an address of either version.
pub fn policy(circuits: u32, mbit: u32) -> String {
    let mut text = String::new();
    for (dev, field) in [("port-a", "src_ip"), ("port-b", "dst_ip")] {
        // Writing to a string does not fail.
        let mut add = |line: std::fmt::Arguments<'_>| {
            let _ = writeln!(text, "{line}");
        };
        add(format_args!("qdisc replace dev {dev} root handle 1: htb default 2"));
        add(format_args!("class add dev {dev} parent 1: classid 1:1 htb rate 100gbit"));
        add(format_args!(
            "class add dev {dev} parent 1:1 classid 1:2 htb rate 1gbit ceil 100gbit prio 7"
        ));
        for node in 0..circuits.div_ceil(NODE) {
            let minor = 3 + node;
            add(format_args!(
                "class add dev {dev} parent 1:1 classid 1:{minor:x} htb rate 1gbit ceil 100gbit"
            ));
        }
        for circuit in 0..circuits {
            let (minor, parent) = (FIRST + circuit, 3 + circuit / NODE);
            let [_, b, c, d] = circuit.to_be_bytes();
            add(format_args!("# circuit {circuit} Subscriber {circuit}"));
            add(format_args!(
                "class add dev {dev} parent 1:{parent:x} classid 1:{minor:x} htb rate {mbit}mbit ceil \
                 200mbit"
            ));
            add(format_args!(
                "qdisc add dev {dev} parent 1:{minor:x} handle {minor:x}: cake diffserv4"
            ));
            add(format_args!(
                "filter add dev {dev} parent 1: protocol ip pref 1 flower {field} 10.{b}.{c}.{d}/32 \
                 classid 1:{minor:x}"
            ));
            add(format_args!(
                "filter add dev {dev} parent 1: protocol ipv6 pref 172 flower {field} \
                 2001:db8:{b:x}:{c:x}{d:02x}::/64 classid 1:{minor:x}"
            ));
        }
    }
    text
}

/// A batch that changes each circuit's class at one port.
pub fn changes(circuits: u32, mbit: u32) -> String {
    let mut text = String::new();
    for circuit in 0..circuits {
        let minor = FIRST + circuit;
        let _ = writeln!(
            text,
            "class change dev port-b classid 1:{minor:x} htb rate {mbit}mbit ceil 200mbit"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circuit_has_four_lines_at_each_port() {
        let (one, two) = (policy(1001, 5), policy(1002, 5));
        let commands = |text: &str| text.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(commands(&two) - commands(&one), 8);
        assert_eq!(changes(7, 3).lines().count(), 7);
    }
}
