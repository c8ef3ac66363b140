//! Ports for what arrives: an *ifb* (intermediate functional block) is a device of the kernel that
//! sends what is redirected to it back to where it arrived. So queues and departure times, which
//! are for what leaves, work for what arrives as well.
//!
//! An ifb is a port like any other: its name is that of the port before it, behind `ifb4`, as in
//! `ifb4eth0`.
//!
//! Source: drivers/net/ifb.c.

use crate::{Forwarding, ForwardingError, NAME_MAX, PortId};
use std::collections::HashSet;

/// The name of the ifb of the port `port`.
pub fn name(port: &str) -> String {
    format!("ifb4{port}")
}

impl Forwarding {
    /// This forwarding, with an ifb for each of the ports called `of`.
    ///
    /// # Errors
    /// If one is no port, is named twice, or has a name that is too long for its ifb; if there are
    /// too many ports then.
    pub fn with_ifbs(self, of: &[String]) -> Result<Self, ForwardingError> {
        let mut devices = self.names.clone();
        let mut known = HashSet::new();
        for port in of {
            if self.port(port).is_none() {
                return Err(ForwardingError::NoPort(port.clone()));
            }
            let ifb = name(port);
            if ifb.len() > NAME_MAX {
                return Err(ForwardingError::LongName(port.clone()));
            }
            if !known.insert(port) || self.port(&ifb).is_some() {
                return Err(ForwardingError::Twice(port.clone()));
            }
            devices.push(ifb);
        }
        let mut with = Self::host(&devices)?;
        for port in of {
            let before = with.port(port);
            if let Some(ifb) = with.port(&name(port)) {
                with.ports[ifb].ifb_of = before;
            }
        }
        Ok(with)
    }

    /// The ifb of `port`, through which what arrives there leaves first.
    pub fn ifb(&self, port: PortId) -> Option<PortId> {
        self.ids().find(|ifb| self.ports[*ifb].ifb_of == Some(port))
    }

    /// The name of the port whose ifb is called `ifb`.
    pub fn arriving_through(&self, ifb: &str) -> Option<&str> {
        let port = self.ports[self.port(ifb)?].ifb_of?;
        Some(self.name(port))
    }

    /// The names of the ports that an operator gave: all but ifbs.
    pub fn given(&self) -> impl Iterator<Item = &str> {
        self.ports.iter().filter(|port| port.ifb_of.is_none()).map(|port| port.name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(names: &[&str]) -> Forwarding {
        Forwarding::host(&owned(names)).unwrap()
    }

    fn owned(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn what_arrives_at_a_port_has_a_port_of_its_own() {
        let with = host(&["eth0", "eth1"]).with_ifbs(&owned(&["eth1"])).unwrap();
        let [eth0, eth1, ifb] = ["eth0", "eth1", "ifb4eth1"].map(|name| with.port(name).unwrap());
        assert_eq!((with.ifb(eth0), with.ifb(eth1), with.ifb(ifb)), (None, Some(ifb), None));
        assert_eq!(with.ports()[ifb].ifb_of, Some(eth1));
        assert_eq!(with.devices()[with.device_of(ifb)], "ifb4eth1");
        assert_eq!(with.arriving_through("ifb4eth1"), Some("eth1"));
        assert_eq!((with.arriving_through("eth1"), with.arriving_through("none")), (None, None));
        assert_eq!(with.given().collect::<Vec<_>>(), ["eth0", "eth1"]);
        assert_eq!(with.words(), "--port eth0,eth1 --ifb eth1");
        assert_eq!(with.to_string(), "eth0, eth1 and ifb4eth1");
    }

    #[test]
    fn only_a_port_has_an_ifb_and_only_one() {
        let refused = |names: &[&str], of: &[&str]| host(names).with_ifbs(&owned(of)).unwrap_err();
        assert_eq!(refused(&["a"], &["b"]), ForwardingError::NoPort("b".into()));
        assert_eq!(refused(&["a"], &["a", "a"]), ForwardingError::Twice("a".into()));
        assert_eq!(refused(&["a"], &["a", "ifb4a"]), ForwardingError::NoPort("ifb4a".into()));
        assert_eq!(refused(&["a", "ifb4a"], &["a"]), ForwardingError::Twice("a".into()));
        let long = "enp0s31f6np1";
        assert_eq!(refused(&[long], &[long]), ForwardingError::LongName(long.into()));
        assert!(refused(&[long], &[long]).to_string().contains("ifb4enp0s31f6np1"));
        let many: Vec<String> = (0..40).map(|number| format!("p{number}")).collect();
        let too_many = Forwarding::host(&many).unwrap().with_ifbs(&many).unwrap_err();
        assert!(matches!(too_many, ForwardingError::NotSoMany { count: 80, .. }));
    }
}
