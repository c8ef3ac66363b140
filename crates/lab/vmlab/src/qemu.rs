//! One machine: boots a kernel with a root, reads the guest's messages, and ends it.

use crate::architecture::Architecture;
use crate::cake::Rows;
use crate::matrix::Task;
use crate::verdict::{Check, Message, Outcome, Record};
use anyhow::{Context, Result};
use narrows_testbed::process::Process;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The interval at which the guest's messages are read.
const LOOK: Duration = Duration::from_millis(200);
/// How long a guest may take until its first message.
const BOOT: Duration = Duration::from_secs(300);
/// How long a guest may take until its first message with KVM, where a boot takes two seconds.
const BOOT_WITH_KVM: Duration = Duration::from_secs(15);
/// The kernel's command line: quiet, without what only slows an emulated processor down, and off
/// instead of a reboot. The kernel passes `PATH` to its first process.
const KERNEL: &str = "quiet loglevel=3 panic=-1 mitigations=off nokaslr \
                      nowatchdog random.trust_cpu=on net.ifnames=0 tsc=reliable \
                      PATH=/usr/sbin:/usr/bin";

/// The guest's processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processor {
    /// The host's own.
    Kvm,
    /// Emulated, with emulated time: a fixed time per instruction, and idle time is skipped. So the
    /// guest's measurements do not depend on the load of the host.
    Tcg,
}

/// The guest's resources for its task.
struct Size {
    processors: u32,
    /// The emulated time of an instruction: 2 to this power, in nanoseconds.
    instruction: u32,
    memory: &'static str,
}

impl Size {
    const fn of(task: Option<Task>, runs_command: bool) -> Self {
        match task {
            // With one processor the run time of a thread is that of its instructions alone.
            Some(_) if runs_command => Self { processors: 1, instruction: 0, memory: "2G" },
            Some(Task::Cake) => Self { processors: 4, instruction: 0, memory: "2G" },
            Some(Task::Checks(_)) | None => Self { processors: 2, instruction: 2, memory: "1G" },
        }
    }
}

impl Processor {
    fn arguments(self, size: &Size, model: &str) -> Vec<String> {
        let clock = format!("shift={},sleep=off", size.instruction);
        let words: &[&str] = match self {
            Self::Kvm => &["-accel", "kvm", "-cpu", "host"],
            Self::Tcg => {
                &["-accel", "tcg,thread=single,tb-size=512", "-cpu", model, "-icount", &clock]
            }
        };
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kvm => "KVM",
            Self::Tcg => "TCG (no KVM here)",
        }
    }
}

/// The parameters of a machine.
#[derive(Debug)]
pub struct Machine<'a> {
    /// Its kind of processor.
    pub architecture: Architecture,
    /// How its processors are made.
    pub processor: Processor,
    /// The kernel's image.
    pub image: &'a Path,
    /// The root, as one archive.
    pub root: &'a Path,
    /// The task; by default only booting and ending.
    pub task: Option<Task>,
    /// The rows to measure.
    pub rows: &'a Rows,
    /// The beginnings of the names of the checks to run, with `-` for spaces; all without any.
    pub checks: &'a [String],
    /// Whether it runs a command instead, which is in its root.
    pub runs_command: bool,
    /// Modules that the guest loads first, separated by commas; a stock machine loads none.
    pub load: &'a str,
    /// Whether it leaves out the checks that other machines of the short form run.
    pub short: bool,
    /// The folder for its messages and its console output.
    pub folder: &'a Path,
    /// How long it may run.
    pub limit: Duration,
}

/// MAC addresses of the cards: client, port A, port B, server.
pub const MACS: [&str; 4] =
    ["52:54:00:00:00:01", "52:54:00:00:00:02", "52:54:00:00:00:03", "52:54:00:00:00:04"];

/// The cards: each port on a cable of its own to a virtio card. `igb` has virtual functions, so
/// each port is behind a root port of its own.
fn cards(card: &str) -> Vec<String> {
    let mut arguments = Vec::new();
    for (number, [end, port]) in [[MACS[0], MACS[1]], [MACS[3], MACS[2]]].into_iter().enumerate() {
        let slot = number + 1;
        for (name, value) in [
            ("-device", format!("pcie-root-port,id=root{number},chassis={slot},slot={slot}")),
            ("-netdev", format!("hubport,id=end{number},hubid={number}")),
            ("-device", format!("virtio-net-pci,netdev=end{number},mac={end}")),
            ("-netdev", format!("hubport,id=port{number},hubid={number}")),
            ("-device", format!("{card},netdev=port{number},mac={port},bus=root{number}")),
        ] {
            arguments.extend([name.to_owned(), value]);
        }
    }
    arguments
}

impl Machine<'_> {
    fn command(&self) -> Result<Command> {
        let lines = File::create(self.lines())?;
        drop(lines);
        // It ends with this process, even if that is killed.
        let mut command = Command::new("setpriv");
        let (program, _) = self.architecture.emulator();
        command.args(["--pdeathsig", "KILL", program]);
        let size = Size::of(self.task, self.runs_command);
        command.args(self.processor.arguments(&size, self.architecture.emulated()));
        command.args(["-machine", self.architecture.board(), "-m", size.memory]);
        command.args(["-smp", &size.processors.to_string()]);
        command.args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]);
        command.arg("-kernel").arg(self.image).arg("-initrd").arg(self.root);
        let task = self.task.map_or("none", Task::name);
        let [console, _] = self.architecture.serial_ports();
        let mut words = format!("console={console} {KERNEL} vmlab.task={task}");
        if !self.rows.0.is_empty() {
            words.push_str(&format!(" vmlab.rows={}", self.rows));
        }
        if !self.checks.is_empty() {
            words.push_str(&format!(" vmlab.checks={}", self.checks.join(",")));
        }
        if !self.load.is_empty() {
            words.push_str(&format!(" vmlab.load={}", self.load));
        }
        if self.short {
            words.push_str(" vmlab.short");
        }
        command.args(["-append", &words]);
        for (id, path) in [("console", self.console()), ("lines", self.lines())] {
            let path = path.to_str().context("the folder's path is no text")?;
            command.args(["-chardev", &format!("file,id={id},path={path}")]);
            command.args(["-serial", &format!("chardev:{id}")]);
        }
        if let Some(card) = self.task.and_then(Task::card) {
            command.args(cards(card));
        }
        let said = File::create(self.folder.join("qemu"))?;
        command.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said);
        Ok(command)
    }

    fn console(&self) -> PathBuf {
        self.folder.join("console")
    }

    fn lines(&self) -> PathBuf {
        self.folder.join("lines")
    }

    /// Runs it to its end or its time limit, and calls `said` for each message as it arrives.
    pub fn run(&self, mut said: impl FnMut(&Message)) -> Result<Record> {
        fs::create_dir_all(self.folder)?;
        let begin = Instant::now();
        let mut process = Process::start(&mut self.command()?)?;
        let mut record = Record::default();
        let mut heard = 0;
        loop {
            // In this order, so that the last messages are read.
            let over = !process.is_running();
            let text = String::from_utf8_lossy(&fs::read(self.lines())?).into_owned();
            for message in messages(&text).skip(heard) {
                heard += 1;
                said(&message);
                record.add(message);
            }
            let booting = record.release.is_empty();
            let limit = match self.processor {
                Processor::Kvm if booting => BOOT_WITH_KVM,
                Processor::Tcg if booting => BOOT,
                _ => self.limit,
            };
            if over || record.complete {
                break;
            }
            if begin.elapsed() > limit {
                record.add(Message::Check(Check {
                    name: "time".to_owned(),
                    outcome: Outcome::Failed,
                    note: format!("the guest did not end within {} s", limit.as_secs()),
                    seconds: begin.elapsed().as_secs_f64(),
                }));
                break;
            }
            thread::sleep(LOOK);
        }
        // A guest that has reported everything ends by itself; any other is ended here.
        process.wait(Duration::from_secs(if record.complete { 5 } else { 0 }))?;
        Ok(record)
    }

    /// The end of the output of the console and of qemu, as text.
    pub fn last_words(&self) -> String {
        let mut text = String::new();
        for path in [self.console(), self.folder.join("qemu")] {
            let said = fs::read(path).unwrap_or_default();
            let said = String::from_utf8_lossy(&said).into_owned();
            let lines: Vec<&str> = said.lines().collect();
            for line in &lines[lines.len().saturating_sub(30)..] {
                text.push_str(&format!("    {line}\n"));
            }
        }
        text
    }
}

/// The complete lines that are messages; everything else on the line is ignored.
fn messages(text: &str) -> impl Iterator<Item = Message> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().filter_map(|line| serde_json::from_str(line.trim()).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_lines_are_messages() {
        let text = "boot noise\r\n{\"hello\":\"6.1\"}\r\n\"end\"\r\n{\"mode\":\"nat";
        let found: Vec<Message> = messages(text).collect();
        assert!(matches!(&found[..], [Message::Hello(release), Message::End] if release == "6.1"));
    }

    #[test]
    fn each_port_has_a_cable_to_an_end() {
        let text = cards("igb").join(" ");
        assert!(text.contains("igb,netdev=port0,mac=52:54:00:00:00:02,bus=root0"), "{text}");
        assert!(text.contains("virtio-net-pci,netdev=end1,mac=52:54:00:00:00:04"), "{text}");
    }
}
