//! `narrows route`: what programs know of the kernel's routes, beside what the kernel says.

use super::Instance;
use crate::plane::Plane;
use crate::routes::State;
use crate::routing::Routing;
use crate::ways::Ways;
use narrows_bpf::{AskFib, FibAnswer};
use narrows_control::{Answer, FamilyStats, RouteFound, RouteRequest, RouteStats, RouteWay};
use narrows_link::routes::{Answer as KernelAnswer, Question, get, links};
use narrows_routes::{Family, bits_of};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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

impl Instance {
    /// Answers a question about routes.
    pub(crate) fn answer_about_routes(&self, asked: &RouteRequest) -> Answer {
        let refused = |why: &str| Answer::Refused(why.to_owned());
        if !self.options.forwarding.is_router() {
            return refused("this instance does not route: start one with `narrows run --router`");
        }
        let Some(plane) = self.plane.as_deref() else {
            return refused("the ports are not joined at the moment: see `narrows show`");
        };
        let Some(routing) = plane.ways().and_then(Ways::routing) else {
            return refused("this plane does not route");
        };
        let Some(routes) = routing.routes() else {
            return refused("there is no table of routes (see the log): programs ask the kernel");
        };
        let Some(state) = routes.state() else {
            return refused("routes are being listed: try again in a moment");
        };
        match asked {
            RouteRequest::Stats => Answer::RouteStats(stats(routing, &state)),
            RouteRequest::Get { to, from } => {
                match found(plane, routing, &state, *to, from.as_ref()) {
                    Ok(found) => Answer::RouteFound(Box::new(found)),
                    Err(why) => Answer::Refused(why),
                }
            }
        }
    }
}

fn stats(routing: &Routing, state: &State) -> RouteStats {
    let State { follower, tables } = state;
    let of_family = |family| FamilyStats {
        family: match family {
            Family::V4 => "inet".to_owned(),
            Family::V6 => "inet6".to_owned(),
        },
        prefixes: follower.mirror().prefixes(family),
        bytes: tables.bytes(family),
        in_use: routing.may_use_table(family) && tables.find(family, 0).is_some(),
    };
    let families = Family::ALL.into_iter().map(of_family).collect();
    RouteStats { families, next_hops: follower.mirror().hops() }
}

fn found(
    plane: &dyn Plane,
    routing: &Routing,
    state: &State,
    to: IpAddr,
    from: Option<&(IpAddr, String)>,
) -> Result<RouteFound, String> {
    let devices = plane.devices();
    let known: Vec<(u32, &str)> = devices.iter().map(|it| (it.ifindex, &*it.name)).collect();
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
            let device = known.iter().find(|(_, name)| name == dev);
            let ports: Vec<&str> = known.iter().map(|(_, name)| *name).collect();
            let (ifindex, _) = device.ok_or_else(|| {
                format!("\"{dev}\" is no port of this router: it has {}", ports.join(", "))
            })?;
            Some((*source, *ifindex))
        }
        None => None,
    };
    let unspecified = match to {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let first = known.first().map_or(0, |(ifindex, _)| *ifindex);
    let (source, ifindex) = at.unwrap_or((unspecified, first));
    let failed = |error: &dyn std::fmt::Display| format!("the kernel does not answer: {error}");
    let program = AskFib::load().map_err(|error| failed(&error))?;
    let helper = program.ask(source, to, ifindex).map_err(|error| failed(&error))?;
    let kernel = get(&Question { to, from: at }).map_err(|error| failed(&error))?;
    let table = table(routing, state, to);
    let by_port = |port: u8| known.get(usize::from(port)).map(|(_, name)| (*name).to_owned());
    let table = match table {
        Ok((via, port, mac)) => {
            RouteWay { dev: by_port(port), via, lladdr: Some(written(mac)), says: None }
        }
        Err(why) => RouteWay { says: Some(why.to_owned()), ..RouteWay::default() },
    };
    let helper = match helper {
        FibAnswer::Leaves { ifindex, mac } => {
            RouteWay { dev: Some(name(ifindex)), lladdr: Some(written(mac)), ..RouteWay::default() }
        }
        FibAnswer::Not(said) => {
            let says = HELPER_SAYS.get(said as usize).copied().unwrap_or("another answer");
            RouteWay { says: Some(says.to_owned()), ..RouteWay::default() }
        }
    };
    let kernel = match kernel {
        KernelAnswer::Leaves { ifindex, gateway } => RouteWay {
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

/// What programs find in the table: the gateway, the port, and the MAC address.
fn table(
    routing: &Routing,
    state: &State,
    to: IpAddr,
) -> Result<(Option<IpAddr>, u8, [u8; 6]), &'static str> {
    let State { follower, tables } = state;
    let family = if to.is_ipv4() { Family::V4 } else { Family::V6 };
    let found = tables.find(family, bits_of(to)).filter(|_| routing.may_use_table(family));
    let (number, hop) = found.ok_or("not in use: the kernel is asked for all routes")?;
    let gateway = follower.mirror().gateway(number).map(|(_, gateway)| gateway);
    match hop {
        Some(hop) => Ok((gateway, hop.port, hop.destination)),
        None => Err("the kernel is asked: no plain route to a known next hop behind a port"),
    }
}

fn written(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
