//! The checks of a cell, in order. Each leaves Narrows running and the ports unchanged, except
//! those at the end: `stop`, and the checks of the XDP plane, of the stick, of the router, of the
//! switch, of a host's port and of libxdp's dispatcher, which start and stop instances of their
//! own.

mod balance;
mod behind_nat;
mod beside_floods;
mod departures;
mod dispatcher;
mod exchange;
mod flows;
mod following;
mod front;
mod host_patterns;
mod host_plane;
mod host_port;
mod netkit;
mod policing;
mod routed_vlans;
mod router;
mod small_box;
mod stick;
mod switch;

use super::Verdict::{self, Passed, Skipped};
use super::bed::{Bed, End, PORTS, Ring, ip};
use super::shaper::{self, Shaper, bounded, narrows};
use super::traffic::{HEADERS, ping, transfer, wait_for_ping};
use crate::architecture::Architecture;
use anyhow::{Context, Result, bail, ensure};
use narrows_units::counted;
use serde_json::Value;
use std::fs;
use std::process::Command;
use std::time::Duration;

/// How long traffic may take to resume after a start or a change: some drivers renegotiate their
/// link, for 2 to 3 s.
const SETTLE: Duration = Duration::from_secs(20);
/// The usual MTU.
const MTU: u32 = 1500;
/// MTUs above it, the largest first.
const JUMBO: [u32; 3] = [9000, 3000, 2000];
/// Another MTU, for a change at run time.
const OTHER_MTU: u32 = 1400;
/// The limit, in Mbit/s, and the range of a TCP flow's payload rate: the limit minus headers and
/// some time to find the rate.
const LIMIT: u32 = 5;
/// A shaper with that limit.
const TBF: &str = "rate 5mbit burst 16k latency 50ms";
const DELIVERED: std::ops::RangeInclusive<f64> = 3.5..=5.0;

/// The words that choose each plane.
const WORKERS: &[&str] = &[];
const XDP_PLANE: &[&str] = &["--plane", "xdp"];
/// Payload of a small ping, in bytes.
const SMALL: u32 = 56;
/// Where the two flows of a flood go, and the offered rate of each, in Mbit/s.
const DESTINATIONS: [u16; 2] = [5010, 5020];
const OFFERED: f64 = 4.0;
/// What arrives of both, in Mbit/s: under a limit of 5, and without one.
const LIMITED: std::ops::RangeInclusive<f64> = 4.7..=5.2;
const FREE: f64 = 7.5;

/// A check.
pub type CheckFunction = fn(&mut Lab) -> Result<Verdict>;

/// The checks of every driver.
const ALL: &[(&str, CheckFunction)] = &[
    ("doctor", doctor),
    ("start", start),
    ("ping", small_pings),
    ("full size", full_size_pings),
    ("VLAN", tagged_pings),
    ("cake", tcp_under_cake),
    ("tbf", tcp_under_tbf),
    ("filters", front::filters),
    ("books", books),
    ("jumbo", jumbo),
    ("queues", other_queues),
    ("rings", longest_rings),
    ("MTU", other_mtu),
    ("flap", link_flap),
    ("unbind", driver_unbind),
    ("kill -9", kill),
    ("restart", restart),
    ("nat", nat),
    ("upgrade", upgrade),
    ("stop", stop),
    ("xdp plane", policing::rates),
    ("xdp kill -9", policing::kill),
    XDP_AUTORATE,
    STICK,
];
/// What else there is of the stick: drivers whose cards take tags out of frames, or have queues of
/// their own for what the XDP plane sends, and one without hardware.
const OF_STICK: &[(&str, CheckFunction)] =
    &[STICK_UNBIND, STICK_KILLED, STICK_XDP, STICK_XDP_KILLED];
const XDP_AUTORATE: (&str, CheckFunction) = ("xdp autorate", following::in_driver);
const STICK: (&str, CheckFunction) = ("stick", stick::workers);
const STICK_UNBIND: (&str, CheckFunction) = ("stick unbind", stick::unbind);
const STICK_KILLED: (&str, CheckFunction) = ("stick kill -9", stick::kill);
const STICK_XDP: (&str, CheckFunction) = ("stick xdp plane", stick::xdp_plane);
const STICK_XDP_KILLED: (&str, CheckFunction) = ("stick xdp kill -9", stick::xdp_kill);
const DRIVERS_OF_STICK: [&str; 3] = ["igb", "virtio_net", "veth"];
/// The router: the same drivers.
const OF_ROUTER: &[(&str, CheckFunction)] = &[
    ROUTER,
    ROUTER_UNBIND,
    ROUTER_KILLED,
    ROUTER_XDP,
    ROUTER_XDP_KILLED,
    VLANS,
    VLANS_XDP,
    FLOWS,
    FLOWS_XDP,
];
const ROUTER: (&str, CheckFunction) = ("router", router::workers);
const ROUTER_UNBIND: (&str, CheckFunction) = ("router unbind", router::unbind);
const ROUTER_KILLED: (&str, CheckFunction) = ("router kill -9", router::kill);
const ROUTER_XDP: (&str, CheckFunction) = ("router xdp plane", router::xdp_plane);
const ROUTER_XDP_KILLED: (&str, CheckFunction) = ("router xdp kill -9", router::xdp_kill);
const VLANS: (&str, CheckFunction) = ("router VLANs", routed_vlans::workers);
const VLANS_XDP: (&str, CheckFunction) = ("router VLANs xdp plane", routed_vlans::xdp_plane);
const FLOWS: (&str, CheckFunction) = ("router flows", flows::workers);
const FLOWS_XDP: (&str, CheckFunction) = ("router flows xdp plane", flows::xdp_plane);
const DRIVERS_OF_ROUTER: [&str; 3] = DRIVERS_OF_STICK;
/// The switch: the same drivers.
const OF_SWITCH: &[(&str, CheckFunction)] =
    &[SWITCH, SWITCH_UNBIND, SWITCH_KILLED, SWITCH_XDP, SWITCH_XDP_KILLED];
const SWITCH: (&str, CheckFunction) = ("switch", switch::workers);
const SWITCH_UNBIND: (&str, CheckFunction) = ("switch unbind", switch::unbind);
const SWITCH_KILLED: (&str, CheckFunction) = ("switch kill -9", switch::kill);
const SWITCH_XDP: (&str, CheckFunction) = ("switch xdp plane", switch::xdp_plane);
const SWITCH_XDP_KILLED: (&str, CheckFunction) = ("switch xdp kill -9", switch::xdp_kill);
const DRIVERS_OF_SWITCH: [&str; 3] = DRIVERS_OF_STICK;
/// A host's port, its balancer, and what shapes its own packets: the same drivers.
const OF_HOST: &[(&str, CheckFunction)] = &[
    HOST_PORT,
    BALANCE,
    FQ,
    HOST_PLANE,
    HOST_NAT,
    HOST_FLOODS,
    HOST_NETKIT,
    HOST_IFB,
    HOST_AUTORATE,
    HOST_PATTERNS,
];
const HOST_PORT: (&str, CheckFunction) = ("host port", host_port::filters);
const BALANCE: (&str, CheckFunction) = ("balance", balance::tunnels);
const DRIVERS_OF_HOST: [&str; 3] = DRIVERS_OF_STICK;
const FQ: (&str, CheckFunction) = ("fq", departures::fq);
const HOST_PLANE: (&str, CheckFunction) = ("host plane", host_plane::shapes);
const HOST_NAT: (&str, CheckFunction) = ("host nat", behind_nat::hosts_share);
const HOST_FLOODS: (&str, CheckFunction) = ("host floods", beside_floods::share);
const HOST_NETKIT: (&str, CheckFunction) = ("host netkit", netkit::limits);
const HOST_IFB: (&str, CheckFunction) = ("host ifb", host_plane::shapes_what_arrives);
const HOST_AUTORATE: (&str, CheckFunction) = ("host autorate", following::at_host);
const HOST_PATTERNS: (&str, CheckFunction) = ("host patterns", host_patterns::keeps);
/// What a small box needs, with the packaged program: asked for by name, but on ARM.
const OF_SMALL_BOX: &[(&str, CheckFunction)] = &[MEMORY];
const MEMORY: (&str, CheckFunction) = ("memory", small_box::memory);
/// Those beside another program. They depend on the kernel, and take a minute or two: one driver
/// with zero copy and one without hardware suffice.
const BESIDE: &[(&str, CheckFunction)] = &[JOINED, FIRST, IN_DRIVER, KILLED];
const JOINED: (&str, CheckFunction) = ("dispatcher", dispatcher::joined);
const FIRST: (&str, CheckFunction) = ("dispatcher first", dispatcher::alone);
const IN_DRIVER: (&str, CheckFunction) = ("dispatcher xdp plane", dispatcher::in_driver);
const KILLED: (&str, CheckFunction) = ("dispatcher kill -9", dispatcher::killed);
const DRIVERS_BESIDE: [&str; 2] = ["igb", "veth"];
/// What one machine of the short form leaves to another: joining and an upgrade to the newer
/// kernel, which can upgrade, and a kill to the one without hardware, where a start takes less.
/// Each of the next two is for the kernel that does not skip it. A stick loses tags only where a
/// card takes them out of frames, and the XDP plane routes in drivers only where there is a card.
/// What is at egress is the same with any card.
const LEFT_TO_OTHERS: [(&str, &str); 11] = [
    ("igb", KILLED.0),
    ("igb", FIRST.0),
    ("veth", JOINED.0),
    ("veth", IN_DRIVER.0),
    ("igb", STICK_KILLED.0),
    ("igb", STICK_XDP_KILLED.0),
    ("e1000e", STICK.0),
    ("veth", STICK.0),
    ("veth", STICK_XDP.0),
    ("veth", ROUTER_XDP.0),
    ("igb", HOST_PLANE.0),
];
/// What a machine with another processor than the others runs: packets through all planes.
const OF_ARM64: [&str; 12] = [
    "doctor",
    "start",
    "ping",
    "full size",
    "cake",
    "books",
    "stop",
    "xdp plane",
    "xdp kill -9",
    FQ.0,
    HOST_PLANE.0,
    MEMORY.0,
];
/// What no machine of the short form runs, and `make explore-short` tries on one.
const LEFT_OUT: [&str; 25] = [
    MEMORY.0,
    FQ.0,
    BALANCE.0,
    STICK_UNBIND.0,
    ROUTER.0,
    ROUTER_UNBIND.0,
    ROUTER_KILLED.0,
    ROUTER_XDP_KILLED.0,
    VLANS.0,
    VLANS_XDP.0,
    SWITCH.0,
    SWITCH_UNBIND.0,
    SWITCH_KILLED.0,
    SWITCH_XDP.0,
    SWITCH_XDP_KILLED.0,
    FLOWS.0,
    FLOWS_XDP.0,
    HOST_PORT.0,
    HOST_NAT.0,
    HOST_FLOODS.0,
    HOST_NETKIT.0,
    HOST_IFB.0,
    HOST_AUTORATE.0,
    HOST_PATTERNS.0,
    XDP_AUTORATE.0,
];

/// The checks of a driver; `short` without those that another machine runs.
pub fn of(
    driver: &str,
    short: bool,
) -> impl Iterator<Item = &'static (&'static str, CheckFunction)> {
    let stick = if DRIVERS_OF_STICK.contains(&driver) { OF_STICK } else { &[] };
    let router = if DRIVERS_OF_ROUTER.contains(&driver) { OF_ROUTER } else { &[] };
    let switch = if DRIVERS_OF_SWITCH.contains(&driver) { OF_SWITCH } else { &[] };
    let host = if DRIVERS_OF_HOST.contains(&driver) { OF_HOST } else { &[] };
    let beside = if DRIVERS_BESIDE.contains(&driver) { BESIDE } else { &[] };
    let is_left =
        move |name| short && (LEFT_OUT.contains(&name) || LEFT_TO_OTHERS.contains(&(driver, name)));
    let all = ALL
        .iter()
        .chain(stick)
        .chain(router)
        .chain(switch)
        .chain(host)
        .chain(beside)
        .chain(OF_SMALL_BOX);
    all.filter(move |(name, _)| !is_left(*name))
}

/// Whether a machine of this architecture runs a check without being asked for it.
pub fn belongs_to(architecture: Architecture, name: &str) -> bool {
    match architecture {
        Architecture::Amd64 => OF_SMALL_BOX.iter().all(|(check, _)| *check != name),
        Architecture::Arm64 => OF_ARM64.contains(&name),
    }
}

/// The names of all checks.
pub fn names() -> impl Iterator<Item = &'static str> {
    [ALL, OF_STICK, OF_ROUTER, OF_SWITCH, OF_HOST, BESIDE, OF_SMALL_BOX]
        .into_iter()
        .flatten()
        .map(|(name, _)| *name)
}

/// The bed with Narrows between its ports.
pub struct Lab {
    bed: Bed,
    shaper: Option<Shaper>,
    /// A start has failed.
    cannot_start: bool,
    /// The mode of Narrows, once it is known.
    pub mode: Option<String>,
}

impl Lab {
    /// A bed over `driver`, and nothing in it.
    pub fn up(driver: &str) -> Result<Self> {
        Ok(Self { bed: Bed::up(driver)?, shaper: None, cannot_start: false, mode: None })
    }

    /// Narrows' output, for a failed check.
    pub fn words(&self) -> String {
        self.shaper.as_ref().map_or_else(String::new, Shaper::log)
    }

    fn client(&self) -> &End {
        &self.bed.ends[0]
    }

    fn server(&self) -> &End {
        &self.bed.ends[1]
    }

    /// Narrows, started if it does not run, and forwarding.
    fn running(&mut self) -> Result<&Shaper> {
        if self.shaper.as_mut().is_some_and(|shaper| !shaper.is_running()) {
            let log = self.words();
            self.shaper = None;
            bail!("narrows has ended by itself: {}", log.trim());
        }
        ensure!(!self.cannot_start, "narrows does not start");
        if self.shaper.is_none() {
            self.shaper = Some(Shaper::start()?);
            self.flows()?;
        }
        self.shaper.as_ref().context("it has just been started")
    }

    /// Waits until pings pass.
    fn flows(&self) -> Result<Duration> {
        wait_for_ping(self.client(), self.server().ip, SETTLE)
    }

    fn stopped(&mut self) -> Result<()> {
        self.shaper.take().map_or(Ok(()), Shaper::stop)
    }

    /// Makes a change that a driver may refuse while its queues are in use.
    fn change(&mut self, words: &str) -> Result<()> {
        if narrows(&["reconfigure", "--help"]).is_ok() {
            self.running()?;
            narrows(&["reconfigure", "--", "sh", "-c", words])?;
        } else {
            self.stopped()?;
            shell(words)?;
        }
        self.running()?;
        self.flows()?;
        Ok(())
    }
}

fn shell(words: &str) -> Result<()> {
    let mut command = Command::new("sh");
    command.args(["-c", words]);
    bounded(command).map(drop)
}

fn doctor(_: &mut Lab) -> Result<Verdict> {
    let loaded = fs::read_to_string("/proc/modules").unwrap_or_default();
    ensure!(!loaded.contains("nf_conntrack"), "the guest did not boot as a stock machine does");
    let text = narrows(&["doctor", PORTS[0], PORTS[1]])?;
    print!("{text}");
    let warnings = text.lines().filter(|line| line.contains("warning")).count();
    Ok(Passed(match warnings {
        0 => String::new(),
        1 => "1 warning".to_owned(),
        count => format!("{count} warnings"),
    }))
}

fn start(lab: &mut Lab) -> Result<Verdict> {
    // If it does not start here, a later check will not make it start.
    lab.cannot_start = true;
    lab.shaper = Some(Shaper::start()?);
    lab.cannot_start = false;
    let pause = lab.flows()?;
    lab.mode = Some(mode(&lab.running()?.show()?));
    Ok(Passed(format!("flowed after {:.1} s", pause.as_secs_f64())))
}

/// XDP mode, copy mode and queues of the first port, from `show`.
fn mode(show: &Value) -> String {
    let port = &show["ports"][0];
    let word = |name: &str| port[name].as_str().unwrap_or("?").to_owned();
    let queues = port["queues"].as_u64().unwrap_or(0);
    format!("{}, {}, {}", word("xdp"), word("copy"), counted(queues, "queue"))
}

/// How often the program of `port` of a router or a switch came to this outcome.
fn outcome(show: &Value, port: usize, outcome: &str) -> u64 {
    show["ports"][port]["routes"][outcome].as_u64().unwrap_or(0)
}

fn small_pings(lab: &mut Lab) -> Result<Verdict> {
    lab.running()?;
    ping(lab.client(), lab.server().ip, 56)?;
    ping(lab.server(), lab.client().ip, 56)?;
    Ok(Passed(String::new()))
}

fn full_size_pings(lab: &mut Lab) -> Result<Verdict> {
    lab.running()?;
    ping(lab.client(), lab.server().ip, MTU - HEADERS)?;
    ping(lab.server(), lab.client().ip, MTU - HEADERS)?;
    Ok(Passed(String::new()))
}

/// Full-size, so that frames are 4 bytes longer than without their tags. Only packets that arrive
/// with their tag are answered.
fn tagged_pings(lab: &mut Lab) -> Result<Verdict> {
    lab.running()?;
    ping(lab.client(), lab.server().tagged_ip, 56).context("small")?;
    ping(lab.client(), lab.server().tagged_ip, MTU - HEADERS).context("full size")?;
    Ok(Passed(String::new()))
}

fn tcp_under_cake(lab: &mut Lab) -> Result<Verdict> {
    tcp_under(lab, &format!("cake bandwidth {LIMIT}mbit"))
}

fn tcp_under_tbf(lab: &mut Lab) -> Result<Verdict> {
    tcp_under(lab, &format!("tbf {TBF}"))
}

fn tcp_under(lab: &mut Lab, qdisc: &str) -> Result<Verdict> {
    let shaper = lab.running()?;
    for port in PORTS {
        shaper.tc(&format!("qdisc replace dev {port} root {qdisc}"))?;
    }
    let there = transfer(lab.client(), lab.server()).context("there")?;
    let back = transfer(lab.server(), lab.client()).context("back")?;
    let shaper = lab.running()?;
    for port in PORTS {
        shaper.tc(&format!("qdisc del dev {port} root"))?;
    }
    for (way, rate) in [("there", there), ("back", back)] {
        ensure!(
            DELIVERED.contains(&rate),
            "TCP moved {rate:.2} Mbit/s {way}, of a limit of {LIMIT}"
        );
    }
    Ok(Passed(format!("{there:.1} and {back:.1} Mbit/s of {LIMIT}")))
}

fn books(lab: &mut Lab) -> Result<Verdict> {
    let show = lab.running()?.show()?;
    let sum = &show["conservation"];
    let received = sum["received"].as_u64().context("show lacks received")?;
    let unaccounted = sum["unaccounted"].as_i64().context("show lacks unaccounted")?;
    ensure!(received > 0 && unaccounted == 0, "{sum}");
    let no_frame = sum["dropped"]["no_frame"].as_u64().unwrap_or(0);
    ensure!(no_frame == 0, "{no_frame} packets were dropped for no_frame");
    Ok(Passed(format!("{received} packets, 0 unaccounted")))
}

fn jumbo(lab: &mut Lab) -> Result<Verdict> {
    ensure!(!lab.cannot_start, "narrows does not start");
    let mut refusals = Vec::new();
    let mut tried = None;
    for mtu in JUMBO {
        lab.stopped()?;
        match lab.bed.set_mtu(mtu, shell).and_then(|()| Shaper::start()) {
            Ok(shaper) => lab.shaper = Some(shaper),
            Err(refusal) => {
                refusals.push(format!("MTU {mtu}: {refusal:#}"));
                continue;
            }
        }
        let answered = largest_pings(lab, mtu);
        let refused = answered.as_ref().err().map(|error| format!("{error:#}"));
        tried = Some(answered);
        let Some(refused) = refused else { break };
        // A packet that the kernel's bridge loses, too, is the card's fault.
        lab.stopped()?;
        lab.flows().context("fail-open")?;
        if ping(lab.client(), lab.server().ip, mtu - HEADERS).is_ok() {
            break;
        }
        tried = None;
        refusals.push(format!("{refused}, nor were they through a bridge"));
    }
    println!("== jumbo\n{}", refusals.join("\n"));
    lab.stopped()?;
    lab.bed.set_mtu(MTU, shell)?;
    lab.running()?;
    tried.map_or_else(
        || Ok(Skipped(refusals.pop().unwrap_or_default())),
        |result| result.map(Passed),
    )
}

/// Waits for traffic and sends packets of the full MTU. Returns the MTU, with the mode.
fn largest_pings(lab: &mut Lab, mtu: u32) -> Result<String> {
    lab.flows()?;
    let seen = format!("MTU {mtu}: {}", mode(&lab.running()?.show()?));
    ping(lab.client(), lab.server().ip, mtu - HEADERS).with_context(|| seen.clone())?;
    Ok(seen)
}

fn other_queues(lab: &mut Lab) -> Result<Verdict> {
    let show = lab.running()?.show()?;
    let now = show["ports"][0]["queues"].as_u64().context("show does not say how many queues")?;
    let most = lab.bed.most_queues().unwrap_or(1);
    if most < 2 {
        return Ok(Skipped("this card has one queue".to_owned()));
    }
    let now = u32::try_from(now)?;
    let other = if now == 1 { 2 } else { 1 };
    let tried = [other, now].into_iter().try_for_each(|count| change_queues(lab, count));
    match tried {
        Ok(()) => Ok(Passed(format!("{now}, {other}, {now}"))),
        Err(error) => {
            lab.stopped()?;
            if let Err(refused) = shell(&lab.bed.queues_command(now))
                && format!("{refused:#}").contains("not supported")
            {
                return Ok(Skipped("this driver cannot change its queues".to_owned()));
            }
            Err(error)
        }
    }
}

fn change_queues(lab: &mut Lab, count: u32) -> Result<()> {
    lab.change(&lab.bed.queues_command(count))?;
    let served = |show: &Value| show["ports"][0]["queues"].as_u64() == Some(u64::from(count));
    lab.running()?.wait_until(&format!("{count} queues"), served)?;
    let whole = ping(lab.client(), lab.server().ip, MTU - HEADERS);
    whole.with_context(|| format!("with {count} queue pairs"))
}

/// Zero copy fills the card's whole ring with frames; the frames must suffice.
fn longest_rings(lab: &mut Lab) -> Result<Verdict> {
    lab.running()?;
    let Some(Ring { now, most }) = lab.bed.rx_ring() else {
        return Ok(Skipped("this driver has no rings to set".to_owned()));
    };
    if now == most {
        return Ok(Skipped(format!("its rings are as long as they can be: {most}")));
    }
    let tried = change_rings(lab, most).and_then(|()| {
        books(lab)?;
        full_size_pings(lab)
    });
    change_rings(lab, now)?;
    tried.map(|_| Passed(format!("{now}, {most}, {now}")))
}

fn change_rings(lab: &mut Lab, length: u32) -> Result<()> {
    let [a, b] = PORTS;
    lab.change(&format!("ethtool -G {a} rx {length} && ethtool -G {b} rx {length}"))?;
    let now = lab.bed.rx_ring().map(|ring| ring.now);
    ensure!(now == Some(length), "rings of {length} were asked for, {now:?} is there");
    let whole = ping(lab.client(), lab.server().ip, MTU - HEADERS);
    whole.with_context(|| format!("with rings of {length}"))
}

fn other_mtu(lab: &mut Lab) -> Result<Verdict> {
    let tried = [OTHER_MTU, MTU].into_iter().try_for_each(|mtu| change_mtu(lab, mtu));
    if tried.is_err() {
        lab.stopped()?;
        lab.bed.set_mtu(MTU, shell)?;
    }
    tried.map(|()| Passed(format!("{MTU}, {OTHER_MTU}, {MTU}")))
}

fn change_mtu(lab: &mut Lab, mtu: u32) -> Result<()> {
    let mut ports = String::new();
    lab.bed.set_mtu(mtu, |words| {
        ports = words.to_owned();
        Ok(())
    })?;
    lab.change(&ports)?;
    let whole = ping(lab.client(), lab.server().ip, mtu - HEADERS);
    whole.with_context(|| format!("MTU {mtu}"))
}

fn link_flap(lab: &mut Lab) -> Result<Verdict> {
    lab.running()?;
    ip(&["link", "set", PORTS[0], "down"])?;
    std::thread::sleep(Duration::from_secs(1));
    ip(&["link", "set", PORTS[0], "up"])?;
    let pause = lab.flows()?;
    lab.running()?.wait_until("running", is_running)?;
    small_pings(lab)?;
    Ok(Passed(format!("flowed again after {:.1} s", pause.as_secs_f64())))
}

fn is_running(show: &Value) -> bool {
    show["state"] == "running"
}

fn driver_unbind(lab: &mut Lab) -> Result<Verdict> {
    lab.running()?;
    let (bed, shaper) = (&lab.bed, lab.shaper.as_ref().context("it runs")?);
    bed.lose_port(|| shaper.wait_until("waiting", |show| show["state"] == "waiting"))?;
    let pause = lab.flows()?;
    lab.running()?.wait_until("running", is_running)?;
    full_size_pings(lab)?;
    Ok(Passed(format!("flowed again after {:.1} s", pause.as_secs_f64())))
}

fn kill(lab: &mut Lab) -> Result<Verdict> {
    lab.running()?;
    if let Some(shaper) = lab.shaper.take() {
        shaper.kill()?;
    }
    let pause = lab.flows().context("fail-open")?;
    ping(lab.client(), lab.server().ip, MTU - HEADERS).context("fail-open")?;
    Ok(Passed(format!("flowed again after {:.1} s", pause.as_secs_f64())))
}

fn restart(lab: &mut Lab) -> Result<Verdict> {
    lab.running()?;
    full_size_pings(lab)
}

/// Connection tracking that is loaded late is found.
fn nat(lab: &mut Lab) -> Result<Verdict> {
    lab.running()?;
    super::load("nf_conntrack")?;
    let words = format!("qdisc replace dev {} root cake bandwidth {LIMIT}mbit nat", PORTS[1]);
    let said = lab.running()?.tc(&words)?;
    ping(lab.client(), lab.server().ip, MTU - HEADERS)?;
    let first = said.lines().next().unwrap_or_default().to_owned();
    // Kernels before 5.18 have no look-up, and Narrows reports it.
    Ok(if first.is_empty() { Passed(String::new()) } else { Skipped(first) })
}

/// The same program takes over from itself, with the policy.
fn upgrade(lab: &mut Lab) -> Result<Verdict> {
    lab.running()?.tc(&format!("qdisc replace dev {} root tbf {TBF}", PORTS[1]))?;
    match narrows(&["upgrade"]) {
        Ok(said) => {
            let new_process =
                new_process(&said).with_context(|| format!("no process has taken over: {said}"))?;
            ping(lab.client(), lab.server().ip, MTU - HEADERS)?;
            let policy = narrows(&["tc", "qdisc", "show", "dev", PORTS[1]])?;
            ensure!(policy.contains("tbf"), "the policy is not what it was: {policy}");
            lab.shaper.take().context("it runs")?.ended()?;
            shaper::end(new_process)?;
            let pause =
                said.split_once("workers paused for ").map_or("", |(_, pause)| pause).trim();
            Ok(Passed(format!("workers paused for {pause}")))
        }
        Err(error) => {
            exchange::too_old(&error)?;
            ping(lab.client(), lab.server().ip, MTU - HEADERS).context("after the refusal")?;
            lab.running()?.tc(&format!("qdisc del dev {} root", PORTS[1]))?;
            Ok(Skipped("kernels before Linux 6.4 cannot, and Narrows says so".to_owned()))
        }
    }
}

/// The process that has taken over, from the output of `narrows upgrade`.
fn new_process(said: &str) -> Option<i32> {
    said.split_once("process ")?.1.split_once(' ')?.0.parse().ok()
}

fn stop(lab: &mut Lab) -> Result<Verdict> {
    lab.running()?;
    lab.stopped()?;
    lab.flows().context("fail-open")?;
    ping(lab.client(), lab.server().ip, MTU - HEADERS).context("fail-open")?;
    Ok(Passed(String::new()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::{SHORT, Task, select};
    use std::collections::BTreeSet;

    #[test]
    fn what_an_arm_machine_runs_is_among_the_checks_of_its_driver() {
        let all: Vec<&str> = of("virtio_net", false).map(|(name, _)| *name).collect();
        assert!(OF_ARM64.iter().all(|name| all.contains(name)), "{all:?}");
    }

    #[test]
    fn the_machines_of_the_short_form_run_every_check_among_them_that_is_not_left_out() {
        let cells = select(&SHORT.map(str::to_owned)).unwrap();
        let names = |short| -> Vec<&str> {
            let drivers = cells.iter().filter_map(|cell| match cell.task {
                Task::Checks(driver) => Some(driver.name),
                Task::Cake => None,
            });
            drivers.flat_map(|driver| of(driver, short)).map(|(name, _)| *name).collect()
        };
        let (few, mut all) = (names(true), names(false));
        all.retain(|name| !LEFT_OUT.contains(name));
        assert_eq!(few.len() + LEFT_TO_OTHERS.len(), all.len());
        assert_eq!(few.iter().collect::<BTreeSet<_>>(), all.iter().collect());
    }
}
