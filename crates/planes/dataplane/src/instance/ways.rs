//! What an instance that routes or switches does besides: it looks whether the kernel would see
//! more than its programs do, has them follow the kernel, and has the kernel confirm neighbours.

use super::{Instance, InstanceOptions};
use crate::clock;
use crate::error::InstanceError;
use crate::routing::Routing;
use crate::ways::Ways;
use narrows_bpf::{Asks, RoutedBy};
use narrows_classify::Route;
use narrows_link::{LinkEvent, neighbours, netfilter};
use narrows_policy::Policy;
use narrows_units::Nanos;
use std::time::Duration;

/// How often stale neighbours are confirmed. An entry becomes stale after 15 to 45 seconds.
const CONFIRMATION: Nanos = Nanos::from_secs(10);

/// How long the first listing of routes may take before a process takes over from another. A full
/// table takes two seconds.
const LISTING: Duration = Duration::from_secs(5);

const UNLISTED: &str = "the kernel does not list all that packets would pass by \
    (CONFIG_NETFILTER_NETLINK_HOOK, CAP_NET_ADMIN): see yourself that there is no firewall for them";

/// What the filters of `policy` ask of the routes that packets take.
pub(super) fn asks(policy: &Policy) -> Asks {
    let of = |route: Route| if route.from.is_some() { Asks::Source } else { Asks::Route };
    policy.asked_routes().map(of).max().unwrap_or_default()
}

/// Waits until a router's programs know the realms of routes, if filters of `policy` ask for them.
pub(super) fn wait_for_realms(policy: &Policy, ways: Option<&Ways>) {
    let mut asked = policy.asked_routes();
    let routes = ways.and_then(Ways::routing).and_then(Routing::routes);
    if let Some(routes) = routes.filter(|_| asked.any(|route| route.metric.is_none())) {
        routes.wait_until_listed(LISTING);
    }
}

impl Instance {
    /// By what a router may route, or whether a switch may switch.
    ///
    /// # Errors
    /// If netfilter or IPsec would not see what it forwards.
    pub(super) fn may_forward(&mut self) -> Result<RoutedBy, InstanceError> {
        let InstanceOptions { forwarding, skip_netfilter, .. } = &self.options;
        if !forwarding.is_chosen() || *skip_netfilter {
            return Ok(RoutedBy::Routes);
        }
        let devices: Vec<&str> = forwarding.devices().iter().map(String::as_str).collect();
        let hooks = match forwarding.is_switch() {
            true => netfilter::bridge_hooks(&devices)?,
            false => netfilter::routed_hooks(&devices)?,
        };
        let found = hooks.found.join(", ");
        if found.is_empty() {
            if !hooks.complete && !self.hooks_are_unlisted {
                self.events.warn(UNLISTED.to_owned());
            }
            self.hooks_are_unlisted = !hooks.complete;
            Ok(RoutedBy::Routes)
        } else if forwarding.is_switch() {
            Err(InstanceError::BridgeNetfilter(found))
        } else if let Some(flowtable) = hooks.flows() {
            if self.routed_by != RoutedBy::Flows {
                self.events.say(format!(
                    "routes only connections in the flowtable {flowtable}, and leaves all others \
                     to the kernel, which has {found}"
                ));
            }
            Ok(RoutedBy::Flows)
        } else {
            let remedy = hooks.remedy(&devices).unwrap_or_default();
            Err(InstanceError::Netfilter { found, remedy })
        }
    }

    /// Releases the ports of a router or a switch once netfilter or IPsec would not see what it
    /// forwards. Those of a router that is to route otherwise are joined again at once.
    pub(super) fn watch_netfilter(&mut self) {
        if self.plane.is_none() {
            return;
        }
        let before = self.routed_by;
        match self.may_forward() {
            Ok(by) if by == before => {}
            Ok(by) => {
                if by == RoutedBy::Routes {
                    self.events.say("no rule sees routed packets any more".to_owned());
                }
                self.routed_by = by;
                self.close(true);
            }
            Err(error) => {
                self.routed_by = RoutedBy::Routes;
                self.events.warn(error.to_string());
                self.close(true);
                self.waiting_for = Some(error.to_string());
            }
        }
    }

    /// Lets a router's programs follow the kernel after an event that concerns them. Those of a
    /// switch do at all times.
    pub(super) fn follow(&mut self, event: &LinkEvent) {
        let Some(plane) = &mut self.plane else { return };
        let routing = plane.ways().and_then(Ways::routing);
        if routing.is_some_and(|routing| routing.concerns(event))
            && let Err(error) = plane.follow()
        {
            self.events.warn(error.to_string());
        }
    }

    /// Has a router's programs find out what filters ask of routes.
    pub(super) fn ask(&mut self, asks: Asks) {
        if let Some(Err(error)) = self.plane.as_mut().map(|plane| plane.ask(asks)) {
            self.events.warn(error.to_string());
        }
    }

    /// Says what a switch's programs do not know, if that is new.
    pub(super) fn see_unknown(&mut self) {
        let ways = self.plane.as_ref().and_then(|plane| plane.ways());
        let unknown = ways.and_then(Ways::trouble);
        match &unknown {
            Some(now) if self.unknown.is_none() => self.events.warn(now.clone()),
            None if self.unknown.is_some() => {
                self.events.say("the programs know the bridge again".to_owned());
            }
            _ => {}
        }
        self.unknown = unknown;
    }

    /// Has the kernel confirm neighbours to which only a router's programs send.
    pub(super) fn confirm_neighbours(&mut self) {
        let now = clock::now();
        let ways = self.plane.as_ref().and_then(|plane| plane.ways());
        let Some(routing) = ways.and_then(Ways::routing) else { return };
        if now.since(self.neighbours_confirmed) < CONFIRMATION {
            return;
        }
        self.neighbours_confirmed = now;
        let interfaces: Vec<u32> = routing.interfaces().collect();
        match neighbours::use_stale(&interfaces) {
            Ok(used) => log::debug!("{used} stale neighbours are to be confirmed"),
            Err(error) => self.events.warn(error.to_string()),
        }
    }
}
