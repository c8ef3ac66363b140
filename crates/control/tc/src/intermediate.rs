//! Intermediate devices (`ifb0`): where what is said of them is in force, and how to say so.
//!
//! See `narrows_policy` for what they are. To commands they are devices like the ports: those that
//! have qdiscs are listed, and each has the facts and the statistics of the port at whose egress it
//! is in force.
//!
//! At a host, whose ports have [ifbs of their own](Host::ifb_of), such an ifb is a port like any
//! other.

use crate::Host;
use narrows_policy::{NodeStats, PortFacts, is_intermediate};

/// Whether `dev` is an intermediate device, and no port.
pub(crate) fn is_one(dev: &str, host: &dyn Host) -> bool {
    is_intermediate(dev) && host.ifb_of(dev).is_none()
}

/// Where an intermediate device is in force: the port where packets come in, and, if it is known,
/// the port where they leave.
pub(crate) fn place(dev: &str, host: &dyn Host) -> Option<(String, Option<String>)> {
    let from = host.policy().redirecting(dev)?.to_owned();
    // A policy file may be for several pairs of ports.
    let ports = ports(host);
    let to = ports.iter().find(|port| **port != from).filter(|_| ports.len() == 2);
    Some((from, to.cloned()))
}

/// The ports of `host`.
pub(crate) fn ports(host: &dyn Host) -> Vec<String> {
    let devices = host.devices().into_iter();
    devices.filter(|dev| !is_one(dev, host)).collect()
}

/// The ports of `host`, and the intermediate devices with qdiscs.
pub(crate) fn devices(host: &dyn Host) -> Vec<String> {
    let mut devices = ports(host);
    let policy = host.policy();
    devices.extend(policy.intermediate().filter(|dev| is_one(dev, host)).map(str::to_owned));
    devices
}

/// The facts about the device `dev`: of an intermediate one, those of its port, or of any while it
/// has none.
pub(crate) fn facts(dev: &str, host: &dyn Host) -> Option<PortFacts> {
    if !is_one(dev, host) || ports(host).iter().any(|port| port == dev) {
        return host.port(dev);
    }
    let at = place(dev, host).and_then(|(_, to)| host.port(&to?));
    at.or_else(|| host.port(dev)).or_else(|| ports(host).iter().find_map(|port| host.port(port)))
}

/// The statistics of the qdiscs of `dev`.
pub(crate) fn stats(dev: &str, host: &dyn Host) -> Vec<NodeStats> {
    if !is_one(dev, host) {
        // While others are in force there, it has none of its own.
        return match host.policy().port(dev).root() {
            None if stands_in(dev, host) => Vec::new(),
            _ => host.stats(dev),
        };
    }
    match place(dev, host) {
        Some((_, Some(to))) => host.stats(&to),
        _ => Vec::new(),
    }
}

/// Whether the qdiscs of an intermediate device are in force at the egress of the port `dev`.
fn stands_in(dev: &str, host: &dyn Host) -> bool {
    let policy = host.policy();
    let mut others = ports(host).into_iter().filter(|port| port != dev);
    others.any(|other| policy.redirected(&other).is_some_and(|to| is_one(to.as_str(), host)))
}

/// Whether the qdiscs of `dev` wait for a filter that redirects to it.
pub(crate) fn is_pending(dev: &str, host: &dyn Host) -> bool {
    is_one(dev, host) && host.policy().redirecting(dev).is_none()
}

/// What a command has come to: a root qdisc of `dev`, or a filter that redirects to it.
pub(crate) fn note(dev: &str, host: &dyn Host) -> String {
    match place(dev, host) {
        None => format!(
            "Note: {dev} waits for a filter: its qdiscs are in force once one at the ingress of a port redirects to it (action mirred egress redirect dev {dev}). A host plane with --ifb needs none.\n"
        ),
        Some((from, to)) => {
            let to = to.unwrap_or_else(|| "the other port".to_owned());
            format!(
                "Note: what comes in at {from}, of any protocol, leaves at {to}: the qdiscs of {dev} are in force at the egress of {to}.\n"
            )
        }
    }
}
