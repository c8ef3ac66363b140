//! Boxes that share a limit: each an instance of Narrows between a client and a server, with an
//! agent and a real NATS server beside it. Rates are taken at the receivers.

use crate::setup::{NARROWS, Scratch, flood, run, wait_until};
use narrows_testbed::Testbed;
use narrows_testbed::bed::{PORT_B, SERVER};
use narrows_testbed::fleet::{self, Fleet};
use narrows_testbed::flood::Running;
use narrows_testbed::narrows::Instance;
use narrows_testbed::together::Sampler;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The limit of all boxes.
pub const LIMIT: f64 = 40e6;
/// What a box sends if it has something to send.
const LOAD: f64 = 60e6;
/// The bucket of each box, in bytes.
const BURST: f64 = 8_000.0;
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Over which time a rate is taken.
const WINDOW: Duration = Duration::from_millis(500);

/// The agent, which is built beside the program.
pub fn agent() -> Option<PathBuf> {
    let program = Path::new(NARROWS).with_file_name("narrows-fleet");
    if !program.exists() {
        eprintln!("SKIPPED: narrows-fleet is not there: make programs");
        return None;
    }
    if let Err(refusal) = fleet::check() {
        eprintln!("SKIPPED: {refusal}");
        return None;
    }
    Some(program)
}

/// Boxes, each between a client and a server.
pub struct Boxes {
    sampler: Sampler,
    pub fleet: Fleet,
    instances: Vec<Option<Instance>>,
    pub beds: Vec<Testbed>,
    /// The policy of each. It is in force from the first packet on, as on a box that comes back.
    policy: Scratch,
}

impl Boxes {
    /// So many, whose share of the limit `line` is in these words. No agent runs.
    pub fn up(program: &Path, count: usize, share: &str) -> Self {
        let beds: Vec<Testbed> = (0..count).map(|_| Testbed::up(2).unwrap()).collect();
        let shapers = beds.iter().map(|bed| bed.shaper().clone()).collect();
        let fleet = Fleet::over(program, shapers).unwrap();
        let ends: Vec<_> = beds.iter().map(|bed| (bed.server(), SERVER)).collect();
        let sampler = Sampler::over(&ends).unwrap();
        let instances = beds.iter().map(|_| None).collect();
        let policy = format!(
            "qdisc add dev {PORT_B} root tbf rate 40mbit burst 8000 limit 60000 fleet line {share}\n"
        );
        let policy = Scratch::new("fleet-line.tc", &policy);
        let mut boxes = Self { sampler, fleet, instances, beds, policy };
        (0..count).for_each(|number| boxes.start_instance(number));
        boxes
    }

    pub fn start_instance(&mut self, number: usize) {
        let arguments = ["--fail-closed", "--batch", self.policy.path()];
        self.instances[number] = Some(run(&self.beds[number], &arguments));
    }

    /// Kills everything that the box `number` runs.
    pub fn kill(&mut self, number: usize) {
        self.instances[number].take().unwrap().kill().unwrap();
        self.fleet.kill_agent(number).unwrap();
        self.fleet.kill_server(number).unwrap();
    }

    /// Sends through the box `number` more than the limit.
    pub fn flood(&self, number: usize) -> Running {
        let ports: Vec<u16> = (1000..1032).collect();
        flood(&self.beds[number], &ports, 1000, LOAD)
    }

    /// Waits until all receivers have had these rates from now on, each within a twentieth of the
    /// limit.
    #[track_caller]
    pub fn wait_for<const N: usize>(&self, what: &str, wanted: [f64; N]) {
        assert_eq!(wanted.len(), self.beds.len());
        let near = |(is, wanted): (&f64, f64)| (is - wanted).abs() <= LIMIT / 20.0;
        let began = self.sampler.now();
        wait_until(what, PATIENCE, || {
            let rates = self.sampler.rates(WINDOW);
            let is_read = self.sampler.now() >= began + WINDOW && rates.len() == wanted.len();
            is_read && rates.iter().zip(wanted).all(near)
        });
        let took = self.sampler.now() - began;
        eprintln!("{what}: {:.2?} Mbit/s after {took:.1?}", self.megabits());
    }

    fn megabits(&self) -> Vec<f64> {
        self.sampler.rates(WINDOW).iter().map(|rate| rate / 1e6).collect()
    }

    /// Waits until `narrows fleet show` on the box `number` has these words.
    #[track_caller]
    pub fn wait_until_shown(&self, number: usize, words: &str) {
        wait_until(words, PATIENCE, || self.fleet.run(number, &["show"]).unwrap().contains(words));
    }

    /// Never more than the limit over any tenth of a second, but for what the buckets hold; and no
    /// packet is missing. Loads have ended.
    #[track_caller]
    pub fn assert_limit_was_kept(self) {
        let (window, now) = (Duration::from_millis(100), self.sampler.now());
        let worst = self.sampler.samples().excess(LIMIT, window, Duration::ZERO, now);
        eprintln!("most in 100 ms: {:.0} bytes above the limit", worst.bytes);
        assert!(worst.bytes <= self.beds.len() as f64 * BURST, "{worst:?}");
        for instance in self.instances.into_iter().flatten() {
            assert_eq!(instance.wait_for_rest().unwrap(), 0, "packets are missing");
        }
    }
}
