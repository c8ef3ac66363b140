//! Where a frame goes: the ports of an instance, and which of them a frame leaves through.
//!
//! A *device* is an interface of this host. A *port* is where frames arrive and leave: a device, or
//! a VLAN of one. Queues, classes, filters and counters know ports by number ([`PortId`]) and
//! nothing of devices; sockets and programs belong to devices.
//!
//! [`Forwarding`] is one of:
//!
//! * the **wire**: two devices, each of which is a port. What arrives at one leaves at the other.
//! * the **stick** ("router on a stick"): one device, and pairs of VLANs on it. Each VLAN is a
//!   port. A frame of one leaves with the tag of the other ([`stick`]).
//! * the **router**: devices, each of which is a port. Each frame leaves where the kernel's routes
//!   say; perhaps where it arrived, in another VLAN.
//! * the **switch**: the same, and each frame leaves where the kernel's bridge has learned that its
//!   destination is.
//! * the **host**: devices, each of which is a port. What arrives there is this host's, whose own
//!   stack gets it; what leaves there is the kernel's. What arrives at a port may leave through an
//!   *ifb* first, a port of its own, so that it can be shaped like what leaves ([`ifb`]).
//!
//! On a wire and a stick, ports are in pairs: where a frame leaves follows from where it arrives.
//! In a router and a switch it is chosen for each frame. At a host no frame leaves.
//!
//! Non-goals: any I/O; how long a frame waits; what the kernel does when nobody forwards.

mod id;
pub mod ifb;
pub mod pattern;
mod port_set;
pub mod stick;
mod tag;

pub use id::{DEVICES_MAX, DeviceId, PORTS_MAX, PerDevice, PerPort, PortId};
pub use port_set::PortSet;
pub use tag::{NoVlan, Tag, TagProtocol};

use std::collections::HashSet;
use std::fmt;

/// The longest name that the kernel gives an interface, in bytes (`IFNAMSIZ`, without the end).
pub(crate) const NAME_MAX: usize = 15;

/// A port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port {
    /// Its name, for `tc`: that of its device, or of the VLAN on it.
    pub name: String,
    /// The device that it is on.
    pub device: DeviceId,
    /// The tag of its frames; `None` if all frames of the device are this port's.
    pub tag: Option<Tag>,
    /// The port where what leaves through this one has arrived, if this one is its ifb.
    pub ifb_of: Option<PortId>,
}

/// What decides where a frame leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// The port where it arrives.
    Pairs,
    /// The kernel's routes.
    Router,
    /// The table of the kernel's bridge.
    Switch,
    /// Nothing: all is this host's.
    Host,
}

/// The ports of an instance, the devices that they are on, and where what arrives at each leaves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Forwarding {
    kind: Kind,
    devices: PerDevice<String>,
    ports: PerPort<Port>,
    /// Their names, in the same order.
    names: Vec<String>,
}

/// Why ports cannot be joined like this.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ForwardingError {
    /// The same interface twice.
    #[error("both ports are \"{0}\": name two different interfaces")]
    SameDevice(String),
    /// The same interface twice, among several.
    #[error("\"{0}\" is named twice: name each interface once")]
    Twice(String),
    /// Too few or too many interfaces.
    #[error("a {what} has {least} to {most} ports, not {count}", most = PORTS_MAX)]
    NotSoMany {
        /// What they were to be joined by.
        what: &'static str,
        /// How few it may have.
        least: usize,
        /// How many there are.
        count: usize,
    },
    /// A VLAN twice.
    #[error("VLAN {0} is named twice: a frame of it can leave with one other tag only")]
    SameVlan(u16),
    /// More pairs than ports allow.
    #[error("{0} pairs of VLANs are too many: an instance has at most {most} ports, two a pair", most = PORTS_MAX)]
    TooMany(usize),
    /// An ifb for what is no port.
    #[error("--ifb {0}: that is none of the ports; name it with --ports, too")]
    NoPort(String),
    /// A name from which none can be made.
    #[error(
        "the ifb of {0} would be {name}, and a name has at most {max} characters: give the interface a \
         shorter one (ip link set dev OLD name NEW)", name = ifb::name(.0), max = NAME_MAX
    )]
    LongName(String),
    /// No pair.
    #[error("a stick needs a pair of VLANs, as in 100:200")]
    NoVlans,
}

impl Forwarding {
    /// The wire between the devices `a` and `b`.
    ///
    /// # Errors
    /// If both are the same.
    pub fn wire(a: &str, b: &str) -> Result<Self, ForwardingError> {
        if a == b {
            return Err(ForwardingError::SameDevice(a.to_owned()));
        }
        Ok(Self::of_devices(Kind::Pairs, [a, b].map(str::to_owned).into_iter().collect()))
    }

    /// The router between `devices`.
    ///
    /// # Errors
    /// If they are too few or too many, or one is named twice.
    pub fn router(devices: &[String]) -> Result<Self, ForwardingError> {
        Self::of_several(Kind::Router, "router", 1, devices)
    }

    /// The switch between `devices`.
    ///
    /// # Errors
    /// If they are too few or too many, or one is named twice.
    pub fn switch(devices: &[String]) -> Result<Self, ForwardingError> {
        Self::of_several(Kind::Switch, "switch", 2, devices)
    }

    /// The ports of a host on `devices`.
    ///
    /// # Errors
    /// If they are too few or too many, or one is named twice.
    pub fn host(devices: &[String]) -> Result<Self, ForwardingError> {
        Self::of_several(Kind::Host, "host", 1, devices)
    }

    fn of_several(
        kind: Kind,
        what: &'static str,
        least: usize,
        devices: &[String],
    ) -> Result<Self, ForwardingError> {
        if !(least..=PORTS_MAX).contains(&devices.len()) {
            return Err(ForwardingError::NotSoMany { what, least, count: devices.len() });
        }
        let mut known = HashSet::new();
        match devices.iter().find(|device| !known.insert(*device)) {
            Some(twice) => Err(ForwardingError::Twice(twice.clone())),
            None => Ok(Self::of_devices(kind, devices.iter().cloned().collect())),
        }
    }

    /// Each device is a port.
    fn of_devices(kind: Kind, devices: PerDevice<String>) -> Self {
        let port = |(device, name): (DeviceId, &String)| Port {
            name: name.clone(),
            device,
            tag: None,
            ifb_of: None,
        };
        let ports = devices.iter_enumerated().map(port).collect();
        Self::new(kind, devices, ports)
    }

    fn new(kind: Kind, devices: PerDevice<String>, ports: PerPort<Port>) -> Self {
        let names = ports.iter().map(|port| port.name.clone()).collect();
        Self { kind, devices, ports, names }
    }

    /// The names of the devices.
    pub fn devices(&self) -> &PerDevice<String> {
        &self.devices
    }

    /// The ports.
    pub fn ports(&self) -> &PerPort<Port> {
        &self.ports
    }

    /// The numbers of the ports.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = PortId> + ExactSizeIterator + use<> {
        PortId::first(self.ports.len())
    }

    /// The names of the ports, in order.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The name of `port`.
    pub fn name(&self, port: PortId) -> &str {
        &self.ports[port].name
    }

    /// The port called `name`.
    pub fn port(&self, name: &str) -> Option<PortId> {
        self.ids().find(|port| self.ports[*port].name == name)
    }

    /// The device that `port` is on.
    pub fn device_of(&self, port: PortId) -> DeviceId {
        self.ports[port].device
    }

    /// The ports on `device`.
    pub fn ports_on(&self, device: DeviceId) -> impl Iterator<Item = PortId> {
        self.ids().filter(move |port| self.device_of(*port) == device)
    }

    /// The number of `port` among those on its device.
    pub fn place(&self, port: PortId) -> usize {
        self.ports_on(self.device_of(port)).take_while(|other| *other < port).count()
    }

    /// The tags of the ports on `device`, in the order of their places; none if it is a port
    /// itself.
    pub fn tags_on(&self, device: DeviceId) -> Vec<Tag> {
        self.ports_on(device).filter_map(|port| self.ports[port].tag).collect()
    }

    /// Whether `port` is the first one on its device: there what belongs to the device is shown.
    pub fn is_first(&self, port: PortId) -> bool {
        self.place(port) == 0
    }

    /// The port through which what arrives at `port` leaves, and from which `port` gets all that
    /// leaves there; `None` in a router and a switch, and at a host.
    pub fn across(&self, port: PortId) -> Option<PortId> {
        self.is_paired().then(|| port.partner())
    }

    /// Whether ports are in pairs: where a frame leaves follows from where it arrives.
    pub fn is_paired(&self) -> bool {
        self.kind == Kind::Pairs
    }

    /// Whether where a frame leaves is chosen for each: in a router and a switch.
    pub fn is_chosen(&self) -> bool {
        self.is_router() || self.is_switch()
    }

    /// Whether what arrives is this host's own.
    pub fn is_host(&self) -> bool {
        self.kind == Kind::Host
    }

    /// Whether frames to other addresses than those of its devices are for it, too.
    pub fn takes_all(&self) -> bool {
        !self.is_router() && !self.is_host()
    }

    /// Whether the kernel's routes say where each frame leaves.
    pub fn is_router(&self) -> bool {
        self.kind == Kind::Router
    }

    /// Whether the kernel's bridge says where each frame leaves.
    pub fn is_switch(&self) -> bool {
        self.kind == Kind::Switch
    }

    /// The options of `narrows run` that ask for it.
    pub fn words(&self) -> String {
        match self.pairs() {
            Some(pairs) => {
                let pair = |(one, other): &stick::Pair| format!("{}:{}", one.word(), other.word());
                let pairs: Vec<String> = pairs.iter().map(pair).collect();
                format!("--stick {} --vlans {}", self.devices.raw.join(","), pairs.join(","))
            }
            None => {
                let option = match self.kind {
                    Kind::Pairs => "--ports",
                    Kind::Router => "--router",
                    Kind::Switch => "--switch",
                    Kind::Host => "--port",
                };
                let given: Vec<&str> = self.given().collect();
                let ifbs = self.ids().filter_map(|port| self.ports[port].ifb_of);
                let ifbs: Vec<&str> = ifbs.map(|port| self.name(port)).collect();
                let with = if ifbs.is_empty() { "" } else { " --ifb " };
                format!("{option} {}{with}{}", given.join(","), ifbs.join(","))
            }
        }
    }

    /// The pairs of VLANs, where ports are VLANs.
    pub fn pairs(&self) -> Option<Vec<stick::Pair>> {
        let tags: Vec<Tag> = self.ports.iter().map(|port| port.tag).collect::<Option<_>>()?;
        Some(tags.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect())
    }

    /// Whether ports are VLANs.
    pub fn is_stick(&self) -> bool {
        self.ports.iter().any(|port| port.tag.is_some())
    }
}

/// As an operator names them: `eth0 and eth1`.
impl fmt::Display for Forwarding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.names[..] {
            [all @ .., last] if !all.is_empty() => write!(f, "{} and {last}", all.join(", ")),
            names => f.write_str(&names.join("")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_arrives_at_one_end_of_a_wire_leaves_at_the_other() {
        let wire = Forwarding::wire("a", "b").unwrap();
        let [a, b] = [wire.port("a").unwrap(), wire.port("b").unwrap()];
        assert_eq!((wire.across(a), wire.across(b)), (Some(b), Some(a)));
        assert_ne!(wire.device_of(a), wire.device_of(b));
        assert_eq!(wire.to_string(), "a and b");
        assert!(!wire.is_stick());
    }

    #[test]
    fn a_router_a_switch_and_a_host_have_some_ports_and_each_frame_its_own_way() {
        let names =
            |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        type Join = fn(&[String]) -> Result<Forwarding, ForwardingError>;
        for (join, what, least, option) in [
            (Forwarding::router as Join, "router", 1, "router"),
            (Forwarding::switch, "switch", 2, "switch"),
            (Forwarding::host, "host", 1, "port"),
        ] {
            let joined = join(&names(&["a", "b", "c"])).unwrap();
            assert!(joined.ids().all(|port| joined.across(port).is_none()));
            assert_eq!(joined.words(), format!("--{option} a,b,c"));
            assert_eq!(joined.to_string(), "a, b and c");
            assert_eq!(
                (joined.is_router(), joined.is_switch(), joined.is_host()),
                (what == "router", what == "switch", what == "host")
            );
            let twice = join(&names(&["a", "b", "a"]));
            assert_eq!(twice, Err(ForwardingError::Twice("a".into())));
            let not_so_many = |count| Err(ForwardingError::NotSoMany { what, least, count });
            let few = names(&["a"][..least - 1]);
            assert_eq!(join(&few), not_so_many(few.len()));
            assert_eq!(join(&names(&["a", "b"][..least])).unwrap().ids().len(), least);
            let many: Vec<String> = (0..65).map(|number| number.to_string()).collect();
            assert_eq!(join(&many), not_so_many(65));
        }
    }

    #[test]
    fn all_that_arrives_at_a_host_is_its_own_and_nothing_leaves() {
        let host = Forwarding::host(&["a".to_owned()]).unwrap();
        assert_eq!((host.words().as_str(), host.to_string().as_str()), ("--port a", "a"));
        assert_eq!(host.ids().map(|port| host.across(port)).collect::<Vec<_>>(), [None]);
        assert!(host.is_host() && !host.is_paired() && !host.is_chosen() && !host.takes_all());
    }

    #[test]
    fn a_wire_has_two_ends() {
        assert_eq!(Forwarding::wire("a", "a"), Err(ForwardingError::SameDevice("a".into())));
    }
}
