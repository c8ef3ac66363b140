//! Agents over a real cluster, with data planes that only count: who lends what to whom, and that
//! the sum of what is in force stays within the limit.

use narrows_fleet::agent::Agent;
use narrows_fleet::clock;
use narrows_fleet::config::{Config, seed};
use narrows_fleet::engine::nats::Nats;
use narrows_fleet::plane::{Plane, PlaneError};
use narrows_fleet::subjects::Subjects;
use narrows_snapshot::{FLEET_FLOOR, FLEET_HOLD_NS, FleetFacts, FleetOrder, SharedLimit};
use narrows_testbed::fleet::{self, Fleet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

const PROGRAM: &str = env!("CARGO_BIN_EXE_narrows-fleet");
/// The limit of all boxes, and what each owns of it.
const LIMIT: u64 = 300_000_000;
const SAFE: u64 = 100_000_000;
/// Long enough for what happens.
const PATIENCE: Duration = Duration::from_secs(15);

/// What is in force on a box, and what its load is.
#[derive(Debug)]
struct State {
    lent_bps: u64,
    borrowed_bps: u64,
    deadline_ns: u64,
    began_ns: u64,
    load_bps: u64,
    sent_bytes: u64,
    counted_ns: u64,
    dropped_packets: u64,
}

/// A data plane with one limit, which follows the rules of the real one.
#[derive(Clone, Debug)]
struct Counting(Arc<Mutex<State>>);

impl Counting {
    fn new() -> Self {
        let now = clock::now_ns();
        Self(Arc::new(Mutex::new(State {
            lent_bps: SAFE - SAFE / FLEET_FLOOR,
            borrowed_bps: 0,
            deadline_ns: 0,
            began_ns: now,
            load_bps: 0,
            sent_bytes: 0,
            counted_ns: now,
            dropped_packets: 0,
        })))
    }

    fn load(&self, bps: u64) {
        self.0.lock().unwrap().load_bps = bps;
    }

    fn in_force(&self) -> u64 {
        self.0.lock().unwrap().in_force(clock::now_ns())
    }
}

impl State {
    fn in_force(&self, now: u64) -> u64 {
        let end = self.deadline_ns.max(self.began_ns);
        if now < self.deadline_ns {
            SAFE - self.lent_bps + self.borrowed_bps
        } else if now < end + FLEET_HOLD_NS {
            SAFE - self.lent_bps
        } else {
            SAFE
        }
    }
}

impl Plane for Counting {
    async fn ask(&mut self, order: FleetOrder) -> Result<FleetFacts, PlaneError> {
        let now = clock::now_ns();
        let mut state = self.0.lock().unwrap();
        let passed = (now - state.counted_ns) as f64 / 1e9;
        let sent = state.load_bps.min(state.in_force(now));
        state.sent_bytes += (sent as f64 / 8.0 * passed) as u64;
        state.dropped_packets += u64::from(state.load_bps > sent);
        state.counted_ns = now;
        if order.deadline_ns > now {
            state.deadline_ns = order.deadline_ns;
            for share in order.shares.iter().filter(|share| share.name == "all") {
                (state.lent_bps, state.borrowed_bps) = (share.lent_bps, share.borrowed_bps);
            }
        }
        let limit = SharedLimit {
            name: "all".into(),
            port: "eth0".into(),
            at: "1:".into(),
            limit_bps: LIMIT,
            safe_bps: SAFE,
            lent_bps: state.lent_bps,
            borrowed_bps: state.borrowed_bps,
            in_force_bps: state.in_force(now),
            sent_bytes: state.sent_bytes,
            backlog_bytes: if state.load_bps > sent { 100_000 } else { 0 },
            dropped_packets: state.dropped_packets,
            ..SharedLimit::default()
        };
        let FleetOrder { since, .. } = order;
        Ok(FleetFacts {
            now_ns: now,
            deadline_ns: state.deadline_ns,
            cursor: since + 1,
            limits: vec![limit],
            gone: Vec::new(),
        })
    }
}

/// An agent in a thread of its own; ends when dropped.
struct Running {
    plane: Counting,
    end: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Running {
    fn start(fleet: &Fleet, number: usize) -> Self {
        let config = Config::read(&fleet.config(number)).unwrap();
        let namespace = fleet.namespace(number).clone();
        let plane = Counting::new();
        let (end, ended) = oneshot::channel();
        let inside = plane.clone();
        let thread = std::thread::spawn(move || {
            let work = || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                runtime.block_on(async {
                    let seed = config.link.nkey.as_deref().map(seed).transpose()?;
                    let subjects = Subjects::new(config.fleet.clone(), config.me.clone());
                    let engine = Nats::connect(&config.link, seed, subjects).await.unwrap();
                    let (_asked, questions) = mpsc::channel(1);
                    let agent = Agent::new(config, inside, engine, questions)?;
                    agent.run(async { drop(ended.await) }).await;
                    Ok(())
                })
            };
            namespace.enter(work).unwrap();
        });
        Self { plane, end: Some(end), thread: Some(thread) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Waits until it `holds`, while the sum of what is in force never exceeds the limit.
#[track_caller]
fn wait_until(what: &str, planes: &[Counting], holds: impl Fn(&[u64]) -> bool) -> Duration {
    let begin = Instant::now();
    loop {
        let in_force: Vec<u64> = planes.iter().map(Counting::in_force).collect();
        let sum: u64 = in_force.iter().sum();
        // The readings are some microseconds apart; a change between two would show as a sum of
        // both. A second look says whether it was.
        let again: u64 = planes.iter().map(Counting::in_force).sum();
        assert!(sum.min(again) <= LIMIT, "{in_force:?}");
        if holds(&in_force) {
            return begin.elapsed();
        }
        assert!(begin.elapsed() < PATIENCE, "not {what} within {PATIENCE:?}: {in_force:?}");
        sleep(Duration::from_millis(2));
    }
}

#[test]
fn what_one_box_does_not_need_is_used_by_another_until_wires_and_agents_fail() {
    if let Err(refusal) = fleet::check() {
        eprintln!("SKIPPED: {refusal}");
        return;
    }
    let mut fleet = Fleet::bare(Path::new(PROGRAM), 3).unwrap();
    let mut agents: Vec<Running> = (0..3).map(|number| Running::start(&fleet, number)).collect();
    let planes: Vec<Counting> = agents.iter().map(|agent| agent.plane.clone()).collect();

    planes[0].load(1_000_000_000);
    let time = wait_until("nearly all at the first box", &planes, |it| it[0] > LIMIT * 9 / 10);
    eprintln!("the first box has {} Mbit/s after {time:?}", planes[0].in_force() / 1_000_000);

    planes[1].load(1_000_000_000);
    let time = wait_until("half at the second", &planes, |it| it[1] > LIMIT * 4 / 10);
    eprintln!("the second box has {} Mbit/s after {time:?}", planes[1].in_force() / 1_000_000);

    fleet.kill_server(1).unwrap();
    sleep(Duration::from_millis(1_500));
    wait_until("half at the second, through another server", &planes, |it| {
        it[1] > LIMIT * 4 / 10 && it[0] > LIMIT * 4 / 10
    });
    fleet.start_server(1).unwrap();

    fleet.wires.set(0, false).unwrap();
    let time = wait_until("the first box at its safe share", &planes, |it| it[0] == SAFE);
    eprintln!("cut off, the first box has its safe share after {time:?}");
    wait_until("the second with the third's, too", &planes, |it| it[1] > LIMIT * 6 / 10);
    fleet.wires.set(0, true).unwrap();
    let time = wait_until("half at the first again", &planes, |it| it[0] > LIMIT * 4 / 10);
    eprintln!(
        "mended, the first box has {} Mbit/s after {time:?}",
        planes[0].in_force() / 1_000_000
    );

    drop(agents.remove(1));
    wait_until("the second, without its agent, at its safe share", &planes, |it| it[1] == SAFE);
    wait_until("the first with the third's, too", &planes, |it| it[0] > LIMIT * 6 / 10);
}
