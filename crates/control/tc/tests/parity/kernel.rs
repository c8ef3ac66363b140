//! The real `tc` in a namespace of its own.

use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The answer to a command.
pub struct Answer {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Answer {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// A namespace with a pair of 4-queue veths, `nrwv0` and `nrwv1`, without traffic.
pub struct Kernel {
    namespace: String,
}

impl Kernel {
    /// Creates it, or returns the reason why not.
    pub fn new() -> Result<Self, String> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        if !is_root() {
            return Err("it needs root; run it with sudo".to_owned());
        }
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("nrw-tc-{}-{count}", std::process::id());
        ip(&["netns", "add", &namespace])?;
        let kernel = Self { namespace };
        let name = kernel.namespace.as_str();
        // Without IPv6, no neighbour discovery changes the counters.
        let quiet = "net.ipv6.conf.default.disable_ipv6=1";
        ip(&["netns", "exec", name, "sysctl", "-qw", quiet])?;
        let queues = ["numtxqueues", "4", "numrxqueues", "4"];
        let mut link = vec!["-n", name, "link", "add", "name", "nrwv0"];
        link.extend(queues);
        link.extend(["type", "veth", "peer", "name", "nrwv1"]);
        link.extend(queues);
        ip(&link)?;
        ip(&["-n", name, "link", "set", "nrwv0", "up"])?;
        ip(&["-n", name, "link", "set", "nrwv1", "up"])?;
        for kind in ["tbf rate 1mbit burst 10k limit 10k", "mq"] {
            let answer = kernel.run(&format!("qdisc replace dev nrwv0 root {kind}"));
            if answer.code != 0 {
                return Err(format!("this kernel has no {kind}: {}", answer.stderr.trim()));
            }
        }
        Ok(kernel)
    }

    /// Runs `tc` with these words.
    pub fn run(&self, line: &str) -> Answer {
        let mut tc = Command::new("tc");
        tc.args(["-n", &self.namespace]).args(line.split_whitespace());
        tc.output().expect("tc ran before").into()
    }

    /// Runs `tc -batch -`.
    pub fn batch(&self, text: &str, force: bool) -> Answer {
        let mut tc = Command::new("tc");
        tc.args(["-n", &self.namespace]);
        if force {
            tc.arg("-force");
        }
        tc.args(["-batch", "-"]).stdin(Stdio::piped());
        tc.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = tc.spawn().expect("tc ran before");
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(text.as_bytes()).unwrap();
        drop(stdin);
        child.wait_with_output().unwrap().into()
    }

    /// The versions of `tc` and of the kernel.
    pub fn version(&self) -> String {
        let tc = self.run("-V").stdout;
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        format!("{} on Linux {}", tc.trim(), kernel.trim())
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = ip(&["netns", "del", &self.namespace]);
    }
}

fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    uids.and_then(|uids| uids.split_whitespace().nth(1)) == Some("0")
}

fn ip(args: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(args).output().map_err(|error| format!("ip: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("ip {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim()))
}
