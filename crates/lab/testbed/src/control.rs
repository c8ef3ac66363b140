//! How long it takes to change a policy of many circuits, and who waits meanwhile.
//!
//! A policy file of an instance between two `veth`s is replaced and read again: a first time, as it
//! was, with another comment, with another rate for every circuit. Then a batch changes every
//! circuit of a port. Meanwhile others ask again and again: the service manager for its watchdog,
//! `narrows show`, a single `narrows tc class change`, and a ping through the ports. For each the
//! longest wait counts. A command's wait includes the start of its process.

mod circuits;
mod report;

pub use circuits::policy;
pub use report::{Report, Row};

use crate::narrows::Instance;
use crate::ping::Ping;
use crate::progress::Progress;
use crate::requirements::{self, ETHTOOL, IP, PING, Refusal};
use crate::{Namespace, Testbed};
use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The numbers of circuits if no others are named.
pub const CIRCUITS: [u32; 3] = [10_000, 40_000, 100_000];

/// Queues of each port.
const QUEUES: u32 = 2;
/// A command that changes one class, to what it is.
const SINGLE: &str = "tc class change dev port-a classid 1:2 htb rate 1gbit ceil 100gbit prio 7";
/// How often the instance must tell the service manager that it is well: half of its timeout.
const BEAT: Duration = Duration::from_millis(200);
/// How long one change may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// Refuses if the benchmark cannot run.
pub fn check() -> Result<(), Refusal> {
    requirements::check(&[IP, ETHTOOL, PING])
}

/// Measures `program` with each number of `circuits`, and shows its progress on standard error.
pub fn run(program: &Path, circuits: &[u32]) -> Result<Report> {
    check()?;
    let mut progress = Progress::over(circuits.len() as u64);
    let mut rows = Vec::new();
    for &circuits in circuits {
        let title = format!("{circuits} circuits");
        progress.begin(&title);
        rows.extend(measure(program, circuits).with_context(|| title.clone())?);
        progress.end(&title);
    }
    drop(progress);
    Ok(Report::new(rows))
}

/// Files of a run, removed with it.
struct Files(PathBuf);

impl Files {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("nrw-control-bench-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn measure(program: &Path, circuits: u32) -> Result<Vec<Row>> {
    let files = Files::new()?;
    let (file, batch, socket) = (files.path("policy"), files.path("batch"), files.path("notify"));
    std::fs::write(&file, circuits::policy(1, 5))?;
    let manager = Manager { socket: UnixDatagram::bind(&socket)? };
    let bed = Testbed::up(QUEUES)?;
    let notify = format!("NOTIFY_SOCKET={}", socket.display());
    let timeout = format!("WATCHDOG_USEC={}", BEAT.as_micros() * 2);
    let (program_word, file_word) = (program.display().to_string(), file.display().to_string());
    let words = [notify.as_str(), &timeout, &program_word, "run", "--ports", "port-a,port-b"];
    let words = [&words[..], &["--batch", &file_word]].concat();
    let mut instance = Instance::start_command(&bed, Path::new("env"), &words)?;
    manager.until_ready()?;

    let mut rows = Vec::new();
    let same = circuits::policy(circuits, 5);
    let changes: [(&'static str, String); 4] = [
        ("first load", same.clone()),
        ("reload, unchanged", same.clone()),
        ("reload, another comment", format!("# again\n{same}")),
        ("reload, all changed", circuits::policy(circuits, 6)),
    ];
    for (change, text) in changes {
        std::fs::write(&file, &text)?;
        let row = beside(&bed, program, &manager, |manager| {
            let begin = Instant::now();
            instance.signal(Signal::SIGHUP)?;
            let beats = manager.until_ready()?;
            Ok((begin.elapsed(), beats))
        })?;
        rows.push(Row { circuits, change, lines: lines(&text), ..row });
    }
    let text = circuits::changes(circuits, 7);
    std::fs::write(&batch, &text)?;
    let row = beside(&bed, program, &manager, |manager| {
        let mut command = bed.shaper().command(program);
        command.args(["tc", "-batch"]).arg(&batch);
        let begin = Instant::now();
        thread::scope(|scope| {
            let running = scope.spawn(|| -> Result<Duration> {
                let ended = command.status()?;
                ensure!(ended.success(), "the batch ended with {ended}");
                Ok(begin.elapsed())
            });
            let beats = manager.while_running(|| running.is_finished())?;
            let took = running.join().map_err(|_| anyhow::anyhow!("the batch panicked"))??;
            Ok((took, beats))
        })
    })?;
    rows.push(Row { circuits, change: "tc -batch, each class", lines: lines(&text), ..row });
    let log = instance.stop()?.1;
    ensure!(log.contains(", 0 unaccounted"), "packets are unaccounted for:\n{log}");
    Ok(rows)
}

fn lines(text: &str) -> u32 {
    text.lines().filter(|line| !line.starts_with('#')).count() as u32
}

/// Makes `change`, while others ask.
fn beside(
    bed: &Testbed,
    program: &Path,
    manager: &Manager,
    change: impl FnOnce(&Manager) -> Result<(Duration, Duration)>,
) -> Result<Row> {
    let is_over = AtomicBool::new(false);
    let ask = |words: &'static str| {
        let (shaper, is_over) = (bed.shaper(), &is_over);
        move || longest(shaper, program, words, is_over)
    };
    let ping = Ping::start(bed, PATIENCE)?;
    let (took, waits) = thread::scope(|scope| {
        let shows = scope.spawn(ask("show --json"));
        let single = scope.spawn(ask(SINGLE));
        let took = change(manager);
        is_over.store(true, Ordering::Relaxed);
        let longest = |asked: thread::ScopedJoinHandle<'_, Result<Duration>>| {
            asked.join().map_err(|_| anyhow::anyhow!("a question panicked"))?
        };
        Ok::<_, anyhow::Error>((took?, [longest(shows)?, longest(single)?]))
    })?;
    let ping = ping.stop()?;
    let (took, beat) = took;
    let [show, single] = waits;
    Ok(Row {
        circuits: 0,
        change: "",
        lines: 0,
        took_ms: ms(took),
        late_ms: ms(beat.saturating_sub(BEAT)),
        show_ms: ms(show),
        single_ms: ms(single),
        ping_ms: ping.percentile(100.0).map(ms).unwrap_or_default(),
        lost: ping.lost,
    })
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The longest that a command takes, given again and again until `is_over`.
fn longest(
    shaper: &Namespace,
    program: &Path,
    words: &str,
    is_over: &AtomicBool,
) -> Result<Duration> {
    let mut longest = Duration::ZERO;
    loop {
        let begin = Instant::now();
        let output = shaper.command(program).args(words.split(' ')).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "narrows {words}: {said}");
        longest = longest.max(begin.elapsed());
        if is_over.load(Ordering::Relaxed) {
            return Ok(longest);
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// The service manager.
struct Manager {
    socket: UnixDatagram,
}

impl Manager {
    /// Waits until the instance is ready. Returns the longest time between two beats.
    fn until_ready(&self) -> Result<Duration> {
        let mut is_ready = false;
        let longest = self.listen(|message| {
            is_ready |= message.is_some_and(|message| message.contains("READY=1"));
            is_ready
        })?;
        ensure!(is_ready, "not ready in time");
        Ok(longest)
    }

    /// The longest time between two beats until `is_over`.
    fn while_running(&self, is_over: impl Fn() -> bool) -> Result<Duration> {
        self.listen(|_| is_over())
    }

    fn listen(&self, mut is_over: impl FnMut(Option<&str>) -> bool) -> Result<Duration> {
        let (begin, mut last, mut longest) = (Instant::now(), Instant::now(), Duration::ZERO);
        self.socket.set_read_timeout(Some(Duration::from_millis(10)))?;
        let mut bytes = [0; 8192];
        while begin.elapsed() < PATIENCE {
            let message = self.socket.recv(&mut bytes).ok();
            let text = message.map(|len| String::from_utf8_lossy(&bytes[..len]).into_owned());
            longest = longest.max(last.elapsed());
            if text.as_ref().is_some_and(|text| text.contains("WATCHDOG=1")) {
                last = Instant::now();
            }
            if is_over(text.as_deref()) {
                break;
            }
        }
        Ok(longest)
    }
}
