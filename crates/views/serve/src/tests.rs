//! What `narrows serve` takes with many classes, in a process of its own.
//!
//! The test starts itself again as the process that serves. Here are the instance that it asks over
//! a control socket, a browser and Prometheus.

mod instance;

use crate::{Options, http};
use instance::{Instance, Leaf};
use narrows_control::{Client, NamesFile};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Tells the process that serves where the socket of the instance is.
const SOCKET: &str = "NARROWS_TEST_SOCKET";
/// What it prints before its address.
const LISTENS: &str = "listens at ";
/// The periods in which it is asked, and how many whole answers each client gets: from the third
/// on, memory of earlier ones is used again.
const PERIODS: usize = 4;
/// Without optimisation to parse as many takes longer than an instance has to answer. What memory
/// holds is the same in each build.
const CLASSES: usize = if cfg!(debug_assertions) { 12_000 } else { 60_000 };
/// What it takes without classes, in bytes.
const REST_MAX: u64 = 24_000_000;

/// The process that serves; ended when dropped.
struct Serve {
    process: Child,
    /// What it prints. It ends if nobody can read that.
    output: BufReader<ChildStdout>,
    address: String,
}

impl Serve {
    /// As which this test continues in the process that serves.
    fn be(socket: PathBuf) {
        let options = Options {
            listen: ([127, 0, 0, 1], 0).into(),
            credentials: None,
            dev: None,
            downlink: None,
            interval: Duration::from_secs(1),
            classes_max: 500,
            names: NamesFile::open(None).unwrap(),
            agent: narrows_control::fleet_agent::AgentSocket::default(),
            api: None,
            history: None,
            history_max: 10,
            alarms: None,
        };
        let client = Client::at(socket);
        let ask = move |_| Ok(client.snapshot(true)?.into());
        http::serve_from(ask, options, |address| println!("\n{LISTENS}{address}")).unwrap();
    }

    fn start(test: &str, socket: &Path) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &format!("tests::{test}"), "--nocapture"])
            .env(SOCKET, socket)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let mut serve = Self { process, output, address: String::new() };
        serve.address = serve.address_printed();
        serve
    }

    fn address_printed(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "it ended");
            if let Some(address) = line.strip_prefix(LISTENS) {
                return address.trim_end().to_owned();
            }
        }
    }

    /// The length of the answer to a request for `path`, and its last bytes.
    fn get(&self, path: &str) -> (usize, Vec<u8>) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let (mut length, mut last, mut part) = (0, Vec::new(), vec![0; 1 << 16]);
        loop {
            let read = stream.read(&mut part).unwrap();
            if read == 0 {
                return (length, last);
            }
            length += read;
            last.extend_from_slice(&part[..read]);
            last.drain(..last.len().saturating_sub(1000));
        }
    }

    /// The most memory that it had, in bytes.
    fn peak(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id()));
        let status = status.unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The peak of the process that serves `classes` classes, each with a `leaf`, to a browser and to
/// Prometheus; none in that process itself.
fn peak(test: &str, classes: usize, leaf: Leaf) -> Option<u64> {
    if let Some(socket) = std::env::var_os(SOCKET) {
        Serve::be(socket.into());
        return None;
    }
    let instance = Instance::start(test, classes, leaf);
    let serve = Serve::start(test, instance.socket());
    let is_over = AtomicBool::new(false);
    let whole_answers = [const { AtomicUsize::new(0) }; 2];
    let clients = [
        ("/api/snapshot", "\"events\":[]}}", instance.bytes() / 2),
        ("/metrics", "# TYPE narrows_tin_delay_seconds histogram\n", 50_000),
    ];
    thread::scope(|scope| {
        for ((path, end, least), whole_answers) in clients.into_iter().zip(&whole_answers) {
            let (serve, is_over, instance) = (&serve, &is_over, &instance);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let reading = instance.reading();
                    let (length, last) = serve.get(path);
                    drop(reading);
                    let is_whole = String::from_utf8_lossy(&last).contains(end) && length > least;
                    whole_answers.fetch_add(is_whole.into(), Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(100));
                }
            });
        }
        let enough = || {
            whole_answers
                .iter()
                .all(|whole_answers| whole_answers.load(Ordering::Relaxed) >= PERIODS)
        };
        let end = Instant::now() + Duration::from_secs(300);
        while (instance.answers() < PERIODS || !enough()) && Instant::now() < end {
            thread::sleep(Duration::from_millis(100));
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(enough(), "{whole_answers:?} whole answers in {} periods", instance.answers());
    });
    let peak = serve.peak();
    let json = instance.bytes() / classes;
    println!("{classes} classes with {leaf:?}, {json} B of JSON each: {} kB at most", peak / 1000);
    Some(peak)
}

/// That each class takes no more than `class_max` bytes in the two snapshots that are held at a
/// time, and in the rows of the page. Of `MemoryMax` in `narrows-serve.service`, 60,000 classes
/// leave room for clients that read slowly, and hold up to two snapshots more
/// ([`crate::download`]).
fn check(test: &str, leaf: Leaf, class_max: u64) {
    let Some(peak) = peak(test, CLASSES, leaf) else { return };
    let most = REST_MAX + class_max * CLASSES as u64;
    assert!(peak < most, "{peak} B of {most} B");
}

#[test]
fn a_class_with_flows_takes_little_memory() {
    check("a_class_with_flows_takes_little_memory", Leaf::FqCodel, 2_400);
}

#[test]
fn a_class_with_tins_takes_little_memory() {
    check("a_class_with_tins_takes_little_memory", Leaf::Cake, 3_800);
}
