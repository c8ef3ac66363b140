//! A coordination strategy of one's own, simulated beside the built-in ones.
//!
//! ```text
//! cargo run --release -p narrows-sim --example own_strategy [SCENARIO.toml]
//! ```
//!
//! The strategy is a ledger without shares: one atomic word holds the time up to which the rate is
//! sold, and each meter buys from it. The sum is exact and all of the rate is used, but it is not
//! fair: the queue that asks more often gets more. `fair` adds the shares (docs/coordination.md).
//!
//! A strategy outside `narrows-coordination` is a type that implements [`Meter`], and some state
//! that its meters share. The scenario says everything else: queues, cores, traffic, measures. To
//! give a strategy a name in `tc` and in `narrows sim`, see CONTRIBUTING.md.

use anyhow::Context;
use narrows_packet::Backlog;
use narrows_qdisc::{Contact, Meter, Share, Take};
use narrows_sim::engine;
use narrows_sim::measure::{Measure, Outcome};
use narrows_sim::scenario::{Case, Scenario};
use narrows_sim::setup::Setup;
use narrows_units::{Bytes, Nanos, Rate};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// One queue is offered half of the limit, one all of it, one twice as much.
const THREE_QUEUES: &str = r#"
title = "three queues under one limit"
strategies = ["equal", "fair"]
measures = ["utilization", "jain", "p99_us"]

[port]
queues = 3
rate = "1gbit"
burst = "20us of the limit, at least 3028"
qdisc = "tbf rate {rate} burst {burst} limit 256k coordination {strategy}"

[[traffic]]
name = "load"
kind = "poisson"
load = "350%"
flows = 70
spread = [1, 2, 4]

[run]
warmup = "20ms"
length = "200ms"

[sweep]
"port.rate" = ["100mbit", "1gbit", "10gbit"]
"#;

/// State that the meters share.
struct Ledger {
    rate: Rate,
    burst: Bytes,
    queues: u32,
    /// The time up to which the rate is sold, in nanoseconds.
    sold: AtomicU64,
}

/// One queue's meter.
struct QueueMeter {
    ledger: Arc<Ledger>,
    contact: Contact,
}

impl Meter for QueueMeter {
    /// Decides at departure, so there is nothing to stamp.
    fn stamp(&mut self, _cost: Bytes, _now: Nanos) -> Option<Nanos> {
        Some(Nanos::ZERO)
    }

    fn take(&mut self, cost: Bytes, _edt: Nanos, now: Nanos) -> Take {
        let ledger = &*self.ledger;
        let price = ledger.rate.time_for(cost).0;
        let oldest = now.0.saturating_sub(ledger.rate.time_for(ledger.burst).0);
        // Relaxed: the word is all that is shared, and nothing else is read because of it.
        let bought = ledger.sold.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |sold| {
            let until = sold.max(oldest) + price;
            (until <= now.0).then_some(until)
        });
        match bought {
            Ok(_) => {
                self.contact.updates += 1;
                Take::Granted
            }
            Err(sold) => {
                self.contact.reads += 1;
                Take::Wait(Nanos(sold.max(oldest) + price))
            }
        }
    }

    /// The others need not know what is queued here.
    fn report(&mut self, _backlog: Backlog, _now: Nanos) {}

    fn share(&self) -> Share {
        Share::one_of(self.ledger.queues)
    }

    fn longest(&self) -> Bytes {
        self.ledger.burst
    }

    /// For the cost model: a core pays for lines that others write.
    fn contact(&self) -> Contact {
        self.contact
    }
}

/// Runs `setup` with a meter at a ledger for each queue.
fn run(setup: &Setup) -> Result<Outcome, engine::SimError> {
    let ledger = Arc::new(Ledger {
        rate: setup.port.rate,
        burst: Bytes(setup.port.rate.bytes_in(Nanos::from_micros(20)).0.max(3028)),
        queues: setup.port.queues as u32,
        sold: AtomicU64::new(0),
    });
    let mut meters = |_queue: usize| -> Box<dyn Meter> {
        Box::new(QueueMeter { ledger: Arc::clone(&ledger), contact: Contact::default() })
    };
    engine::run_with_meters(setup, &mut meters, &mut |_| {})
}

fn print(case: &Case, strategy: &str, outcome: &Outcome) {
    let at: Vec<&str> = case.at.iter().map(|(_, value)| value.as_str()).collect();
    let measure = |measure| match outcome.measures.get(&measure) {
        Some(value) => format!("{value:.3}"),
        None => "-".to_owned(),
    };
    let [used, jain, p99] = [Measure::Utilization, Measure::Jain, Measure::P99Us].map(measure);
    let shares: Vec<String> =
        outcome.queue_percent.iter().map(|percent| format!("{percent:.1}")).collect();
    let [at, shares] = [at.join(" "), shares.join(" ")];
    println!("{at:<8} {strategy:<8} {used:>11} {jain:>6} {p99:>8}  {shares}");
}

fn main() -> anyhow::Result<()> {
    let (name, text) = match std::env::args().nth(1) {
        Some(file) => {
            let text = std::fs::read_to_string(&file).with_context(|| file.clone())?;
            (file, text)
        }
        None => ("three queues".to_owned(), THREE_QUEUES.to_owned()),
    };
    let scenario = Scenario::read(&name, &text, &[])?;
    println!("{name} (simulated): {}", scenario.about.title);
    let [utilization, jain, p99] = ["utilization", "jain", "p99, us"];
    println!("{:<8} {:<8} {utilization:>11} {jain:>6} {p99:>8}  % by queue", "at", "strategy");
    let first = scenario.strategies().first().copied().unwrap_or_default().to_owned();
    for case in &scenario.cases {
        // Every strategy of a point of the sweep has the same traffic, so ours runs once for each.
        if case.strategy == first {
            print(case, "ledger", &run(&case.setup)?);
        }
        print(case, &case.strategy, &engine::run(&case.setup, &mut |_| {})?);
    }
    Ok(())
}
