//! The policy of a line: a `cake` in each direction, or an `htb` on the router itself; or that of a
//! host: a rate for each source.

use super::answers::Line;
use narrows_tc::{framing_name, link_overhead};
use narrows_units::Rate;
use narrows_units::wire::Overhead;

/// ADSL2+ carries at most this (ITU-T G.992.5): a DSL line above it is VDSL2.
const ADSL_MAX: Rate = Rate::from_bits_per_sec(24_000_000);

/// What people call kinds of lines. `dsl` is neither: the rate tells which.
pub const ALSO: [(&str, &str); 9] = [
    ("adsl", "pppoe-llcsnap"),
    ("vdsl", "pppoe-ptm"),
    ("vdsl2", "pppoe-ptm"),
    ("cable", "docsis"),
    ("fibre", "ethernet"),
    ("fiber", "ethernet"),
    ("ftth", "ethernet"),
    ("unknown", "conservative"),
    (DSL, ""),
];

/// ADSL or VDSL2, as the rate says.
const DSL: &str = "dsl";

/// The kind of line that people call `said`: the name of one of [`LINKS`], with `down`, the rate of
/// downloads. A slow DSL line is counted as ADSL, which counts too much if it is VDSL2.
pub fn link(said: &str, down: Rate) -> Option<&'static str> {
    let said = said.to_lowercase();
    let name = match ALSO.iter().find(|(also, _)| *also == said) {
        Some((DSL, _)) if down <= ADSL_MAX => "pppoe-llcsnap",
        Some((DSL, _)) => "pppoe-ptm",
        Some((_, name)) => name,
        None => said.as_str(),
    };
    LINKS.iter().map(|(link, _)| *link).find(|link| *link == name)
}

/// Of which rate of such a line 95 % are the limit.
pub fn measured(said: &str) -> &'static str {
    match link(said, ADSL_MAX) {
        Some("pppoe-ptm" | "bridged-ptm" | "pppoe-llcsnap" | "pppoa-vcmux") => {
            "95 % of the rate at which the modem synchronises, from its status page, as 95mbit"
        }
        _ => "95 % of what a speed test measures while nothing else uses the line, as 95mbit",
    }
}

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

/// A policy file for the router itself, in the host plane: uploads leave through its port towards
/// the Internet, and downloads through all its other ports, among them the ifb of that one.
/// `header` says how many bytes the header of Ethernet has at a port, which frames there have
/// already.
pub fn of_router(line: &Line, header: impl Fn(&str) -> u32) -> String {
    let Line { down, up, link, .. } = line;
    let Overhead { per_frame, minimum, framing } = link_overhead(link).unwrap_or_default();
    let limit = |port: &String, rate: Rate, hosts: &str| {
        let counted = match link.as_str() {
            "raw" => String::new(),
            _ => {
                let more = per_frame.saturating_sub_unsigned(header(port)).max(0);
                let layer = framing_name(framing);
                format!(" mpu {minimum} overhead {more} linklayer {layer}")
            }
        };
        format!(
            "qdisc replace dev {port} root handle 1: htb default 10\n\
             class replace dev {port} parent 1: classid 1:10 htb rate {}{counted}\n\
             qdisc replace dev {port} parent 1:10 fq_codel{hosts}\n",
            written(rate)
        )
    };
    let downloads: String = line
        .homes()
        .iter()
        .map(|home| {
            let port = line.forwarding.port(home).map(|port| &line.forwarding.ports()[port]);
            // What arrives from the Internet is for the router's address.
            let is_translated = port.is_some_and(|port| port.ifb_of.is_some());
            limit(home, *down, if is_translated { " hosts dst nat" } else { " hosts dst" })
        })
        .collect();
    format!(
        "# Written by `narrows setup`. After an edit: systemctl reload narrows@NAME.\n\
         # The words are those of tc-htb(8). Each flow has its share, and calls depart at once.\n\
         \n\
         # Downloads are limited at {}: a fair share for each device that receives.\n\
         {downloads}\
         \n\
         # Uploads leave through {}: a fair share for each device that sends.\n\
         {}",
        line.homes().join(", "),
        line.internet(),
        limit(line.internet(), *up, " hosts src nat")
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
    fn a_router_limits_what_arrives_or_what_leaves_towards_the_home() {
        let wan = ["ppp0".to_owned()];
        let arrives = Forwarding::host(&wan).unwrap().with_ifbs(&wan).unwrap();
        let both = ["ppp0", "lan0"].map(str::to_owned);
        for (forwarding, home) in
            [(arrives, "ifb4ppp0"), (Forwarding::host(&both).unwrap(), "lan0")]
        {
            for (link, _) in LINKS {
                let line = Line { forwarding: forwarding.clone(), ..line(link, "95mbit", "9mbit") };
                let text = of_router(&line, |port| if port == "lan0" { 14 } else { 0 });
                let policy = load(&text, "test", &OfflineHost::default()).unwrap();
                assert!(policy.port("ppp0").root().is_some() && policy.port(home).root().is_some());
                assert!(
                    text.contains(&format!("dev {home} parent 1: classid 1:10 htb rate 95mbit"))
                );
                assert!(text.contains("dev ppp0 parent 1: classid 1:10 htb rate 9mbit"), "{text}");
                let inside = if home == "lan0" { "" } else { " nat" };
                let hosts = format!("dev {home} parent 1:10 fq_codel hosts dst{inside}\n");
                assert!(text.contains(&hosts), "{text}");
                assert!(text.ends_with("dev ppp0 parent 1:10 fq_codel hosts src nat\n"), "{text}");
            }
        }
        let forwarding = Forwarding::host(&both).unwrap();
        let line = Line { forwarding, ..line("pppoe-ptm", "95mbit", "9mbit") };
        let text = of_router(&line, |port| if port == "lan0" { 14 } else { 0 });
        assert!(text.contains("95mbit mpu 0 overhead 16 linklayer ptm"), "{text}");
        assert!(text.contains("9mbit mpu 0 overhead 30 linklayer ptm"), "{text}");
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
    fn people_s_words_for_lines_find_the_kind() {
        let at = |said, down| link(said, number::rate(down).unwrap());
        assert_eq!(at("dsl", "16mbit"), Some("pppoe-llcsnap"));
        assert_eq!(at("DSL", "50mbit"), Some("pppoe-ptm"));
        assert_eq!(at("cable", "1gbit"), Some("docsis"));
        assert_eq!(at("modem", "1gbit"), None);
        for (name, _) in LINKS {
            assert_eq!(at(name, "1gbit"), Some(name));
        }
        for (name, _) in ALSO {
            assert!(at(name, "1gbit").is_some(), "{name}");
        }
    }

    #[test]
    fn of_a_dsl_line_it_is_the_modem_s_rate_that_counts() {
        for said in ["dsl", "vdsl", "adsl", "bridged-ptm"] {
            assert!(measured(said).contains("synchronises"), "{said}");
        }
        for said in ["docsis", "fibre", "conservative"] {
            assert!(measured(said).contains("speed test"), "{said}");
        }
    }

    #[test]
    fn acknowledgements_are_dropped_where_the_upload_is_much_slower() {
        assert!(text(&line("docsis", "100mbit", "20mbit")).contains("ack-filter"));
        assert!(!text(&line("docsis", "99mbit", "20mbit")).contains("ack-filter"));
    }
}
