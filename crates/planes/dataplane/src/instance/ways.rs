//! What an instance that routes or switches does besides: it looks whether the kernel would see
//! more than its programs do, has them follow the kernel, and has the kernel confirm neighbours.

use super::{Instance, InstanceOptions};
use crate::clock;
use crate::error::InstanceError;
use crate::routing::Routing;
use crate::ways::Ways;
use narrows_bpf::Asks;
use narrows_classify::Route;
use narrows_link::netfilter::{self, Hooks};
use narrows_link::{LinkError, LinkEvent, neighbours};
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
    /// Why a router must not route, or a switch not switch: netfilter or IPsec would not see what
    /// it forwards.
    pub(super) fn passed_by(&mut self) -> Option<InstanceError> {
        let InstanceOptions { forwarding, skip_netfilter, .. } = &self.options;
        if forwarding.is_paired() || *skip_netfilter {
            return None;
        }
        let devices: Vec<&str> = forwarding.devices().iter().map(String::as_str).collect();
        let (hooks, refused): (Result<Hooks, LinkError>, fn(String) -> InstanceError) =
            match forwarding.is_switch() {
                true => (netfilter::bridge_hooks(&devices), InstanceError::BridgeNetfilter),
                false => (netfilter::routed_hooks(&devices), InstanceError::Netfilter),
            };
        match hooks {
            Ok(hooks) if hooks.found.is_empty() => {
                if !hooks.complete && !self.hooks_are_unlisted {
                    self.events.warn(UNLISTED.to_owned());
                }
                self.hooks_are_unlisted = !hooks.complete;
                None
            }
            Ok(hooks) => Some(refused(hooks.found.join(", "))),
            Err(error) => Some(error.into()),
        }
    }

    /// Releases the ports of a router or a switch once netfilter or IPsec would not see what it
    /// forwards.
    pub(super) fn watch_netfilter(&mut self) {
        if self.plane.is_some()
            && let Some(error) = self.passed_by()
        {
            self.events.warn(error.to_string());
            self.close(true);
            self.waiting_for = Some(error.to_string());
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
