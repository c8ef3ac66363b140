//! The policy of a line: a `cake` in each direction.

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
    let Line { ports: [internet, home], down, up, link } = line;
    let filter =
        if down.bits_per_sec() >= ASYMMETRIC * up.bits_per_sec() { " ack-filter" } else { "" };
    format!(
        "# Written by `narrows setup`. After an edit: systemctl reload narrows@NAME.\n\
         # The words are those of tc-cake(8).\n\
         \n\
         # Downloads leave through {home}: a fair share for each device that receives.\n\
         qdisc replace dev {home} root cake bandwidth {} {link} besteffort dual-dsthost\n\
         \n\
         # Uploads leave through {internet}: a fair share for each device that sends, calls first.\n\
         qdisc replace dev {internet} root cake bandwidth {} {link} diffserv4 dual-srchost{filter}\n",
        written(*down),
        written(*up),
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
    use narrows_tc::{OfflineHost, load, number};

    fn line(link: &str, down: &str, up: &str) -> Line {
        let rate = |text| number::rate(text).unwrap();
        let ports = ["eth1", "eth2"].map(str::to_owned);
        Line { ports, down: rate(down), up: rate(up), link: link.to_owned() }
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
