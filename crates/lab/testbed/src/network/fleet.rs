//! A fleet: an agent and a NATS server in each of several namespaces, with wires between them.
//!
//! The namespaces are there already, perhaps with an instance of Narrows in each, or are made
//! [bare](Fleet::bare). Keys, certificates and configurations are those that `narrows-fleet init`
//! writes, so what runs is what users run.
//!
//! Principles: as with a [bed](crate::bed), *nothing outlives its owner*. A server or an agent can
//! be killed and started again, and a wire can be cut ([`Wires::set`]).

pub(crate) mod due;
pub(crate) mod site;

use crate::collect::Collector;
use crate::folder::Folder;
use crate::guard::Guard;
use crate::namespace::Namespace;
use crate::narrows::Instance;
use crate::process::{self, Process};
use crate::requirements::{self, IP, NATS, Refusal};
use crate::stale;
use crate::wires::{Wires, address};
use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The fleet's name.
pub const NAME: &str = "test";
/// How folders are named.
const FOLDER: &str = "nrw-fleet-";
/// How long it may take until a server is ready, or an agent answers.
const START: Duration = Duration::from_secs(10);
/// How often that is tried.
const LOOK: Duration = Duration::from_millis(20);

/// Numbers the fleets of this process.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// A program of a box, and what it prints.
#[derive(Debug)]
struct Running {
    process: Process,
    log: Collector,
}

impl Running {
    fn start(command: &mut Command) -> Result<Self> {
        let log = Collector::over_both(command.stdin(Stdio::null()))?;
        Ok(Self { process: Process::start(command)?, log })
    }
}

/// The fleet. Removed when dropped.
#[derive(Debug)]
pub struct Fleet {
    program: PathBuf,
    namespaces: Vec<Namespace>,
    servers: Vec<Option<Running>>,
    agents: Vec<Option<Running>>,
    folder: Folder,
    /// The wires between the boxes.
    pub wires: Wires,
    // Last, so that it is dropped after everything above. Of namespaces made here.
    _guard: Option<Guard>,
}

/// Refuses if this machine cannot have a fleet.
pub fn check() -> Result<(), Refusal> {
    requirements::check(&[IP, NATS])
}

/// The name of the box `number`, from 0 on.
pub fn box_name(number: usize) -> String {
    format!("box{}", number + 1)
}

/// Refuses if there is no `agent`, the boxes' program.
pub(crate) fn check_agent(agent: &Path) -> Result<()> {
    ensure!(agent.is_file(), "there is no {}: cargo build -p narrows-fleet", agent.display());
    Ok(())
}

impl Fleet {
    /// A fleet of boxes in `namespaces`, with `program` as their agent. All servers run, and no
    /// agent.
    pub fn over(program: &Path, namespaces: Vec<Namespace>) -> Result<Self> {
        check()?;
        Self::up(program, namespaces, None)
    }

    /// A fleet of `count` boxes without traffic.
    pub fn bare(program: &Path, count: usize) -> Result<Self> {
        check()?;
        stale::sweep()?;
        let tag = std::process::id();
        let next = || NEXT.fetch_add(1, Ordering::Relaxed);
        let names: Vec<String> =
            (0..count).map(|_| format!("{}{tag}-{}", stale::OF_BOX, next())).collect();
        let guard = Guard::over(&names.iter().map(String::as_str).collect::<Vec<_>>())?;
        let namespaces = names.iter().map(|name| Namespace::create(name)).collect::<Result<_>>()?;
        Self::up(program, namespaces, Some(guard))
    }

    fn up(program: &Path, namespaces: Vec<Namespace>, guard: Option<Guard>) -> Result<Self> {
        let wires = Wires::between(&namespaces)?;
        let tag = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = Folder::make(FOLDER, &tag)?;
        let none = || namespaces.iter().map(|_| None).collect::<Vec<_>>();
        let (servers, agents) = (none(), none());
        let program = program.to_owned();
        let mut fleet = Self { program, namespaces, servers, agents, folder, wires, _guard: guard };
        fleet.init()?;
        (0..fleet.namespaces.len()).try_for_each(|number| fleet.start_server(number))?;
        Ok(fleet)
    }

    /// Writes all configurations, as a user does. But what an agent saves goes with this fleet: it
    /// must not be that of another one with the same name.
    fn init(&self) -> Result<()> {
        let folder = self.folder().display().to_string();
        let at = format!("{folder}/{{box}}");
        let mut command = Command::new(&self.program);
        command.args(["init", "--fleet", NAME, "--at", &at]);
        for number in 0..self.namespaces.len() {
            command.arg("--box").arg(format!("{}={}", box_name(number), address(number)));
        }
        process::run(command.arg(folder))?;
        (0..self.namespaces.len()).try_for_each(|number| {
            let file = self.config(number);
            let text = fs::read_to_string(&file)?;
            Ok(fs::write(file, format!("claims = \"../claims.json\"\n{text}"))?)
        })
    }

    /// The folder with a folder for each box, and with `authorities`.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What belongs below `/etc` of the box `number`.
    pub fn etc(&self, number: usize) -> PathBuf {
        self.folder().join(box_name(number))
    }

    /// The configuration of the agent of the box `number`.
    pub fn config(&self, number: usize) -> PathBuf {
        self.etc(number).join("narrows/fleet.toml")
    }

    /// Where the box `number` is.
    pub fn namespace(&self, number: usize) -> &Namespace {
        &self.namespaces[number]
    }

    /// Has `narrows` switch what the boxes say to each other.
    pub fn carry(&self, narrows: &Path) -> Result<Instance> {
        self.wires.carry(narrows, &self.namespaces)
    }

    /// Starts the NATS server of the box `number`, and waits until it is ready.
    pub fn start_server(&mut self, number: usize) -> Result<()> {
        let mut command = self.namespaces[number].command("nats-server");
        command.arg("-c").arg(self.etc(number).join("nats-server.conf"));
        let running = Running::start(&mut command)?;
        drop(command);
        let is_ready = |log: &[u8]| log.windows(15).any(|words| words == b"Server is ready");
        if !running.log.wait_until(is_ready, START) {
            bail!("nats-server is not ready:\n{}", running.log.text());
        }
        self.servers[number] = Some(running);
        Ok(())
    }

    /// Kills the NATS server of the box `number`.
    pub fn kill_server(&mut self, number: usize) -> Result<()> {
        let mut running = self.servers[number].take().context("it runs")?;
        running.process.stop(Signal::SIGKILL).map(drop)
    }

    /// Starts the agents of all boxes, and waits until they answer.
    pub fn start_agents(&mut self) -> Result<()> {
        (0..self.namespaces.len()).try_for_each(|number| self.start_agent(number))
    }

    /// Starts the agent of the box `number`, and waits until it answers.
    pub fn start_agent(&mut self, number: usize) -> Result<()> {
        let mut command = self.namespaces[number].command(&self.program);
        command.args(["run", "--config"]).arg(self.config(number));
        self.agents[number] = Some(Running::start(&mut command)?);
        drop(command);
        let deadline = Instant::now() + START;
        loop {
            let Err(error) = self.show(number) else { return Ok(()) };
            if Instant::now() >= deadline {
                return Err(error.context(self.agent_log(number)));
            }
            sleep(LOOK);
        }
    }

    /// Kills the agent of the box `number`.
    pub fn kill_agent(&mut self, number: usize) -> Result<()> {
        let mut running = self.agents[number].take().context("it runs")?;
        running.process.stop(Signal::SIGKILL).map(drop)
    }

    /// Stops the agent of the box `number` where it is, or lets it go on.
    pub fn freeze_agent(&mut self, number: usize, is_frozen: bool) -> Result<()> {
        let running = self.agents[number].as_mut().context("it runs")?;
        running.process.signal(if is_frozen { Signal::SIGSTOP } else { Signal::SIGCONT })
    }

    /// Asks the agent of the box `number` to end. Returns whether it did so without an error, and
    /// all that it printed.
    pub fn stop_agent(&mut self, number: usize) -> Result<(bool, String)> {
        let mut running = self.agents[number].take().context("it runs")?;
        let status = running.process.stop(Signal::SIGTERM)?;
        Ok((status.success(), running.log.finish()))
    }

    /// What the agent of the box `number` has printed.
    pub fn agent_log(&self, number: usize) -> String {
        self.agents[number].as_ref().map(|running| running.log.text()).unwrap_or_default()
    }

    /// What the NATS server of the box `number` has printed.
    pub fn server_log(&self, number: usize) -> String {
        self.servers[number].as_ref().map(|running| running.log.text()).unwrap_or_default()
    }

    /// Runs `narrows-fleet` with `words` on the box `number`, with its configuration.
    pub fn run(&self, number: usize, words: &[&str]) -> Result<String> {
        let mut command = self.namespaces[number].command(&self.program);
        command.args(words).arg("--config").arg(self.config(number));
        process::run(&mut command)
    }

    /// All that the agent of the box `number` shows.
    pub fn show(&self, number: usize) -> Result<Value> {
        let text = self.run(number, &["show", "--json"])?;
        serde_json::from_str(&text).with_context(|| format!("narrows-fleet show: {text}"))
    }
}
