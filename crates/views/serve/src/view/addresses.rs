//! Which addresses a class is for, from the filters that say so.
//!
//! A snapshot has no filters. The policy, as `narrows tc save` prints it, has a line for each, and
//! those of kind `flower` that compare one address are what importers write for subscribers. Others
//! say nothing here: a class without addresses is found by its name only.

use compact_str::CompactString;
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;

/// The most networks that are kept, at some 100 bytes each.
const NETWORKS_MAX: usize = 500_000;

/// The addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    address: IpAddr,
    length: u8,
}

impl Network {
    /// `192.0.2.1`, `2001:db8::/56`.
    fn parse(text: &str) -> Option<Self> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let all = if address.is_ipv4() { 32 } else { 128 };
        let length = length.map_or(Some(all), |length| length.parse().ok())?;
        (length <= all).then_some(Self { address, length })
    }

    /// Whether `address` is one of it.
    pub(crate) fn contains(self, address: IpAddr) -> bool {
        let differ = match (self.address, address) {
            (IpAddr::V4(one), IpAddr::V4(two)) => (one.to_bits() ^ two.to_bits()).leading_zeros(),
            (IpAddr::V6(one), IpAddr::V6(two)) => (one.to_bits() ^ two.to_bits()).leading_zeros(),
            _ => return false,
        };
        differ >= u32::from(self.length)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = if self.address.is_ipv4() { 32 } else { 128 };
        match self.length == all {
            true => write!(to, "{}", self.address),
            false => write!(to, "{}/{}", self.address, self.length),
        }
    }
}

/// The networks of classes.
#[derive(Debug, Default)]
pub(crate) struct Addresses(HashMap<CompactString, HashMap<CompactString, Vec<Network>>>);

impl Addresses {
    /// From the commands of a policy.
    pub(crate) fn parse(policy: &str) -> Self {
        let mut ports: HashMap<CompactString, HashMap<CompactString, Vec<Network>>> =
            HashMap::new();
        let lines = policy.lines().filter_map(of_line);
        for (port, class, network) in lines.take(NETWORKS_MAX) {
            let classes = ports.entry(port.into()).or_default();
            classes.entry(class.into()).or_default().push(network);
        }
        Self(ports)
    }

    /// Those of a class of a port.
    pub(crate) fn of(&self, port: &str, class: &str) -> &[Network] {
        self.0.get(port).and_then(|classes| classes.get(class)).map_or(&[], Vec::as_slice)
    }
}

/// The port, the class and the network of a filter.
fn of_line(line: &str) -> Option<(&str, &str, Network)> {
    let words = line.strip_prefix("filter ")?.split(' ');
    let (mut port, mut class, mut network) = (None, None, None);
    let mut last = "";
    for word in words {
        match last {
            "dev" => port = Some(word),
            "classid" | "flowid" => class = Some(word),
            "dst_ip" | "src_ip" => network = Network::parse(word),
            _ => (),
        }
        last = word;
    }
    Some((port?, class?, network?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const POLICY: &str = "\
        qdisc replace dev lan root handle 1: htb default 30\n\
        filter replace dev lan parent 1: protocol ip pref 1 handle 0x1 flower dst_ip 192.0.2.7 classid 1:10\n\
        filter replace dev lan parent 1: protocol ipv6 pref 2 handle 0x1 flower dst_ip 2001:db8::/56 classid 1:10\n\
        filter replace dev wan parent 2: protocol ip pref 1 handle 0x1 flower src_ip 198.51.100.0/24 classid 2:10\n\
        filter replace dev wan parent 2: protocol ip pref 9 handle 800::800 u32 match u32 0x0 0x0 at 0 classid 2:1\n\
        filter replace dev wan parent 2: protocol ip pref 9 flower dst_ip 192.0.2.0/33 classid 2:1";

    #[test]
    fn a_class_has_the_addresses_of_its_filters() {
        let all = Addresses::parse(POLICY);
        let said =
            |port, class| all.of(port, class).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(said("lan", "1:10"), ["192.0.2.7", "2001:db8::/56"]);
        assert_eq!(said("wan", "2:10"), ["198.51.100.0/24"]);
        assert_eq!(said("wan", "2:1"), [""; 0], "what is no network says nothing");
        assert_eq!(said("wan", "1:10"), [""; 0]);
    }

    #[test]
    fn a_network_has_the_addresses_that_begin_as_it_does() {
        let has = |network: &str, address: &str| {
            Network::parse(network).unwrap().contains(address.parse().unwrap())
        };
        assert!(has("192.0.2.7", "192.0.2.7") && !has("192.0.2.7", "192.0.2.6"));
        assert!(has("192.0.2.0/24", "192.0.2.255") && !has("192.0.2.0/24", "192.0.3.0"));
        assert!(has("0.0.0.0/0", "192.0.2.1") && !has("0.0.0.0/0", "::1"));
        assert!(has("2001:db8::/56", "2001:db8:0:ff::1"));
    }

    proptest! {
        #[test]
        fn any_text_is_read(text: String, words in "(filter |dev |lan |dst_ip |1:1 |classid |/9 ){0,12}") {
            let _ = (Addresses::parse(&text), Addresses::parse(&words));
        }
    }
}
