//! A home's router: a firewall with NAT between two networks, whose flowtable has the connections
//! that Narrows routes.

use super::exchange::upgrade_or_stop;
use super::router::{start, with_networks};
use super::{DELIVERED, Lab, SETTLE, SMALL, TBF, WORKERS, XDP_PLANE, is_running, outcome};
use crate::guest::Verdict::{self, Skipped};
use crate::guest::bed::{End, PORTS};
use crate::guest::networks::Networks;
use crate::guest::shaper::{Shaper, bounded, narrows};
use crate::guest::traffic::{ping, transfer, transfer_back, wait_for_ping};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::RangeInclusive;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// Where the packets of a connection come from, as the server sees it.
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 1);
/// Lets connections out, hides where they come from, and lets nobody in.
const FIREWALL: &str = "table inet home {
    flowtable f { hook ingress priority 0; devices = { port-a, port-b }; }
    chain forward {
        type filter hook forward priority 0; policy drop;
        ct state established flow add @f
        ct state established,related accept
        iifname port-a accept
    }
    chain postrouting {
        type nat hook postrouting priority srcnat;
        oifname port-b masquerade
    }
}";
/// The same firewall without a flowtable.
const WITHOUT: &str = "table inet home {
    chain forward {
        type filter hook forward priority 0; policy drop;
        ct state established,related accept
        iifname port-a accept
    }
}";
/// A flow and a connection without packets for so long, in seconds, are forgotten.
const FLOW_TIMEOUT: u64 = 2;
const CONNECTION_TIMEOUT: u64 = 5;
const TIMEOUTS: &str = "/proc/sys/net/netfilter";
/// How long a connection talks: several times that.
const TALK: Duration = Duration::from_secs(12);
/// Payload of what is said at once, in bytes, and how often, for all in one row.
const CHUNK: usize = 16 << 10;
const CHUNKS: usize = 20;
/// How long an end waits for the other.
const PATIENCE: Duration = Duration::from_secs(10);
/// The payload's rate where what exceeds a limit of 5 is dropped, and none waits: TCP backs off.
const POLICED: RangeInclusive<f64> = 1.0..=5.0;
/// How long nobody is to come in.
const KNOCK: Duration = Duration::from_secs(1);

/// With workers.
pub(super) fn workers(lab: &mut Lab) -> Result<Verdict> {
    behind_a_firewall(lab, WORKERS)
}

/// On the XDP plane.
pub(super) fn xdp_plane(lab: &mut Lab) -> Result<Verdict> {
    behind_a_firewall(lab, XDP_PLANE)
}

fn behind_a_firewall(lab: &mut Lab, plane: &[&str]) -> Result<Verdict> {
    let mut is_too_old = false;
    let verdict = with_networks(lab, |_, networks| {
        set(FIREWALL)?;
        let checked = match by_flows(networks, plane) {
            Err(error) if format!("{error:#}").contains("has no bpf_xdp_flow_lookup") => {
                is_too_old = true;
                Ok(String::new())
            }
            checked => checked,
        };
        let removed = set("flush ruleset");
        let note = checked?;
        removed.map(|()| note)
    })?;
    match is_too_old {
        true => Ok(Skipped("kernels before Linux 6.11 cannot, and Narrows says so".to_owned())),
        false => Ok(verdict),
    }
}

/// Gives `nft` these rules.
pub(super) fn set(rules: &str) -> Result<()> {
    let mut nft = Command::new("nft");
    nft.arg(rules);
    bounded(nft).map(drop)
}

fn set_timeout(name: &str, seconds: u64) -> Result<()> {
    let path = format!("{TIMEOUTS}/{name}");
    fs::write(&path, seconds.to_string()).context(path)
}

fn by_flows(networks: &Networks, plane: &[&str]) -> Result<String> {
    let said = narrows(&[&["doctor", PORTS[0], PORTS[1], "--router"], plane].concat());
    let shaper = start(networks, plane)?;
    let said = said?;
    print!("{said}");
    ensure!(said.contains("in its flowtable inet home f"), "doctor says nothing of it: {said}");
    let rates = if plane == XDP_PLANE { POLICED } else { DELIVERED };
    let note = connections(networks, &shaper, rates).with_context(|| shaper.log())?;
    let sum = &shaper.show()?["conservation"];
    ensure!(sum["unaccounted"] == 0, "{sum}");
    follows(networks, &shaper).with_context(|| shaper.log())?;
    let ends = &networks.ends;
    let upgraded = upgrade_or_stop(ends, shaper, PORTS[1], || talk_by_flow(networks))?;
    ping(&ends[0], ends[1].ip, SMALL).context("fail-open")?;
    Ok(format!("{note}; {upgraded}"))
}

/// Packets that were routed as such of a flow, of both ports.
fn routed_by_flow() -> Result<u64> {
    counted("by_flow")
}

fn counted(what: &str) -> Result<u64> {
    let show = serde_json::from_str(&narrows(&["show", "--json"])?)?;
    Ok(outcome(&show, 0, what) + outcome(&show, 1, what))
}

/// A connection of the client to the server.
struct Talk {
    near: TcpStream,
    far: TcpStream,
    /// Of the client and of the server.
    ports: [u16; 2],
}

impl Talk {
    fn begin(networks: &Networks) -> Result<Self> {
        let [client, server] = &networks.ends;
        let listener = server.namespace.enter(|| Ok(TcpListener::bind((server.ip, 0))?))?;
        let near = client.namespace.enter(|| connect(listener.local_addr()?, PATIENCE))?;
        let (far, from) = listener.accept()?;
        ensure!(from.ip() == OUTSIDE, "{from} is not masqueraded");
        for end in [&near, &far] {
            end.set_read_timeout(Some(PATIENCE))?;
            end.set_nodelay(true)?;
        }
        let ports = [near.local_addr()?.port(), near.peer_addr()?.port()];
        Ok(Self { near, far, ports })
    }

    /// Says `bytes` there and back, which have to arrive as they are.
    fn say(&mut self, bytes: usize) -> Result<()> {
        let words: Vec<u8> = (0..bytes).map(|at| (at * 7 / 3) as u8).collect();
        let mut heard = vec![0; bytes];
        for _ in 0..2 {
            self.near.write_all(&words)?;
            self.far.read_exact(&mut heard).context("there")?;
            ensure!(heard == words, "other bytes arrived there");
            std::mem::swap(&mut self.near, &mut self.far);
            heard.fill(0);
        }
        Ok(())
    }

    /// What connection tracking says of it.
    fn tracked(&self) -> Result<Option<String>> {
        let all = fs::read_to_string("/proc/net/nf_conntrack")?;
        let [client, server] = self.ports;
        let is_it = |line: &&str| line.contains(&format!("sport={client} dport={server}"));
        Ok(all.lines().find(is_it).map(str::to_owned))
    }
}

fn connect(to: SocketAddr, patience: Duration) -> Result<TcpStream> {
    Ok(TcpStream::connect_timeout(&to, patience)?)
}

/// A row of chunks there and back, most of whose packets are routed in the driver.
fn talk_by_flow(networks: &Networks) -> Result<()> {
    let mut talk = Talk::begin(networks)?;
    says_by_flow(&mut talk).map(drop)
}

/// Says a row of chunks. Returns how many packets were routed by flow.
fn says_by_flow(talk: &mut Talk) -> Result<u64> {
    let before = routed_by_flow()?;
    for _ in 0..CHUNKS {
        talk.say(CHUNK)?;
    }
    let routed = routed_by_flow()? - before;
    // Each way, in segments of 1448 bytes.
    let segments = 2 * CHUNKS * CHUNK / 1448;
    ensure!(routed as usize > segments * 9 / 10, "{routed} packets of {segments} were by flow");
    Ok(routed)
}

/// Connections run in the driver, live, pause, and end; limits hold; nobody comes in.
fn connections(
    networks: &Networks,
    shaper: &Shaper,
    expected: RangeInclusive<f64>,
) -> Result<String> {
    let [client, server] = &networks.ends;
    let mut talk = Talk::begin(networks)?;
    let routed = says_by_flow(&mut talk)?;
    let tracked = talk.tracked()?.context("it is not tracked")?;
    ensure!(tracked.contains("[OFFLOAD]"), "{tracked}");
    lives(&mut talk)?;
    pauses(&mut talk)?;
    ends(&talk)?;
    stays_out(server, client)?;

    for port in PORTS {
        shaper.tc(&format!("qdisc add dev {port} root tbf {TBF}"))?;
    }
    let before = routed_by_flow()?;
    let there = transfer(client, server)?;
    let back = transfer_back(client, server)?;
    let passed = routed_by_flow()? - before;
    ensure!(passed > 1000, "{passed} packets were by flow");
    let rates = format!("{there:.2} Mbit/s there and {back:.2} back");
    ensure!(expected.contains(&there) && expected.contains(&back), "{rates}");
    Ok(format!("{routed} packets by flow, {rates}"))
}

/// A flow whose packets only the driver sees does not end in the kernel.
fn lives(talk: &mut Talk) -> Result<()> {
    set_timeout("nf_flowtable_tcp_timeout", FLOW_TIMEOUT)?;
    set_timeout("nf_conntrack_tcp_timeout_established", CONNECTION_TIMEOUT)?;
    let (begin, before) = (Instant::now(), counted("no_flow")?);
    while begin.elapsed() < TALK {
        talk.say(100)?;
        thread::sleep(Duration::from_millis(100));
    }
    let missed = counted("no_flow")? - before;
    ensure!(missed == 0, "{missed} packets of a flow were in none");
    Ok(())
}

/// A flow that pauses is forgotten, and begins anew.
fn pauses(talk: &mut Talk) -> Result<()> {
    set_timeout("nf_conntrack_tcp_timeout_established", 600)?;
    talk.say(100)?;
    let before = counted("no_flow")?;
    thread::sleep(Duration::from_secs(3 * FLOW_TIMEOUT));
    says_by_flow(talk).context("after a pause")?;
    ensure!(counted("no_flow")? > before, "the flow was not forgotten");
    set_timeout("nf_flowtable_tcp_timeout", 30)
}

/// Connection tracking sees how a connection ends.
fn ends(talk: &Talk) -> Result<()> {
    set_timeout("nf_flowtable_tcp_timeout", FLOW_TIMEOUT)?;
    for end in [&talk.near, &talk.far] {
        end.shutdown(Shutdown::Write)?;
    }
    let begin = Instant::now();
    loop {
        match talk.tracked()? {
            Some(tracked) if !is_over(&tracked) => {
                ensure!(begin.elapsed() < PATIENCE, "after its end: {tracked}");
            }
            _ => break,
        }
        thread::sleep(Duration::from_millis(100));
    }
    set_timeout("nf_flowtable_tcp_timeout", 30)
}

/// Whether a line of connection tracking is of a connection that has ended.
fn is_over(tracked: &str) -> bool {
    ["TIME_WAIT", "LAST_ACK", "CLOSE"].iter().any(|state| tracked.contains(state))
}

/// Nobody comes in from outside.
fn stays_out(server: &End, client: &End) -> Result<()> {
    let listener = client.namespace.enter(|| Ok(TcpListener::bind((client.ip, 0))?))?;
    let address = listener.local_addr()?;
    match server.namespace.enter(|| connect(address, KNOCK)) {
        Ok(_) => bail!("a connection came in"),
        Err(_) => Ok(()),
    }
}

/// Rules that go and come are followed.
fn follows(networks: &Networks, shaper: &Shaper) -> Result<()> {
    let [client, server] = &networks.ends;
    set("flush ruleset")?;
    shaper.wait_until("routed", |show| {
        let before = outcome(show, 0, "routed");
        let _ = wait_for_ping(client, server.ip, SETTLE);
        shaper.show().is_ok_and(|show| outcome(&show, 0, "routed") > before)
    })?;
    set(WITHOUT)?;
    shaper.wait_until("waiting", |show| show["state"] == "waiting")?;
    let why = shaper.show()?["waiting_for"].to_string();
    ensure!(why.contains("devices = { port-a, port-b }") && why.contains("flow add @f"), "{why}");
    set("flush ruleset")?;
    set(FIREWALL)?;
    shaper.wait_until("running", is_running)?;
    wait_for_ping(client, server.ip, SETTLE)?;
    talk_by_flow(networks).context("again")
}
