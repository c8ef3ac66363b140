//! The standby bridge, and IP addresses on the ports.

use super::{Finding, Wanted};
use crate::bridge::{BridgeError, Plan, plan};
use crate::{Link, LinkStatus};
use narrows_escape::shell;

pub(super) fn judge(ports: [&Link; 2], others: &[LinkStatus], wanted: &Wanted) -> Vec<Finding> {
    if wanted.bridge {
        return vec![bridge(ports, others)];
    }
    ports.into_iter().flat_map(|port| [master(port, others), addresses(port)]).flatten().collect()
}

/// With a standby bridge: the result of [`crate::bridge::prepare`].
fn bridge(ports: [&Link; 2], others: &[LinkStatus]) -> Finding {
    let both = format!("{} and {}", ports[0].name(), ports[1].name());
    match plan(ports.map(Some), others) {
        Ok(Plan::Create(name)) => {
            Finding::ok(&name, format!("will join {both} with a standby bridge"))
        }
        Ok(Plan::Reuse(bridge)) => {
            Finding::ok(&bridge.name, format!("is the standby bridge of {both}"))
        }
        Ok(Plan::Adopt(bridge)) => {
            let what = format!("joins {both} already and serves as the standby as it is");
            Finding::note(&bridge.name, what)
        }
        Err(error) => {
            let subject = match &error {
                BridgeError::HasMaster { port, .. }
                | BridgeError::HasAddresses { port, .. }
                | BridgeError::IsBridge(port) => port,
                _ => ports[0].name(),
            };
            refused(subject, &error.what(), error.remedy())
        }
    }
}

/// What keeps the kernel from standing by.
pub(super) fn refused(subject: &str, what: &str, remedy: Option<String>) -> Finding {
    // Does not repeat the subject.
    let what = what.strip_prefix(subject).map_or(what, str::trim_start);
    let finding = Finding::blocker(subject, what);
    match remedy {
        Some(remedy) => finding.remedy(remedy),
        None => finding,
    }
}

/// Without a standby bridge: a port must have no master that would forward by itself.
pub(super) fn master(port: &Link, others: &[LinkStatus]) -> Option<Finding> {
    let master = port.status.master?;
    let name = port.name();
    let master = others.iter().find(|other| other.ifindex == master);
    let master = master.map_or("another device", |master| &master.name);
    let what = format!("is a port of {master}, which may forward when Narrows does not");
    Some(Finding::warning(name, what).remedy(format!("ip link set dev {} nomaster", shell(name))))
}

fn addresses(port: &Link) -> Option<Finding> {
    let mine: Vec<_> = port
        .addresses
        .iter()
        .filter(|address| !address.is_automatic())
        .map(ToString::to_string)
        .collect();
    (!mine.is_empty()).then(|| {
        let list = mine.join(", ");
        let what = format!("carries {list}, so its automatic addresses stay, too");
        Finding::note(port.name(), what)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Address;
    use crate::doctor::Severity;
    use crate::doctor::facts::fit;

    fn judged(bridge: bool, spoil: impl FnOnce(&mut Link), others: &[LinkStatus]) -> Vec<Finding> {
        let [mut a, b] = fit().ports.map(|port| port.link.unwrap());
        spoil(&mut a);
        judge([&a, &b], others, &Wanted { bridge, ..Wanted::default() })
    }

    fn with_address(link: &mut Link) {
        link.addresses.push(Address { ip: [192, 0, 2, 1].into(), prefix: 24 });
    }

    fn br0() -> LinkStatus {
        let kind = Some("bridge".to_owned());
        LinkStatus { ifindex: 9, name: "br0".into(), kind, ..LinkStatus::default() }
    }

    #[test]
    fn free_ports_will_be_bridged() {
        let findings = judged(true, |_| (), &[]);
        assert_eq!(findings[0].severity, Severity::Ok);
        assert_eq!(findings[0].subject, "nrwbr2");
    }

    #[test]
    fn an_address_blocks_a_bridge_and_is_noted_without_one() {
        let blocked = judged(true, with_address, &[]);
        assert_eq!((blocked[0].severity, blocked[0].subject.as_str()), (Severity::Blocker, "a"));
        assert!(blocked[0].what.starts_with("carries 192.0.2.1/24"));
        assert!(blocked[0].remedy.as_ref().unwrap().contains("ip addr del 192.0.2.1/24 dev a"));
        assert_eq!(judged(false, with_address, &[])[0].severity, Severity::Note);
    }

    #[test]
    fn a_master_blocks_another_bridge_and_is_warned_of_without_one() {
        let enslaved = |link: &mut Link| link.status.master = Some(9);
        assert_eq!(judged(true, enslaved, &[br0()])[0].severity, Severity::Blocker);
        let warned = judged(false, enslaved, &[br0()]);
        assert_eq!(warned[0].severity, Severity::Warning);
        assert!(warned[0].what.contains("br0"));
    }

    #[test]
    fn nothing_is_said_of_free_ports_that_fail_closed() {
        assert_eq!(judged(false, |_| (), &[]), []);
    }
}
