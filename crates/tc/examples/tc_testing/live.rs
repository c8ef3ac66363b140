//! Running instances in a network namespace of their own.
//!
//! The ports are pairs of veths with the names that the cases want, so what creates and deletes
//! devices in a case does nothing. The device of netdevsim has the number of queues that the case
//! asks for: its instance starts again with that number.

use crate::{Bench, DEVICES, queues};
use narrows_tc::Outcome;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long an instance may take to start, and a command to run.
const PATIENCE: Duration = Duration::from_secs(30);

/// More queues than these are not simulated.
const QUEUES_MAX: u16 = 16;

/// An instance between two ports with as many queues each.
struct Instance {
    ports: [&'static str; 2],
    queues: u16,
    process: Child,
}

pub struct Live {
    namespace: String,
    narrows: PathBuf,
    /// For the shim and for the files of the cases.
    folder: PathBuf,
    instances: Vec<Instance>,
}

impl Live {
    /// Starts instances of the program `narrows`.
    pub fn new(narrows: &str) -> Result<Self, String> {
        let narrows = fs::canonicalize(narrows).map_err(|error| format!("{narrows}: {error}"))?;
        let namespace = format!("nrw-tdc-{}", std::process::id());
        let folder = std::env::temp_dir().join(&namespace);
        let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
        fs::create_dir_all(&folder).map_err(failed)?;
        let shim = folder.join("tc");
        let text = format!("#!/bin/sh\nexec {} tc \"$@\"\n", narrows.display());
        fs::write(&shim, text).map_err(failed)?;
        fs::set_permissions(&shim, fs::Permissions::from_mode(0o755)).map_err(failed)?;
        let mut live = Self { namespace, narrows, folder, instances: Vec::new() };
        live.system(&format!("ip netns add {}", live.namespace))?;
        // No neighbour discovery: it would count.
        live.inside("sysctl -qw net.ipv6.conf.default.disable_ipv6=1; ip link set lo up")?;
        live.start(["dummy1", "v0p1"], 1)?;
        live.start(["eth0", "v0p2"], 1)?;
        Ok(live)
    }

    fn system(&self, line: &str) -> Result<(), String> {
        let output = Command::new("bash").args(["-c", line]).output();
        let output = output.map_err(|error| format!("bash: {error}"))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(format!("{line}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        }
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new("ip");
        let path = std::env::var("PATH").unwrap_or_default();
        command.args(["netns", "exec", &self.namespace, "timeout", "30", "bash", "-c", line]);
        command.env("PATH", format!("{}:{path}", self.folder.display()));
        command.current_dir(&self.folder).stdin(Stdio::null());
        command
    }

    fn inside(&self, line: &str) -> Result<Outcome, String> {
        let output = self.command(line).output().map_err(|error| format!("ip: {error}"))?;
        Ok(Outcome {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Starts an instance between `ports`, which it creates.
    fn start(&mut self, ports: [&'static str; 2], queues: u16) -> Result<(), String> {
        for port in ports {
            let of = format!("numtxqueues {queues} numrxqueues {queues}");
            let line = format!(
                "ip link del {port} 2>/dev/null; ip link add {port} {of} type veth peer name {port}x {of} \
                 && ip link set {port} up && ip link set {port}x up"
            );
            let made = self.inside(&line)?;
            if made.code != 0 {
                return Err(format!("{line}: {}", made.stderr));
            }
        }
        let log = fs::File::create(self.folder.join(format!("{}.log", ports[0])));
        let log = log.map_err(|error| format!("{}: {error}", self.folder.display()))?;
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace]).arg(&self.narrows);
        command.args(["run", "--ports", &ports.join(","), "--frames", "1024"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let process = command.spawn().map_err(|error| format!("ip: {error}"))?;
        self.instances.push(Instance { ports, queues, process });
        let end = Instant::now() + PATIENCE;
        loop {
            let answer = self.inside(&format!("tc qdisc show dev {}", ports[0]))?;
            if answer.code == 0 {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(format!("no instance started: {}", answer.stderr.trim()));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Starts the instance with the port `eth0` again, with `queues` queues.
    fn restart(&mut self, queues: u16) -> Result<(), String> {
        let place = self.instances.iter().position(|instance| instance.ports[0] == "eth0");
        let Some(place) = place.filter(|place| self.instances[*place].queues != queues) else {
            return Ok(());
        };
        let mut instance = self.instances.remove(place);
        stop(&mut instance.process);
        self.start(instance.ports, queues)
    }
}

/// Ends an instance, with time to leave its ports.
fn stop(process: &mut Child) {
    let _ = Command::new("kill").arg(process.id().to_string()).status();
    let end = Instant::now() + PATIENCE;
    while process.try_wait().is_ok_and(|status| status.is_none()) {
        if Instant::now() > end {
            // It may be gone by now.
            let _ = process.kill();
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

impl Bench for Live {
    fn start_over(&mut self) -> Result<(), String> {
        for instance in &mut self.instances {
            if let Ok(Some(status)) = instance.process.try_wait() {
                return Err(format!("the instance of {} has ended: {status}", instance.ports[0]));
            }
        }
        let mut lines = String::new();
        for port in self.instances.iter().flat_map(|instance| instance.ports) {
            for place in ["root", "ingress", "clsact"] {
                lines += &format!("tc qdisc del dev {port} {place}; ");
            }
        }
        for kind in ["gact", "police", "skbedit"] {
            lines += &format!("tc actions flush action {kind}; ");
        }
        self.inside(&lines).map(drop)
    }

    fn run(&mut self, line: &str) -> Option<Outcome> {
        if line.is_empty() || line.starts_with("$IP link add") || line.starts_with("$IP link del") {
            return Some(Outcome::default());
        }
        if let Some(queues) = queues(line) {
            if queues > QUEUES_MAX {
                return None;
            }
            let stderr = self.restart(queues).err().unwrap_or_default();
            let code = if stderr.is_empty() { 0 } else { Outcome::WRONG };
            return Some(Outcome { code, stderr, ..Outcome::default() });
        }
        let mut line =
            DEVICES.iter().fold(line.to_owned(), |line, (is, name)| line.replace(is, name));
        for (name, value) in [
            ("$TC", "tc"),
            ("$IP", "ip"),
            ("$BATCH_FILE", "./batch.txt"),
            ("$BATCH_DIR", "tmp"),
            ("$EBPFDIR", "."),
        ] {
            line = line.replace(name, value);
        }
        // Linux's own programs beside the cases are not there.
        if line.contains("./tdc_") || line.contains("python") {
            return None;
        }
        self.inside(&line).ok()
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        for instance in &mut self.instances {
            stop(&mut instance.process);
        }
        let _ = self.system(&format!("ip netns del {}", self.namespace));
        let _ = fs::remove_dir_all(&self.folder);
    }
}
