//! The balancer: Narrows at one port, with servers behind tunnels that the kernel unpacks. No end
//! has been told to send shorter packets.

use super::{Lab, new_process};
use crate::guest::Verdict::{self, Passed};
use crate::guest::bed::ip;
use crate::guest::farm::{Farm, GUE_PORT, PORT, SERVICE, ask, server_ip};
use crate::guest::shaper::{self, Shaper, narrows};
use anyhow::{Context, Result, ensure};
use std::net::TcpStream;

/// Connections, half of them to each server.
const CONNECTIONS: usize = 6;
/// What is sent to a server at once, in bytes: many full packets.
const UPLOAD: u32 = 100_000;
/// What fits into a packet behind the outer headers of GUE: the client finds it out.
const MTU: u32 = 1500 - 32;
/// And behind that of IP in IP.
const IPIP_MTU: u32 = 1500 - 20;

/// Connections that stay while a server drains and the process is replaced.
pub(super) fn tunnels(lab: &mut Lab) -> Result<Verdict> {
    lab.stopped()?;
    let has_hardware = lab.bed.has_hardware();
    let farm = Farm::up(&lab.bed)?;
    let checked = balanced(&farm, has_hardware);
    let removed = farm.down();
    let note = checked?;
    removed?;
    Ok(Passed(note))
}

fn balanced(farm: &Farm, has_hardware: bool) -> Result<String> {
    // A veth sends back only to an end with a program of its own.
    let hook: &[&str] = if has_hardware { &[] } else { &["--xdp", "generic"] };
    let shaper = Shaper::run(&[&["--port", PORT], hook].concat())?;
    connections(farm, shaper).map_err(|error| {
        let show = narrows(&["show"]).unwrap_or_default();
        let neighbours = ip(&["neigh"]).unwrap_or_default();
        error.context(format!("{show}\n{neighbours}"))
    })
}

fn balance(words: &str) -> Result<String> {
    narrows(&[&["balance"][..], &words.split(' ').collect::<Vec<_>>()].concat())
}

fn connections(farm: &Farm, shaper: Shaper) -> Result<String> {
    let [one, other] = [1, 2].map(server_ip);
    balance(&format!("add -t {SERVICE} -s rr"))?;
    balance(&format!("add -t {SERVICE} -r {one} -i"))?;
    balance(&format!("add -t {SERVICE} -r {other} -i --tun-type gue --tun-port {GUE_PORT}"))?;
    let mut all: Vec<(TcpStream, u8)> =
        (0..CONNECTIONS).map(|_| farm.connect()).collect::<Result<_>>()?;
    // Turns are of each CPU.
    ensure!([1, 2].iter().all(|server| all.iter().any(|(_, it)| it == server)), "all to one");
    stay(&mut all, UPLOAD).context("at full size")?;
    checked(farm).context("health checks")?;
    // GUE takes the most.
    let mtu = farm.client_mtu()?;
    ensure!(mtu == MTU, "the client believes in an MTU of {mtu}");
    balance(&format!("edit -t {SERVICE} -r {other} -w 0"))?;
    let (_, server) = farm.connect()?;
    ensure!(server == 1, "a server that drains gets a new connection");
    stay(&mut all, 1).context("while one drains")?;
    let said = narrows(&["upgrade"])?;
    let process = new_process(&said).with_context(|| format!("nobody has taken over: {said}"))?;
    let stayed = stay(&mut all, UPLOAD).context("after the upgrade");
    let show = shaper.show();
    shaper.ended()?;
    shaper::end(process)?;
    stayed?;
    let show = show?;
    let (sum, fates) = (&show["conservation"], &show["ports"][0]["balance"]);
    let [balanced, answered] = ["balanced", "answered"].map(|fate| fates[fate].as_u64());
    ensure!(sum["unaccounted"] == 0 && balanced > Some(100), "{sum} {fates}");
    ensure!(answered > Some(0), "nobody is told how long packets may be: {fates}");
    let hook = show["ports"][0]["xdp"].as_str().unwrap_or("?").to_owned();
    let balanced = balanced.unwrap_or_default();
    Ok(format!(
        "{hook}; {balanced} packets in IP and in GUE, of an MTU that was found out; upgraded"
    ))
}

/// Health checks go through the tunnels, and see where one ends.
fn checked(farm: &Farm) -> Result<()> {
    let said = narrows(&["health", "--once"])?;
    let arrive = |most: u32| said.contains(&format!("packets of up to {most} bytes arrive"));
    ensure!(said.matches(" passed in ").count() == 2, "{said}");
    ensure!(arrive(IPIP_MTU) && arrive(MTU), "{said}");
    farm.unpack(1, false)?;
    let without = narrows(&["health", "--once"]);
    farm.unpack(1, true)?;
    let without = format!("{:#}", without.err().context("a server that does not unpack is well")?);
    ensure!(without.contains("it does not unpack the tunnel"), "{without}");
    ensure!(without.contains("at its own address it answers"), "{without}");
    Ok(())
}

/// All connections are where they were.
fn stay(all: &mut [(TcpStream, u8)], bytes: u32) -> Result<()> {
    for (stream, server) in all {
        let now = ask(stream, bytes)?;
        ensure!(now == *server, "a connection moved from {server} to {now}");
    }
    Ok(())
}
