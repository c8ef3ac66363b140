//! `narrows route`: what programs know of the kernel's routes, beside what the kernel says.

use super::Instance;
use crate::routes::State;
use crate::ways::Ways;
use narrows_bpf::{AskFib, FibAnswer};
use narrows_control::{Answer, FamilyStats, RouteFound, RouteRequest, RouteStats, RouteWay};
use narrows_link::routes::{Answer as KernelAnswer, Question, get, links};
use narrows_routes::{Family, bits_of};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

/// What the kernel's look-up says if it does not route: `BPF_FIB_LKUP_RET_…` of `linux/bpf.h`.
const HELPER_SAYS: [&str; 9] = [
    "routed",
    "blackhole",
    "unreachable",
    "prohibited",
    "for this host, or no route",
    "the interface does not forward",
    "encapsulated",
    "the MAC address of the next hop is not known",
    "too long",
];

/// A question about routes, with what is needed to answer it. The answer may have to wait for a
/// listing.
pub(crate) struct RouteQuestion {
    asked: RouteRequest,
    state: Arc<Mutex<State>>,
    /// The indices of the ports' devices and of their VLANs'.
    interfaces: Vec<u32>,
    /// By family, whether programs look into its table.
    may_use: [bool; 2],
}

impl Instance {
    /// Prepares to answer a question about routes; or says why there is no answer.
    pub(crate) fn about_routes(&self, asked: &RouteRequest) -> Result<RouteQuestion, String> {
        if !self.options.forwarding.is_router() {
            let why = "this instance does not route: start one with `narrows run --router`";
            return Err(why.to_owned());
        }
        let plane = self.plane.as_deref();
        let plane = plane.ok_or("the ports are not joined at the moment: see `narrows show`")?;
        let routing = plane.ways().and_then(Ways::routing).ok_or("this plane does not route")?;
        let routes = routing.routes();
        let routes = routes.ok_or("there is no table of routes (see the log)")?;
        Ok(RouteQuestion {
            asked: asked.clone(),
            state: routes.state(),
            interfaces: routing.interfaces().collect(),
            may_use: Family::ALL.map(|family| routing.may_use_table(family)),
        })
    }
}

impl RouteQuestion {
    /// The answer, as of all that the kernel has announced.
    pub(crate) fn answer(self) -> Answer {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.catch_up();
        match &self.asked {
            RouteRequest::Stats => Answer::RouteStats(self.stats(&state)),
            RouteRequest::Get { to, from } => match self.found(&state, *to, from.as_ref()) {
                Ok(found) => Answer::RouteFound(Box::new(found)),
                Err(why) => Answer::Refused(why),
            },
        }
    }

    fn stats(&self, state: &State) -> RouteStats {
        let State { follower, tables } = state;
        let of_family = |family| FamilyStats {
            family: match family {
                Family::V4 => "inet".to_owned(),
                Family::V6 => "inet6".to_owned(),
            },
            prefixes: follower.mirror().prefixes(family),
            bytes: tables.bytes(family),
            in_use: self.may_use[family as usize] && tables.find(family, 0).is_some(),
        };
        let families = Family::ALL.into_iter().map(of_family).collect();
        RouteStats { families, next_hops: follower.mirror().hops() }
    }

    fn found(
        &self,
        state: &State,
        to: IpAddr,
        from: Option<&(IpAddr, String)>,
    ) -> Result<RouteFound, String> {
        let links = links().map_err(|error| error.to_string())?;
        let name = |ifindex: u32| match links.iter().find(|link| link.ifindex == ifindex) {
            Some(link) => link.name.clone(),
            None => format!("if{ifindex}"),
        };
        let at = match from {
            Some((source, _)) if source.is_ipv4() != to.is_ipv4() => {
                return Err(format!("{source} and {to} are of two families"));
            }
            Some((source, dev)) => {
                let ifindex = self.interfaces.iter().find(|ifindex| name(**ifindex) == *dev);
                let ifindex = ifindex.ok_or_else(|| {
                    let names: Vec<String> = self.interfaces.iter().map(|it| name(*it)).collect();
                    let names = names.join(", ");
                    format!("\"{dev}\" is no interface of this router: it has {names}")
                })?;
                Some((*source, *ifindex))
            }
            None => None,
        };
        let unspecified = match to {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let first = self.interfaces.first().copied().unwrap_or(0);
        let (source, ifindex) = at.unwrap_or((unspecified, first));
        let failed = |error: &dyn std::fmt::Display| format!("the kernel does not answer: {error}");
        let program = AskFib::load().map_err(|error| failed(&error))?;
        let helper = program.ask(source, to, ifindex).map_err(|error| failed(&error))?;
        let kernel = get(&Question { to, from: at }).map_err(|error| failed(&error))?;
        let table = self.table(state, to);
        let table = match table {
            Ok((ifindex, via, mac)) => RouteWay {
                dev: Some(name(ifindex)),
                via: Some(via),
                lladdr: Some(written(mac)),
                says: None,
            },
            Err(why) => RouteWay { says: Some(why.to_owned()), ..RouteWay::default() },
        };
        let helper = match helper {
            FibAnswer::Leaves { ifindex, mac } => RouteWay {
                dev: Some(name(ifindex)),
                lladdr: Some(written(mac)),
                ..RouteWay::default()
            },
            FibAnswer::Not(said) => {
                let says = HELPER_SAYS.get(said as usize).copied().unwrap_or("another answer");
                RouteWay { says: Some(says.to_owned()), ..RouteWay::default() }
            }
        };
        let kernel = match kernel {
            KernelAnswer::Leaves { ifindex, gateway, .. } => RouteWay {
                dev: Some(name(ifindex)),
                via: Some(gateway.unwrap_or(to)),
                ..RouteWay::default()
            },
            KernelAnswer::Local => {
                RouteWay { says: Some("for this host".to_owned()), ..RouteWay::default() }
            }
            KernelAnswer::Refused(errno) => {
                let why = std::io::Error::from_raw_os_error(errno);
                RouteWay { says: Some(why.to_string()), ..RouteWay::default() }
            }
        };
        // A table that says nothing leaves it to the helper.
        let agree = table.says.is_some()
            || (table.dev == helper.dev && table.lladdr == helper.lladdr)
                && (table.dev == kernel.dev && table.via == kernel.via);
        Ok(RouteFound { table, helper, kernel, agree })
    }

    /// What programs find in the table: the device, the gateway, and the MAC address.
    fn table(&self, state: &State, to: IpAddr) -> Result<(u32, IpAddr, [u8; 6]), &'static str> {
        let State { follower, tables } = state;
        let family = if to.is_ipv4() { Family::V4 } else { Family::V6 };
        let found = tables.find(family, bits_of(to)).filter(|_| self.may_use[family as usize]);
        let (number, hop) = found.ok_or("not in use: the kernel is asked for all routes")?;
        match follower.mirror().gateway(number).zip(hop) {
            Some(((ifindex, gateway), hop)) => Ok((ifindex, gateway, hop.destination)),
            None => Err("the kernel is asked: no plain route to a known next hop behind a port"),
        }
    }
}

fn written(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
