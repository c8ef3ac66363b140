//! `narrows status`: is it good right now, and if not, what to do.
//!
//! Two snapshots a second apart give what passes now. What `show` prints of queues, workers and
//! reasons is left to it.

use crate::output::{self, Format};
use clap::Args;
use narrows_control::{Client, ControlError};
use narrows_escape::{line, shell};
use narrows_snapshot::{Delays, Port, Snapshot};
use narrows_units::{Rate, plural};
use narrows_views::names;
use serde::Serialize;
use std::fmt;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// Between both looks at an instance.
const INTERVAL: Duration = Duration::from_secs(1);

/// The exit code if instances run, and one of them has a problem.
const NEEDS_ATTENTION: u8 = 3;

/// Show on one screen whether the running instances are well, and what to do next.
///
/// For each port: its limit, what it delivers, the delay here of 99 in 100 packets in the last
/// second, and drops. Below: what is wrong, each with the command that helps.
///
/// Exit codes: 0 all is well, 1 nothing runs or an instance does not answer, 3 an instance needs
/// attention.
#[derive(Args)]
#[command(after_long_help = "Examples:
  narrows status
  narrows status eth2 --json
  narrows status || systemctl status 'narrows@*'")]
pub struct Status {
    /// Only the instance with this port.
    #[arg(value_name = "DEV")]
    dev: Option<String>,

    #[command(flatten)]
    format: Format,
}

/// What is wrong, and the command that helps.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct Problem {
    what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// A port now.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct PortStatus {
    port: String,
    qdisc: String,
    limit_bps: Option<u64>,
    sending_bps: u64,
    receiving_bps: u64,
    /// The 99th percentile of the delays of the packets that left in the interval.
    delay_p99_us: Option<f64>,
    drops_per_s: f64,
    backlog_packets: u64,
}

/// An instance now.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct InstanceStatus {
    state: String,
    /// The state in words, with the age.
    #[serde(skip)]
    state_line: String,
    uptime_s: f64,
    /// What forwards when it is gone.
    fail: String,
    ports: Vec<PortStatus>,
    problems: Vec<Problem>,
    /// What may be done next where nothing is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

impl PortStatus {
    fn of(before: Option<&Port>, now: &Port, seconds: f64) -> Self {
        let none = Port::default();
        let before = before.unwrap_or(&none);
        let delays: Delays = now.delays.since(&before.delays);
        Self {
            port: now.name.clone(),
            qdisc: now.qdisc.clone(),
            limit_bps: now.limit_bps(),
            sending_bps: now.tx_rate_bps,
            receiving_bps: now.rx_rate_bps,
            delay_p99_us: (delays.packets() > 0).then_some(delays.p99_us),
            drops_per_s: now.total.drops.saturating_sub(before.total.drops) as f64 / seconds,
            backlog_packets: now.total.backlog_packets,
        }
    }
}

impl InstanceStatus {
    /// The status at `now`, `before` which the instance was seen `seconds` ago.
    fn of(before: &Snapshot, now: &Snapshot, seconds: f64) -> Self {
        let port = |port: &Port| PortStatus::of(before.port(&port.name), port, seconds);
        let ports: Vec<PortStatus> = now.ports.iter().map(port).collect();
        let is_limited =
            ports.iter().any(|port| port.limit_bps.is_some()) || now.ports.iter().any(has_policy);
        let hint = (now.is_running() && !is_limited).then(|| {
            let dev = ports.last().map_or("DEV", |port| port.port.as_str());
            format!("narrows tc qdisc replace dev {} root cake bandwidth RATE", shell(dev))
        });
        Self {
            state: now.state.clone(),
            state_line: now.state_with(&span(now.uptime_s)),
            uptime_s: now.uptime_s,
            fail: now.fail.clone(),
            problems: problems(before, now),
            ports,
            hint,
        }
    }

    fn write(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.ports.iter().map(|port| port.port.as_str()).collect();
        writeln!(
            out,
            "{}: {}; if it ends: {}",
            line(&names.join(",")),
            self.state_line,
            line(&self.fail)
        )?;
        writeln!(
            out,
            "  {:<15} {:>14} {:>14} {:>6} {:>10} {:>9}  qdisc",
            "port", "limit", "sending", "used", "delay p99", "drops/s"
        )?;
        for port in &self.ports {
            let rate = |bps| Rate::from_bits_per_sec(bps).to_string();
            let used = port.limit_bps.filter(|limit| *limit > 0).map_or("-".to_owned(), |limit| {
                format!("{:.0} %", port.sending_bps as f64 * 100.0 / limit as f64)
            });
            writeln!(
                out,
                "  {:<15} {:>14} {:>14} {:>6} {:>10} {:>9.0}  {}",
                line(&port.port),
                port.limit_bps.map_or("none".to_owned(), rate),
                rate(port.sending_bps),
                used,
                port.delay_p99_us.map_or("-".to_owned(), time),
                port.drops_per_s,
                line(&port.qdisc)
            )?;
        }
        for problem in &self.problems {
            writeln!(out, "  PROBLEM: {}", line(&problem.what))?;
            if let Some(next) = &problem.next {
                writeln!(out, "     next: {}", line(next))?;
            }
        }
        match (&self.hint, self.problems.is_empty()) {
            (Some(hint), _) => {
                writeln!(out, "  no limit: traffic passes unshaped\n     next: {hint}")
            }
            (None, true) => writeln!(out, "  all is well"),
            (None, false) => Ok(()),
        }
    }
}

/// Whether something shapes or filters there.
fn has_policy(port: &Port) -> bool {
    !port.classes.is_empty() || port.qdiscs.iter().any(|qdisc| qdisc.kind != port.qdisc)
}

fn problems(before: &Snapshot, now: &Snapshot) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut add = |what: String, next: Option<&str>| {
        problems.push(Problem { what, next: next.map(str::to_owned) });
    };
    if !now.is_running() {
        let why = now.waiting_for.as_deref().unwrap_or("its ports");
        let unshaped =
            if now.fails_closed() { "nothing passes" } else { "what passes is unshaped" };
        add(format!("it waits: {why}. Until then {unshaped}"), None);
    }
    for worker in &now.workers {
        if let Some(seconds) = worker.silent_s {
            let fate = if now.fails_closed() { "dropped" } else { "not shaped" };
            let what = format!(
                "worker {} is silent for {seconds:.1} s: the frames of its queue are {fate}",
                worker.queue
            );
            add(what, Some("narrows show; then restart the instance"));
        }
    }
    for port in now.ports.iter().filter(|port| port.no_carrier) {
        let up =
            format!("ip link set dev {} up; if it is up, look at its cable", shell(&port.name));
        add(format!("{} has no carrier: nothing leaves there", port.name), Some(&up));
    }
    for warning in &now.warnings {
        let (what, next) = match warning.split_once("; try: ") {
            Some((what, next)) => (what, Some(next)),
            None => (warning.as_str(), None),
        };
        add(what.to_owned(), next);
    }
    let bypassed = now.conservation.bypassed.saturating_sub(before.conservation.bypassed);
    if bypassed > 0 {
        let what = format!("{bypassed} {} in the last second", plural(bypassed, "packet"));
        add(format!("{what} passed by the workers, unshaped"), Some("narrows show"));
    }
    if now.conservation.unaccounted != 0 {
        let what = format!("{} packets are unaccounted for", now.conservation.unaccounted);
        add(what, Some("report it with the output of: narrows show --json --trees"));
    }
    problems
}

/// Some seconds, in the two largest units.
fn span(seconds: f64) -> String {
    let seconds = seconds as u64;
    let (days, hours) = (seconds / 86_400, seconds / 3600 % 24);
    let (minutes, rest) = (seconds / 60 % 60, seconds % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{rest} s"),
        (0, 0, _) => format!("{minutes} min {rest} s"),
        (0, _, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

/// Some microseconds.
fn time(us: f64) -> String {
    match us {
        us if us < 1e3 => format!("{us:.0} us"),
        us if us < 1e6 => format!("{:.1} ms", us / 1e3),
        us => format!("{:.1} s", us / 1e6),
    }
}

/// The instances, for people.
struct Screen<'a>(&'a [InstanceStatus]);

impl fmt::Display for Screen<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|instance| instance.write(out))
    }
}

/// What stands by where nothing runs: the bridges that instances left, with their ports.
fn bridges_left() -> Vec<String> {
    let entries = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let left = entries.filter_map(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        name.starts_with(narrows_link::bridge::PREFIX).then_some(())?;
        let ports = std::fs::read_dir(entry.path().join("brif")).ok()?.flatten();
        let ports: Vec<String> =
            ports.map(|port| port.file_name().to_string_lossy().into_owned()).collect();
        Some(format!("{name} forwards between {} without a limit", ports.join(" and ")))
    });
    let mut left: Vec<String> = left.collect();
    left.sort();
    left
}

/// How to start, where nothing runs.
fn start() -> String {
    let files = std::fs::read_dir(Path::new("/etc/narrows")).into_iter().flatten().flatten();
    let conf = files.filter_map(|file| {
        file.file_name().to_string_lossy().strip_suffix(".conf").map(str::to_owned)
    });
    match conf.min() {
        Some(name) => format!("systemctl start narrows@{}", shell(&name)),
        None => "narrows setup".to_owned(),
    }
}

impl Status {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let (found, silent) = match Client::survey(self.dev.as_deref()) {
            Err(error @ ControlError::NoInstance(_)) => {
                self.format.print(&serde_json::json!([]), String::new)?;
                output::complain(&error);
                for bridge in bridges_left() {
                    output::complain(bridge);
                }
                output::complain(format_args!("next: {}", start()));
                return Ok(ExitCode::FAILURE);
            }
            other => other?,
        };
        let mut names = names(None)?;
        let mut look = || -> anyhow::Result<Vec<Snapshot>> {
            let each = found.iter().map(|client| {
                let mut snapshot = client.snapshot(true)?;
                names.name(&mut snapshot);
                Ok(snapshot)
            });
            each.collect()
        };
        let before = look()?;
        std::thread::sleep(INTERVAL);
        let now = look()?;
        let all: Vec<InstanceStatus> = before
            .iter()
            .zip(&now)
            .map(|(before, now)| InstanceStatus::of(before, now, INTERVAL.as_secs_f64()))
            .collect();
        self.format.print(&all, || Screen(&all))?;
        for error in &silent {
            output::complain(error);
        }
        Ok(match all.iter().all(|instance| instance.problems.is_empty()) {
            _ if !silent.is_empty() => ExitCode::FAILURE,
            true => ExitCode::SUCCESS,
            false => ExitCode::from(NEEDS_ATTENTION),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_snapshot::{Queue, Worker};

    fn running() -> Snapshot {
        let port = |name: &str| Port {
            name: name.to_owned(),
            qdisc: "cake".to_owned(),
            rate_set_bps: Some(20_000_000),
            tx_rate_bps: 19_000_000,
            ..Port::default()
        };
        Snapshot {
            state: "running".to_owned(),
            uptime_s: 11_520.0,
            fail: "open (bridge nrwbr2)".to_owned(),
            ports: vec![port("eth1"), port("eth2")],
            ..Snapshot::default()
        }
    }

    fn screen(before: &Snapshot, now: &Snapshot) -> String {
        Screen(&[InstanceStatus::of(before, now, 1.0)]).to_string()
    }

    #[test]
    fn a_line_without_problems_is_well_and_says_what_it_delivers() {
        let mut now = running();
        now.ports[0].delays = Delays::new(vec![(4_100.0, 10)]);
        now.ports[0].total = Queue { drops: 12, ..Queue::default() };
        let said = screen(&running(), &now);
        let begins = "eth1,eth2: running for 3 h 12 min; if it ends: open (bridge nrwbr2)\n";
        assert!(said.starts_with(begins), "{said}");
        let eth1 = said.lines().find(|line| line.contains("eth1 ")).unwrap();
        let words: Vec<&str> = eth1.split_whitespace().collect();
        let wanted = "eth1 20 Mbit/s 19 Mbit/s 95 % 4.1 ms 12 cake";
        assert_eq!(words.join(" "), wanted);
        assert!(said.ends_with("  all is well\n"), "{said}");
    }

    #[test]
    fn each_problem_is_named_with_the_command_that_helps() {
        let mut now = running();
        now.warnings = vec!["eth1 has 4 receive queues; try: ethtool -L eth1".to_owned()];
        now.workers = vec![Worker { silent_s: Some(0.6), ..Worker::default() }];
        now.ports[1].no_carrier = true;
        now.conservation.bypassed = 1;
        let found = problems(&running(), &now);
        assert_eq!(found.len(), 4, "{found:?}");
        assert_eq!(found[2].next.as_deref(), Some("ethtool -L eth1"));
        assert!(found[3].what.starts_with("1 packet in the last second"), "{found:?}");
        assert!(!screen(&running(), &now).contains("all is well"));
        assert!(found[1].next.as_deref().unwrap().starts_with("ip link set dev eth2 up"));
        now.state = "waiting".to_owned();
        assert!(problems(&running(), &now)[0].what.ends_with("what passes is unshaped"));
        let said = screen(&running(), &now);
        assert!(said.starts_with("eth1,eth2: waiting, started 3 h 12 min ago; if it"), "{said}");
    }

    #[test]
    fn an_instance_without_a_limit_is_told_how_to_set_one() {
        let mut now = running();
        for port in &mut now.ports {
            (port.qdisc, port.rate_set_bps) = ("pfifo".to_owned(), None);
        }
        let said = screen(&now.clone(), &now);
        assert!(said.contains("next: narrows tc qdisc replace dev eth2 root cake"), "{said}");
    }
}
