//! Whatever a policy accepts, under traffic.
//!
//! A trial takes any bytes. They choose commands, numbers from one end of their range to the other,
//! packets, and changes under load ([`words`]). `tc` executes the commands, and may refuse any.
//! What it accepts must be in force: the plan is laid out, installed and run by workers in virtual
//! time, and compiled for the XDP plane, whose own meter runs, too ([`driver`]). A trial panics if
//!
//! * the books of a worker do not balance after a step;
//! * a class passes more than its ceiling and its burst, or a `tbf` more than its rate
//!   ([`ceilings`]), or the counters of a class say something else than what has left;
//! * packets wait and no worker ever asks again, or workers ask without end and nothing moves;
//! * anything overflows, recurses without end or takes memory without bound.
//!
//! The same trials run from random bytes as a property test, and from a fuzzer's (`accepted_plan`).
//!
//! *Non-goals.* How rates are shared: scenarios and promises are for that. Real time.

mod ceilings;
mod driver;
mod ports;
mod words;

use ceilings::Ceilings;
use narrows_forwarding::PortId;
use narrows_policy::{Plan, Policy};
use narrows_qdisc::{Slot, Spec};
use narrows_shaper::{Activity, Installation, Worker};
use narrows_tc::{Host, OfflineHost};
use narrows_units::Nanos;
use ports::Ports;
use words::Words;

pub use words::script;

/// The shaped port.
const PORT: &str = "B";
/// When runs begin: shared clocks count from some time before that.
const BEGIN: Nanos = Nanos::from_secs(1);
/// A worker that has something to do asks again after this.
const STEP: Nanos = Nanos::from_micros(1);
/// How often workers are asked, at most: rates of some bits a second take years.
const STEPS_MOST: u32 = 8_000;
/// So many steps in which nothing moves, in less time than that, are for nothing.
const IN_VAIN: (u32, Nanos) = (2_000, Nanos::from_millis(2));
/// Before clocks end.
const END: Nanos = Nanos(u64::MAX / 4);

/// Runs the trial that `bytes` choose. Returns how many packets have left.
///
/// # Panics
/// If what was accepted is not in force; see the module's documentation.
pub fn trial(bytes: &[u8]) -> u64 {
    let mut words = Words::new(bytes);
    let queues = words.queues();
    let mut host = OfflineHost::new(Policy::default());
    execute(&words.policy(), &mut host);
    driver::trial(&host.policy(), queues);
    let Ok(plan) = Plan::of(host.policy().port(PORT), queues) else { return 0 };
    let (installation, specs) = Installation::reconcile(plan, None);
    let mut run = Run::new(installation, specs);
    run.traffic(&mut words);
    let before = host.policy();
    execute(&words.changes(), &mut host);
    let next = run.installation.plan().next(before.port(PORT), host.policy().port(PORT));
    if let Ok(plan) = next {
        run.change(plan);
        run.traffic(&mut words);
    }
    run.finish()
}

/// Executes `lines`; what is refused changes nothing.
fn execute(lines: &[String], host: &mut OfflineHost) {
    for line in lines {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        narrows_tc::execute(&words, host);
    }
}

/// A run of a plan.
struct Run {
    installation: Installation,
    workers: Vec<Worker<Ports>>,
    /// By worker, when it asks next.
    asks: Vec<Nanos>,
    now: Nanos,
    ceilings: Ceilings,
    steps: u32,
    /// Steps in which nothing has moved, and since when.
    in_vain: (u32, Nanos),
    changed: bool,
}

impl Run {
    fn new(installation: Installation, specs: Vec<Spec>) -> Self {
        let worker = |spec| {
            let slots = [Slot::new(Spec::new(narrows_qdisc::Config::Noqueue)), Slot::new(spec)];
            Worker::new(Ports::new(), ports::FRAMES, slots)
        };
        let workers: Vec<_> = specs.into_iter().map(worker).collect();
        Self {
            ceilings: Ceilings::new(installation.plan()),
            installation,
            asks: vec![Nanos::MAX; workers.len()],
            workers,
            now: BEGIN,
            steps: 0,
            in_vain: (0, BEGIN),
            changed: false,
        }
    }

    /// Packets come as `words` say; then workers go on until nothing waits, or for long enough.
    fn traffic(&mut self, words: &mut Words<'_>) {
        self.steps = 0;
        for arrival in words.arrivals() {
            self.run_until(self.now + arrival.after);
            let queue = arrival.queue % self.workers.len();
            self.workers[queue].io_mut().offer(arrival.flow, arrival.len);
            self.asks[queue] = self.now;
        }
        self.run_until(END);
    }

    /// Steps workers that are due, until `until` at most.
    fn run_until(&mut self, until: Nanos) {
        while self.steps < STEPS_MOST
            && let Some(queue) = (0..self.asks.len()).min_by_key(|queue| self.asks[*queue])
            && self.asks[queue] <= until
            && self.now < END
        {
            self.now = self.now.max(self.asks[queue]);
            self.step(queue);
        }
        if until != END {
            self.now = self.now.max(until);
            return;
        }
        let waits = |worker: &Worker<Ports>| !worker.backlog(PortId::SECOND).is_empty();
        let stuck = self.asks.iter().all(|at| *at == Nanos::MAX) && self.workers.iter().any(waits);
        assert!(!stuck, "packets wait, and nobody asks again");
    }

    fn step(&mut self, queue: usize) {
        let (now, worker) = (self.now, &mut self.workers[queue]);
        let before = moved(worker);
        let activity = worker.step(now);
        let after = moved(worker);
        let queued = u64::from(worker.backlog(PortId::SECOND).packets);
        let unaccounted = worker.counters(PortId::SECOND).unaccounted(queued);
        assert_eq!(unaccounted, 0, "packets are unaccounted for");
        for sent in worker.io_mut().take_sent() {
            self.ceilings.sent(&sent, now);
        }
        self.asks[queue] = match activity {
            Activity::Busy => now + STEP,
            Activity::Idle(pause) | Activity::Blocked(pause) => pause.until.max(now + Nanos(1)),
        };
        self.steps += 1;
        let (steps, since) = self.in_vain;
        self.in_vain = if after == before { (steps + 1, since) } else { (0, now) };
        let spins = steps >= IN_VAIN.0 && now.since(since) < IN_VAIN.1;
        assert!(!spins, "workers ask without end, and nothing moves");
    }

    /// Runs `plan` from now on.
    fn change(&mut self, plan: Plan) {
        let (installation, specs) = Installation::reconcile(plan, Some(&self.installation));
        installation.commit();
        for (queue, (worker, spec)) in self.workers.iter_mut().zip(specs).enumerate() {
            worker.update(PortId::SECOND, spec, self.now);
            self.asks[queue] = self.now;
        }
        self.ceilings = Ceilings::new(installation.plan());
        self.installation = installation;
        self.changed = true;
    }

    /// Compares the counters. Returns how many packets have left.
    fn finish(self) -> u64 {
        let stats: Vec<_> =
            self.workers.iter().map(|worker| worker.qdisc_stats(PortId::SECOND)).collect();
        let nodes = self.installation.gather(&stats);
        if !self.changed {
            ceilings::totals(self.installation.plan(), &nodes, self.now.since(BEGIN));
            for stats in stats.iter().filter_map(|stats| stats.first()) {
                self.ceilings.agree(stats);
            }
        }
        self.workers.iter().map(|worker| worker.counters(PortId::SECOND).tx_packets).sum()
    }
}

/// How many packets a worker has received, sent and dropped so far.
fn moved(worker: &Worker<Ports>) -> u64 {
    let counters = worker.counters(PortId::SECOND);
    counters.rx_packets + counters.tx_packets + counters.drops.total()
}
