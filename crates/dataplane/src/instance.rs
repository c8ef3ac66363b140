//! An instance: two ports, their policy, and the session that joins them while both are there.
//!
//! The instance outlives its sessions. When an interface vanishes, or changes its queues, MTU
//! or address, the session is closed, the event is told, and as soon as both ports are
//! usable again the next session begins under the same policy, with counters that run on.
//!
//! Everything here happens on one thread, at human speed: commands, link events, a tick a
//! second. Packets are the workers' business.

use crate::carrier::Carriers;
use crate::clock;
use crate::events::Events;
use crate::heartbeat::SilentWorker;
use crate::look_ups::LookUps;
use crate::meter::RateMeter;
use crate::offloads::Repairs;
use crate::runner::WorkerReport;
use crate::session::{Closed, PortFacts, Session, SessionError, SessionOptions};
use crate::show::{self, Conservation, PortShow, QueueCounters, Show, WorkerShow};
use crate::standby::StandBy;
use crate::warnings::{self, Bypass};
use crate::watch::{self, Watch};
use narrows_bpf::{Stalled, Verdicts, XdpMode};
use narrows_link::bridge::BridgeError;
use narrows_link::{DeviceLosses, Link, LinkError, LinkEvent, Promiscuous, doctor};
use narrows_policy::{Kind, Node, NodeStats, Plan, Policy, PolicyError};
use narrows_qdisc::{Detail, Spec};
use narrows_shaper::{Installation, PathCounters, Side};
use narrows_units::{Nanos, Rate};
use narrows_xsk::CopyMode;

mod handover;

pub(crate) use handover::{Heritage, Offer};

/// Why a policy was not taken over, or a session not opened.
#[derive(Debug, thiserror::Error)]
pub enum InstanceError {
    /// An interface cannot be read.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The policy does not fit the ports.
    #[error("{port}: {source}")]
    Policy {
        /// The port that it does not fit.
        port: String,
        /// Why.
        source: PolicyError,
    },
    /// The policy names a port that is not this instance's.
    #[error("the policy has a qdisc for \"{0}\", which is not a port of this instance")]
    ForeignPort(String),
    /// The ports cannot be joined.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The ports do not have the same queues.
    #[error(
        "{} has {} queues and {} has {}: each worker serves one queue of both; give both the same \
         number, for instance `ethtool -L {} combined {}` (on veth `rx N tx N`)",
        .0.0, .0.1, .1.0, .1.1,
        if .0.1 > .1.1 { &.0.0 } else { &.1.0 },
        .0.1.min(.1.1)
    )]
    Queues((String, u32), (String, u32)),
    /// The fail-open bridge cannot be prepared.
    #[error("cannot prepare the bridge for fail-open: {0}")]
    Bridge(#[from] BridgeError),
    /// Traffic is to stop with this process, and would not.
    #[error(
        "{port} is a port of {master}, which would forward after the end of narrows in spite of \
         --fail-closed: `ip link set dev {port} nomaster`, or `ip link del {master}`"
    )]
    Master {
        /// The port.
        port: String,
        /// What it belongs to.
        master: String,
    },
    /// An offload that spoils frames cannot be switched off.
    #[error("{0}")]
    Offloads(String),
    /// The ports were let go for a while.
    #[error("let go: {0}")]
    LetGo(String),
    /// What another process passed on is not what this one can go on with.
    #[error("{0}")]
    Inheritance(String),
    /// An interface is down.
    #[error("{0} is down: `ip link set dev {0} up`")]
    Down(String),
}

/// Who forwards when this process is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailMode {
    /// A kernel bridge, prepared beforehand: traffic goes on, unshaped.
    Open,
    /// Nobody: traffic stops.
    Closed,
}

impl FailMode {
    /// What becomes of the frames of a worker that hangs: the same as when all are gone.
    const fn stalled(self) -> Stalled {
        match self {
            Self::Open => Stalled::Pass,
            Self::Closed => Stalled::Drop,
        }
    }
}

/// How an instance is run.
#[derive(Clone, Debug)]
pub struct InstanceOptions {
    /// The names of its ports.
    pub ports: [String; 2],
    /// Who forwards when this process is gone.
    pub fail: FailMode,
    /// How its sessions are run.
    pub session: SessionOptions,
}

/// What each port has counted over all sessions.
#[derive(Clone, Default)]
struct Totals {
    queues: [Vec<QueueCounters>; 2],
    verdicts: [Verdicts; 2],
    /// What the devices lost.
    losses: [DeviceLosses; 2],
}

/// See the module's documentation.
pub struct Instance {
    options: InstanceOptions,
    policy: Policy,
    installed: [Option<Installation>; 2],
    session: Option<Session>,
    /// Over the session's workers.
    watch: Watch,
    _promiscuous: Vec<Promiscuous>,
    standby: StandBy,
    repairs: Repairs,
    bypass: Bypass,
    /// What the ports were let go for.
    let_go: Option<String>,
    waiting_for: Option<String>,
    look_ups: LookUps,
    carriers: Carriers,
    /// Counts of the sessions that are over.
    past: Totals,
    rates: RateMeter,
    events: Events,
    began: Nanos,
}

impl Instance {
    /// One that has not begun.
    fn new(options: InstanceOptions, repairs: Repairs) -> Self {
        Self {
            watch: Watch::new(options.fail.stalled()),
            standby: StandBy::new(options.fail),
            repairs,
            bypass: Bypass::default(),
            let_go: None,
            options,
            policy: Policy::default(),
            installed: [None, None],
            session: None,
            _promiscuous: Vec::new(),
            waiting_for: None,
            look_ups: LookUps::default(),
            carriers: Carriers::default(),
            past: Totals::default(),
            rates: RateMeter::default(),
            events: Events::default(),
            began: clock::now(),
        }
    }

    /// Joins the ports under `policy`; `repairs` looks after their offloads.
    ///
    /// # Errors
    /// Where they cannot be joined as they are now. Nothing is left changed then.
    pub(crate) fn start(
        options: InstanceOptions,
        policy: Policy,
        repairs: Repairs,
    ) -> Result<Self, InstanceError> {
        let mut instance = Self::new(options, repairs);
        instance.check_ports(&policy)?;
        instance.policy = policy;
        if let Err(error) = instance.begin() {
            instance.close(false);
            instance.repairs.undo();
            instance.standby.stand_down();
            return Err(error);
        }
        Ok(instance)
    }

    /// What has to hold at the start and is only said later.
    fn begin(&mut self) -> Result<(), InstanceError> {
        self.standby.prepare(&self.options.ports)?;
        self.open()?;
        match self.repairs.stubborn() {
            [] => Ok(()),
            stubborn => Err(InstanceError::Offloads(stubborn.join("; "))),
        }
    }

    /// The names of its ports.
    pub fn ports(&self) -> &[String; 2] {
        &self.options.ports
    }

    /// The policy in force.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Which side the port `dev` is.
    pub fn side(&self, dev: &str) -> Option<Side> {
        Side::BOTH.into_iter().find(|side| self.options.ports[side.index()] == dev)
    }

    /// How many queues are served, while the ports are joined.
    pub fn queues(&self) -> Option<usize> {
        self.session.as_ref().map(Session::queues)
    }

    /// How the ports were joined, for people.
    pub fn mode(&self) -> String {
        let Some(session) = &self.session else { return "not joined".into() };
        let port = |side| {
            format!(
                "{} (mtu {}, {} XDP)",
                session.port(side).name,
                session.port(side).mtu,
                session.xdp_mode(side)
            )
        };
        format!(
            "{} and {}, {} queues, {} AF_XDP, frames of {} bytes",
            port(Side::A),
            port(Side::B),
            session.queues(),
            session.copy_mode().name(),
            session.sizing().buffer.size
        )
    }

    /// Puts `policy` in force. Nothing has changed where it is refused. A silent worker
    /// ([`Instance::silent_workers`]) takes it over when it comes round again, before it handles
    /// another packet; of several policies only the last.
    ///
    /// # Errors
    /// Where it does not fit the ports.
    pub fn apply(&mut self, policy: Policy) -> Result<(), InstanceError> {
        self.check_ports(&policy)?;
        let Some(session) = &self.session else {
            self.policy = policy;
            return Ok(());
        };
        let mut changes = Vec::new();
        for side in Side::BOTH {
            let name = &self.options.ports[side.index()];
            if policy.port(name) == self.policy.port(name) {
                continue;
            }
            changes.push((side, plan(&policy, name, session.queues())?));
        }
        for (side, plan) in changes {
            let previous = self.installed[side.index()].as_ref();
            let (installation, specs) = Installation::reconcile(plan, previous);
            installation.commit();
            session.update(side, specs);
            self.installed[side.index()] = Some(installation);
        }
        self.policy = policy;
        self.look_up();
        Ok(())
    }

    /// The figures of every qdisc of the port of `side`.
    pub fn qdisc_stats(&self, side: Side) -> Vec<NodeStats> {
        let (Some(session), Some(installed)) = (&self.session, &self.installed[side.index()])
        else {
            return Vec::new();
        };
        let per_queue: Vec<_> = session
            .reports()
            .into_iter()
            .map(|mut report| std::mem::take(&mut report.qdiscs[side.index()]))
            .collect();
        installed.gather(&per_queue)
    }

    /// Takes notice of something that happened to an interface.
    pub fn link_event(&mut self, event: &LinkEvent) {
        if self.standby.concerns(event, &self.options.ports) {
            self.watch_standby();
        }
        if let LinkEvent::Settings = event {
            self.repair();
            return;
        }
        let (LinkEvent::Added(link) | LinkEvent::Changed { now: link, .. }) = event else {
            if let LinkEvent::Removed { name, .. } = event
                && self.side(name).is_none()
            {
                return;
            }
            self.reconsider();
            return;
        };
        let known = |session: &Session| {
            Side::BOTH.iter().any(|&side| session.port(side).ifindex == link.status.ifindex)
        };
        if self.side(&link.status.name).is_some() || self.session.as_ref().is_some_and(known) {
            self.reconsider();
        }
    }

    /// Samples the rates, looks after what others may have changed unseen, and tries again where
    /// the ports could not be joined.
    pub fn tick(&mut self) {
        self.watch_standby();
        match &mut self.session {
            None => self.reconsider(),
            Some(session) => {
                self.look_ups.retry(session, &self.options.ports, &mut self.events);
                let zero_copy = session.copy_mode() == CopyMode::ZeroCopy;
                self.repair();
                // Nobody announces that a device has other rings now.
                if zero_copy {
                    self.reconsider();
                }
            }
        }
        self.see_carriers();
        let reports = self.reports();
        let totals = self.totals(&reports);
        let bytes = |of: fn(&QueueCounters) -> u64| {
            Side::BOTH.map(|side| totals.queues[side.index()].iter().map(of).sum())
        };
        self.rates.sample(
            clock::now(),
            bytes(|queue| queue.inward.rx_bytes),
            bytes(|queue| queue.outward.tx_bytes),
        );
        let unserved = totals.verdicts.map(|verdicts| verdicts.unserved);
        self.bypass.sample(unserved, &self.options.ports, &mut self.events);
    }

    /// Whether no worker is silent. An instance that waits for a port has none, and is well.
    pub fn is_beating(&self) -> bool {
        self.silent_workers().is_empty()
    }

    /// How it stands, in a line.
    pub fn standing(&self) -> String {
        match &self.waiting_for {
            Some(reason) => format!("waiting: {reason}"),
            None => format!("joined {}", self.mode()),
        }
    }

    /// Records that something happened.
    pub(crate) fn say(&mut self, event: String) {
        self.events.say(event);
    }

    /// Records that something went wrong.
    pub(crate) fn warn(&mut self, event: String) {
        self.events.warn(event);
    }

    /// The workers that do not come round, for whatever reason, each with how long it has been so.
    /// The steering programs pass them by; none where nothing is joined.
    pub fn silent_workers(&self) -> Vec<SilentWorker> {
        self.session.as_ref().map(Session::silent).unwrap_or_default()
    }

    /// Takes notice of workers that fell silent or came back.
    pub fn watch(&mut self) {
        if let Some(session) = &self.session {
            for event in self.watch.look(session.pulses(), clock::now()) {
                self.events.warn(event);
            }
        }
    }

    /// Ends the instance: what is queued may leave for a short while, then the ports are
    /// left to the kernel. Returns the last word on where every packet went.
    pub fn stop(mut self) -> Show {
        self.close(true);
        self.repairs.undo();
        self.waiting_for = None;
        self.show()
    }

    /// Everything about it.
    pub fn show(&self) -> Show {
        let reports = self.reports();
        let totals = self.totals(&reports);
        let mut paths = PathCounters::default();
        let mut queued = 0;
        let bypassed = totals.verdicts.iter().map(|port| port.unserved + port.stalled).sum();
        for queue in totals.queues.iter().flatten() {
            paths.merge(&queue.outward);
            queued += u64::from(queue.backlog.packets);
        }
        Show {
            state: if self.session.is_some() { "running" } else { "waiting" }.into(),
            waiting_for: self.waiting_for.clone(),
            uptime_s: (clock::now() - self.began).as_secs_f64(),
            fail: self.standby.describe(),
            warnings: self.warnings(),
            ports: Side::BOTH.map(|side| self.show_port(side, &totals, &reports)).into(),
            workers: self.show_workers(&reports),
            conservation: Conservation {
                received: paths.rx_packets,
                sent: paths.tx_packets,
                queued,
                dropped: show::by_reason(&paths.drops),
                unaccounted: paths.unaccounted(queued),
                bypassed,
            },
            events: self.events.list(),
        }
    }

    fn show_port(&self, side: Side, totals: &Totals, reports: &[WorkerReport]) -> PortShow {
        let name = self.options.ports[side.index()].clone();
        let queues = &totals.queues[side.index()];
        let verdicts = totals.verdicts[side.index()];
        let root = self.policy.port(&name).root.as_ref();
        let rate_set_bps = root.and_then(|root| match &root.kind {
            Kind::Tbf(tbf) => Some(tbf.rate.bits_per_sec()),
            Kind::Cake(cake) => cake.params.config.rate.map(Rate::bits_per_sec),
            _ => None,
        });
        let qdiscs = reports.iter().flat_map(|report| &report.qdiscs[side.index()]);
        let instances = qdiscs.filter_map(|stats| stats.detail.as_ref().and_then(Detail::cake));
        let instance_bytes = instances.map(|cake| cake.own_memory.0).max();
        let mut total = QueueCounters::default();
        queues.iter().for_each(|queue| total.merge(queue));
        let session = self.session.as_ref();
        PortShow {
            name,
            xdp: session.map_or("none", |s| s.xdp_mode(side).name()).into(),
            copy: session.map_or("none", |s| s.copy_mode().name()).into(),
            no_carrier: session.is_some_and(|s| !s.device(side).carrier),
            mtu: session.map_or(0, |s| s.port(side).mtu),
            queues: session.map_or(0, Session::queues) as u32,
            qdisc: root.map_or("noqueue", |root| root.kind.name()).into(),
            rate_set_bps,
            instance_bytes,
            tx_rate_bps: self.rates.tx(side).bits_per_sec(),
            rx_rate_bps: self.rates.rx(side).bits_per_sec(),
            total: total.show(),
            per_queue: queues.iter().map(QueueCounters::show).collect(),
            to_self: verdicts.to_self,
            unserved: verdicts.unserved,
            stalled: verdicts.stalled,
            kernel_drops: total.kernel_drops(),
            device_losses: totals.losses[side.index()].into(),
        }
    }

    fn show_workers(&self, reports: &[WorkerReport]) -> Vec<WorkerShow> {
        let cpus: Vec<usize> = self.session.iter().flat_map(Session::cpus).collect();
        let silent = self.silent_workers();
        (0u32..)
            .zip(cpus.iter().copied())
            .zip(reports)
            .map(|((queue, cpu), report)| {
                let silence = silent.iter().find(|worker| worker.queue == queue);
                let all = (report.busy + report.idle).as_secs_f64();
                WorkerShow {
                    queue,
                    cpu: cpus.get(report.thread as usize).copied().unwrap_or(cpu),
                    thread: report.thread,
                    load: if all > 0.0 { report.busy.as_secs_f64() / all } else { 0.0 },
                    idle_s: report.idle.as_secs_f64(),
                    cpu_s: report.cpu_time.as_secs_f64(),
                    frames: report.all_frames,
                    free_frames: report.frames.free,
                    receiving_frames: report.frames.receiving,
                    waiting_frames: report.frames.waiting,
                    sending_frames: report.frames.sending,
                    stray_frames: report.stray_frames,
                    silent_s: silence.map(|worker| worker.silence.as_secs_f64()),
                }
            })
            .collect()
    }

    fn check_ports(&self, policy: &Policy) -> Result<(), InstanceError> {
        match policy.ports().find(|(dev, _)| self.side(dev).is_none()) {
            Some((dev, _)) => Err(InstanceError::ForeignPort(dev.to_owned())),
            None => Ok(()),
        }
    }

    fn reports(&self) -> Vec<WorkerReport> {
        self.session.as_ref().map(Session::reports).unwrap_or_default()
    }

    /// The counts of all sessions, with those of the running one as in `reports`.
    fn totals(&self, reports: &[WorkerReport]) -> Totals {
        let mut totals = self.past.clone();
        for (queue, report) in reports.iter().enumerate() {
            totals.add(queue, report);
        }
        if let Some(session) = &self.session {
            for side in Side::BOTH {
                let past = totals.verdicts[side.index()];
                totals.verdicts[side.index()] = show::add_verdicts(past, session.verdicts(side));
                let losses = session.device(side).losses;
                totals.losses[side.index()] = totals.losses[side.index()].and(&losses);
            }
        }
        totals
    }

    /// Reads the ports, compiles the policy for them, and joins them.
    fn open(&mut self) -> Result<(), InstanceError> {
        // Each time anew: an interface that came back is no port of the bridge any more.
        self.standby.watch(&self.options.ports, &mut self.events)?;
        let [a, b] = &self.options.ports;
        let ports = [read_port(a)?, read_port(b)?];
        if ports[0].queues != ports[1].queues {
            let [a, b] = ports.map(|port| (port.name, port.queues));
            return Err(InstanceError::Queues(a, b));
        }
        let [(of_a, specs_a), (of_b, specs_b)] = self.compile(ports[0].queues as usize)?;
        // A NIC drops frames for others by itself, long before XDP.
        let promiscuous = ports
            .iter()
            .map(|port| narrows_link::promiscuous(port.ifindex))
            .collect::<Result<_, _>>()?;
        let only = self.options.session.xdp_mode;
        let generic = ports.each_ref().map(|port| match only {
            Some(mode) => mode == XdpMode::Generic,
            None => !doctor::runs_xdp(&port.driver),
        });
        self.repairs.watch(&self.options.ports, generic);
        self.repairs.repair(&mut self.events);
        let session = Session::open(
            ports,
            &self.options.session,
            [specs_a, specs_b],
            self.options.fail.stalled(),
        )?;
        let is_generic = Side::BOTH.map(|side| session.xdp_mode(side) == XdpMode::Generic);
        self.session = Some(session);
        if is_generic != generic {
            self.repairs.watch(&self.options.ports, is_generic);
            self.repairs.repair(&mut self.events);
        }
        self.installed = [Some(of_a), Some(of_b)];
        self._promiscuous = promiscuous;
        self.waiting_for = None;
        self.watch = Watch::new(self.options.fail.stalled());
        self.events.say(format!("joined {}", self.mode()));
        for warning in self.session.iter().flat_map(warnings::of_ports) {
            self.events.warn(warning);
        }
        self.look_up();
        Ok(())
    }

    /// Tells of carriers that went away, or came back.
    fn see_carriers(&mut self) {
        let Some(session) = &self.session else { return };
        for side in Side::BOTH {
            let has_carrier = session.device(side).carrier;
            self.carriers.see(side, &session.port(side).name, has_carrier, &mut self.events);
        }
    }

    /// Lays the policy of either port out over `queues` queues.
    fn compile(&self, queues: usize) -> Result<[(Installation, Vec<Spec>); 2], InstanceError> {
        let [a, b] = &self.options.ports;
        let plans = [plan(&self.policy, a, queues)?, plan(&self.policy, b, queues)?];
        Ok(plans.map(|plan| Installation::reconcile(plan, None)))
    }

    /// Has the kernel asked what addresses were before translation for those ports whose qdiscs
    /// want to know, and for no others.
    fn look_up(&mut self) {
        let Some(session) = &mut self.session else { return };
        let wanted = self
            .options
            .ports
            .each_ref()
            .map(|name| self.policy.port(name).nodes().into_iter().any(wants_translation));
        self.look_ups.set(wanted, session, &self.options.ports, &mut self.events);
    }

    /// Whether qdiscs can learn what addresses were before translation, as far as is known.
    pub(crate) fn can_look_up(&self) -> bool {
        self.session.as_ref().is_none_or(Session::can_look_up)
    }

    /// Lets go of the ports, which traffic then passes as if this process were gone, for `why`.
    ///
    /// # Errors
    /// Where they were let go already.
    pub(crate) fn let_go(&mut self, why: String) -> Result<(), InstanceError> {
        if let Some(other) = &self.let_go {
            return Err(InstanceError::LetGo(other.clone()));
        }
        self.watch_standby();
        self.close(true);
        self.events.warn(format!("let go of the ports: {why}"));
        self.waiting_for = Some(format!("{why} to be done"));
        self.let_go = Some(why);
        Ok(())
    }

    /// Joins the ports again. Where that is not possible now, it is tried again as ever, and what
    /// is waited for is said.
    pub(crate) fn join_again(&mut self) -> Result<String, String> {
        self.let_go = None;
        self.reconsider();
        match &self.session {
            Some(_) => Ok(self.mode()),
            None => Err(self.waiting_for.clone().unwrap_or_default()),
        }
    }

    /// Looks after who forwards when this process is gone.
    fn watch_standby(&mut self) {
        if let Err(error) = self.standby.watch(&self.options.ports, &mut self.events)
            && self.session.is_some()
        {
            self.events.warn(error.to_string());
            self.close(true);
            self.waiting_for = Some(error.to_string());
        }
    }

    /// Switches off what spoils frames.
    fn repair(&mut self) {
        if self.session.is_some() {
            self.repairs.repair(&mut self.events);
        }
    }

    /// What is wrong now.
    fn warnings(&self) -> Vec<String> {
        let of_ports = self.session.iter().flat_map(warnings::of_ports);
        let of_offloads = self.repairs.stubborn().iter().chain(self.repairs.unreached());
        of_ports.chain(of_offloads.cloned()).collect()
    }

    /// Ends the session, if there is one, and keeps its counts.
    fn close(&mut self, drain: bool) {
        let Some(session) = self.session.take() else { return };
        let Closed { ended, verdicts, losses } = session.close(drain);
        if !ended.left_behind.is_empty() {
            self.events.warn(watch::left_behind(&ended.left_behind));
        }
        for (queue, report) in ended.reports.iter().enumerate() {
            self.past.add(queue, report);
        }
        for (past, last) in self.past.verdicts.iter_mut().zip(verdicts) {
            *past = show::add_verdicts(*past, last);
        }
        for (past, last) in self.past.losses.iter_mut().zip(losses) {
            *past = past.and(&last);
        }
        // What was queued has been sent or dropped; only counters are history.
        for queue in self.past.queues.iter_mut().flatten() {
            queue.backlog = Default::default();
        }
        self._promiscuous.clear();
    }

    /// Closes a session whose ports are not what they were, and opens one where it can be.
    fn reconsider(&mut self) {
        if self.let_go.is_some() {
            return;
        }
        if let Some(session) = &self.session {
            let changes: Vec<String> =
                Side::BOTH.into_iter().filter_map(|side| change(session, side)).collect();
            if changes.is_empty() {
                return;
            }
            self.events.warn(changes.join("; "));
            self.close(false);
        }
        if let Err(error) = self.open() {
            let reason = error.to_string();
            // The same reason every second would bury the one that matters.
            if self.waiting_for.as_ref() != Some(&reason) {
                self.events.warn(format!("waiting: {reason}"));
                self.waiting_for = Some(reason);
            }
        }
    }
}

impl Totals {
    fn add(&mut self, queue: usize, report: &WorkerReport) {
        for side in Side::BOTH {
            let index = side.index();
            let counters = QueueCounters {
                inward: report.paths[index],
                outward: report.paths[side.other().index()],
                tx_kicks: report.tx_kicks[index],
                backlog: report.backlogs[index],
                kernel_drops: report.kernel_drops[index],
            };
            let queues = &mut self.queues[index];
            if queues.len() <= queue {
                queues.resize(queue + 1, QueueCounters::default());
            }
            queues[queue].merge(&counters);
        }
    }
}

/// What the port `name` runs on `queues` queues under `policy`.
fn plan(policy: &Policy, name: &str, queues: usize) -> Result<Plan, InstanceError> {
    Plan::of(policy.port(name), queues)
        .map_err(|source| InstanceError::Policy { port: name.to_owned(), source })
}

fn wants_translation(node: &Node) -> bool {
    matches!(&node.kind, Kind::Cake(cake) if cake.params.config.nat)
}

fn facts(link: &Link) -> PortFacts {
    PortFacts {
        name: link.name().to_owned(),
        ifindex: link.status.ifindex,
        mac: link.status.mac,
        mtu: link.status.mtu,
        queues: link.queues.now.pairs(),
        rx_ring: link.rings.map_or(0, |rings| rings.rx),
        counts: link.queues,
        driver: link.driver.name.clone(),
    }
}

pub(crate) fn read_port(name: &str) -> Result<PortFacts, InstanceError> {
    let link = Link::by_name(name)?;
    if !link.status.up {
        return Err(InstanceError::Down(name.to_owned()));
    }
    Ok(facts(&link))
}

/// What is different about a port, in words; `None` where it is what it was.
fn change(session: &Session, side: Side) -> Option<String> {
    let was = session.port(side);
    let name = &was.name;
    let is = match Link::by_name(name) {
        Ok(link) => facts(&link),
        Err(_) => return Some(format!("{name} is gone")),
    };
    if is.ifindex != was.ifindex {
        return Some(format!("{name} is another interface now"));
    }
    let mut changes = Vec::new();
    if is.queues != was.queues {
        changes.push(format!("{} queues instead of {}", is.queues, was.queues));
    } else if is.counts.now != was.counts.now {
        let [now, then] = [is.counts.now, was.counts.now].map(|of| (of.rx, of.tx));
        changes.push(format!(
            "{} receive and {} transmit queues instead of {} and {}",
            now.0, now.1, then.0, then.1
        ));
    }
    if is.mtu != was.mtu {
        changes.push(format!("MTU {} instead of {}", is.mtu, was.mtu));
    }
    // In zero copy the device's own rings are filled with frames, which were counted for them.
    if is.rx_ring != was.rx_ring && session.copy_mode() == CopyMode::ZeroCopy {
        changes.push(format!("receive rings of {} instead of {}", is.rx_ring, was.rx_ring));
    }
    if is.mac != was.mac {
        changes.push("another address".to_owned());
    }
    (!changes.is_empty()).then(|| format!("{name} has {}", changes.join(" and ")))
}
