//! The cost of a policy with many subscribers: to load, to change, to reload, to show.
//!
//! Each subscriber is a class with a `cake` in it and a filter for its address, below a site of a
//! thousand, below a root. The steps are those of an instance, without its sockets: `tc` words
//! become a policy, the policy a plan, the plan is reconciled with the running one, and each queue
//! applies its specification. Commands are given one by one to the full policy.
//!
//! Times are CPU times of the one thread that does all of it, medians over the repeats, so other
//! jobs on the machine have little effect.
//!
//! Memory is the growth of the process's resident size: before any traffic, and after every tenth
//! subscriber has sent on every queue, each with a `cake` of its own.
//!
//! Non-goals: what a packet costs ([`tree`](crate::tree), [`classify`](crate::classify)); sockets
//! and threads.

use crate::processor;
use crate::qdisc::median;
use crate::tree::footprint::resident;
use anyhow::{Result, anyhow, bail, ensure};
use narrows_packet::{PacketId, Packets};
use narrows_policy::{Plan, Policy, PortFacts};
use narrows_qdisc::{Handover, Slot, Verdict};
use narrows_shaper::Installation;
use narrows_tc::{Host, Options as Style, execute, execute_batch, load, save};
use narrows_units::Nanos;
use serde::Serialize;
use std::fmt::{self, Write};

/// The numbers of subscribers that are measured.
pub const SUBSCRIBERS: [u32; 2] = [10_000, 100_000];
/// Subscribers at a site.
const SITE: u32 = 1000;
/// Queues of the port.
const QUEUES: usize = 4;
/// The port.
const DEV: &str = "bench";
/// Bytes of a packet.
const LEN: u32 = 1000;
/// Subscribers have the numbers from here on, so that there is room for sites before them.
const FIRST: u32 = 0x1000;

/// How to run it.
#[derive(Clone, Debug)]
pub struct Options {
    /// Numbers of subscribers.
    pub subscribers: Vec<u32>,
    /// How often each command is given, at least once.
    pub repeats: u32,
}

/// The cost of one operation.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// What.
    pub operation: &'static str,
    /// Among how many subscribers.
    pub subscribers: u32,
    /// CPU time, in milliseconds.
    pub ms: f64,
}

/// The measurements.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// One for each thing and number of subscribers.
    pub rows: Vec<Row>,
    /// One for each number of subscribers.
    pub sizes: Vec<Size>,
}

/// How much memory is taken, in bytes: in the policy, in the plan, in the tree, in the tables of
/// filters and on the queues, together. Before anybody has sent anything, but for the last.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Size {
    /// How many subscribers there are.
    pub subscribers: u32,
    /// By a class with nothing in it.
    pub bytes_per_class: u64,
    /// By a class with a `cake` in it and a filter for it.
    pub bytes_per_subscriber: u64,
    /// By all of them together, when every tenth has sent on every queue.
    pub bytes_with_a_tenth_active: u64,
}

/// The number of calls of `begin`.
pub fn steps(options: &Options) -> u64 {
    options.subscribers.len() as u64
}

/// Measures. Calls `begin` with the title of each step at its start.
///
/// # Errors
/// If a command fails that the benchmark gives.
pub fn run(options: &Options, mut begin: impl FnMut(&str)) -> Result<Report> {
    let mut report = Report { rows: Vec::new(), sizes: Vec::new() };
    // Memory freed by one would be reused by the next, which would seem to take none.
    let mut kept = Vec::new();
    for &subscribers in &options.subscribers {
        begin(&format!("{subscribers} subscribers"));
        let mut bench = Bench { subscribers, repeats: options.repeats.max(1), rows: Vec::new() };
        let (size, host) = bench.run()?;
        report.sizes.push(size);
        kept.push(host);
        report.rows.extend(bench.rows);
    }
    Ok(report)
}

/// A port, and what its queues run.
struct OnePort {
    policy: Policy,
    installed: Installation,
    queues: Vec<Slot>,
    packets: Packets,
    now: Nanos,
}

impl OnePort {
    /// One without a policy.
    fn new() -> Result<Self> {
        let policy = Policy::default();
        let plan = Plan::of(policy.port(DEV), QUEUES)?;
        let (installed, specs) = Installation::reconcile(plan, None);
        let queues = specs.into_iter().map(Slot::new).collect();
        Ok(Self { policy, installed, queues, packets: Packets::new(64), now: Nanos(0) })
    }
}

impl OnePort {
    /// Sends a packet from every tenth of `subscribers` on every queue.
    fn wake(&mut self, subscribers: u32) -> Result<()> {
        for queue in &mut self.queues {
            let qdisc = queue.qdisc_mut();
            self.packets.prepare(qdisc.reading());
            for number in (0..subscribers).step_by(10) {
                self.now += Nanos::from_millis(1);
                let id = PacketId(0);
                self.packets.arrive(id, LEN, self.now);
                self.packets.meta_mut(id).class = FIRST + number;
                let verdict = qdisc.enqueue(&mut self.packets, id, self.now);
                let left = qdisc.dequeue_one(&mut self.packets, self.now);
                ensure!(verdict == Verdict::Queued && left.is_ok(), "{number} does not send");
            }
        }
        Ok(())
    }
}

impl Host for OnePort {
    fn devices(&self) -> Vec<String> {
        vec![DEV.to_owned()]
    }

    fn port(&self, dev: &str) -> Option<PortFacts> {
        let queues = u16::try_from(QUEUES).ok();
        (dev == DEV).then_some(PortFacts { queues, ..PortFacts::ETHERNET })
    }

    fn policy(&self) -> Policy {
        self.policy.clone()
    }

    fn apply(&mut self, policy: Policy) -> Result<(), String> {
        let (before, port) = (self.policy.port(DEV), policy.port(DEV));
        if before != port {
            let plan = self.installed.plan().next(before, port).map_err(|why| why.to_string())?;
            let (next, specs) = Installation::reconcile(plan, Some(&self.installed));
            next.commit();
            self.now += Nanos::from_millis(1);
            for (queue, spec) in self.queues.iter_mut().zip(specs) {
                queue.take_over(spec, &mut Handover::new(&mut self.packets, self.now));
            }
            self.installed = next;
        }
        self.policy = policy;
        Ok(())
    }
}

/// All measurements with one number of subscribers.
struct Bench {
    subscribers: u32,
    repeats: u32,
    rows: Vec<Row>,
}

impl Bench {
    fn run(&mut self) -> Result<(Size, OnePort)> {
        let subscribers = self.subscribers;
        let text = policy(subscribers, 5);
        let root = lines(&text, "qdisc replace dev bench root");
        let classes = root + &lines(&text, "class");
        let mut other = OnePort::new()?;
        let each = |begin: u64| -> Result<u64> {
            Ok(resident()?.saturating_sub(begin) / u64::from(subscribers))
        };
        let begin = resident()?;
        let loaded = self.time("load classes", || load(&classes, "bench", &other))?;
        let loaded = loaded.map_err(failed)?;
        self.time("install classes", || other.apply(loaded))?.map_err(failed)?;
        let bytes_per_class = each(begin)?;

        let mut host = OnePort::new()?;
        let begin = resident()?;
        let loaded = self.time("load", || load(&text, "bench", &host))?.map_err(failed)?;
        self.time("install", || host.apply(loaded))?.map_err(failed)?;
        let bytes_per_subscriber = each(begin)?;
        self.time("a packet of each tenth on every queue", || host.wake(subscribers))??;
        let bytes_with_a_tenth_active = resident()?.saturating_sub(begin);
        drop(other);

        let mut other = OnePort::new()?;
        let batch = || execute_batch(&classes, "bench", &Style::default(), &mut other);
        check(&self.time("classes of a batch, one by one", batch)?)?;
        drop(other);

        self.commands(&mut host)?;

        let one_other = policy(self.subscribers, 6).lines().nth(3).map(str::to_owned);
        let mut again = save(&host.policy);
        if let Some(line) = one_other {
            again += &line.replace("replace", "change");
        }
        let reread = self.time("read a file again", || load(&again, "bench", &host))?;
        let reread = reread.map_err(failed)?;
        self.time("reconcile one changed subscriber", || host.apply(reread))?.map_err(failed)?;

        for (operation, words) in [
            ("class show", "class show dev bench"),
            ("class show, statistics", "-s class show dev bench"),
            ("class show, graph", "-g class show dev bench"),
            ("qdisc show, statistics", "-s qdisc show dev bench"),
            ("save", "save"),
        ] {
            check(&self.time(operation, || execute(&say(words), &mut host))?)?;
        }
        let size =
            Size { subscribers, bytes_per_class, bytes_per_subscriber, bytes_with_a_tenth_active };
        Ok((size, host))
    }

    /// Commands on one subscriber.
    fn commands(&mut self, host: &mut OnePort) -> Result<()> {
        let new = FIRST + self.subscribers;
        let any = |repeat: u32| FIRST + repeat.wrapping_mul(7919) % self.subscribers;
        let class = |verb: &str, id: u32, mbit: u32| {
            let site = 2 + (id - FIRST) / SITE % self.subscribers.div_ceil(SITE);
            let parent = format!("1:{site:x}");
            let parameters = format!("rate {mbit}mbit ceil 1gbit");
            format!("class {verb} dev bench parent {parent} classid 1:{id:x} htb {parameters}")
        };
        let filter = |verb: &str, id: u32, to: u32| {
            let address = address(id);
            format!(
                "filter {verb} dev bench parent 1: protocol ip pref 1 handle {id:#x} flower dst_ip \
                 {address} classid 1:{to:x}"
            )
        };
        type Command<'a> = &'a dyn Fn(u32) -> String;
        let commands: [(&str, Command<'_>); 7] = [
            ("class change", &|repeat| class("change", any(repeat), 7 + repeat)),
            ("class add", &|repeat| class("add", new + repeat, 5)),
            ("qdisc add", &|repeat| {
                format!("qdisc add dev bench parent 1:{:x} cake", new + repeat)
            }),
            ("filter add", &|repeat| filter("add", new + repeat, new + repeat)),
            ("filter change", &|repeat| filter("change", any(repeat), any(repeat + 1))),
            ("filter del", &|repeat| {
                format!(
                    "filter del dev bench parent 1: protocol ip pref 1 handle {:#x} flower",
                    new + repeat
                )
            }),
            ("class del", &|repeat| format!("class del dev bench classid 1:{:x}", new + repeat)),
        ];
        for (operation, command) in commands {
            let mut costs = Vec::new();
            for repeat in 0..self.repeats {
                let words = say(&command(repeat));
                let start = processor::time();
                let outcome = execute(&words, host);
                costs.push((processor::time() - start) as f64 / 1e6);
                check(&outcome)?;
            }
            self.rows.push(Row { operation, subscribers: self.subscribers, ms: median(costs) });
        }
        Ok(())
    }

    fn time<T>(&mut self, operation: &'static str, work: impl FnOnce() -> T) -> Result<T> {
        let start = processor::time();
        let done = work();
        let ms = (processor::time() - start) as f64 / 1e6;
        self.rows.push(Row { operation, subscribers: self.subscribers, ms });
        Ok(done)
    }
}

fn failed(why: String) -> anyhow::Error {
    anyhow!(why)
}

fn check(outcome: &narrows_tc::Outcome) -> Result<()> {
    match outcome.code {
        0 => Ok(()),
        code => bail!("a command of the benchmark ended with {code}: {}", outcome.stderr),
    }
}

fn say(words: &str) -> Vec<String> {
    words.split(' ').map(str::to_owned).collect()
}

fn address(id: u32) -> String {
    let [_, b, c, d] = id.to_be_bytes();
    format!("10.{b}.{c}.{d}")
}

/// The lines of `text` that begin with `word`.
fn lines(text: &str, word: &str) -> String {
    text.lines().filter(|line| line.starts_with(word)).map(|line| format!("{line}\n")).collect()
}

/// A policy of this many subscribers, with `mbit` for each.
fn policy(subscribers: u32, mbit: u32) -> String {
    let mut text = String::new();
    let mut add = |line: fmt::Arguments<'_>| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{line}");
    };
    let class = "class replace dev bench parent";
    add(format_args!("qdisc replace dev bench root handle 1: htb default 0"));
    add(format_args!("{class} 1: classid 1:1 htb rate 100gbit"));
    for site in 0..subscribers.div_ceil(SITE) {
        add(format_args!("{class} 1:1 classid 1:{:x} htb rate 1gbit ceil 100gbit", 2 + site));
    }
    for number in 0..subscribers {
        let (site, id) = (2 + number / SITE, FIRST + number);
        add(format_args!("{class} 1:{site:x} classid 1:{id:x} htb rate {mbit}mbit ceil 1gbit"));
    }
    for number in 0..subscribers {
        let id = FIRST + number;
        let address = address(id);
        add(format_args!("qdisc replace dev bench parent 1:{id:x} cake"));
        add(format_args!(
            "filter replace dev bench parent 1: protocol ip pref 1 handle {id:#x} flower dst_ip \
             {address} classid 1:{id:x}"
        ));
    }
    text
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:>11}  {:<34} {:>12}", "subscribers", "operation", "ms")?;
        for Row { operation, subscribers, ms } in &self.rows {
            writeln!(f, "{subscribers:>11}  {operation:<34} {ms:>12.3}")?;
        }
        for size in &self.sizes {
            let Size { subscribers, bytes_per_class, bytes_per_subscriber, .. } = size;
            let active = size.bytes_with_a_tenth_active as f64 / 1e9;
            writeln!(
                f,
                "{subscribers:>11}  an idle class takes {bytes_per_class} bytes, with cake and a \
                 filter {bytes_per_subscriber}; all with a tenth active {active:.2} GB"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_measured_once_for_each_number_of_subscribers() {
        let options = Options { subscribers: vec![3, 1100], repeats: 2 };
        let report = run(&options, |_| ()).unwrap();
        let of = |subscribers| {
            let rows = report.rows.iter().filter(move |row| row.subscribers == subscribers);
            rows.map(|row| row.operation).collect::<Vec<_>>()
        };
        assert_eq!(of(3), of(1100));
        assert_eq!(of(3).len(), 20);
        // Not their memory: so few fit into memory that the process already has.
        assert_eq!(report.sizes.iter().map(|size| size.subscribers).collect::<Vec<_>>(), [3, 1100]);
    }
}
