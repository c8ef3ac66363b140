//! What the tests share: turns, an instance, a steady flood, and packet conservation.

use crate::stalls;
use narrows_testbed::accounting::{Books, Devices, Direction, directions};
use narrows_testbed::bed::{CLIENT, PORT_A, PORT_B, SERVER, SINK_MAC};
use narrows_testbed::flood::{Flood, Pace, Running};
use narrows_testbed::narrows::Instance;
use narrows_testbed::requirements::{self, ETHTOOL, IP, PING, TC, TCPDUMP};
use narrows_testbed::{Namespace, Testbed, frames};
use serde_json::Value;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The program under test.
pub const NARROWS: &str = env!("CARGO_BIN_EXE_narrows");

/// The time limit of a test, once it is its turn. A longer one would block all others.
const TEST_TIME: Duration = Duration::from_secs(180);

/// Selects the tests that run: `counts` or `measures`; all if it is not set. The others pass at
/// once.
const TURNS: &str = "NARROWS_TURNS";

/// How many tests run concurrently: processors are idle for most of a test. One that measures may
/// fail for that. Then `.ci/again` runs it alone.
const AT_ONCE: usize = 3;

/// What a test asserts. Tests of different kinds do not run concurrently: those that count load the
/// machine in ways that would disturb most measurements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Behaviour, and numbers of packets.
    Counts,
    /// A rate or a time.
    Measures,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Counts => "counts",
            Self::Measures => "measures",
        }
    }
}

/// The tests that run, and those that wait for their turn.
static MACHINE: Mutex<Machine> =
    Mutex::new(Machine { kind: Kind::Counts, running: 0, waiting: [0; 2], is_alone: false });

/// Notified of every change of [`MACHINE`].
static CHANGED: Condvar = Condvar::new();

#[derive(Debug)]
struct Machine {
    /// The kind of the tests that run, or ran last.
    kind: Kind,
    running: usize,
    /// By kind.
    waiting: [usize; 2],
    /// Whether the one that runs wants no other beside it.
    is_alone: bool,
}

impl Machine {
    fn may_begin(&self, kind: Kind, alone: bool) -> bool {
        let is_its_turn =
            kind == self.kind || (self.running == 0 && self.waiting[self.kind as usize] == 0);
        let room = if alone { 1 } else { AT_ONCE };
        is_its_turn && !self.is_alone && self.running < room
    }
}

fn machine() -> MutexGuard<'static, Machine> {
    // A failed test leaves nothing behind that affects the next one.
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A test's turn at the machine, which ends when it is dropped.
pub struct Turn {
    kind: Kind,
    begin: Instant,
    /// Closed at the end of the turn.
    _end: mpsc::Sender<()>,
}

impl Turn {
    /// Waits for the turn. `None`, with a message, if the test cannot run here or is not chosen.
    fn begin(kind: Kind, alone: bool) -> Option<Self> {
        let is_chosen = std::env::var(TURNS).map_or(true, |chosen| chosen == kind.name());
        if !is_chosen || !can_run() {
            return None;
        }
        stalls::watch();
        let mut waiting = machine();
        waiting.waiting[kind as usize] += 1;
        let waited = CHANGED.wait_while(waiting, |machine| !machine.may_begin(kind, alone));
        let mut machine = waited.unwrap_or_else(PoisonError::into_inner);
        machine.waiting[kind as usize] -= 1;
        machine.running += 1;
        (machine.kind, machine.is_alone) = (kind, alone);
        drop(machine);
        CHANGED.notify_all();
        let (end, ended) = mpsc::channel();
        let test = std::thread::current().name().unwrap_or_default().to_owned();
        std::thread::spawn(move || {
            if ended.recv_timeout(TEST_TIME) == Err(RecvTimeoutError::Timeout) {
                // The harness shows no output of a test that does not end.
                let _ = writeln!(std::io::stderr(), "{test} takes longer than {TEST_TIME:?}");
                std::process::exit(1);
            }
        });
        Some(Self { kind, begin: Instant::now(), _end: end })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // The harness does not print the time that each test takes. `.ci/again` reads these lines.
        let test = std::thread::current().name().unwrap_or_default().to_owned();
        let time = self.begin.elapsed().as_secs_f32();
        let stall = stalls::longest_since(self.begin);
        let how = if stall.is_some() { "stalled" } else { self.kind.name() };
        let mut line = format!("{time:6.1} s {how:8} {test}\n");
        if let Some(stall) = stall {
            line += &format!("  the machine stood still for {stall:.1?} meanwhile\n");
        }
        let _ = std::io::stderr().write_all(line.as_bytes());
        let mut machine = machine();
        machine.running -= 1;
        machine.is_alone = false;
        drop(machine);
        CHANGED.notify_all();
    }
}

/// The turn of a test of a rate or a time.
pub fn turn_to_measure() -> Option<Turn> {
    Turn::begin(Kind::Measures, false)
}

/// The turn of a test that leaves nothing of the machine to others: none runs beside it.
pub fn turn_to_measure_alone() -> Option<Turn> {
    Turn::begin(Kind::Measures, true)
}

/// The turn of a test of behaviour, or of numbers of packets.
pub fn turn_to_count() -> Option<Turn> {
    Turn::begin(Kind::Counts, false)
}

/// The same, of a test that looks at what is there once on a machine: none runs beside it.
pub fn turn_to_count_alone() -> Option<Turn> {
    Turn::begin(Kind::Counts, true)
}

fn can_run() -> bool {
    let refusal = requirements::check(&[IP, TC, ETHTOOL, PING, TCPDUMP]).err();
    if let Some(refusal) = &refusal {
        eprintln!("SKIPPED: {refusal}");
    }
    refusal.is_none()
}

/// Starts Narrows between the ports of `bed`.
pub fn run(bed: &Testbed, arguments: &[&str]) -> Instance {
    Instance::start(bed, Path::new(NARROWS), arguments).unwrap()
}

/// The program with `arguments` in the shaper's namespace, run to its end.
pub fn narrows(bed: &Testbed, arguments: &[&str]) -> Output {
    bed.shaper().command(NARROWS).args(arguments).output().unwrap()
}

/// Runs `narrows tc`.
pub fn tc(bed: &Testbed, words: &str) -> Output {
    let words: Vec<&str> = ["tc"].into_iter().chain(words.split_whitespace()).collect();
    narrows(bed, &words)
}

/// The port `name` in the output of `narrows show --json`.
pub fn port_in<'a>(shown: &'a Value, name: &str) -> &'a Value {
    let ports = shown["ports"].as_array().unwrap();
    ports.iter().find(|port| port["name"] == name).unwrap()
}

/// The standard error of a program.
pub fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Asserts that `output` failed with `code` and has `words` on standard error.
#[track_caller]
pub fn assert_refused(output: &Output, code: i32, words: &[&str]) {
    let said = complaint(output);
    assert_eq!(output.status.code(), Some(code), "{said}");
    for word in words {
        assert!(said.contains(word), "the refusal does not say {word:?}:\n{said}");
    }
}

/// Lets `instance` read its policy file again.
pub fn hang_up(instance: &Instance) {
    let id = instance.id().to_string();
    assert!(Command::new("kill").args(["-s", "HUP", &id]).status().unwrap().success());
}

/// All of `narrows show --json`.
pub fn show(bed: &Testbed) -> Value {
    let output = narrows(bed, &["show", "--json"]);
    assert!(output.status.success(), "{}", complaint(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Has `send` send datagrams of so many bytes for a while, one each time that it is called, at so
/// many bits a second. Returns how many.
pub fn paced(bytes: usize, bits: f64, time: Duration, mut send: impl FnMut()) -> u64 {
    let begin = Instant::now();
    let mut sent = 0;
    while begin.elapsed() < time {
        let due = (begin.elapsed().as_secs_f64() * bits / (8 * bytes) as f64) as u64;
        while sent < due {
            send();
            sent += 1;
        }
        sleep(Duration::from_millis(1));
    }
    sent
}

/// Waits until it `holds`, for at most `patience`.
#[track_caller]
pub fn wait_until(what: &str, patience: Duration, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + patience;
    while !holds() {
        assert!(Instant::now() < deadline, "not {what} within {patience:?}");
        sleep(Duration::from_millis(50));
    }
}

/// Waits until `narrows show --json` satisfies `wanted`, for at most thirty seconds.
#[track_caller]
pub fn wait_for(bed: &Testbed, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let now = show(bed);
        if wanted(&now) {
            return now;
        }
        assert!(Instant::now() < deadline, "not {what} within 30 s: {now:#}");
        sleep(Duration::from_millis(50));
    }
}

/// `ip` with `words` in `namespace`.
pub fn ip(namespace: &Namespace, words: &str) -> String {
    namespace.run("ip", &words.split_whitespace().collect::<Vec<_>>()).unwrap()
}

/// The properties of the interfaces in the shaper's namespace that Narrows can change: master, MTU,
/// XDP program, and whether the interface is up.
pub fn links(bed: &Testbed) -> Vec<String> {
    let links: Value = serde_json::from_str(&ip(bed.shaper(), "-d -j link show")).unwrap();
    let one = |link: &Value| {
        let is_up = link["flags"].as_array().unwrap().contains(&"UP".into());
        let keys = ["ifname", "master", "mtu", "xdp", "promiscuity"];
        format!("up {is_up} {}", keys.map(|key| format!("{key} {}", link[key])).join(" "))
    };
    links.as_array().unwrap().iter().map(one).collect()
}

/// Sets the MTU of every device of `bed`.
pub fn set_mtu(bed: &Testbed, mtu: u32) {
    for (namespace, device) in devices(bed) {
        ip(namespace, &format!("link set dev {device} mtu {mtu}"));
    }
}

/// Every device, from the client's to the server's.
pub fn devices(bed: &Testbed) -> [(&Namespace, &'static str); 4] {
    [(bed.client(), CLIENT), (bed.shaper(), PORT_A), (bed.shaper(), PORT_B), (bed.server(), SERVER)]
}

/// A steady flood from the client to the server's device: frames of `bytes` bytes from
/// `source_ports` in turn, `bits` a second in all. Ends by itself after a minute.
pub fn flood(bed: &Testbed, source_ports: &[u16], bytes: usize, bits: f64) -> Running {
    flood_from(bed.client(), CLIENT, source_ports, bytes, bits)
}

/// Floods `device` in `namespace` with frames of `bytes` bytes from `source_ports` in turn, `bits`
/// a second in all, for a minute.
pub fn flood_from(
    namespace: &Namespace,
    device: &str,
    source_ports: &[u16],
    bytes: usize,
    bits: f64,
) -> Running {
    let flood = Flood {
        frames: frames::udp_flows(source_ports, SINK_MAC, bytes).unwrap(),
        pace: Pace::Bits(bits),
        limit: Duration::from_secs(60),
        core: None,
    };
    flood.start(namespace, device).unwrap()
}

/// Waits until nothing moves and asserts that every frame is accounted for, in both directions.
/// Returns the balance.
#[track_caller]
pub fn assert_balanced(books: &mut Books, instance: &Instance) -> (Devices, [Direction; 2]) {
    let devices = books.settle().unwrap();
    let directions = directions(&devices, &instance.show().unwrap()).unwrap();
    for direction in &directions {
        assert_eq!(direction.unaccounted(), 0, "{directions:#?}\n{devices:#?}");
    }
    (devices, directions)
}

/// A path for a temporary file, unique among concurrent tests.
pub fn own_path(name: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("nrw-{}-{number}-{name}", std::process::id()))
}

/// A file that is removed when this is dropped.
pub struct Scratch(PathBuf);

impl Scratch {
    /// A file with `text`, whose name ends in `name`.
    pub fn new(name: &str, text: &str) -> Self {
        let path = own_path(name);
        std::fs::write(&path, text).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
