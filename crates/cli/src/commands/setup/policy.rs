//! The policy of a line: a `cake` in each direction; or that of a host: a rate for each source.

use super::answers::Line;
use narrows_units::Rate;

/// The kinds of lines by name.
pub const LINKS: [(&str, &str); 8] = [
    ("ethernet", "fibre or cable with an Ethernet hand-off"),
    ("docsis", "a cable modem"),
    ("pppoe-ptm", "VDSL2 with PPPoE"),
    ("bridged-ptm", "VDSL2 without PPPoE"),
    ("pppoe-llcsnap", "ADSL with PPPoE"),
    ("pppoa-vcmux", "ADSL with PPPoA"),
    ("conservative", "unknown: counts too much rather than too little"),
    ("raw", "none: counts frames as they are"),
];

/// The ratio of download to upload from which the ACK filter is worth using.
const ASYMMETRIC: u64 = 5;

/// A policy file for `line`.
pub fn text(line: &Line) -> String {
    let Line { down, up, link, .. } = line;
    let internet = line.internet();
    let filter =
        if down.bits_per_sec() >= ASYMMETRIC * up.bits_per_sec() { " ack-filter" } else { "" };
    let homes = line.homes();
    let mut downloads = format!(
        "# Downloads leave through {}: a fair share for each device that receives.\n",
        homes.join(", ")
    );
    if homes.len() > 1 {
        downloads +=
            "# Each of these ports may take the whole rate. Together they can ask for more.\n";
    }
    for home in homes {
        let rate = written(*down);
        downloads += &format!(
            "qdisc replace dev {home} root cake bandwidth {rate} {link} besteffort dual-dsthost\n"
        );
    }
    format!(
        "# Written by `narrows setup`. After an edit: systemctl reload narrows@NAME.\n\
         # The words are those of tc-cake(8).\n\
         \n\
         {downloads}\
         \n\
         # Uploads leave through {internet}: a fair share for each device that sends, calls first.\n\
         qdisc replace dev {internet} root cake bandwidth {} {link} diffserv4 dual-srchost{filter}\n",
        written(*up),
    )
}

/// A policy file for a host whose port is `port`, where each source may send `packets` a second.
pub fn of_host(port: &str, packets: u32) -> String {
    let burst = packets.saturating_mul(2);
    format!(
        "# Written by `narrows setup`. After an edit: systemctl reload narrows@NAME.\n\
         # The words are those of tc(8), and more: docs/attack.md.\n\
         \n\
         qdisc replace dev {port} clsact\n\
         \n\
         # What must not fail, before all others, once there is such a set:\n\
         # filter add dev {port} ingress pref 1 basic match 'ipset(friends src)' action pass\n\
         \n\
         # Each source: {packets} packets a second, and a burst of two seconds' worth.\n\
         filter add dev {port} ingress pref 10 matchall action police pkts_rate {packets} \
         pkts_burst {burst} conform-exceed drop/continue per src\n"
    )
}

/// `rate` exactly, in the largest unit that divides it.
fn written(rate: Rate) -> String {
    let bits = rate.bits_per_sec();
    match bits {
        _ if bits.is_multiple_of(1_000_000_000) => format!("{}gbit", bits / 1_000_000_000),
        _ if bits.is_multiple_of(1_000_000) => format!("{}mbit", bits / 1_000_000),
        _ if bits.is_multiple_of(1_000) => format!("{}kbit", bits / 1_000),
        _ => format!("{bits}bit"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_forwarding::Forwarding;
    use narrows_tc::{OfflineHost, load, number};

    fn line(link: &str, down: &str, up: &str) -> Line {
        let rate = |text| number::rate(text).unwrap();
        let forwarding = Forwarding::wire("eth1", "eth2").unwrap();
        Line { forwarding, down: rate(down), up: rate(up), link: link.to_owned() }
    }

    #[test]
    fn each_port_of_a_stick_or_a_router_has_a_limit() {
        let pair = ("100".parse().unwrap(), "200".parse().unwrap());
        let ports = ["eth1", "eth2", "eth3"].map(str::to_owned);
        for forwarding in [Forwarding::stick("eth1", &[pair]), Forwarding::router(&ports)] {
            let forwarding = forwarding.unwrap();
            let text =
                text(&Line { forwarding: forwarding.clone(), ..line("raw", "95mbit", "20mbit") });
            let [internet, homes @ ..] = forwarding.names() else { panic!("no ports") };
            assert!(text.contains(&format!("dev {internet} root cake bandwidth 20mbit")), "{text}");
            for home in homes {
                assert!(text.contains(&format!("dev {home} root cake bandwidth 95mbit")), "{text}");
            }
            let policy = load(&text, "test", &OfflineHost::default()).unwrap();
            assert_eq!(policy.ports().count(), forwarding.names().len());
        }
    }

    #[test]
    fn every_link_makes_a_policy_that_loads() {
        for (link, _) in LINKS {
            let policy = text(&line(link, "95mbit", "20mbit"));
            let policy = load(&policy, "test", &OfflineHost::default()).unwrap();
            assert_eq!(policy.ports().count(), 2, "{link}");
        }
    }

    #[test]
    fn a_host_has_a_policy_that_loads_also_as_it_may_be_edited() {
        let text = of_host("eth1", 100_000_000);
        for text in [text.clone(), text.replace("# filter", "filter")] {
            let policy = load(&text, "test", &OfflineHost::default()).unwrap();
            let [(dev, port)] = &policy.ports().collect::<Vec<_>>()[..] else { panic!("{text}") };
            assert_eq!((*dev, port.root()), ("eth1", None));
        }
    }

    #[test]
    fn rates_are_written_exactly_and_short() {
        for text in ["2gbit", "95mbit", "1500kbit", "64008bit"] {
            assert_eq!(written(number::rate(text).unwrap()), text);
        }
    }

    #[test]
    fn acknowledgements_are_dropped_where_the_upload_is_much_slower() {
        assert!(text(&line("docsis", "100mbit", "20mbit")).contains("ack-filter"));
        assert!(!text(&line("docsis", "99mbit", "20mbit")).contains("ack-filter"));
    }
}
