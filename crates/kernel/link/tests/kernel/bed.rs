//! Network namespaces that are deleted when a test ends, even if it fails.

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::os::fd::AsFd;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A network namespace, deleted with everything in it on drop.
pub struct Namespace {
    pub name: String,
}

impl Namespace {
    /// Creates a namespace whose name ends in `role`.
    pub fn new(role: &str) -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("nrw-link-{}-{number}-{role}", std::process::id());
        run("ip", &["netns", "add", &name]);
        Self { name }
    }

    /// Runs `ip` in it with the words of `line`.
    pub fn ip(&self, line: &str) {
        let mut words = vec!["-n", &self.name];
        words.extend(line.split_whitespace());
        run("ip", &words);
    }

    /// Runs a program in it and returns the result.
    pub fn exec(&self, line: &str) -> Output {
        let mut words = vec!["netns", "exec", &self.name];
        words.extend(line.split_whitespace());
        Command::new("ip").args(&words).output().expect("ip runs")
    }

    /// Runs a program in it that must succeed.
    pub fn must(&self, line: &str) {
        let output = self.exec(line);
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Runs `work` on a thread inside it.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let file = File::open(format!("/run/netns/{}", self.name)).expect("namespace");
        thread::scope(|scope| {
            let worker = scope.spawn(move || {
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                    .expect("setns");
                work()
            });
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).output();
    }
}

/// Three namespaces in a row: `v0` in `client` to `sa` in `shaper`, `sb` in `shaper` to
/// `v1` in `server`, each a veth pair with four queues, up.
pub struct Bed {
    pub client: Namespace,
    pub shaper: Namespace,
    pub server: Namespace,
}

impl Bed {
    /// Creates them; none, with a message, without root.
    pub fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: making network namespaces needs root (`sudo -E cargo test`)");
            return None;
        }
        let bed = Self {
            client: Namespace::new("cli"),
            shaper: Namespace::new("shp"),
            server: Namespace::new("srv"),
        };
        let queues = "numtxqueues 4 numrxqueues 4";
        for (outer, far, port) in [(&bed.client, "v0", "sa"), (&bed.server, "v1", "sb")] {
            let inner = &bed.shaper.name;
            outer.ip(&format!(
                "link add name {far} {queues} type veth peer name {port} netns {inner} {queues}"
            ));
            outer.ip(&format!("link set {far} up"));
            bed.shaper.ip(&format!("link set {port} up"));
        }
        bed.client.ip("addr add 192.0.2.1/24 dev v0");
        bed.server.ip("addr add 192.0.2.2/24 dev v1");
        Some(bed)
    }
}

fn run(program: &str, words: &[&str]) {
    let output = Command::new(program).args(words).output().expect("program runs");
    assert!(
        output.status.success(),
        "{program} {}: {}",
        words.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
}
