//! Filters in the driver: this kernel loads each kind, and they drop what they should.

use super::{Lab, small_pings};
use crate::guest::Verdict::{self, Passed};
use crate::guest::bed::PORTS;
use crate::guest::shaper::narrows;
use crate::guest::traffic::ping;
use anyhow::{Result, ensure};

/// One of each kind. None matches pings, except the last one, which passes them.
pub(super) const FILTERS: [&str; 6] = [
    "pref 1 protocol ip basic match ipset(nobody src) and not ipset(nobody dst) action drop",
    "pref 2 protocol ip flower ip_proto tcp dst_port 1000-2000 tcp_flags 0x2/0x12 action drop",
    "pref 3 protocol ip u32 match ip protocol 17 0xff match u16 7 0xffff at nexthdr+2 action drop",
    "pref 4 protocol ipv6 flower src_ip 2001:db8::/32 action skbedit mark 5 continue",
    "pref 5 handle 5 fw action drop",
    "pref 6 matchall action police pkts_rate 10000 pkts_burst 1000 conform-exceed drop/continue \
     per src block 1s",
];
/// What drops pings.
const PINGS: &str =
    "pref 7 protocol ip flower ip_proto icmp action police pkts_rate 1 pkts_burst 1 drop";

pub(super) fn filters(lab: &mut Lab) -> Result<Verdict> {
    let shaper = lab.running()?;
    narrows(&["set", "create", "nobody", "hash:net"])?;
    narrows(&["set", "add", "nobody", "203.0.113.0/24"])?;
    shaper.tc(&format!("qdisc add dev {} clsact", PORTS[0]))?;
    for filter in FILTERS {
        shaper.tc(&format!("filter add dev {} ingress {filter}", PORTS[0]))?;
    }
    small_pings(lab)?;
    lab.running()?.tc(&format!("filter add dev {} ingress {PINGS}", PORTS[0]))?;
    let answered = ping(lab.client(), lab.server().ip, 56).is_ok();
    ensure!(!answered, "pings pass that are to be dropped");
    lab.running()?.tc(&format!("qdisc del dev {} clsact", PORTS[0]))?;
    narrows(&["set", "destroy", "nobody"])?;
    small_pings(lab)?;
    Ok(Passed(String::new()))
}
