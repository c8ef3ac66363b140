//! The process behind `narrows run`: start-up checks, fail-open, the loop that serves commands
//! and link events, and the way out.

use crate::bare;
use crate::clock;
use crate::confine::{Needs, confine};
use crate::control::{Answer, ControlError, ControlServer, Request, Task};
use crate::instance::{FailMode, Instance, InstanceError, InstanceOptions, read_port};
use crate::notify::Manager;
use crate::offloads::Repairs;
use crate::pause::Pause;
use crate::policy_file::{self, PolicyFileError};
use crate::reload::reload;
use crate::session::{Prepared, SessionOptions};
use crate::show::Show;
use crate::signals::Requests;
use crate::state::{Failed, StateFile};
use narrows_bpf::Stalled;
use narrows_link::doctor::{self, Finding, Wanted};
use narrows_link::{LinkError, LinkMonitor};
use narrows_policy::Policy;
use narrows_units::Nanos;
use narrows_xsk::wait_readable;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// How often rates are sampled and a lost port is looked for.
const TICK: Nanos = Nanos::from_secs(1);
/// How often workers are looked after, to tell people about them.
const WATCH: Nanos = Nanos::from_millis(250);
/// How long a batch is worked on before others have their turn.
const SLICE: Nanos = Nanos::from_millis(50);

/// The longest that the ports may be let go, in seconds: a day.
const PAUSE_MAX_S: u64 = 86_400;

/// What `narrows run` was asked for.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The names of the two ports.
    pub ports: [String; 2],
    /// The policy file, to begin with and to read again on SIGHUP.
    pub batch: Option<PathBuf>,
    /// Where the policy is kept, and begun with before all else.
    pub state: Option<PathBuf>,
    /// Who forwards when this process is gone.
    pub fail: FailMode,
    /// How sessions are run.
    pub session: SessionOptions,
}

/// Why it could not start, or had to end.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The same interface twice.
    #[error("both ports are \"{0}\": name two different interfaces")]
    SamePort(String),
    /// An interface cannot be read or changed.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A policy file cannot be used.
    #[error(transparent)]
    Policy(#[from] PolicyFileError),
    /// The policy that was kept cannot be used.
    #[error(
        "{source}\nThis is the state file {path}: correct it, or remove it to begin with --batch"
    )]
    State {
        /// The state file.
        path: PathBuf,
        /// What is wrong with it.
        source: PolicyFileError,
    },
    /// The policy cannot be kept.
    #[error("{0}")]
    Keep(String),
    /// Something that cannot work.
    #[error("cannot join the ports:\n{0}")]
    Blocked(String),
    /// The ports cannot be joined.
    #[error(transparent)]
    Instance(#[from] InstanceError),
    /// No control socket.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The loop's own descriptors.
    #[error("cannot wait for events: {0}")]
    Events(#[from] io::Error),
}

/// Joins the ports and serves until a signal asks to stop. `ready` is called once packets are
/// forwarded.
///
/// # Errors
/// Where the ports cannot be joined; nothing is left changed then.
pub fn run(options: RunOptions, ready: impl FnOnce(&Instance)) -> Result<Show, RunError> {
    let RunOptions { ports, batch, state, fail, session } = options;
    if ports[0] == ports[1] {
        let [port, _] = ports;
        return Err(RunError::SamePort(port));
    }
    let mut state = state.map(|path| StateFile::new(path, &ports));
    let policy = first_policy(&ports, batch.as_ref(), state.as_mut())?;
    // Before anything is changed: a second instance must not disturb the first.
    let mut control = ControlServer::open(&ports)?;
    let mut monitor = LinkMonitor::open()?;
    let (mut stop, mut hangup) = (Requests::to_stop()?, Requests::to_reload()?);
    let mut manager = Manager::from_environment();
    refuse_blockers(&ports, fail, &session)?;
    let needs = Needs { batch: batch.as_deref(), state: state.as_ref().map(StateFile::path) };
    let repairs = Repairs::reach(&ports);
    let unconfined = confine(needs);
    let options = InstanceOptions { ports, fail, session };
    let mut instance = Instance::start(options, policy, repairs)?;
    unconfined.into_iter().for_each(|missing| instance.warn(missing));
    ready(&instance);
    manager.ready(&instance.standing());
    let mut refused = None;
    let mut next_tick = clock::now() + TICK;
    let mut pause: Option<Pause> = None;
    loop {
        let [control_fd, monitor_fd, stop_fd, hangup_fd] =
            [control.fd(), monitor.as_fd(), stop.fd(), hangup.fd()].map(|fd| (fd, true));
        // Without a pause there is nothing to wait for at a fifth.
        let paused = pause.as_ref().map_or((control.fd(), false), |pause| (pause.fd(), true));
        let end = pause.as_ref().map_or(next_tick, Pause::end);
        let wake = next_tick.min(end).min(manager.next_beat());
        let at_most = if control.is_busy() { Nanos::ZERO } else { WATCH };
        let fds = [control_fd, monitor_fd, stop_fd, hangup_fd, paused];
        wait_readable(fds, Some((wake - clock::now()).min(at_most).0))?;
        if stop.take() {
            manager.stopping();
            return Ok(instance.stop());
        }
        while let Some(event) = monitor.next_event() {
            instance.link_event(&event);
        }
        if hangup.take() {
            manager.reloading();
            refused = reload(&mut instance, batch.as_deref()).err();
            keep(&mut instance, state.as_mut());
            manager.ready(&standing(&instance, refused.as_deref()));
        }
        instance.watch();
        if let Some(over) = pause.take_if(|pause| pause.is_over()) {
            over.finish(&mut instance);
        }
        let mut limit = Nanos::ZERO;
        let began = clock::now();
        let holder = control.serve(|task| {
            if let Task::Whole(Request::LetGo { limit_s, .. }) = &*task {
                limit = Nanos::from_secs((*limit_s).min(PAUSE_MAX_S));
            }
            work(&mut instance, state.as_mut(), task)
        });
        if let Some(stream) = holder {
            pause = Some(Pause::new(stream, began, limit)?);
        }
        if clock::now() >= next_tick {
            instance.tick();
            keep(&mut instance, state.as_mut());
            next_tick = clock::now() + TICK;
        }
        manager.status(&standing(&instance, refused.as_deref()));
        manager.beat(clock::now(), instance.is_beating());
    }
}

/// The policy to begin with: the one that was kept, or that of the file, or none.
fn first_policy(
    ports: &[String; 2],
    batch: Option<&PathBuf>,
    state: Option<&mut StateFile>,
) -> Result<Policy, RunError> {
    let file = || match batch {
        Some(path) => policy_file::load(path, ports, &Policy::default()),
        None => Ok(Policy::default()),
    };
    let Some(state) = state else { return Ok(file()?) };
    let wrong = |source| RunError::State { path: state.path().to_owned(), source };
    let policy = match state.load().map_err(wrong)? {
        Some(kept) => {
            if let Some(batch) = batch {
                log::info!(
                    "the policy is the one kept in {}; SIGHUP reads {} in its place",
                    state.path().display(),
                    batch.display()
                );
            }
            kept
        }
        None => file()?,
    };
    // What cannot be kept is better known now than after the next restart.
    match state.keep(&policy) {
        Ok(()) => Ok(policy),
        Err(Failed::News(why) | Failed::Again(why)) => Err(RunError::Keep(why)),
    }
}

/// Keeps the policy in force where it is to be kept. Returns why it could not.
fn keep(instance: &mut Instance, state: Option<&mut StateFile>) -> Option<String> {
    match state?.keep(instance.policy()).err()? {
        Failed::News(why) => {
            instance.warn(why.clone());
            Some(why)
        }
        Failed::Again(why) => Some(why),
    }
}

/// How the instance stands, for the service manager.
fn standing(instance: &Instance, refused: Option<&str>) -> String {
    match refused {
        Some(why) => format!("{}; {why}", instance.standing()),
        None => instance.standing(),
    }
}

/// Forwards between `ports` without anything in between until a signal asks to stop, and
/// returns the packets forwarded in each direction with the processor time that it took: the
/// floor for benchmarks.
///
/// # Errors
/// Where the ports cannot be joined.
pub fn run_bare(
    ports: &[String; 2],
    session: &SessionOptions,
    ready: impl FnOnce(),
) -> Result<([u64; 2], Nanos), RunError> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register(signal, stop.clone())?;
    }
    let facts = [read_port(&ports[0])?, read_port(&ports[1])?];
    let promiscuous = [&facts[0], &facts[1]].map(|port| narrows_link::promiscuous(port.ifindex));
    let queues = facts[0].queues.min(facts[1].queues);
    let mut prepared =
        Prepared::new(facts, session, queues, Stalled::Pass).map_err(InstanceError::from)?;
    let ios = prepared.take_ios();
    prepared.attach(session.xdp_mode).map_err(InstanceError::from)?;
    let threads: Vec<_> = ios
        .into_iter()
        .enumerate()
        .map(|(queue, io)| {
            let stop = stop.clone();
            let cpu = session.cpus.get(queue % session.cpus.len().max(1)).copied();
            std::thread::spawn(move || bare::forward(io, cpu.unwrap_or_default(), &stop))
        })
        .collect();
    ready();
    let mut sum = ([0, 0], Nanos::ZERO);
    for thread in threads {
        let (forwarded, cpu_time) = thread.join().unwrap_or_default();
        sum.0[0] += forwarded[0];
        sum.0[1] += forwarded[1];
        sum.1 += cpu_time;
    }
    drop(promiscuous);
    Ok(sum)
}

/// Refuses, with the remedy, what cannot work.
fn refuse_blockers(
    ports: &[String; 2],
    fail: FailMode,
    session: &SessionOptions,
) -> Result<(), RunError> {
    let findings = doctor::examine(&ports[0], &ports[1], &wanted(ports, fail, session));
    let blockers: Vec<Finding> = doctor::blockers(&findings).cloned().collect();
    if blockers.is_empty() {
        return Ok(());
    }
    Err(RunError::Blocked(doctor::render(&blockers).trim_end().to_owned()))
}

/// What running on `ports` in this way asks of them and of the host, for
/// [`narrows_link::doctor`].
pub fn wanted(ports: &[String; 2], fail: FailMode, session: &SessionOptions) -> Wanted {
    let [a, b] = ports.each_ref().map(|port| read_port(port).ok());
    let locked = a.zip(b).map(|(a, b)| session.locked_bytes(&[a, b]));
    Wanted {
        queues: None,
        bridge: fail == FailMode::Open,
        multi_buffer: true,
        repairs: true,
        locked_bytes: locked.unwrap_or(0),
    }
}

/// Works on `task` for a while; the answer, once there is one.
fn work(instance: &mut Instance, state: Option<&mut StateFile>, task: &mut Task) -> Option<Answer> {
    let mut outcome = match task {
        Task::Whole(Request::Ports) => return Some(Answer::Ports(instance.ports().to_vec())),
        Task::Whole(Request::Show) => return Some(Answer::Show(Box::new(instance.show()))),
        Task::Whole(Request::LetGo { why, .. }) => {
            return Some(match instance.let_go(std::mem::take(why)) {
                Ok(()) => Answer::LetGo,
                Err(error) => Answer::Refused(error.to_string()),
            });
        }
        Task::Whole(Request::Tc { args }) => narrows_tc::execute(args, instance),
        Task::Whole(Request::Batch { .. }) => unreachable!("a batch is a task of its own"),
        Task::Batch(batch) => {
            let end = clock::now() + SLICE;
            while batch.step(instance) {
                if clock::now() >= end {
                    return None;
                }
            }
            batch.end()
        }
    };
    if let Some(why) = keep(instance, state) {
        outcome.stderr.push_str(&format!("Warning: this is in force, but not kept: {why}\n"));
    }
    outcome.stderr.push_str(&warning(instance));
    Some(outcome.into())
}

/// What has to be said to whoever asks for something while workers are silent. The command is not
/// wrong for it, and what it changed is in force.
fn warning(instance: &Instance) -> String {
    let silent = instance.silent_workers();
    silent.iter().map(|worker| format!("Warning: {worker}.\n")).collect()
}
