//! What the tests share: turns, an instance, a steady flood, and packet conservation.

use narrows_testbed::accounting::{Books, Devices, Direction, directions};
use narrows_testbed::bed::{CLIENT, PORT_A, PORT_B, SERVER, SINK_MAC};
use narrows_testbed::flood::{Flood, Pace, Running};
use narrows_testbed::narrows::Instance;
use narrows_testbed::requirements::{self, ETHTOOL, IP, PING, TC, TCPDUMP};
use narrows_testbed::{Namespace, Testbed, frames};
use serde_json::Value;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The program under test.
pub const NARROWS: &str = env!("CARGO_BIN_EXE_narrows");

/// The time limit of a test, once it is its turn. A longer one would block all others.
const TEST_TIME: Duration = Duration::from_secs(180);

/// Selects the tests that run: `shared` or `alone`; all if it is not set. The others pass at once.
const TURNS: &str = "NARROWS_TURNS";

/// How many tests run concurrently if they share the machine.
const AT_ONCE: usize = 2;

/// The tests that run on the machine, and those that wait for it.
static MACHINE: Mutex<Machine> =
    Mutex::new(Machine { alone: false, sharing: 0, to_share: 0, for_alone: 0, gathered: false });

/// Notified of every change of [`MACHINE`].
static CHANGED: Condvar = Condvar::new();

/// The tests that run and wait. Sharing tests gather until as many wait as may run concurrently, or
/// no test waits for the machine alone; otherwise they would run one by one in between.
#[derive(Debug)]
struct Machine {
    alone: bool,
    sharing: usize,
    to_share: usize,
    for_alone: usize,
    /// The sharing tests have gathered, and go first.
    gathered: bool,
}

impl Machine {
    fn may_share(&mut self) -> bool {
        self.gathered |= self.for_alone == 0 || self.to_share >= AT_ONCE;
        !self.alone && self.sharing < AT_ONCE && self.gathered
    }

    fn may_be_alone(&self) -> bool {
        !self.alone && self.sharing == 0 && !self.gathered
    }
}

fn machine() -> MutexGuard<'static, Machine> {
    // A failed test leaves nothing behind that affects the next one.
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A test's turn at the machine, which ends when it is dropped.
pub struct Turn {
    alone: bool,
    begin: Instant,
    /// Closed at the end of the turn.
    _end: mpsc::Sender<()>,
}

impl Turn {
    fn begin(alone: bool) -> Self {
        let mut machine = machine();
        *if alone { &mut machine.for_alone } else { &mut machine.to_share } += 1;
        let must_wait = |it: &mut Machine| if alone { !it.may_be_alone() } else { !it.may_share() };
        let waited = CHANGED.wait_while(machine, must_wait);
        let mut machine = waited.unwrap_or_else(PoisonError::into_inner);
        if alone {
            machine.for_alone -= 1;
            machine.alone = true;
        } else {
            machine.to_share -= 1;
            machine.sharing += 1;
            machine.gathered &= machine.to_share > 0;
        }
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
        Self { alone, begin: Instant::now(), _end: end }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // The harness does not print the time that each test takes.
        let test = std::thread::current().name().unwrap_or_default().to_owned();
        let how = if self.alone { "alone" } else { "shared" };
        let _ = writeln!(
            std::io::stderr(),
            "{:6.1} s {how:6} {test}",
            self.begin.elapsed().as_secs_f32()
        );
        let mut machine = machine();
        if self.alone {
            machine.alone = false;
        } else {
            machine.sharing -= 1;
        }
        drop(machine);
        CHANGED.notify_all();
    }
}

/// Waits until no other test runs. For tests that measure a rate or a time. `None`, with a message,
/// if the test cannot run here.
pub fn turn() -> Option<Turn> {
    (is_chosen("alone") && can_run()).then(|| Turn::begin(true))
}

/// Waits until no test runs that needs the machine alone. For tests of behaviour, not of speed:
/// some of them run concurrently. `None` as in [`turn`].
pub fn shared_turn() -> Option<Turn> {
    (is_chosen("shared") && can_run()).then(|| Turn::begin(false))
}

fn is_chosen(turns: &str) -> bool {
    std::env::var(TURNS).map_or(true, |chosen| chosen == turns)
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

/// All of `narrows show --json`.
pub fn show(bed: &Testbed) -> Value {
    let output = narrows(bed, &["show", "--json"]);
    assert!(output.status.success(), "{}", complaint(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Waits until `narrows show --json` satisfies `wanted`, for at most ten seconds.
#[track_caller]
pub fn wait_for(bed: &Testbed, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let now = show(bed);
        if wanted(&now) {
            return now;
        }
        assert!(Instant::now() < deadline, "not {what} within 10 s: {now:#}");
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

/// The same from any device.
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
