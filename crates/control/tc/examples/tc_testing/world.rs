//! Two instances between ports with the names that the cases want, in a network namespace of their
//! own.

use crate::shell::Shell;
use narrows_tc::Outcome;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long an instance may take to start and to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// The ports of the instances. Those of the second one have the number of queues that a case wants.
const PORTS: [[&str; 2]; 2] = [["dummy1", "v0p1"], ["eth0", "v0p2"]];

pub struct World {
    namespace: String,
    /// For the shim and for the files of the cases.
    folder: PathBuf,
    instances: Vec<Child>,
    /// Ends before the namespace does.
    shell: Option<Shell>,
    /// Whether commands ran since it was last started over.
    is_used: bool,
}

impl World {
    /// Starts both instances of the program `narrows`, the second one with `queues` queues.
    pub fn new(narrows: &Path, queues: u16) -> Result<Self, String> {
        let namespace = format!("nrw-tdc-{}-{queues}", std::process::id());
        let folder = std::env::temp_dir().join(&namespace);
        let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
        fs::create_dir_all(&folder).map_err(failed)?;
        let shim = folder.join("tc");
        fs::write(&shim, format!("#!/bin/sh\nexec {} tc \"$@\"\n", narrows.display()))
            .map_err(failed)?;
        fs::set_permissions(&shim, fs::Permissions::from_mode(0o755)).map_err(failed)?;
        let (instances, shell) = (Vec::new(), None);
        let mut world = Self { namespace, folder, instances, shell, is_used: false };
        ip(&["netns", "add", &world.namespace])?;
        world.shell = Some(Shell::new(&world.namespace, &world.folder)?);
        // No neighbour discovery: it would count.
        world.must("sysctl -qw net.ipv6.conf.default.disable_ipv6=1; ip link set lo up")?;
        world.start(narrows, PORTS[0], 1)?;
        world.start(narrows, PORTS[1], queues)?;
        Ok(world)
    }

    /// Runs `line` in the shell.
    pub fn run(&mut self, line: &str) -> Result<Outcome, String> {
        self.is_used = true;
        self.shell.as_mut().ok_or("there is no shell")?.run(line)
    }

    fn must(&mut self, line: &str) -> Result<(), String> {
        let outcome = self.run(line)?;
        match outcome.code {
            0 => Ok(()),
            _ => Err(format!("{line}: {}", outcome.stderr.trim())),
        }
    }

    /// Starts an instance between `ports`, which it creates.
    fn start(&mut self, narrows: &Path, ports: [&str; 2], queues: u16) -> Result<(), String> {
        let of = format!("numtxqueues {queues} numrxqueues {queues}");
        for port in ports {
            self.must(&format!(
                "ip link add {port} {of} type veth peer name {port}x {of} \
                 && ip link set {port} up && ip link set {port}x up"
            ))?;
        }
        let log = fs::File::create(self.folder.join(format!("{}.log", ports[0])));
        let log = log.map_err(|error| format!("{}: {error}", self.folder.display()))?;
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace]).arg(narrows);
        command.args(["run", "--ports", &ports.join(","), "--frames", "1024"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.instances.push(command.spawn().map_err(|error| format!("ip: {error}"))?);
        let end = Instant::now() + PATIENCE;
        loop {
            let answer = self.run(&format!("tc qdisc show dev {}", ports[0]))?;
            if answer.code == 0 {
                return Ok(());
            }
            self.is_alive()?;
            if Instant::now() > end {
                return Err(format!("no instance started: {}", answer.stderr.trim()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn is_alive(&mut self) -> Result<(), String> {
        for (instance, ports) in self.instances.iter_mut().zip(PORTS) {
            if let Ok(Some(status)) = instance.try_wait() {
                return Err(format!("the instance of {} has ended: {status}", ports[0]));
            }
        }
        Ok(())
    }

    /// Deletes everything that a case has added.
    pub fn start_over(&mut self) -> Result<(), String> {
        self.is_alive()?;
        if !std::mem::take(&mut self.is_used) {
            return Ok(());
        }
        let mut lines = String::new();
        for port in PORTS.as_flattened().iter().chain(&["ifb0"]) {
            for place in ["root", "ingress", "clsact"] {
                lines += &format!("qdisc del dev {port} {place}\n");
            }
        }
        for kind in ["gact", "police", "skbedit", "mirred"] {
            lines += &format!("actions flush action {kind}\n");
        }
        let path = self.folder.join("start-over");
        fs::write(&path, lines).map_err(|error| format!("{}: {error}", path.display()))?;
        // Most of it is not there.
        self.run("tc -force -batch start-over")?;
        self.is_used = false;
        Ok(())
    }
}

fn ip(words: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(words).output();
    let output = output.map_err(|error| format!("ip: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            Err(format!("ip {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr)))
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Both end side by side, with time to leave their ports.
        for instance in &self.instances {
            let _ = Command::new("kill").arg(instance.id().to_string()).status();
        }
        let end = Instant::now() + PATIENCE;
        for instance in &mut self.instances {
            while instance.try_wait().is_ok_and(|status| status.is_none()) {
                if Instant::now() > end {
                    // It may be gone by now.
                    let _ = instance.kill();
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        self.shell = None;
        let _ = ip(&["netns", "del", &self.namespace]);
        let _ = fs::remove_dir_all(&self.folder);
    }
}
