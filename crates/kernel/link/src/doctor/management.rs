//! How the operator reaches a box whose ports are a wire.
//!
//! A wire has no address. A box whose only addresses were on its two ports is not reached over a
//! network once Narrows runs, unless it has one on the bridge that joins them.

use super::{Facts, Finding, Wanted};
use crate::Link;
use crate::bridge::{Plan, plan};
use narrows_escape::shell;

pub(super) fn judge(ports: [&Link; 2], facts: &Facts, wanted: &Wanted) -> Option<Finding> {
    if facts.reached_elsewhere {
        return None;
    }
    if facts.ports.iter().any(|port| port.addressed) {
        let what = "is reached only through the ports that it shapes: what Narrows does to them, it \
                    does to your own connection, too. A third interface is safer";
        return Some(Finding::note("box", what));
    }
    let bridge = wanted.bridge.then(|| plan(ports.map(Some), &facts.others).ok()).flatten();
    let place = match bridge {
        Some(Plan::Create(name)) => format!("on {}, the bridge between the ports", shell(&name)),
        Some(Plan::Reuse(bridge) | Plan::Adopt(bridge)) => {
            format!("on {}, the bridge between the ports", shell(&bridge.name))
        }
        None => "on a port".to_owned(),
    };
    let what = format!(
        "has no address but on the loopback device: while Narrows runs, nobody reaches this box \
         over a network. It needs a third interface, or an address {place}"
    );
    Some(Finding::warning("box", what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Severity;
    use crate::doctor::facts::fit;

    fn judged(facts: &Facts, bridge: bool) -> Option<Finding> {
        let [a, b] = facts.ports.each_ref().map(|port| port.link.as_ref().unwrap());
        judge([a, b], facts, &Wanted { bridge, ..Wanted::default() })
    }

    #[test]
    fn a_box_with_an_address_elsewhere_is_reached_there() {
        assert_eq!(judged(&fit(), true), None);
    }

    #[test]
    fn a_box_without_any_address_needs_one_on_the_bridge_or_a_third_interface() {
        let facts = Facts { reached_elsewhere: false, ..fit() };
        let said = judged(&facts, true).unwrap();
        assert_eq!(said.severity, Severity::Warning);
        assert!(said.what.ends_with("an address on nrwbr2, the bridge between the ports"));
        let closed = judged(&facts, false).unwrap().what;
        assert!(closed.ends_with("an address on a port"), "{closed}");
    }

    #[test]
    fn a_box_that_is_reached_through_its_ports_is_told_so() {
        let mut facts = Facts { reached_elsewhere: false, ..fit() };
        facts.ports[1].addressed = true;
        assert_eq!(judged(&facts, true).unwrap().severity, Severity::Note);
    }
}
