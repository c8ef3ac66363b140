//! The process behind `narrows run --plane host` where ports are given as patterns: it shapes
//! nothing itself, and keeps one process for each device that matches.
//!
//! Each of these processes is an instance like any other, with a control socket, a policy and
//! counters of its own. So whatever is for an instance is for each of them, and what happens to one
//! device concerns no other one. The devices that are named are one instance together.
//!
//! * *Devices* come, go and are renamed ([`LinkMonitor`]). After each event what runs is compared
//!   with what is [`wanted`]; [`children`] starts and ends.
//! * *Policies*: lines of the file for a pattern hold for each of its devices ([`policies`]).
//! * *Ends*: a process that ends by itself starts again ([`backoff`]). The supervisor's own end is
//!   that of all, however it comes: a process watches who keeps it ([`keeper`](crate::keeper)).
//! * *Upgrades*: the process that takes over says so ([`notices`]), and becomes a child of this
//!   one, which is the reaper of its children's children. The supervisor itself goes on with its
//!   own binary until it is restarted; what it starts from then on is the new one.
//!
//! *Privileges.* It needs none but to start processes and to signal to them. It keeps what it was
//! started with, since no process starts one with more than it has; each instance gives up what it
//! does not need ([`confine`](crate::confine)). It reads rtnetlink, its policy file, and what its
//! own processes send; no client talks to it.
//!
//! Non-goals: planes that join ports; a hung process (a device's limits are enforced in the kernel
//! while its process hangs); an upgrade of the supervisor while it runs.

mod backoff;
mod children;
pub(crate) mod folder;
mod notices;
mod policies;
mod start;
mod wanted;

use crate::clock;
use crate::control::PlaceError;
use crate::notify::Manager;
use crate::run::{RunError, without_blockers};
use crate::signals::Requests;
use children::{Children, END_TIME, START_TIME};
use folder::Folder;
use narrows_control::place;
use narrows_escape::line;
use narrows_forwarding::Forwarding;
use narrows_forwarding::pattern::Pattern;
use narrows_link::LinkMonitor;
use narrows_link::doctor::{self, WantedPlane};
use narrows_units::{Nanos, counted};
use narrows_xsk::wait_readable;
use notices::Notices;
use policies::Policies;
use rustix::process::{Pid, WaitOptions, getpid, set_child_subreaper, wait};
use start::Starter;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use wanted::{PassedOver, Target, Wanted, wanted};

/// How many link events are handled before signals and processes are looked at again.
const EVENTS: u32 = 64;

/// The arguments of `narrows run` with patterns.
#[derive(Clone, Debug)]
pub struct SupervisorOptions {
    /// The devices that are named; one instance.
    pub names: Vec<String>,
    /// The patterns; an instance for each device that matches.
    pub patterns: Vec<Pattern>,
    /// The policy file, for the start and for SIGHUP.
    pub batch: Option<PathBuf>,
    /// The first sets of each instance.
    pub sets: Option<PathBuf>,
    /// The folder with the state file of each instance.
    pub state: Option<PathBuf>,
}

/// Keeps an instance for each device that matches until a signal asks to stop. `ready` is called
/// once all that are there shape, or cannot.
///
/// # Errors
/// If the policy file cannot be used, or this host has no host plane; nothing is started then.
pub fn supervise(options: SupervisorOptions, ready: impl FnOnce()) -> Result<(), RunError> {
    let mut supervisor = Supervisor::begin(options)?;
    let ended = supervisor.serve(ready);
    supervisor.end()?;
    ended
}

struct Supervisor {
    names: Vec<String>,
    patterns: Vec<Pattern>,
    children: Children<Starter>,
    notices: Notices,
    /// What has been said to be passed over.
    passed_over: BTreeSet<PassedOver>,
    monitor: LinkMonitor,
    stop: Requests,
    hangup: Requests,
    deaths: Requests,
    manager: Manager,
    /// Why the policy file was not read again.
    refused: Option<String>,
}

impl Supervisor {
    fn begin(options: SupervisorOptions) -> Result<Self, RunError> {
        let SupervisorOptions { names, patterns, batch, sets, state } = options;
        // From here on, a request waits until there is somebody to take it.
        let (stop, hangup, deaths) =
            (Requests::to_stop()?, Requests::to_reload()?, Requests::of_children()?);
        let host = doctor::Wanted { plane: WantedPlane::Host, ..doctor::Wanted::default() };
        without_blockers(doctor::examine_host(&[], &host))?;
        let words: Vec<String> = patterns.iter().map(Pattern::to_string).collect();
        let all: Vec<String> = names.iter().chain(&words).cloned().collect();
        let ports = Forwarding::host(&all)?;
        let policies = batch.map(|path| Policies::read(path, ports)).transpose()?;
        let failed = RunError::Supervise;
        if let Some(state) = &state {
            make_folder(state).map_err(RunError::Keep)?;
        }
        // A process that takes over from another is to be this one's child when that one has ended.
        set_child_subreaper(Some(getpid())).map_err(|error| failed(error.into()))?;
        let path = place::folder().map_err(failed)?;
        let closed = |source| PlaceError::Open { path: path.clone(), source };
        let folder = Folder::make(&path).map_err(closed)?;
        let notices = Notices::open(&folder.socket()).map_err(closed)?;
        let program = std::env::current_exe().map_err(failed)?;
        let starter = Starter { program, folder, policies, patterns: words, sets, state };
        let children = Children::new(starter);
        let monitor = LinkMonitor::open()?;
        let manager = Manager::from_environment();
        Ok(Self {
            names,
            patterns,
            children,
            notices,
            passed_over: BTreeSet::new(),
            monitor,
            stop,
            hangup,
            deaths,
            manager,
            refused: None,
        })
    }

    /// Until a signal asks to stop.
    fn serve(&mut self, ready: impl FnOnce()) -> Result<(), RunError> {
        let mut ready = Some(ready);
        let mut has_more_events = false;
        let mut next_word = Nanos::ZERO;
        loop {
            let now = clock::now();
            let wanted = self.wanted();
            self.children.hurry(now);
            self.children.reconcile(&wanted, now);
            let status = self.status();
            if self.children.are_settled(&wanted, now)
                && let Some(ready) = ready.take()
            {
                self.manager.ready(&status);
                ready();
            }
            if ready.is_some() && now >= next_word {
                // Many devices take longer than a manager waits.
                self.manager.goes_on(START_TIME + START_TIME + START_TIME);
                next_word = now + START_TIME;
            }
            self.manager.status(&status);
            // Its processes are watched one by one; this is about the one that keeps them.
            self.manager.beat(now, true);
            let wake = self.children.next(now).min(self.manager.next_beat());
            let wait = if has_more_events { Nanos::ZERO } else { wake.since(now) };
            self.wait(wait)?;
            if self.stop.take() {
                return Ok(());
            }
            let mut unread = EVENTS;
            while unread > 0 && self.monitor.next_event().is_some() {
                unread -= 1;
            }
            has_more_events = unread == 0;
            self.hear();
            if self.hangup.take() {
                self.reload(ready.is_none());
            }
        }
    }

    /// Waits until there is something to do, for at most `time`.
    fn wait(&self, time: Nanos) -> io::Result<()> {
        let fds = [
            self.monitor.as_fd(),
            self.stop.fd(),
            self.hangup.fd(),
            self.deaths.fd(),
            self.notices.fd(),
        ];
        wait_readable(fds.map(|fd| (fd, true)), Some(time.0)).map(drop)
    }

    /// What should run for the devices that there are. Logs what is passed over, once.
    fn wanted(&mut self) -> Wanted {
        let devices = self.monitor.known().map(|device| &device.status);
        let (wanted, passed_over) = wanted(&self.names, &self.patterns, devices);
        for PassedOver { name, why, .. } in passed_over.difference(&self.passed_over) {
            log::info!("{} is passed over: {why}", line(name));
        }
        self.passed_over = passed_over;
        wanted
    }

    /// Takes what processes say, and which have ended.
    fn hear(&mut self) {
        self.deaths.take();
        let now = clock::now();
        // In this order: before it ends, a process has said which one has taken over from it.
        let ended = ended();
        while let Some((sender, notices)) = self.notices.next() {
            for notice in notices {
                if let Some(target) = self.children.hear(sender, notice) {
                    log::info!("{} is shaped", line(&target.label()));
                }
            }
        }
        for (id, how) in ended {
            self.children.ended(id, &how.to_string(), now);
        }
    }

    /// Reads the policy file again, and lets the processes read their parts.
    fn reload(&mut self, is_ready: bool) {
        self.manager.reloading();
        self.refused = self.read_policies().err();
        match &self.refused {
            Some(why) => log::warn!("{why}"),
            None => self.children.reload_all(),
        }
        if is_ready {
            let status = self.status();
            self.manager.ready(&status);
        }
    }

    fn read_policies(&mut self) -> Result<(), String> {
        let starter = self.children.processes();
        let Some(policies) = &mut starter.policies else {
            return Err("nothing to reload: name the policy file at the start, with --batch FILE"
                .to_owned());
        };
        let name = policies.path().display().to_string();
        let read = policies.read_again();
        read.map_err(|error| format!("reload of {name} refused, nothing changed: {error}"))?;
        log::info!("reloaded {name}");
        let targets: Vec<Target> = self.children.targets().cloned().collect();
        let starter = self.children.processes();
        for target in targets {
            let written = starter.write_policy(&target);
            written.map_err(|error| format!("cannot write the policy of a process: {error}"))?;
        }
        Ok(())
    }

    /// One line for the service manager.
    fn status(&self) -> String {
        let mut counts = vec![0; self.patterns.len()];
        let mut parts = Vec::new();
        for target in self.children.shaped() {
            match target {
                Target::Named(names) => parts.push(names.join(",")),
                Target::Matched { pattern, .. } => counts[*pattern] += 1,
            }
        }
        let counted = self
            .patterns
            .iter()
            .zip(counts)
            .map(|(pattern, count)| format!("{} of {pattern}", counted(count, "device")));
        parts.extend(counted);
        let missing = self.children.targets().count() - self.children.shaped().count();
        if missing > 0 {
            parts.push(format!("{missing} not shaped"));
        }
        let status = parts.join(", ");
        match &self.refused {
            Some(why) => format!("{status}; {why}"),
            None => status,
        }
    }

    /// Ends all processes, and waits for them.
    fn end(mut self) -> io::Result<()> {
        self.manager.stopping();
        self.manager.goes_on(END_TIME + END_TIME);
        self.children.end_all(clock::now());
        while self.children.any_runs() {
            let now = clock::now();
            self.children.hurry(now);
            self.wait(self.children.next(now).since(now))?;
            // They end anyway; what is not read would wake at once.
            self.stop.take();
            self.hangup.take();
            while self.monitor.next_event().is_some() {}
            self.hear();
        }
        Ok(())
    }
}

/// The processes that have ended and were not waited for.
fn ended() -> Vec<(Pid, ExitStatus)> {
    let next = || wait(WaitOptions::NOHANG).ok().flatten();
    let ended = std::iter::from_fn(next);
    ended.map(|(id, status)| (id, ExitStatus::from_raw(status.as_raw()))).collect()
}

/// Makes the folder of state files, if it is not there.
fn make_folder(path: &Path) -> Result<(), String> {
    match std::fs::create_dir(path) {
        Err(error) if path.is_dir() => drop(error),
        Err(error) => {
            let path = path.display();
            return Err(format!(
                "with patterns, --state is a folder with a file for each device, and {path} cannot \
                 be made: {error}"
            ));
        }
        Ok(()) => {}
    }
    Ok(())
}
