//! The process behind `narrows run`: start-up checks, fail-open, the loop that serves commands and
//! link events, and shutdown.

use crate::bare;
use crate::beside::Beside;
use crate::clock;
use crate::confine::{Needs, confine};
use crate::control::{ControlServer, PlaceError, Task};
use crate::descriptors::{self, TooFewDescriptors};
use crate::device::DeviceFacts;
use crate::error::InstanceError;
use crate::gates::Gates;
use crate::instance::{Inherited, Instance, InstanceOptions};
use crate::keeper::Keeper;
use crate::kept_file::{KeptFile, KeptFileError};
use crate::notify::Manager;
use crate::offloads::Repairs;
use crate::options::SessionOptions;
use crate::pause::Pause;
use crate::plane::PlaneKind;
use crate::policy_file::{self, PolicyFileError};
use crate::priority::{calm_down, hurry};
use crate::reload::{LastRead, Reload};
use crate::session::Prepared;
use crate::signals::Requests;
use crate::standby::FailMode;
use crate::state::{Failed, StateFile, keep};
use crate::upgrade::NewProcess;
use crate::upgrade::state::Manifest;
use crate::upgrades::{Upgrades, VERSION};
use crate::work::Work;
use crate::{services_file, sets_file};
use narrows_bpf::{Entry, Hook, RoutedBy, Stalled, UserFront, UserFrontError};
use narrows_control::{Request, UpgradeStatus};
use narrows_forwarding::{DeviceId, Forwarding, ForwardingError, PerDevice};
use narrows_link::doctor::{self, Finding, Wanted, WantedPlane};
use narrows_link::{LinkError, LinkMonitor};
use narrows_policy::Policy;
use narrows_snapshot::Snapshot;
use narrows_units::Nanos;
use narrows_xsk::wait_readable;
pub use rustix::process::Pid;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// How often rates are sampled and a lost port is searched.
const TICK: Nanos = Nanos::from_secs(1);
/// How often workers are checked, to report on them.
const WATCH: Nanos = Nanos::from_millis(250);
/// How many link events are handled before signals and clients are served again: what happens to
/// interfaces may be the work of others, and never ends.
const EVENTS: u32 = 64;

/// The longest that the ports may be released, in seconds: a day.
const PAUSE_MAX_S: u64 = 86_400;

/// The arguments of `narrows run`.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The ports, and how they are joined.
    pub forwarding: Forwarding,
    /// The policy file, for the start and for SIGHUP.
    pub batch: Option<PathBuf>,
    /// The initial sets: the output of `ipset save`.
    pub sets: Option<PathBuf>,
    /// Where the policy is saved, and loaded at the start before any other; sets are saved beside
    /// it.
    pub state: Option<PathBuf>,
    /// Who forwards when this process is gone.
    pub fail: FailMode,
    /// What joins the ports.
    pub plane: PlaneKind,
    /// How sessions are run.
    pub session: SessionOptions,
    /// Route and switch also where packets would pass by hooks of netfilter, or IPsec policies.
    pub skip_netfilter: bool,
    /// Join the ports through libxdp's dispatcher, with this priority, also if there is none yet.
    pub dispatcher: Option<u32>,
    /// A user's own program, in front of a host's port. A process that takes over goes on with that
    /// of the other one instead.
    pub front: Option<FrontFile>,
    /// Continue where another process stops, which has started this one. Its policy continues, too,
    /// regardless of files.
    pub take_over: bool,
    /// The [supervisor](crate::supervisor) that has started it: it ends with that one.
    pub kept_by: Option<Pid>,
}

/// A user's own program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrontFile {
    /// The compiled object.
    pub path: PathBuf,
    /// The program's name, if the object has several.
    pub program: Option<String>,
}

/// Why it could not start, or had to end.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// An interface cannot be read or changed.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A policy file cannot be used.
    #[error(transparent)]
    Policy(#[from] PolicyFileError),
    /// A file of sets cannot be used.
    #[error(transparent)]
    Sets(#[from] KeptFileError),
    /// The saved policy cannot be used.
    #[error(
        "{source}\nThis is the state file {path}: correct it, or remove it to begin with --batch"
    )]
    State {
        /// The state file.
        path: PathBuf,
        /// The mistake in it.
        source: PolicyFileError,
    },
    /// The policy cannot be saved.
    #[error("{0}")]
    Keep(String),
    /// A user's own program cannot be used.
    #[error("--front {}: {source}", .path.display())]
    Front {
        /// Its object.
        path: PathBuf,
        /// Why.
        source: UserFrontError,
    },
    /// A setup that cannot work.
    #[error("cannot join the ports:\n{0}")]
    Blocked(String),
    /// The limit of open files is too low.
    #[error(transparent)]
    Descriptors(#[from] TooFewDescriptors),
    /// The ports cannot be joined.
    #[error(transparent)]
    Instance(#[from] InstanceError),
    /// No control socket.
    #[error(transparent)]
    Control(#[from] PlaceError),
    /// The process that keeps this one has ended.
    #[error("the process that has started this one (--kept-by {id}) has ended: {source}")]
    Keeper {
        /// Its id.
        id: Pid,
        /// What the kernel says.
        source: io::Error,
    },
    /// Processes cannot be kept.
    #[error("cannot keep a process for each device: {0}")]
    Supervise(io::Error),
    /// Names or patterns of ports.
    #[error(transparent)]
    Ports(#[from] ForwardingError),
    /// Taking over from another process failed.
    #[error("cannot take over: {0}")]
    Succession(String),
    /// The loop's own descriptors.
    #[error("cannot wait for events: {0}")]
    Events(#[from] io::Error),
}

/// Joins the ports and serves until a signal asks to stop, or until another process has taken over;
/// then there is no final report. `ready` is called once packets are forwarded.
///
/// # Errors
/// If the ports cannot be joined; nothing is left changed then.
pub fn run(
    options: RunOptions,
    ready: impl FnOnce(&Instance),
) -> Result<Option<Snapshot>, RunError> {
    let RunOptions {
        forwarding,
        batch,
        sets,
        state,
        fail,
        plane,
        session,
        skip_netfilter,
        dispatcher,
        front,
        take_over,
        kept_by,
    } = options;
    let watch = |id| Keeper::watch(id).map_err(|source| RunError::Keeper { id, source });
    let keeper = kept_by.map(watch).transpose()?;
    descriptors::allow(1)?;
    // From here on, a request to read the policy again waits until there is one.
    let hangup = Requests::to_reload()?;
    let mut kept = Kept::beside(state.as_deref());
    let mut state = state.map(|path| StateFile::new(path, &forwarding));
    if take_over {
        let options =
            InstanceOptions { forwarding, fail, plane, session, skip_netfilter, dispatcher };
        let process = succeed(options, hangup, keeper)?;
        ready(&process.instance);
        return serve(process, batch, None, state, kept);
    }
    let (policy, last_read) = first_policy(&forwarding, batch.as_ref(), state.as_mut())?;
    let sets = sets_file::first(sets.as_deref(), kept.sets.as_mut())?;
    let services = services_file::first(kept.services.as_mut())?;
    // Before anything is changed: a second instance must not disturb the first.
    let control = ControlServer::open(&forwarding)?;
    let sources = EventSources::open(hangup, keeper)?;
    let manager = Manager::from_environment();
    let wanted = Wanted { skip_netfilter, ..wanted(&forwarding, fail, plane, &session) };
    let findings = refuse_blockers(&forwarding, &wanted)?;
    // In the other plane no queue is opened.
    if plane == PlaneKind::Xsk {
        let devices = forwarding.devices().iter().map(|name| DeviceFacts::read(name));
        let queues = devices.map(|facts| facts.map(|facts| facts.queues));
        let queues = queues.collect::<Result<Vec<u32>, _>>()?.into_iter().min();
        descriptors::allow(queues.unwrap_or(1))?;
    }
    let needs = Needs { batch: batch.as_deref(), state: state.as_ref().map(StateFile::path) };
    let repairs = Repairs::reach(&forwarding);
    // It keeps the privileges that this process gives up.
    let gates = Gates::start(forwarding.devices(), dispatcher)?;
    // Its file, and where its maps may be pinned, are out of reach afterwards.
    let load_front = |front| load_front(front, gates.entry(DeviceId::FIRST));
    let user_front = front.as_ref().map(load_front).transpose()?;
    let unconfined = confine(needs);
    let options = InstanceOptions { forwarding, fail, plane, session, skip_netfilter, dispatcher };
    let mut instance =
        Instance::start(options, policy, sets, services, repairs, gates, user_front)?;
    unconfined.into_iter().for_each(|missing| instance.warn(missing));
    instance.examined(findings);
    ready(&instance);
    let upgrades = Upgrades::new(UpgradeStatus::Never);
    serve(Process { control, sources, manager, upgrades, instance }, batch, last_read, state, kept)
}

/// The events of a process besides its control socket.
struct EventSources {
    monitor: LinkMonitor,
    stop: Requests,
    hangup: Requests,
    keeper: Option<Keeper>,
}

impl EventSources {
    fn open(hangup: Requests, keeper: Option<Keeper>) -> Result<Self, RunError> {
        let monitor = LinkMonitor::open()?;
        Ok(Self { monitor, stop: Requests::to_stop()?, hangup, keeper })
    }
}

/// The parts of a process that serves an instance.
struct Process {
    control: ControlServer,
    sources: EventSources,
    manager: Manager,
    upgrades: Upgrades,
    instance: Instance,
}

/// Takes over from the process that started this one.
fn succeed(
    options: InstanceOptions,
    hangup: Requests,
    keeper: Option<Keeper>,
) -> Result<Process, RunError> {
    let (mut new_process, manifest, descriptors) =
        NewProcess::greet(VERSION).map_err(RunError::Succession)?;
    // Before the ports are read, so that no change is missed.
    let sources = EventSources::open(hangup, keeper);
    let taken_in = sources
        .and_then(|sources| take_in(&mut new_process, options, sources, manifest, descriptors));
    let TakenIn { inherited, sources, control, calm } =
        taken_in.inspect_err(|error| new_process.refuse(&error.to_string()))?;
    new_process.take_over().map_err(RunError::Succession)?;
    // From here on it belongs to this process.
    let (instance, status) = inherited.go_on(VERSION);
    let control = ControlServer::take_over(instance.forwarding(), control)?;
    calm_down(calm);
    let manager = Manager::from_environment();
    Ok(Process { control, sources, manager, upgrades: Upgrades::new(status), instance })
}

/// The state of another process, while that one can still continue itself.
struct TakenIn {
    inherited: Inherited,
    sources: EventSources,
    /// The control socket's.
    control: Vec<OwnedFd>,
    /// The priority to return to.
    calm: i32,
}

/// Prepares to take over, and receives the other process's state when it pauses.
fn take_in(
    new_process: &mut NewProcess,
    options: InstanceOptions,
    sources: EventSources,
    manifest: Manifest,
    mut control: Vec<OwnedFd>,
) -> Result<TakenIn, RunError> {
    let of_session = control.split_off(manifest.control.min(control.len()));
    // The other process has recorded what it switched off.
    let repairs = Repairs::reach(&options.forwarding);
    let mut inherited = Inherited::prepare(options, repairs, manifest, of_session)?;
    let calm = hurry();
    let contents = new_process.ask().map_err(RunError::Succession)?;
    inherited.take_in(contents)?;
    Ok(TakenIn { inherited, sources, control, calm })
}

/// The files in which things are kept beside the state file.
struct Kept {
    sets: Option<KeptFile>,
    services: Option<KeptFile>,
}

impl Kept {
    fn beside(state: Option<&Path>) -> Self {
        Self { sets: state.map(sets_file::beside), services: state.map(services_file::beside) }
    }

    /// Writes what has changed, but not too often unless it is for the `last` time.
    fn keep(&mut self, instance: &mut Instance, last: bool) {
        if let Some(file) = self.sets.as_mut().filter(|file| last || file.is_due()) {
            sets_file::keep(file, instance);
        }
        if let Some(file) = self.services.as_mut().filter(|file| last || file.is_due()) {
            services_file::keep(file, instance);
        }
    }
}

/// Serves until a signal asks to stop, or until another process has taken over.
fn serve(
    process: Process,
    batch: Option<PathBuf>,
    mut last_read: Option<LastRead>,
    mut state: Option<StateFile>,
    mut kept: Kept,
) -> Result<Option<Snapshot>, RunError> {
    let Process { mut control, sources, mut manager, mut upgrades, mut instance } = process;
    let EventSources { mut monitor, mut stop, mut hangup, keeper } = sources;
    instance.kept_by(keeper.as_ref().map(|keeper| keeper.id().as_raw_nonzero().get()));
    manager.ready(&instance.standing());
    let mut beside = Beside::new()?;
    let mut refused = None;
    let mut wants_reload = false;
    let mut reload: Option<Reload> = None;
    let readers = Arc::new(());
    let mut next_tick = clock::now() + TICK;
    let mut pause: Option<Pause> = None;
    let mut has_more_events = false;
    loop {
        let events = [control.fd(), monitor.as_fd(), stop.fd(), hangup.fd(), beside.fd()];
        let [control_fd, monitor_fd, stop_fd, hangup_fd, beside_fd] = events.map(|fd| (fd, true));
        let upgrade_fd = (upgrades.fd_or(control.fd()), true);
        // Without a pause, or a keeper, this descriptor, one of the last, is not polled.
        let paused = pause.as_ref().map_or((control.fd(), false), |pause| (pause.fd(), true));
        let keeper_fd = keeper.as_ref().map_or((control.fd(), false), |keeper| (keeper.fd(), true));
        let end = pause.as_ref().map_or(next_tick, Pause::end);
        let wake = next_tick.min(end).min(manager.next_beat());
        let wake = instance.next_turn().map_or(wake, |turn| wake.min(turn));
        let wake = instance.next_share_end().map_or(wake, |end| wake.min(end));
        let is_busy = control.is_busy() || has_more_events;
        let at_most = if is_busy { Nanos::ZERO } else { WATCH };
        let reflectors = instance.reflectors().map_or((control.fd(), false), |fd| (fd, true));
        let fds = [
            control_fd, monitor_fd, stop_fd, hangup_fd, beside_fd, upgrade_fd, keeper_fd, paused,
            reflectors,
        ];
        wait_readable(fds, Some((wake - clock::now()).min(at_most).0))?;
        if stop.take() || keeper.as_ref().is_some_and(Keeper::has_ended) {
            manager.stopping();
            kept.keep(&mut instance, true);
            if let Some(Err(Failed::News(why) | Failed::Again(why))) =
                state.as_mut().map(|state| state.finish(instance.policy()))
            {
                instance.warn(why);
            }
            return Ok(Some(instance.stop()));
        }
        let mut unread = EVENTS;
        while unread > 0
            && let Some(event) = monitor.next_event()
        {
            instance.link_event(&event);
            unread -= 1;
        }
        has_more_events = unread == 0;
        beside.hear();
        wants_reload |= hangup.take();
        // A process that takes over must get the policy that the file makes.
        if wants_reload && reload.is_none() && !upgrades.is_running() {
            wants_reload = false;
            manager.reloading();
            match Reload::begin(&beside, &mut instance, batch.as_deref(), last_read.as_ref()) {
                Ok(begun) => reload = Some(begun),
                Err(why) => {
                    refused = Some(why);
                    manager.ready(&standing(&instance, refused.as_deref()));
                }
            }
        }
        if let Some(ended) = reload.as_ref().and_then(|reload| reload.end(&mut instance, &beside)) {
            refused = match ended {
                Ok(Some(read)) => {
                    let before = last_read.replace(read);
                    drop(beside.start("replaced", move || drop(before)));
                    None
                }
                Ok(None) => None,
                Err(why) => Some(why),
            };
            drop(reload.take());
            keep(&mut instance, state.as_mut(), &beside);
            manager.ready(&standing(&instance, refused.as_deref()));
        }
        instance.watch();
        instance.look_for_ways();
        instance.expire_sets();
        instance.expire_shares();
        instance.hear_reflectors();
        instance.turn_lines();
        if let Some(over) = pause.take_if(|pause| pause.is_over()) {
            over.finish(&mut instance);
        }
        let mut limit = Nanos::ZERO;
        let began = clock::now();
        let amid_batch = control.is_amid_batch();
        let holder = control.serve(|task, has_begun| {
            if let Task::Whole(Request::LetGo { limit_s, .. }) = &*task {
                limit = Nanos::from_secs((*limit_s).min(PAUSE_MAX_S));
            }
            let state = state.as_mut();
            let (instance, upgrades) = (&mut instance, &mut upgrades);
            let reload = reload.as_mut();
            let work = Work {
                instance,
                upgrades,
                state,
                reload,
                amid_batch,
                beside: &beside,
                readers: &readers,
            };
            work.step(task, has_begun)
        });
        if let Some(stream) = holder {
            pause = Some(Pause::new(stream, began, limit)?);
        }
        // What has begun is not left to another process.
        if !control.is_amid_batch()
            && let Some(new_process) = upgrades.proceed(&mut instance, &control)
        {
            manager.replaced_by(new_process);
            control.leave();
            return Ok(None);
        }
        if clock::now() >= next_tick {
            instance.tick();
            keep(&mut instance, state.as_mut(), &beside);
            kept.keep(&mut instance, false);
            next_tick = clock::now() + TICK;
        }
        manager.status(&standing(&instance, refused.as_deref()));
        manager.beat(clock::now(), instance.is_beating());
    }
}

/// Loads a user's own program, for a port whose programs are attached as `entry` says.
fn load_front(front: &FrontFile, entry: Entry) -> Result<UserFront, RunError> {
    let FrontFile { path, program } = front;
    let loaded = UserFront::load(path, program.as_deref(), entry);
    loaded.map_err(|source| RunError::Front { path: path.clone(), source })
}

/// The initial policy: the saved one, or that of the file, or none.
fn first_policy(
    ports: &Forwarding,
    batch: Option<&PathBuf>,
    state: Option<&mut StateFile>,
) -> Result<(Policy, Option<LastRead>), RunError> {
    let file = || match batch {
        Some(path) => {
            let file = policy_file::read(path, ports)?;
            let policy = file.policy(&Policy::default())?;
            let read = LastRead { source: file.source(), policy: policy.clone() };
            Ok::<_, PolicyFileError>((policy, Some(read)))
        }
        None => Ok((Policy::default(), None)),
    };
    let Some(state) = state else { return Ok(file()?) };
    let wrong = |source| RunError::State { path: state.path().to_owned(), source };
    let (policy, read) = match state.load().map_err(wrong)? {
        Some(kept) => {
            if let Some(batch) = batch {
                log::info!(
                    "the policy is the one kept in {}; SIGHUP reads {} in its place",
                    state.path().display(),
                    batch.display()
                );
            }
            (kept, None)
        }
        None => file()?,
    };
    // A failure to save is better known now than after the next restart.
    match state.finish(&policy) {
        Ok(()) => Ok((policy, read)),
        Err(Failed::News(why) | Failed::Again(why)) => Err(RunError::Keep(why)),
    }
}

/// The instance's state, for the service manager.
fn standing(instance: &Instance, refused: Option<&str>) -> String {
    match refused {
        Some(why) => format!("{}; {why}", instance.standing()),
        None => instance.standing(),
    }
}

/// Forwards between the ends of `wire` without anything in between until a signal asks to stop, and
/// returns the packets forwarded in each direction with the CPU time that it took: the floor for
/// benchmarks.
///
/// # Errors
/// If the ports cannot be joined.
pub fn run_bare(
    wire: &Forwarding,
    session: &SessionOptions,
    ready: impl FnOnce(),
) -> Result<([u64; 2], Nanos), RunError> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register(signal, stop.clone())?;
    }
    let devices = wire.devices().iter().map(|name| DeviceFacts::read(name));
    let devices = devices.collect::<Result<PerDevice<_>, _>>()?;
    let promiscuous: Vec<_> =
        devices.iter().map(|device| narrows_link::promiscuous(device.ifindex)).collect();
    let queues = devices.iter().map(|device| device.queues).min().unwrap_or(1);
    let gates = Gates::none();
    let (stalled, routed_by) = (Stalled::Pass, RoutedBy::default());
    let mut prepared = Prepared::new(wire, devices, session, queues, stalled, &gates, routed_by)
        .map_err(InstanceError::from)?;
    let ios = prepared.take_ios();
    prepared.attach(session.hook.and_then(Hook::xdp_mode), &gates).map_err(InstanceError::from)?;
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

/// Refuses a setup that cannot work, with the remedy. Returns other findings.
fn refuse_blockers(ports: &Forwarding, wanted: &Wanted) -> Result<Vec<Finding>, RunError> {
    without_blockers(examine(ports, wanted))
}

/// Refuses `findings` with a blocker, with the remedy.
pub(crate) fn without_blockers(findings: Vec<Finding>) -> Result<Vec<Finding>, RunError> {
    let blockers: Vec<Finding> = doctor::blockers(&findings).cloned().collect();
    if blockers.is_empty() {
        return Ok(findings);
    }
    Err(RunError::Blocked(doctor::render(&blockers).trim_end().to_owned()))
}

/// What `doctor` finds about `ports` and this host.
pub fn examine(ports: &Forwarding, wanted: &Wanted) -> Vec<Finding> {
    match (ports.pairs(), ports.names()) {
        (Some(pairs), _) => {
            doctor::examine_stick(&ports.devices()[DeviceId::FIRST], &pairs, wanted)
        }
        (None, names) if ports.is_router() => doctor::examine_router(names, wanted),
        (None, names) if ports.is_switch() => doctor::examine_switch(names, wanted),
        // An ifb comes only with its port.
        (None, _) if ports.is_host() => {
            let given: Vec<String> = ports.given().map(str::to_owned).collect();
            doctor::examine_host(&given, wanted)
        }
        (None, [a, b]) => doctor::examine(a, b, wanted),
        (None, _) => Vec::new(),
    }
}

/// The requirements of this way of running for `ports` and host, for [`narrows_link::doctor`].
pub fn wanted(
    ports: &Forwarding,
    fail: FailMode,
    plane: PlaneKind,
    session: &SessionOptions,
) -> Wanted {
    let devices = ports.devices().iter().map(|name| DeviceFacts::read(name).ok());
    // In that mode frames stay in the drivers' own memory.
    let locked = match plane {
        PlaneKind::Xsk => {
            let devices: Option<PerDevice<_>> = devices.collect();
            devices.map(|devices| session.locked_bytes(ports, &devices))
        }
        PlaneKind::Xdp | PlaneKind::Host => None,
    };
    Wanted {
        plane: match plane {
            PlaneKind::Xsk => WantedPlane::Xsk,
            PlaneKind::Xdp => WantedPlane::Xdp,
            PlaneKind::Host => WantedPlane::Host,
        },
        queues: None,
        bridge: fail == FailMode::Open && ports.is_paired(),
        multi_buffer: true,
        skip_netfilter: false,
        repairs: true,
        running: Vec::new(),
        locked_bytes: locked.unwrap_or(0),
    }
}
