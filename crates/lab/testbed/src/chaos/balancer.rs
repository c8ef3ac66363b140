//! Faults at a balancer: a host's port with a service, whose servers come, drain, go and come back.
//!
//! ```text
//!   client: 64 flows of datagrams ══ port-a │ services ▸ XDP_TX
//!   all servers, by MAC address   ══
//! ```
//!
//! Half of the flows live as long as the run, the others begin with each [epoch](super::epoch). The
//! last byte of the MAC address to which a datagram comes back says which server it went to. At the
//! end of each epoch
//!
//! - every datagram has come back, or was lost for a reason that something counted, or could have
//!   been destroyed by the fault; Narrows' own balance is even;
//! - each flow is at a server that may have it, and left the one before for a reason that the
//!   [model](model) knows;
//! - while no process was there, what came went to the box's own stack, which counted it;
//! - the services are what they were made, also after a start from `--state`.
//!
//! Non-goals: TCP, whose connections the end-to-end tests have; health checks; tunnels.

mod event;
mod model;
mod report;
mod site;

pub use report::Report;

use super::books::{self, Books};
use super::fault::IN_FLIGHT;
use super::frame::Way;
use super::outage;
use super::receiver::Receiver;
use super::rng::Rng;
use super::sender::{FLOWS, Log, now};
use super::traffic::Traffic;
use crate::Testbed;
use crate::progress::Progress;
use crate::{accounting, bed};
use anyhow::{Context, Result};
use event::{Event, Kind};
use model::{Flows, Times};
use serde::Serialize;
use site::Site;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Normal operation before and after an event.
const NORMAL: Duration = Duration::from_millis(400);
/// The least duration of an epoch: for the number of steps in the progress bar.
const EPOCH: Duration = Duration::from_millis(1600);

/// How to run it.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `narrows` program.
    pub program: PathBuf,
    /// The seed. If it is odd, servers take turns.
    pub seed: u64,
    /// How long new events are started.
    pub duration: Duration,
}

/// The result of one event.
#[derive(Clone, Debug, Serialize)]
struct Epoch {
    kind: Kind,
    what: String,
    books: Books,
    /// The longest time for which a flow got nothing through.
    outage_ms: f64,
    /// Flows that are at another server than before.
    moved: usize,
    broken: Vec<String>,
}

/// Runs it, with its progress on standard error.
pub fn run(options: &Options) -> Result<Report> {
    super::check()?;
    let bed = Testbed::up(1)?;
    let mut site = Site::up(&bed, &options.program, options.seed % 2 == 1)?;
    let mut rng = Rng::new(options.seed);
    let mut flows = Flows::default();
    let started = Instant::now();
    let steps = options.duration.as_millis().div_ceil(EPOCH.as_millis()).max(1);
    let mut progress = Progress::over(u64::try_from(steps)?);
    let (mut epochs, mut hand) = (Vec::new(), Vec::new());
    while epochs.is_empty() || started.elapsed() < options.duration {
        if !epochs.is_empty() && progress.is_over() {
            break;
        }
        let Some(kind) = rng.deal(&mut hand, &Kind::ALL) else { break };
        let event = Event::draw(kind, &mut rng, site.servers());
        progress.begin(&event.to_string());
        let epoch = epoch(&mut site, &mut flows, epochs.len(), event)
            .with_context(|| format!("{event}; narrows says:\n{}", site.log()))?;
        for broken in &epoch.broken {
            progress.end(&format!("BROKEN: {broken}"));
        }
        epochs.push(epoch);
    }
    drop(progress);
    Ok(Report::new(options.seed, site.takes_turns(), started.elapsed().as_secs(), epochs))
}

fn epoch(site: &mut Site<'_>, flows: &mut Flows, number: usize, event: Event) -> Result<Epoch> {
    let mut devices = accounting::Books::open(site.bed())?;
    site.open_books()?;
    let [client, _] = site.bed().ends();
    let receiver = Receiver::start(client)?;
    let before = site.servers().clone();
    let streams = site.send(number)?;
    sleep(NORMAL);
    let struck = now()?;
    let trace = event.strike(site)?;
    let undone = now()?;
    sleep(NORMAL);
    let logs: Vec<Log> = streams.into_iter().map(|one| site.sent(one)).collect::<Result<_>>()?;
    let unaccounted = site.rest()?;
    let devices = devices.settle()?;
    let heard = receiver.stop()?;
    let counted = site.counted(&devices)?;
    let traffic = Traffic::of(&logs, &heard.arrivals);
    let books = books::close(&traffic, &counted, &trace.destroyed, trace.bypassed);
    let change = model::Change {
        before: &before,
        after: site.servers(),
        gone: &trace.gone,
        is_forgotten: trace.is_forgotten,
        takes_turns: site.takes_turns(),
    };
    // Flows of the second stream begin with the epoch.
    flows.forget(1);
    let times = Times { struck, settled: undone + IN_FLIGHT };
    let judged = flows.judge(&traffic.received, &change, times);
    let outage_ms = outage::longest(&logs, &traffic).as_secs_f64() * 1e3;
    let mut broken = judged.broken;
    if books.unaccounted > 0 {
        broken.push(format!("{} datagrams unaccounted for", books.unaccounted));
    }
    if unaccounted != 0 {
        broken.push(format!("{unaccounted} packets are missing in Narrows' own balance"));
    }
    let lost: u64 = books.lost.values().sum();
    if event.kind.is_seamless() && lost > 0 {
        broken.push(format!("{lost} datagrams lost: {:?}", books.lost));
    }
    if event.kind.has_no_process() && counted.to_box == 0 {
        broken.push("without a process nothing went to the box".to_owned());
    }
    if !traffic.doubled.is_empty() {
        broken.push(format!("{} datagrams came back twice", traffic.doubled.len()));
    }
    if let Some(bound) = event.outage().filter(|bound| outage_ms > bound.as_secs_f64() * 1e3) {
        broken.push(format!("an outage of {outage_ms:.0} ms, above {bound:?}"));
    }
    let back = traffic.received.iter().filter(|one| one.at > undone);
    let back: BTreeSet<(u8, u16)> = back.map(|one| (one.stream, one.sent.flow)).collect();
    let silent = 2 * usize::from(FLOWS) - back.len();
    if silent > 0 {
        broken.push(format!("nothing of {silent} flows came back after the event"));
    }
    let saved = site.saved()?;
    if saved != site.lines() {
        broken.push(format!("the services are\n{saved}and should be\n{}", site.lines()));
    }
    let what = event.to_string();
    Ok(Epoch { kind: event.kind, what, books, outage_ms, moved: judged.moved, broken })
}

/// The way that datagrams go: from the client, to which they come back.
const WAY: Way = Way::Forth;
/// The balancer's port.
const PORT: &str = bed::PORT_A;
