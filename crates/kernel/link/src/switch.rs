//! The kernel bridge that a switch is: it decides while Narrows runs, and forwards when it does
//! not.
//!
//! Either the operator made it, with all the ports, or Narrows makes one at the start that is as
//! the kernel makes bridges: it learns, and has no spanning tree. `ip`, `bridge` and daemons
//! configure both alike, while Narrows runs, too.
//!
//! The bridge of an operator may have other ports as well. It is never changed, other than set up.
//!
//! Non-goals: what the bridge does ([`crate::switching`]); making a bridge behave like a wire
//! ([`crate::bridge`]).

use crate::bridge::{BridgeError, Origin, create};
use crate::changes::all_or_nothing;
use crate::link::{all, hide};
use crate::{Address, Link, LinkError, LinkStatus};
use narrows_escape::shell;
use std::fmt;

/// The prefix of the names of bridges that Narrows makes for switches. The index of the lowest port
/// follows.
pub const PREFIX: &str = "nrwsw";

/// The bridge of a switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SwitchState {
    /// Its index.
    pub ifindex: u32,
    /// Its name.
    pub name: String,
    /// Where it comes from.
    pub origin: Origin,
}

/// Why interfaces are no ports of one bridge, and cannot be made so.
#[derive(Debug)]
pub enum SwitchError {
    /// A port is a bridge itself.
    IsBridge(String),
    /// A port belongs to something that is no bridge, or to a bridge of a wire.
    HasMaster {
        /// The port.
        port: String,
        /// What it belongs to.
        master: String,
    },
    /// Two ports belong to two bridges.
    TwoBridges {
        /// A port, and its bridge.
        one: [String; 2],
        /// Another, and its bridge.
        other: [String; 2],
    },
    /// A port does not belong to the bridge that others belong to.
    NotInBridge {
        /// The port.
        port: String,
        /// The bridge of the others.
        bridge: String,
    },
    /// A port has IP addresses, which stop working on the port of a bridge.
    HasAddresses {
        /// The port.
        port: String,
        /// Its addresses.
        addresses: Vec<Address>,
    },
    /// The bridge of an operator is gone.
    Gone(String),
    /// Another failure.
    Bridge(BridgeError),
}

impl SwitchError {
    /// The obstacle.
    pub fn what(&self) -> String {
        match self {
            Self::IsBridge(port) => {
                format!("{port} is a bridge, and a switch is made of a bridge's ports")
            }
            Self::HasMaster { port, master } => format!("{port} is a port of {master} already"),
            Self::TwoBridges { one: [port, bridge], other: [other, its] } => format!(
                "{port} is a port of {bridge}, and {other} of {its}: the ports of a switch are in \
                 one bridge"
            ),
            Self::NotInBridge { port, bridge } => {
                format!("{port} is no port of {bridge}, as others of this switch are")
            }
            Self::HasAddresses { port, addresses } => {
                let list: Vec<_> = addresses.iter().map(ToString::to_string).collect();
                let list = list.join(", ");
                format!("{port} carries {list}, which would stop working on a bridge's port")
            }
            Self::Gone(bridge) => format!(
                "{bridge} is gone, and its ports forward nothing: no other bridge knows its VLANs"
            ),
            Self::Bridge(error) => error.what(),
        }
    }

    /// The command to type; none if only the kernel's message can help.
    pub fn remedy(&self) -> Option<String> {
        Some(match self {
            Self::IsBridge(port) => {
                let name = shell(port);
                format!("ip link show master {name} (lists its ports: name those)")
            }
            Self::HasMaster { port, .. } => format!("ip link set dev {} nomaster", shell(port)),
            Self::TwoBridges { one: [_, bridge], other: [other, _] }
            | Self::NotInBridge { port: other, bridge } => {
                format!("ip link set dev {} master {}", shell(other), shell(bridge))
            }
            Self::HasAddresses { port, addresses } => {
                let port = shell(port);
                let delete = |address| format!("ip addr del {address} dev {port}");
                let deletes: Vec<_> = addresses.iter().map(delete).collect();
                format!("{} (and give it to the bridge)", deletes.join(" && "))
            }
            Self::Gone(bridge) => {
                let bridge = shell(bridge);
                format!("ip link add {bridge} type bridge, with its ports and settings")
            }
            // There is no other way here.
            Self::Bridge(error) => return error.remedy().map(|it| without_fail_closed(&it)),
        })
    }
}

fn without_fail_closed(remedy: &str) -> String {
    remedy.replace(" (or use --fail-closed)", "")
}

impl fmt::Display for SwitchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what())?;
        self.remedy().map_or(Ok(()), |remedy| write!(f, "; try: {remedy}"))
    }
}

impl std::error::Error for SwitchError {}

impl From<LinkError> for SwitchError {
    fn from(error: LinkError) -> Self {
        Self::Bridge(error.into())
    }
}

/// Makes the interfaces `ports` of the calling thread's network namespace ports of one bridge, if
/// they are not, and sets all up.
///
/// # Errors
///
/// The obstacle, with the remedy. Nothing is changed then.
pub fn prepare(ports: &[String]) -> Result<SwitchState, SwitchError> {
    let ports: Vec<Link> =
        ports.iter().map(|port| Link::by_name(port)).collect::<Result<_, _>>()?;
    let plan = plan(&ports.iter().collect::<Vec<_>>(), &all()?)?;
    all_or_nothing(|changes| {
        let (bridge, origin) = match plan {
            Plan::Adopt(bridge) => (bridge, Origin::Foreign),
            Plan::Complete(bridge) => (bridge, Origin::Reused),
            Plan::Create(name) => {
                let bridge = create(&name).map_err(SwitchError::Bridge)?;
                changes.created(bridge.ifindex);
                hide(&format!("hiding bridge {name}"), bridge.ifindex)?;
                (bridge, Origin::Created)
            }
        };
        if origin != Origin::Foreign {
            for port in &ports {
                changes.enslave(&port.status, &bridge)?;
            }
        }
        changes.set_up(&bridge)?;
        for port in &ports {
            changes.set_up(&port.status)?;
        }
        Ok(SwitchState { ifindex: bridge.ifindex, name: bridge.name, origin })
    })
}

/// As [`prepare`], for ports whose bridge was `before`. An operator's bridge is not replaced by one
/// that would join what that one kept apart: there has to be another one of the operator.
///
/// # Errors
///
/// As [`prepare`], and if there is none.
pub fn repair(before: &SwitchState, ports: &[String]) -> Result<SwitchState, SwitchError> {
    if before.origin == Origin::Foreign {
        let links: Vec<Link> =
            ports.iter().map(|port| Link::by_name(port)).collect::<Result<_, _>>()?;
        if links.iter().all(|port| port.status.master.is_none()) {
            return Err(SwitchError::Gone(before.name.clone()));
        }
    }
    prepare(ports)
}

/// Removes a bridge that Narrows made, and leaves any other.
///
/// # Errors
///
/// If the kernel refuses.
pub fn remove(switch: &SwitchState) -> Result<(), LinkError> {
    if switch.origin == Origin::Foreign {
        return Ok(());
    }
    match crate::link::delete("removing the bridge", switch.ifindex) {
        Err(LinkError::NoSuchIndex(_)) => Ok(()),
        result => result,
    }
}

/// Why the bridge of `switch` would not forward between `ports` at this moment, in words; none if
/// it would. [`prepare`] repairs what can be repaired.
///
/// # Errors
///
/// If the kernel does not say.
pub fn check(switch: &SwitchState, ports: &[String]) -> Result<Option<String>, LinkError> {
    let all = all()?;
    let name = &switch.name;
    let Some(bridge) = all.iter().find(|link| link.ifindex == switch.ifindex) else {
        return Ok(Some(format!("the bridge {name} is gone")));
    };
    if !bridge.up {
        return Ok(Some(format!("the bridge {name} is down")));
    }
    let has_left =
        |link: &&LinkStatus| ports.contains(&link.name) && link.master != Some(switch.ifindex);
    let gone = all.iter().find(has_left);
    Ok(gone.map(|port| format!("{} is no longer a port of the bridge {name}", port.name)))
}

/// The action of [`prepare`], decided before anything is changed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Make a bridge with this name.
    Create(String),
    /// Use this bridge of ours, and give it the ports that it does not have.
    Complete(LinkStatus),
    /// Use this bridge as it is, which has all ports.
    Adopt(LinkStatus),
}

/// Decides from the ports and the list of all interfaces.
pub(crate) fn plan(ports: &[&Link], all: &[LinkStatus]) -> Result<Plan, SwitchError> {
    let is_bridge = |link: &LinkStatus| link.kind.as_deref() == Some("bridge");
    if let Some(bridge) = ports.iter().find(|port| is_bridge(&port.status)) {
        return Err(SwitchError::IsBridge(bridge.name().to_owned()));
    }
    let master = |port: &Link| {
        let master = port.status.master?;
        Some(all.iter().find(|link| link.ifindex == master))
    };
    let is_fit =
        |link: &LinkStatus| is_bridge(link) && !link.name.starts_with(crate::bridge::PREFIX);
    let mut found: Option<(&Link, &LinkStatus)> = None;
    for port in ports {
        match (master(port), found) {
            (None, _) => {}
            (Some(Some(bridge)), None) if is_fit(bridge) => found = Some((port, bridge)),
            (Some(Some(bridge)), Some((_, known))) if known.ifindex == bridge.ifindex => {}
            (Some(Some(bridge)), Some((one, known))) if is_fit(bridge) => {
                return Err(SwitchError::TwoBridges {
                    one: [one.name().to_owned(), known.name.clone()],
                    other: [port.name().to_owned(), bridge.name.clone()],
                });
            }
            (Some(other), _) => {
                return Err(SwitchError::HasMaster {
                    port: port.name().to_owned(),
                    master: other.map_or("another device", |link| &link.name).to_owned(),
                });
            }
        }
    }
    let has = |bridge: &LinkStatus, port: &Link| port.status.master == Some(bridge.ifindex);
    if let Some((_, bridge)) = found
        && !bridge.name.starts_with(PREFIX)
    {
        return match ports.iter().find(|port| !has(bridge, port)) {
            None => Ok(Plan::Adopt(bridge.clone())),
            Some(port) => Err(SwitchError::NotInBridge {
                port: port.name().to_owned(),
                bridge: bridge.name.clone(),
            }),
        };
    }
    for port in ports.iter().filter(|port| found.is_none_or(|(_, bridge)| !has(bridge, port))) {
        let addresses: Vec<_> =
            port.addresses.iter().copied().filter(|address| !address.is_automatic()).collect();
        if !addresses.is_empty() {
            return Err(SwitchError::HasAddresses { port: port.name().to_owned(), addresses });
        }
    }
    let lowest = ports.iter().map(|port| port.status.ifindex).min().unwrap_or_default();
    let name = format!("{PREFIX}{lowest}");
    let left_behind = || all.iter().find(|link| link.name == name && is_bridge(link));
    Ok(match found.map(|(_, bridge)| bridge).or_else(left_behind) {
        Some(bridge) => Plan::Complete(bridge.clone()),
        None => Plan::Create(name),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bridge(ifindex: u32, name: &str) -> LinkStatus {
        let kind = Some("bridge".to_owned());
        LinkStatus { ifindex, name: name.to_owned(), kind, up: true, ..LinkStatus::default() }
    }

    fn port(ifindex: u32, master: Option<u32>) -> Link {
        let name = format!("p{ifindex}");
        let status = LinkStatus { ifindex, name, master, ..LinkStatus::default() };
        Link { status, ..Link::default() }
    }

    fn planned(masters: &[Option<u32>], others: &[LinkStatus]) -> Result<Plan, String> {
        let ports: Vec<Link> = (2..).zip(masters).map(|(index, it)| port(index, *it)).collect();
        let ports: Vec<&Link> = ports.iter().collect();
        plan(&ports, others).map_err(|error| error.to_string())
    }

    #[test]
    fn the_bridge_that_has_all_ports_is_used_as_it_is_and_free_ports_get_one() {
        let br0 = bridge(9, "br0");
        let with = planned(&[Some(9); 3], std::slice::from_ref(&br0));
        assert_eq!(with, Ok(Plan::Adopt(br0.clone())));
        assert_eq!(planned(&[None; 3], &[br0]), Ok(Plan::Create("nrwsw2".into())));
    }

    #[test]
    fn a_bridge_that_an_earlier_run_made_is_completed() {
        let ours = bridge(9, "nrwsw2");
        for masters in [[Some(9), None, Some(9)], [None; 3], [Some(9); 3]] {
            let plan = planned(&masters, std::slice::from_ref(&ours));
            assert_eq!(plan, Ok(Plan::Complete(ours.clone())), "{masters:?}");
        }
    }

    #[test]
    fn what_cannot_be_one_bridge_is_refused_with_what_to_type() {
        let (br0, br1) = (bridge(9, "br0"), bridge(10, "br1"));
        let said = planned(&[Some(9), Some(10), None], &[br0.clone(), br1]).unwrap_err();
        assert_eq!(
            said,
            "p2 is a port of br0, and p3 of br1: the ports of a switch are in one bridge; try: ip \
             link set dev p3 master br0"
        );
        let said = planned(&[Some(9), None], &[br0]).unwrap_err();
        assert!(said.ends_with("try: ip link set dev p3 master br0"), "{said}");
        let bond = LinkStatus { kind: Some("bond".into()), ..bridge(9, "bond0") };
        let said = planned(&[Some(9), None], &[bond]).unwrap_err();
        assert_eq!(said, "p2 is a port of bond0 already; try: ip link set dev p2 nomaster");
        let wire = bridge(9, "nrwbr2");
        assert!(planned(&[Some(9); 2], &[wire]).unwrap_err().contains("is a port of nrwbr2"));
        let itself = Link { status: bridge(2, "br0"), ..Link::default() };
        let said = plan(&[&itself], &[]).unwrap_err().to_string();
        assert!(said.contains("ip link show master br0"), "{said}");
        let address = Address { ip: [192, 0, 2, 1].into(), prefix: 24 };
        let addressed = Link { addresses: vec![address], ..port(2, None) };
        let said = plan(&[&addressed, &port(3, None)], &[]).unwrap_err().to_string();
        assert!(said.contains("ip addr del 192.0.2.1/24 dev p2 (and give it to the"), "{said}");
    }
}
