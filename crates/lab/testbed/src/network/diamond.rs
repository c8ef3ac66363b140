//! The other testbed: four routers between two hosts, with a fast path and a slow one.
//!
//! ```text
//!                          ┌─────── fast ───────┐
//!  west ─────────── left ──┤                    ├── right ─────────── east
//!                          └─────── slow ───────┘
//! ```
//!
//! Each router runs [BIRD](crate::bird), which speaks BGP and prefers the fast path: all traffic
//! takes it while its links are up. What routes in each namespace is the kernel, until Narrows
//! does.
//!
//! Principles:
//!
//! - *A device has the name of what is behind it.* `fast` in the namespace `left` is the end of the
//!   cable whose other end is `left` in the namespace `fast`.
//! - *Both families.* Each cable has a network of each.
//! - *Nothing outlives its owner*, as with a [bed](crate::bed).
//!
//! Non-goals: other topologies; delays or losses of a cable.

use crate::bed::{End, OFFLOADS, batch};
use crate::bird::{Bird, Config, Neighbour};
use crate::folder::Folder;
use crate::guard::Guard;
use crate::namespace::Namespace;
use crate::process::run_with;
use crate::requirements::{self, BIRD, ETHTOOL, IP};
use crate::stale;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How much routes are liked that come by the fast path.
const FAST: u32 = 200;
/// And by the slow path.
const SLOW: u32 = 100;
/// How long a change of routes may take: BGP's patience, and more than that on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// How often it is looked for.
const LOOK: Duration = Duration::from_millis(20);
/// How the folders of daemons are named.
const FOLDER: &str = "nrw-bird-";

/// Numbers the diamonds of this process.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// A host or a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// A host at one end.
    West,
    /// Its router.
    Left,
    /// The router of the fast path.
    Fast,
    /// The router of the slow path.
    Slow,
    /// The router of the other host.
    Right,
    /// A host at the other end.
    East,
}

use Node::{East, Fast, Left, Right, Slow, West};

/// All of them, in the order of the namespaces.
const NODES: [Node; 6] = [West, Left, Fast, Slow, Right, East];
/// Those that route, in the order of the daemons.
const ROUTERS: [Node; 4] = [Left, Fast, Slow, Right];
/// The cables. The number of each is in its addresses.
const CABLES: [(Node, Node); 6] =
    [(West, Left), (Left, Fast), (Left, Slow), (Fast, Right), (Slow, Right), (Right, East)];

impl Node {
    /// What devices are called that lead there.
    pub const fn name(self) -> &'static str {
        match self {
            West => "west",
            Left => "left",
            Fast => "fast",
            Slow => "slow",
            Right => "right",
            East => "east",
        }
    }

    /// The devices of a router, as `narrows run --router` takes them.
    pub fn ports(self) -> String {
        neighbours(self).map(Self::name).collect::<Vec<_>>().join(",")
    }

    const fn is_host(self) -> bool {
        matches!(self, West | East)
    }
}

/// Who is at the other ends of the cables of `node`.
fn neighbours(node: Node) -> impl Iterator<Item = Node> {
    CABLES.into_iter().filter_map(move |(a, b)| match node {
        _ if node == a => Some(b),
        _ if node == b => Some(a),
        _ => None,
    })
}

/// The addresses of `node` on the cable to `other`; none if there is no cable.
fn addresses(node: Node, other: Node) -> Option<(Ipv4Addr, Ipv6Addr)> {
    let (number, end) = (1..).zip(CABLES).find_map(|(number, cable)| match cable {
        _ if cable == (node, other) => Some((number, 1)),
        _ if cable == (other, node) => Some((number, 2)),
        _ => None,
    })?;
    Some((
        Ipv4Addr::new(10, 9, number, end),
        Ipv6Addr::new(0xfd09, 0, 0, u16::from(number), 0, 0, 0, u16::from(end)),
    ))
}

/// Networks that routers announce on demand: the router, the name of the set, and the prefixes.
pub type Announced = (Node, &'static str, Vec<String>);

/// The diamond, with a daemon at work in each router. Removed when dropped, or when this process
/// ends in any other way.
#[derive(Debug)]
pub struct Diamond {
    namespaces: Vec<Namespace>,
    birds: Vec<Bird>,
    folder: Folder,
    // Last, so that it is dropped after everything above.
    _guard: Guard,
}

impl Diamond {
    /// Builds it with `queues` queues for each device, after sweeping away [what is
    /// stale](crate::stale), and waits until the hosts reach each other by the fast path.
    pub fn up(queues: u32, announced: &[Announced]) -> Result<Self> {
        requirements::check(&[IP, ETHTOOL, BIRD])?;
        stale::sweep()?;
        let tag = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let names = stale::OF_DIAMONDS.map(|prefix| format!("{prefix}{tag}"));
        let guard = Guard::over(&names.each_ref().map(String::as_str))?;
        let namespaces =
            names.iter().map(|name| Namespace::create(name)).collect::<Result<Vec<_>>>()?;
        let folder = Folder::make(FOLDER, &tag)?;
        let mut diamond = Self { namespaces, birds: Vec::new(), folder, _guard: guard };
        diamond.connect(queues)?;
        for node in ROUTERS {
            let bird = Bird::start(
                diamond.namespace(node),
                diamond.folder.path(),
                &config(node, announced)?,
            )?;
            diamond.birds.push(bird);
        }
        diamond.wait_for_path(Fast)?;
        Ok(diamond)
    }

    /// The namespace of `node`.
    pub fn namespace(&self, node: Node) -> &Namespace {
        &self.namespaces[node as usize]
    }

    /// The daemon of a router.
    pub fn bird(&self, router: Node) -> Result<&Bird> {
        let place = ROUTERS.iter().position(|node| *node == router);
        place.map(|place| &self.birds[place]).with_context(|| format!("{router:?} does not route"))
    }

    /// A host, as the source or destination of traffic.
    pub fn end(&self, host: Node) -> Result<End<'_>> {
        let router = neighbours(host).next().filter(|_| host.is_host());
        let router = router.with_context(|| format!("{host:?} is no host"))?;
        let (ip, _) = addresses(host, router).context("a host has a cable")?;
        Ok(End { namespace: self.namespace(host), device: router.name(), ip })
    }

    /// The address of a host in the other family.
    pub fn ip6(&self, host: Node) -> Result<Ipv6Addr> {
        let cable = neighbours(host).find_map(|router| addresses(host, router));
        cable.map(|(_, ip6)| ip6).context("a host has a cable")
    }

    /// Takes the end of a cable down, or up again: the other end loses its carrier.
    pub fn set_link(&self, node: Node, to: Node, is_up: bool) -> Result<()> {
        let state = if is_up { "up" } else { "down" };
        self.namespace(node).run("ip", &["link", "set", to.name(), state]).map(drop)
    }

    /// Waits until both hosts' routers send to the other host by `router`, in both families.
    pub fn wait_for_path(&self, router: Node) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let ways = self.ways()?;
            if ways.iter().all(|way| way.as_deref() == Some(router.name())) {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let logs: Vec<String> = self.birds.iter().map(Bird::log).collect();
                bail!("no path by {router:?} within {PATIENCE:?}: {ways:?}\n{}", logs.join("\n"));
            }
            sleep(LOOK);
        }
    }

    /// The devices by which the hosts' routers send to the other host now.
    fn ways(&self) -> Result<Vec<Option<String>>> {
        let mut ways = Vec::new();
        for (router, from, to) in [(Left, West, East), (Right, East, West)] {
            let to = [IpAddr::V4(self.end(to)?.ip), IpAddr::V6(self.ip6(to)?)];
            ways.extend(self.routes(router, from, &to)?);
        }
        Ok(ways)
    }

    /// Where the kernel of `router` sends what comes from the host `from` for each of `addresses`:
    /// the device, or nothing without a route.
    pub fn routes(
        &self,
        router: Node,
        from: Node,
        addresses: &[IpAddr],
    ) -> Result<Vec<Option<String>>> {
        #[derive(Deserialize)]
        struct Route {
            dst: IpAddr,
            dev: Option<String>,
        }
        let mut lines = String::new();
        for address in addresses {
            let source = match address {
                IpAddr::V4(_) => IpAddr::V4(self.end(from)?.ip),
                IpAddr::V6(_) => IpAddr::V6(self.ip6(from)?),
            };
            let _ = writeln!(lines, "route get {address} from {source} iif {}", from.name());
        }
        // If there is no route for one of them, it complains, goes on, and fails.
        let mut ip = self.namespace(router).command("sh");
        let said = run_with(ip.args(["-c", "ip -j -force -batch - 2>&-; true"]), &lines)?;
        let mut found = Vec::new();
        for line in said.lines().filter(|line| !line.trim().is_empty()) {
            let routes: Vec<Route> =
                serde_json::from_str(line).with_context(|| format!("ip says: {line}"))?;
            found.extend(routes);
        }
        let way = |address: &IpAddr| {
            let route = found.iter().find(|route| route.dst == *address);
            route.and_then(|route| route.dev.clone())
        };
        Ok(addresses.iter().map(way).collect())
    }

    fn connect(&self, queues: u32) -> Result<()> {
        for namespace in &self.namespaces {
            // No packet waits for an address that might be someone else's.
            namespace.set("ipv6/conf/default/accept_dad", "0")?;
            // A link that goes down and up again is as before.
            namespace.set("ipv6/conf/default/keep_addr_on_down", "1")?;
            for scope in ["all", "default"] {
                namespace.set(&format!("ipv4/conf/{scope}/rp_filter"), "0")?;
            }
        }
        for router in ROUTERS {
            self.namespace(router).set("ipv4/ip_forward", "1")?;
            self.namespace(router).set("ipv6/conf/all/forwarding", "1")?;
        }
        let queues = format!("numtxqueues {queues} numrxqueues {queues}");
        let mut lines = String::new();
        for (a, b) in CABLES {
            let [at_a, at_b] = [a, b].map(|node| self.namespace(node).name());
            let _ = writeln!(
                lines,
                "link add name {} netns {at_a} {queues} type veth peer name {} netns {at_b} \
                 {queues}",
                b.name(),
                a.name()
            );
        }
        batch(&[], &lines)?;
        for node in NODES {
            let mut lines = "link set lo up\n".to_owned();
            for other in neighbours(node) {
                let device = other.name();
                let arguments: Vec<&str> = ["-K", device].into_iter().chain(OFFLOADS).collect();
                self.namespace(node).run("ethtool", &arguments)?;
                let ours = addresses(node, other).context("neighbours have a cable")?;
                let theirs = addresses(other, node).context("neighbours have a cable")?;
                let _ = write!(
                    lines,
                    "link set {device} up\n\
                     addr add {}/24 dev {device}\n\
                     addr add {}/64 dev {device} nodad\n",
                    ours.0, ours.1
                );
                if node.is_host() {
                    let _ = write!(
                        lines,
                        "route add default via {}\nroute add default via {}\n",
                        theirs.0, theirs.1
                    );
                }
            }
            batch(&["-n", self.namespace(node).name()], &lines)?;
        }
        Ok(())
    }
}

/// What the daemon of `router` is told.
fn config(router: Node, announced: &[Announced]) -> Result<Config> {
    let (hosts, routers): (Vec<Node>, Vec<Node>) = neighbours(router).partition(|n| n.is_host());
    let session = |other: Node| {
        let ours = addresses(router, other).context("neighbours have a cable")?;
        let theirs = addresses(other, router).context("neighbours have a cable")?;
        Ok(Neighbour {
            device: other.name(),
            id: other as u8,
            addresses: [[ours.0.into(), theirs.0.into()], [ours.1.into(), theirs.1.into()]],
            preference: if [router, other].contains(&Slow) { SLOW } else { FAST },
        })
    };
    Ok(Config {
        id: router as u8,
        neighbours: routers.into_iter().map(session).collect::<Result<_>>()?,
        hosts: hosts.into_iter().map(Node::name).collect(),
        announced: announced
            .iter()
            .filter(|(node, _, _)| *node == router)
            .map(|(_, name, prefixes)| (*name, prefixes.clone()))
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_a_cable_are_in_one_network() {
        let (left, right) = (addresses(Left, Fast).unwrap(), addresses(Fast, Left).unwrap());
        assert_eq!(left.0.to_string(), "10.9.2.1");
        assert_eq!(right.0.to_string(), "10.9.2.2");
        assert_eq!(left.1.to_string(), "fd09:0:0:2::1");
        assert_eq!(right.1.to_string(), "fd09:0:0:2::2");
        assert_eq!(addresses(West, East), None);
    }

    #[test]
    fn a_router_has_a_port_for_each_neighbour_and_tells_its_daemon() {
        assert_eq!(Left.ports(), "west,fast,slow");
        assert_eq!(Slow.ports(), "left,right");
        let announced = [(Slow, "many", vec!["10.128.0.0/24".to_owned()])];
        let config = |router| super::config(router, &announced).unwrap();
        let liked = |router| {
            let sessions = config(router).neighbours.into_iter();
            sessions.map(|session| (session.device, session.preference)).collect::<Vec<_>>()
        };
        assert_eq!(liked(Left), [("fast", FAST), ("slow", SLOW)]);
        assert_eq!(liked(Slow), [("left", SLOW), ("right", SLOW)]);
        assert_eq!(config(Left).hosts, ["west"]);
        assert!(config(Slow).hosts.is_empty() && config(Fast).announced.is_empty());
        assert_eq!(config(Slow).announced[0].0, "many");
    }
}
