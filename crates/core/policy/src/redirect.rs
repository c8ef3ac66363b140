//! Intermediate devices: `ifb0` and the filters that redirect to it.
//!
//! Linux shapes what comes in at a port by sending it through another device: a filter at the
//! ingress of the port redirects it to an `ifb`, whose qdiscs shape it, and from where it goes on.
//! Here all that comes in at a port leaves at the other one. So the qdiscs of the intermediate
//! device are in force where that traffic leaves: at the egress of the other port.
//!
//! The intermediate device has a tree of its own in the policy, under its own name. It waits until
//! a filter redirects to it, and again when that filter is gone, whatever the order of commands
//! was. [`Policy::in_force`] says what a port runs.
//!
//! *All or nothing.* A qdisc at the egress of a port gets all that leaves there. So a filter that
//! redirects must match everything, and none before it may let packets pass; anything else is
//! refused. Frames of other protocols than the filter's are shaped, too.

use crate::filter::FilterEdit;
use crate::{FilterPlace, Policy, PolicyError, PortPolicy, Verb};
use narrows_classify::{ANY_PROTOCOL, Action, Control, DeviceName, Filter, Flower, Matches};
use std::borrow::Cow;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

/// Whether a device of this name is an intermediate one: `ifb0`, `ifb4eth0`; `eth0-ifb`, as FireQOS
/// calls it.
pub fn is_intermediate(dev: &str) -> bool {
    dev.starts_with("ifb") || dev.ends_with("-ifb")
}

fn refuse<T>(why: impl Into<String>) -> Result<T, PolicyError> {
    Err(PolicyError::Redirect(why.into()))
}

impl Policy {
    /// What the port `dev` runs, if what comes in at `opposite` leaves there: the qdiscs of the
    /// intermediate device to which that is redirected, or its own.
    ///
    /// # Errors
    /// If it has both.
    pub fn in_force(&self, dev: &str, opposite: &str) -> Result<Cow<'_, PortPolicy>, PolicyError> {
        let own = self.port(dev);
        let Some(to) = self.shaping_instead(opposite) else { return Ok(Cow::Borrowed(own)) };
        let to = to.as_str();
        if own.root().is_some() {
            return refuse(format!(
                "{dev} and {to} both have a root qdisc, and what comes in at {opposite} is redirected to {to} and leaves at {dev}: only one of them can shape it. Delete the root of {dev}, that of {to}, or the filter at {opposite}."
            ));
        }
        let mut port = self.port(to).clone();
        port.ends = own.ends.clone();
        Ok(Cow::Owned(port))
    }

    /// The intermediate device to which what comes in at `dev` is redirected.
    pub fn redirected(&self, dev: &str) -> Option<DeviceName> {
        if !self.actions.has_redirects() {
            return None;
        }
        let filters = &self.port(dev).ends.as_ref()?.ingress;
        filters.iter().find_map(|(_, filter)| self.target(filter))
    }

    /// The device whose qdiscs are in force at the egress of `dev`, as [`Policy::in_force`].
    pub fn shaping(&self, dev: &str, opposite: &str) -> String {
        self.shaping_instead(opposite).as_ref().map_or(dev, DeviceName::as_str).to_owned()
    }

    /// The intermediate device to which what comes in at `opposite` is redirected, if that has
    /// qdiscs.
    fn shaping_instead(&self, opposite: &str) -> Option<DeviceName> {
        self.redirected(opposite).filter(|to| self.port(to.as_str()).root().is_some())
    }

    /// The port from which the intermediate device `dev` gets packets.
    pub fn redirecting(&self, dev: &str) -> Option<&str> {
        let is_it = |port: &str| self.redirected(port).is_some_and(|to| to.as_str() == dev);
        self.ports().map(|(port, _)| port).find(|port| is_it(port))
    }

    /// The intermediate devices that have qdiscs, by name.
    pub fn intermediate(&self) -> impl Iterator<Item = &str> {
        self.ports().map(|(dev, _)| dev).filter(|dev| is_intermediate(dev))
    }

    /// The device to which `filter` redirects.
    fn target(&self, filter: &Filter) -> Option<DeviceName> {
        self.actions_of(filter).find_map(|action| match action {
            Action::Mirred(mirred) => Some(mirred.to),
            _ => None,
        })
    }

    /// The actions of `filter`, in their order.
    fn actions_of(&self, filter: &Filter) -> impl Iterator<Item = &Action> {
        filter.actions.iter().filter_map(|id| Some(&self.action(*id)?.action))
    }

    /// Checks the filters of `dev` after `edit`, which was made at `place`.
    pub(crate) fn check_redirect(
        &self,
        dev: &str,
        place: FilterPlace,
        edit: &FilterEdit,
    ) -> Result<(), PolicyError> {
        if !self.actions.has_redirects() || edit.verb == Verb::Delete {
            return Ok(());
        }
        let redirects =
            edit.actions.iter().any(|draft| draft.kind == narrows_classify::ActionKind::Mirred);
        if redirects && place != FilterPlace::Ingress {
            return refuse(
                "mirred is for ingress: there it says which qdiscs shape what comes in. Give the filter to ingress of the port where that is.",
            );
        }
        if place == FilterPlace::Ingress { self.check_redirects_at(dev) } else { Ok(()) }
    }

    /// Checks all redirecting filters.
    pub(crate) fn check_redirects(&self) -> Result<(), PolicyError> {
        if !self.actions.has_redirects() {
            return Ok(());
        }
        self.ports.keys().try_for_each(|dev| self.check_redirects_at(dev))
    }

    /// Checks the filters at ingress of `dev`, if one of them redirects.
    fn check_redirects_at(&self, dev: &str) -> Result<(), PolicyError> {
        let Some(to) = self.redirected(dev) else { return Ok(()) };
        let name = to.as_str();
        let redirects_there = |port: &str| self.redirected(port).is_some_and(|other| other == to);
        let mut others = self.ports().map(|(port, _)| port).filter(|port| *port != dev);
        if let Some(other) = others.find(|port| redirects_there(port)) {
            return refuse(format!(
                "{name} gets what comes in at {other} already: a device here is for one direction. Redirect to another, as ifb1, and give that its own qdiscs."
            ));
        }
        let filters = self.port(dev).ends.iter().flat_map(|ends| ends.ingress.iter());
        let mut has_redirected = false;
        for (_, filter) in filters {
            let Some(target) = self.target(filter) else {
                if !has_redirected && self.lets_pass(filter) {
                    return refuse(format!(
                        "What the filter at pref {} passes would not go to {name}, and here all that comes in at {dev} does: end it with drop or continue, or assign its packets to a class of {name}.",
                        filter.pref
                    ));
                }
                continue;
            };
            if target != to {
                return refuse(format!(
                    "The ingress of {dev} is redirected to {name} already: all of it leaves at one port, so one device can shape it, not {}, too.",
                    target.as_str()
                ));
            }
            if !is_intermediate(name) {
                return refuse(format!(
                    "{name} is no ifb: what comes in at {dev} leaves at the other port, whatever a filter says. To shape it, redirect it to ifb0 and give that qdiscs, or give them to the other port."
                ));
            }
            if !matches_all(filter) || !self.is_whole(filter) {
                return refuse(format!(
                    "Only a part of the packets would go to {name}, and a qdisc here gets all that leaves at a port: let the filter match everything (u32 match u32 0 0, or matchall), and choose classes by filters at {name}."
                ));
            }
            has_redirected = true;
        }
        Ok(())
    }

    /// Whether `filter` ends the search for packets that are not dropped.
    fn lets_pass(&self, filter: &Filter) -> bool {
        let passes = |fates: &[Control; 2]| {
            fates.iter().any(|fate| matches!(fate, Control::Pass | Control::Jump(_)))
        };
        // After the last action that pipes, a packet passes.
        let mut controls = self.actions_of(filter).map(Action::controls);
        let end = controls.find(|fates| passes(fates) || !fates.contains(&Control::Pipe));
        end.is_none_or(|fates| passes(&fates))
    }

    /// Whether each packet that `filter` matches is redirected or dropped.
    fn is_whole(&self, filter: &Filter) -> bool {
        let before = self.actions_of(filter);
        let before = before.take_while(|action| !matches!(action, Action::Mirred(_)));
        let mut controls = before.flat_map(Action::controls);
        controls.all(|control| matches!(control, Control::Pipe | Control::Drop))
    }
}

/// Whether `filter` matches all packets of its protocol, which is any, IPv4 or IPv6.
fn matches_all(filter: &Filter) -> bool {
    let all = match &filter.matches {
        Matches::All | Matches::Basic(None) => true,
        Matches::Words(words) => words.iter().all(|word| word.mask == 0),
        Matches::Flower(flower) => *flower == Flower::default(),
        _ => false,
    };
    all && [ANY_PROTOCOL, IPV4, IPV6].contains(&filter.protocol)
}
