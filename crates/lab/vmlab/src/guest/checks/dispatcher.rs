//! Narrows beside another XDP program, `xdp-filter` of its release's xdp-tools, in libxdp's
//! dispatcher.

use super::exchange::{REQUESTS, take_over, too_old, under_pings};
use super::{HEADERS, Lab, MTU, TBF};
use crate::guest::Verdict::{self, Passed, Skipped};
use crate::guest::bed::{PORTS, run};
use crate::guest::shaper::{self, Shaper, bounded, narrows};
use crate::guest::traffic::{flood, ping};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// Where packets go that only the shaper limits, and where those go that the other program drops.
const DESTINATIONS: [u16; 2] = [5010, 5020];
/// The offered rate to each, in Mbit/s, and the range of what a limit of 5 Mbit/s lets pass.
const OFFERED: f64 = 8.0;
const SHAPED: std::ops::RangeInclusive<f64> = 4.7..=5.2;
/// The names that `xdp-loader` shows.
const GATE: &str = "narrows_gate";
const FILTER: &str = "xdpfilt_";
/// How long the keeper of gates may take.
const TIDY: Duration = Duration::from_secs(10);

/// `xdp-filter` first, then Narrows; stop, upgrade, and filters of its own.
pub(super) fn joined(lab: &mut Lab) -> Result<Verdict> {
    let (mode, note) = beside_filter(lab, join)?;
    Ok(Passed(format!("{mode}: {note}")))
}

/// Checks while `xdp-filter` runs, and unloads it whatever comes out. Returns its mode, too.
fn beside_filter<T>(lab: &mut Lab, check: fn(&mut Lab) -> Result<T>) -> Result<(&'static str, T)> {
    lab.stopped()?;
    let mode = load_filter()?;
    let checked = check(lab);
    let unloaded = xdp_filter(&["unload", PORTS[0]]);
    lab.flows().context("fail-open")?;
    let checked = checked?;
    unloaded?;
    Ok((mode, checked))
}

fn join(lab: &mut Lab) -> Result<String> {
    let said = narrows(&["doctor", PORTS[0], PORTS[1]])?;
    ensure!(said.contains("Narrows takes a place there"), "doctor: {said}");
    let shaper = Shaper::start()?;
    lab.flows().with_context(|| shaper.log())?;
    let status = in_order(&[FILTER, GATE])?;
    println!("{status}");
    shaper.tc(&format!("qdisc replace dev {} root tbf {TBF}", PORTS[1]))?;
    let shaped = both_apply(lab)?;
    // A filter in the driver, which puts another program behind the gate.
    let filter = format!("dev {} ingress pref 1", PORTS[0]);
    shaper.tc(&format!("qdisc add dev {} clsact", PORTS[0]))?;
    shaper.tc(&format!(
        "filter add {filter} protocol ip flower ip_proto udp dst_port {} action drop",
        DESTINATIONS[0]
    ))?;
    let rates = flood(lab.client(), lab.server(), DESTINATIONS, OFFERED)?;
    ensure!(rates == [0.0; 2], "with a filter, {rates:?} Mbit/s arrive");
    ping(lab.client(), lab.server().ip, MTU - HEADERS)?;
    shaper.tc(&format!("filter del {filter}"))?;
    both_apply(lab).context("without the filter")?;
    let upgraded = match take_over(&lab.bed.ends) {
        Ok(new_process) => {
            shaper.ended()?;
            ping(lab.client(), lab.server().ip, MTU - HEADERS).context("after the upgrade")?;
            both_apply(lab).context("after the upgrade")?;
            in_order(&[FILTER, GATE])?;
            shaper::end(new_process)?;
            "upgraded without a lost ping"
        }
        Err(error) => {
            too_old(&error)?;
            shaper.stop()?;
            "no upgrade before Linux 6.4"
        }
    };
    lab.flows().context("fail-open")?;
    in_order(&[FILTER]).context("after its stop")?;
    let [passed, dropped] = flood(lab.client(), lab.server(), DESTINATIONS, OFFERED)?;
    ensure!(passed > 7.0 && dropped == 0.0, "after its stop, {passed:.2} and {dropped:.2} Mbit/s");
    Ok(format!("{shaped:.2} of 5 Mbit/s, {upgraded}"))
}

/// Narrows first, then `xdp-filter` comes and goes, without the loss of a packet.
pub(super) fn alone(lab: &mut Lab) -> Result<Verdict> {
    lab.stopped()?;
    let shaper = Shaper::start_with(&["--dispatcher"])?;
    lab.flows().with_context(|| shaper.log())?;
    in_order(&[GATE])?;
    if let Err(refused) = load_filter() {
        // Tools whose dispatcher takes no gate on this kernel must leave everything as it is.
        in_order(&[GATE]).with_context(|| format!("{refused:#}"))?;
        ping(lab.client(), lab.server().ip, MTU - HEADERS)?;
        shaper.stop()?;
        lab.flows().context("fail-open")?;
        let refused = format!("{refused:#}").replace('\n', " ");
        println!("== dispatcher first: {refused}");
        return Ok(Skipped("xdp-filter comes only first: libxdp before 1.5.5".to_owned()));
    }
    xdp_filter(&["unload", PORTS[0]])?;
    let (_, answered) = under_pings(&lab.bed.ends, || {
        thread::sleep(Duration::from_secs(1));
        let loaded = load_filter().and_then(|_| in_order(&[FILTER, GATE]));
        thread::sleep(Duration::from_secs(1));
        let gone = xdp_filter(&["unload", PORTS[0]]).and_then(|_| in_order(&[GATE]));
        loaded.and(gone)
    })?;
    ensure!(answered == REQUESTS, "{answered} of {REQUESTS} pings were answered meanwhile");
    shaper.tc(&format!("qdisc replace dev {} root tbf {TBF}", PORTS[1]))?;
    load_filter()?;
    let shaped = both_apply(lab);
    shaper.stop()?;
    let stays = in_order(&[FILTER]).context("after its stop");
    xdp_filter(&["unload", PORTS[0]])?;
    let shaped = shaped?;
    stays?;
    lab.flows().context("fail-open")?;
    Ok(Passed(format!("{shaped:.2} of 5 Mbit/s, {answered} of {REQUESTS} pings during both swaps")))
}

/// The XDP plane first, then `xdp-filter` comes and goes, without the loss of a packet.
pub(super) fn in_driver(lab: &mut Lab) -> Result<Verdict> {
    beside_filter(lab, join_in_driver).map(|(_, verdict)| verdict)
}

fn join_in_driver(lab: &mut Lab) -> Result<Verdict> {
    let shaper = match Shaper::start_with(&["--plane", "xdp"]) {
        // Before Linux 6.6, which has tcx.
        Err(error) if format!("{error:#}").contains("and Narrows needs generic") => {
            in_order(&[FILTER]).context("after the refusal")?;
            let note = "xdp-filter runs in the driver, where this plane cannot redirect from here";
            return Ok(Skipped(note.to_owned()));
        }
        started => started?,
    };
    lab.flows().with_context(|| shaper.log())?;
    let hook = shaper.show()?["ports"][0]["xdp"].as_str().unwrap_or_default().to_owned();
    // At tcx it is behind all that the dispatcher calls.
    in_order(if hook == "tcx" { &[FILTER] } else { &[FILTER, GATE] })?;
    shaper.tc(&format!("qdisc replace dev {} root tbf {TBF}", PORTS[1]))?;
    both_apply(lab)?;
    let new_process = take_over(&lab.bed.ends)?;
    shaper.ended()?;
    let shaped = both_apply(lab).context("after the upgrade")?;
    shaper::end(new_process)?;
    in_order(&[FILTER]).context("after its stop")?;
    Ok(Passed(format!("{hook}: {shaped:.2} of 5 Mbit/s, upgraded without a lost ping")))
}

/// However it ends, the gate lets all pass, and goes away.
pub(super) fn killed(lab: &mut Lab) -> Result<Verdict> {
    beside_filter(lab, kill).map(|(_, note)| Passed(note))
}

fn kill(lab: &mut Lab) -> Result<String> {
    // The keeper first, so that nobody tidies up.
    let shaper = Shaper::start()?;
    lab.flows().with_context(|| shaper.log())?;
    for keeper in keepers() {
        run(&["sh", "-c", &format!("kill -9 {keeper}")])?;
    }
    shaper.kill()?;
    let pause = lab.flows().context("fail-open")?;
    ping(lab.client(), lab.server().ip, MTU - HEADERS).context("fail-open")?;
    in_order(&[FILTER, GATE]).context("left behind")?;
    // The next one takes its place.
    let shaper = Shaper::start()?;
    lab.flows().with_context(|| shaper.log())?;
    in_order(&[FILTER, GATE]).context("after the next start")?;
    shaper.kill()?;
    lab.flows().context("fail-open")?;
    let begin = Instant::now();
    while in_order(&[FILTER]).is_err() {
        ensure!(begin.elapsed() < TIDY, "the gate stays: {}", status()?);
        thread::sleep(Duration::from_millis(20));
    }
    let tidy = begin.elapsed();
    Ok(format!(
        "flowed again after {:.1} s; without its keeper the next start cleans up, otherwise gone \
         within {:.1} s",
        pause.as_secs_f64(),
        tidy.as_secs_f64()
    ))
}

/// Loads the filter for the second destination, natively if possible, and returns the mode.
fn load_filter() -> Result<&'static str> {
    let load = |mode| xdp_filter(&["load", "-f", "udp", "-m", mode, PORTS[0]]);
    let mode = match load("native") {
        Ok(_) => "native",
        Err(_) => load("skb").map(|_| "skb")?,
    };
    xdp_filter(&["port", "-p", "udp", "-m", "dst", &DESTINATIONS[1].to_string()])?;
    Ok(mode)
}

fn xdp_filter(words: &[&str]) -> Result<String> {
    let mut command = Command::new("xdp-filter");
    command.args(words);
    bounded(command)
}

/// The rate of what passes both programs; the other destination gets nothing.
fn both_apply(lab: &Lab) -> Result<f64> {
    let [shaped, dropped] = flood(lab.client(), lab.server(), DESTINATIONS, OFFERED)?;
    ensure!(dropped == 0.0, "{dropped:.2} Mbit/s pass xdp-filter");
    ensure!(SHAPED.contains(&shaped), "{shaped:.2} Mbit/s arrive of a limit of 5");
    Ok(shaped)
}

fn status() -> Result<String> {
    let mut command = Command::new("xdp-loader");
    command.args(["status", PORTS[0]]);
    bounded(command)
}

/// Checks that exactly the programs `names`, in this order, are under the dispatcher of the first
/// port. Returns its status.
fn in_order(names: &[&str]) -> Result<String> {
    let text = status()?;
    let called = programs(&text);
    let fits = called.len() == names.len()
        && called.iter().zip(names).all(|(called, name)| called.starts_with(name));
    ensure!(fits, "{names:?} should be there: {text}");
    Ok(text)
}

/// The programs under a dispatcher, from lines such as ` =>  10  xdpfilt_dny_udp  …`.
fn programs(status: &str) -> Vec<&str> {
    let called = status.lines().filter_map(|line| line.trim().strip_prefix("=>"));
    called.filter_map(|line| line.split_whitespace().nth(1)).collect()
}

/// The processes that keep gates.
fn keepers() -> Vec<String> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let is_keeper = |number: &String| {
        let words = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).nth(1) == Some(b"keep-gates")
    };
    numbers.filter(is_keeper).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_under_a_dispatcher_are_listed_in_order() {
        let status = "\
CURRENT XDP PROGRAM STATUS:

Interface        Prio  Program name      Mode     ID   Tag               Chain actions
--------------------------------------------------------------------------------------
port-a                 xdp_dispatcher    native   31   90f686eb86991928
 =>              10     xdpfilt_dny_udp           40   a9f9f5b0d3c7e0a1  XDP_PASS
 =>              100    narrows_gate              45   b3b6b2a1a1d8f0c2  XDP_PASS
";
        assert_eq!(programs(status), ["xdpfilt_dny_udp", "narrows_gate"]);
        assert!(programs("port-a  <No XDP program loaded!>\n").is_empty());
    }
}
