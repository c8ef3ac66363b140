//! An instance: ports, their policy, and the plane that joins them while all devices exist.
//!
//! The instance outlives its planes. When an interface disappears, or changes its queues, MTU or
//! address, the plane closes and an event is logged. As soon as all ports are usable again the
//! next plane opens with the same policy; counters continue.
//!
//! Everything here runs on one thread, at human speed: commands, link events, a tick per second.
//! Workers handle packets.

use crate::addresses::Addresses;
use crate::carrier::Carriers;
use crate::clock;
use crate::control;
use crate::counters::{Counts, PortCounts};
use crate::device::DeviceFacts;
use crate::error::InstanceError;
use crate::events::Events;
use crate::front::Terms;
use crate::gates::Gates;
use crate::heartbeat::SilentWorker;
use crate::ifbs;
use crate::in_driver::{self, InDriver};
use crate::look_ups::LookUps;
use crate::meter::{Passed, RateMeter};
use crate::offloads::Repairs;
use crate::options::SessionOptions;
use crate::plane::{Closed, Plane, PlaneKind, Report};
use crate::session::Session;
use crate::standby::{FailMode, StandBy};
use crate::warnings::{self, Bypass};
use crate::watch::{self, Watch};
use narrows_balance::Services;
use narrows_bpf::{Hook, RoutedBy, SetTables, UserFront, XdpMode};
use narrows_classify::{ActionId, ActionStats};
use narrows_forwarding::{Forwarding, PerDevice, PerPort, PortId};
use narrows_link::{LinkEvent, Promiscuous, doctor};
use narrows_policy::{FleetLimit, FleetName, NodeStats, Plan, Policy, PolicyError, PortPolicy};
use narrows_sets::{RateBoard, Sets};
use narrows_shaper::{Delays, Installation};
use narrows_snapshot::{Finding, Snapshot};
use narrows_units::{Nanos, counted};
use std::collections::BTreeMap;
use std::sync::Arc;

mod balance;
mod fleet;
mod handover;
mod lines;
mod planning;
mod route_answers;
mod sets;
#[cfg(test)]
mod tests;
mod user_front;
mod view;
mod ways;

pub(crate) use balance::Balance;
use fleet::Fleet;
pub(crate) use handover::{Inherited, Offer};
use lines::Lines;
use planning::Ready;
pub(crate) use planning::{Planned, Planner, Replaced};
pub(crate) use sets::read_sets;

/// How an instance is run.
#[derive(Clone, Debug)]
pub struct InstanceOptions {
    /// Its ports, and how they are joined.
    pub forwarding: Forwarding,
    /// Who forwards when this process is gone.
    pub fail: FailMode,
    /// What joins its ports.
    pub plane: PlaneKind,
    /// How its sessions are run.
    pub session: SessionOptions,
    /// Route also past netfilter and IPsec.
    pub skip_netfilter: bool,
    /// The priority of its programs in libxdp's dispatcher; then it makes one if there is none.
    pub dispatcher: Option<u32>,
}

/// An instance: ports, their policy, and the plane that joins them while all devices exist.
pub struct Instance {
    options: InstanceOptions,
    policy: Policy,
    /// The policy with the rates in force where a fleet shares limits,
    enforced: Policy,
    /// and what is in force there.
    fleet: Fleet,
    /// The limits that follow a line.
    lines: Lines,
    sets: Sets,
    balance: Balance,
    plane: Option<Box<dyn Plane>>,
    /// The sets in the form of the programs, once there was one. Declared after the plane, whose
    /// programs use its maps.
    tables: Option<SetTables>,
    /// Where workers find the rates of members of sets.
    member_rates: Arc<RateBoard>,
    /// A user's own program in front of all. Declared after the plane, where it runs.
    user_front: Option<UserFront>,
    /// Of ports that it shares with other XDP programs.
    gates: Gates,
    /// Over the plane's workers.
    watch: Watch,
    _promiscuous: Vec<Promiscuous>,
    standby: StandBy,
    repairs: Repairs,
    addresses: Addresses,
    /// Whether addresses of this host have changed since they were looked at.
    readdressed: bool,
    bypass: Bypass,
    /// Why the ports were released.
    let_go: Option<String>,
    waiting_for: Option<String>,
    look_ups: LookUps,
    carriers: Carriers,
    /// By what a router routes, since it was last looked whether it may.
    routed_by: RoutedBy,
    /// Whether the kernel does not list all hooks that would see what a router or a switch
    /// forwards.
    hooks_are_unlisted: bool,
    /// What the programs of a switch did not know at the last look.
    unknown: Option<String>,
    /// When a router last had stale neighbours confirmed.
    neighbours_confirmed: Nanos,
    /// Counts of the sessions that have ended.
    past: Counts,
    rates: RateMeter,
    events: Events,
    /// Findings about ports and host at the start.
    findings: Vec<Finding>,
    /// The process that keeps this one.
    kept_by: Option<i32>,
    began: Nanos,
}

impl Instance {
    /// An instance that has not started.
    fn new(options: InstanceOptions, repairs: Repairs, gates: Gates) -> Self {
        Self {
            watch: Watch::new(options.fail.stalled()),
            standby: StandBy::new(options.fail),
            repairs,
            addresses: Addresses::new(control::record(&options.forwarding, control::ADDRESSES)),
            readdressed: false,
            findings: Vec::new(),
            kept_by: None,
            bypass: Bypass::default(),
            let_go: None,
            policy: Policy::default(),
            enforced: Policy::default(),
            fleet: Fleet::default(),
            lines: Lines::default(),
            sets: Sets::default(),
            balance: Balance::default(),
            plane: None,
            tables: None,
            member_rates: Arc::default(),
            user_front: None,
            gates,
            _promiscuous: Vec::new(),
            waiting_for: None,
            look_ups: LookUps::default(),
            carriers: Carriers::default(),
            routed_by: RoutedBy::default(),
            hooks_are_unlisted: false,
            unknown: None,
            neighbours_confirmed: Nanos::ZERO,
            past: Counts::none(options.forwarding.ports().len()),
            rates: RateMeter::default(),
            events: Events::default(),
            began: clock::now(),
            options,
        }
    }

    /// Joins the ports under `policy`, whose filters look up `sets`, and balances `services`;
    /// `repairs` maintains their offloads, `gates` shares them with others, `user_front` runs
    /// first.
    ///
    /// # Errors
    /// If they cannot be joined as they are now. Then nothing stays changed.
    pub(crate) fn start(
        options: InstanceOptions,
        policy: Policy,
        sets: Sets,
        services: Services,
        repairs: Repairs,
        gates: Gates,
        user_front: Option<UserFront>,
    ) -> Result<Self, InstanceError> {
        let mut instance = Self::new(options, repairs, gates);
        instance.user_front = user_front;
        planning::check_ports(&policy, &instance.options.forwarding, instance.options.plane)?;
        instance.check_lines(&policy)?;
        instance.adopt_policy(policy);
        instance.adopt_sets(sets)?;
        instance.check_rates(&instance.policy)?;
        instance.adopt_services(services).map_err(InstanceError::Services)?;
        instance.events.hold();
        if let Err(error) = instance.begin() {
            instance.close(false);
            instance.repairs.undo();
            instance.addresses.put_back();
            instance.standby.stand_down();
            ifbs::remove(&instance.options.forwarding);
            return Err(error);
        }
        instance.events.release();
        Ok(instance)
    }

    /// Conditions that are required at the start and only reported later.
    fn begin(&mut self) -> Result<(), InstanceError> {
        self.standby.prepare(&self.options.forwarding)?;
        self.open()?;
        match self.repairs.stubborn() {
            [] => Ok(()),
            stubborn => Err(InstanceError::Offloads(stubborn.join("; "))),
        }
    }

    /// Its ports, and how they are joined.
    pub fn forwarding(&self) -> &Forwarding {
        &self.options.forwarding
    }

    /// The policy in force.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// How many queues are served, while the ports are joined.
    pub fn queues(&self) -> Option<usize> {
        self.plane.as_ref().map(|plane| plane.queues())
    }

    /// How the ports were joined, for people.
    pub fn mode(&self) -> String {
        let Some(plane) = &self.plane else { return "not joined".into() };
        let mode = plane.mode();
        let device = |(device, hook): (&DeviceFacts, &Hook)| {
            let kind = if *hook == Hook::Tcx { "" } else { " XDP" };
            format!("{} (mtu {}, {hook}{kind})", device.name, device.mtu)
        };
        let devices: Vec<String> = plane.devices().iter().zip(&mode.hooks).map(device).collect();
        let devices = devices.join(" and ");
        let ports = match self.options.forwarding.is_stick() {
            true => format!("{} on {devices}", self.options.forwarding),
            false => devices,
        };
        match mode.frames {
            Some((copy, bytes)) => format!(
                "{ports}, {}, {} AF_XDP, frames of {bytes} bytes",
                counted(plane.queues(), "queue"),
                copy.name()
            ),
            None => format!("{ports}, without queues"),
        }
    }

    /// A planner for the policies that may follow the one in force.
    pub(crate) fn planner(&self) -> Planner {
        let plane = self.plane.as_deref();
        let ports = || self.options.forwarding.ids();
        Planner {
            forwarding: self.options.forwarding.clone(),
            kind: self.options.plane,
            policy: self.policy.clone(),
            enforced: self.enforced.clone(),
            shares: self.fleet.shares().clone(),
            installed: ports().map(|port| plane?.installed(port)).collect(),
            running: plane.map(|plane| ports().map(|port| plane.plan(port).clone()).collect()),
            // While the ports are away, their number of queues is unknown.
            queues: self.laid_over(plane.map_or(1, |plane| plane.queues())),
        }
    }

    /// Puts `policy` in force. If it is refused, nothing has changed. A silent worker
    /// ([`Instance::silent_workers`]) applies it when it resumes, before it handles another packet;
    /// of several policies only the last.
    ///
    /// # Errors
    /// If it does not fit the ports.
    pub fn apply(&mut self, policy: Policy) -> Result<(), InstanceError> {
        let planned = self.planner().plan(policy)?;
        self.put_in_force(planned).map(drop)
    }

    /// Puts in force a policy that was planned before, whatever has changed since. Returns what was
    /// in force.
    ///
    /// # Errors
    /// As [`Instance::apply`].
    pub(crate) fn put_in_force(&mut self, planned: Planned) -> Result<Replaced, InstanceError> {
        let Planned { policy, enforced: planned, plans } = planned;
        self.check_lines(&policy)?;
        self.check_rates(&policy)?;
        let in_force = |name: &FleetName, limit: &FleetLimit| self.fleet.in_force(name, limit);
        let enforced = policy.enforced(&self.policy, &self.enforced, in_force);
        let enforced = enforced.following(|dev| self.lines.rate(dev));
        let (enforced, installed) = self.enforce(enforced, &planned, plans)?;
        let policy = std::mem::replace(&mut self.policy, policy);
        self.fleet.follow(&policy, &self.policy, clock::since_boot());
        self.follow_lines();
        self.forget_delays(&policy);
        if self.plane.is_some() {
            self.look_up();
        }
        Ok(Replaced { _policies: [policy, enforced], _installed: installed })
    }

    /// Has the plane run `enforced`; `plans` are for `planned`, and serve wherever that is the
    /// same. Returns what was enforced before, and what ran. If it is refused, nothing has changed.
    fn enforce(
        &mut self,
        enforced: Policy,
        planned: &Policy,
        mut plans: PerPort<Option<Ready>>,
    ) -> Result<(Policy, Vec<Arc<Installation>>), InstanceError> {
        let mut changes = Vec::new();
        let mut anew = None;
        for id in self.options.forwarding.ids() {
            let name = self.options.forwarding.name(id);
            let port = planning::in_force(&enforced, &self.options.forwarding, id)?;
            if *port == *planning::in_force(&self.enforced, &self.options.forwarding, id)? {
                continue;
            }
            // Even while the ports are away, the sets that it names must exist.
            self.resolve(name, &port.in_front())?;
            let Some(plane) = &self.plane else { continue };
            let queues = self.laid_over(plane.queues());
            let is_same = *port == *planning::in_force(planned, &self.options.forwarding, id)?;
            let ready = plans[id].take().filter(|_| is_same);
            let plan = match ready.filter(|ready| ready.plan().queues() == queues) {
                Some(plan) => plan,
                // The ports or shares have changed since, or the policy there was equal when it was
                // planned.
                None => {
                    if anew.is_none() {
                        anew = Some(self.planner().plan_enforced(&enforced)?);
                    }
                    let Some(plan) = anew.as_mut().and_then(|plans| plans[id].take()) else {
                        continue;
                    };
                    plan
                }
            };
            let terms = self.resolve(name, &plan.plan().front)?;
            changes.push((id, plan, terms));
        }
        // First what new filters ask, and last what old ones asked.
        let (before, after) = (ways::asks(&self.enforced), ways::asks(&enforced));
        self.ask(before.max(after));
        let installed = self.install(changes).inspect_err(|_| self.ask(before))?;
        self.ask(after);
        Ok((std::mem::replace(&mut self.enforced, enforced), installed))
    }

    /// Forgets the delays in earlier sessions where another root qdisc was in force `before`.
    /// Workers do so for their own.
    fn forget_delays(&mut self, before: &Policy) {
        let forwarding = &self.options.forwarding;
        for id in forwarding.ids() {
            let root = |policy: &Policy| {
                let port = planning::in_force(policy, forwarding, id).ok()?;
                port.root().map(|root| (root.handle, root.kind.name()))
            };
            if root(before) != root(&self.policy) {
                self.past.ports[id].delays = Delays::default();
            }
        }
    }

    /// Installs the plan of each port and the filters in front of it: all of them or, if one is
    /// refused, none. Returns what is replaced.
    fn install(
        &mut self,
        changes: Vec<(PortId, Ready, Terms)>,
    ) -> Result<Vec<Arc<Installation>>, InstanceError> {
        let (mut replaced, mut ports) = (Vec::new(), Vec::new());
        for (port, plan, terms) in changes {
            let Some(plane) = &mut self.plane else { break };
            ports.push(port);
            let installed =
                plane.put_in_front(port, &terms, self.tables.as_ref()).and_then(|()| match plan {
                    Ready::Plan(plan) => plane.install(port, *plan).map(|()| None),
                    Ready::Reconciled(reconciled) => plane.install_reconciled(port, *reconciled),
                });
            match installed {
                Ok(before) => replaced.extend(before),
                Err(error) => {
                    self.restore(&ports);
                    return Err(error);
                }
            }
        }
        Ok(replaced)
    }

    /// Installs what the policy in force has at `ports`, some of which have another one now.
    fn restore(&mut self, ports: &[PortId]) {
        for &port in ports {
            if let Err(error) = self.install_again(port) {
                let port = self.options.forwarding.name(port);
                self.warn(format!(
                    "{port} has its part of a policy that was refused: {error}; apply a policy that \
                     changes {port}, or restart"
                ));
            }
        }
    }

    fn install_again(&mut self, port: PortId) -> Result<(), InstanceError> {
        let Some(plane) = &self.plane else { return Ok(()) };
        let plan = self.lay_out(&self.enforced, port, plane.queues())?;
        let terms = self.resolve(self.options.forwarding.name(port), &plan.front)?;
        let Some(plane) = &mut self.plane else { return Ok(()) };
        plane.put_in_front(port, &terms, self.tables.as_ref())?;
        plane.install(port, plan)
    }

    /// The figures of every qdisc of `port`.
    pub fn qdisc_stats(&self, port: PortId) -> Vec<NodeStats> {
        self.plane.as_ref().map(|plane| plane.stats(port)).unwrap_or_default()
    }

    /// The counters of filters' actions, all ports together.
    pub fn action_stats(&self) -> Vec<(ActionId, ActionStats)> {
        let mut sums: BTreeMap<ActionId, ActionStats> = BTreeMap::new();
        for (id, stats) in self.plane.iter().flat_map(|plane| plane.action_stats()) {
            sums.entry(id).or_default().merge(&stats);
        }
        sums.into_iter().collect()
    }

    /// Processes an event of an interface.
    pub fn link_event(&mut self, event: &LinkEvent) {
        if self.standby.concerns(event, &self.options.forwarding) {
            self.watch_standby();
        }
        self.follow(event);
        match event {
            LinkEvent::Settings => return self.repair(),
            // Anyone who sends router advertisements to this host causes such events.
            LinkEvent::Addresses => {
                self.readdressed = true;
                return;
            }
            LinkEvent::Routing => return,
            _ => {}
        }
        let (LinkEvent::Added(link) | LinkEvent::Changed { now: link, .. }) = event else {
            if let LinkEvent::Removed { name, .. } = event
                && !self.options.forwarding.devices().contains(name)
            {
                return;
            }
            self.reconsider();
            return;
        };
        let is_known = self.plane.as_ref().is_some_and(|plane| {
            plane.devices().iter().any(|device| device.ifindex == link.status.ifindex)
        });
        if self.options.forwarding.devices().contains(&link.status.name) || is_known {
            self.reconsider();
        }
    }

    /// Samples the rates, checks what others may have changed unnoticed, and tries again to join
    /// the ports.
    pub fn tick(&mut self) {
        self.watch_standby();
        self.watch_netfilter();
        self.confirm_neighbours();
        self.keep_balance();
        self.see_unknown();
        let is_readdressed = std::mem::take(&mut self.readdressed);
        if is_readdressed && self.plane.is_some() && self.options.forwarding.is_paired() {
            self.take_off_addresses();
            self.reconsider();
        }
        match &mut self.plane {
            None => self.reconsider(),
            Some(plane) => {
                self.look_ups.retry(&mut **plane, &self.options.forwarding, &mut self.events);
                let zero_copy = plane.mode().is_zero_copy();
                plane.look_after().into_iter().for_each(|news| self.events.warn(news));
                self.repair();
                // The kernel does not announce changed rings of a device.
                if zero_copy {
                    self.reconsider();
                }
            }
        }
        self.see_carriers();
        let totals = self.totals(&self.report());
        let passed = |port: &PortCounts| Passed {
            rx_bytes: port.queues.iter().map(|queue| queue.arrived.bytes).sum(),
            tx_bytes: port.queues.iter().map(|queue| queue.outward.tx_bytes).sum(),
        };
        self.rates.sample(clock::now(), totals.ports.iter().map(passed).collect());
        let unserved = totals.ports.iter().map(|port| port.verdicts.unserved).collect();
        self.bypass.sample(&unserved, &self.options.forwarding, &mut self.events);
    }

    /// Whether no worker is silent. An instance that waits for a port has none, and is healthy.
    pub fn is_beating(&self) -> bool {
        self.silent_workers().is_empty()
    }

    /// Its state, in one line.
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

    /// The silent workers, each with the duration of its silence. The steering programs bypass
    /// them; none if nothing is joined.
    pub fn silent_workers(&self) -> Vec<SilentWorker> {
        self.plane.as_ref().map(|plane| plane.silent()).unwrap_or_default()
    }

    /// Processes workers that fell silent or resumed.
    pub fn watch(&mut self) {
        if let Some(plane) = &self.plane {
            for event in self.watch.look(plane.pulses(), clock::now()) {
                self.events.warn(event);
            }
        }
    }

    /// Ends the instance: the queues drain for a short while, then the ports are left to the
    /// kernel. Returns the final counters of all packets.
    pub fn stop(mut self) -> Snapshot {
        self.close(true);
        self.repairs.undo();
        self.addresses.put_back();
        ifbs::remove(&self.options.forwarding);
        self.waiting_for = None;
        self.show()
    }

    fn report(&self) -> Report {
        self.plane.as_ref().map(|plane| plane.report()).unwrap_or_default()
    }

    /// The counts of all planes, with those of the running one as in `report`.
    fn totals(&self, report: &Report) -> Counts {
        let mut totals = self.past.clone();
        totals.add(&report.counts);
        self.balance.add_to(&mut totals);
        self.add_verdicts(&mut totals);
        totals
    }

    /// Reads the ports, compiles the policy for them, and joins them.
    fn open(&mut self) -> Result<(), InstanceError> {
        // A gate without a session would only cost time.
        let opened = self.open_plane().inspect_err(|_| self.gates.release());
        match self.routed_by {
            RoutedBy::Routes => opened,
            RoutedBy::Flows => opened.map_err(InstanceError::by_flows),
        }
    }

    fn open_plane(&mut self) -> Result<(), InstanceError> {
        // Each time, because an interface that came back is no longer a port of the bridge.
        self.standby.watch(&self.options.forwarding, &mut self.events)?;
        self.routed_by = self.may_forward()?;
        self.take_off_addresses();
        let forwarding = &self.options.forwarding;
        ifbs::prepare(forwarding)?;
        let devices = read_all(forwarding)?;
        let queues = self.queues_of(&devices)?;
        let plans = self.compile(queues)?;
        // A NIC drops frames for other addresses on its own, long before XDP. A router and a host
        // get their own.
        let promiscuous = devices
            .iter()
            .filter(|_| forwarding.takes_all())
            .map(|device| narrows_link::promiscuous(device.ifindex))
            .collect::<Result<_, _>>()?;
        let only = self.options.session.hook;
        let hook = |device: &DeviceFacts| match (only, self.options.plane) {
            (Some(hook), _) => hook,
            (None, PlaneKind::Xdp) => in_driver::preferred(device)[0],
            (None, PlaneKind::Host) => Hook::Tcx,
            (None, PlaneKind::Xsk) if doctor::runs_xdp(&device.driver) => {
                Hook::Xdp(XdpMode::Native)
            }
            (None, PlaneKind::Xsk) => Hook::Xdp(XdpMode::Generic),
        };
        let hooks: PerDevice<Hook> = devices.iter().map(hook).collect();
        self.repairs.watch(forwarding, &hooks);
        self.repairs.repair(&mut self.events);
        let stalled = self.options.fail.stalled();
        let mut plane: Box<dyn Plane> = match self.options.plane {
            PlaneKind::Xsk => {
                let fronts = self.fronts(&plans)?;
                let options = &self.options.session;
                let gates = &self.gates;
                Box::new(Session::open(
                    forwarding,
                    devices,
                    options,
                    plans,
                    stalled,
                    &fronts,
                    gates,
                    self.routed_by,
                )?)
            }
            PlaneKind::Xdp => {
                let fronts = self.fronts(&plans)?;
                let (gates, by) = (&self.gates, self.routed_by);
                Box::new(InDriver::open(forwarding, devices, only, plans, &fronts, gates, by)?)
            }
            PlaneKind::Host => {
                let (fronts, gates) = (self.fronts(&plans)?, &self.gates);
                Box::new(InDriver::open_host(forwarding, devices, only, plans, &fronts, gates)?)
            }
        };
        plane.receive_on(&self.options.session.receive_on)?;
        let hooks_now = plane.mode().hooks;
        self.plane = Some(plane);
        self.follow_lines();
        if hooks_now != hooks {
            self.repairs.watch(&self.options.forwarding, &hooks_now);
            self.repairs.repair(&mut self.events);
        }
        self._promiscuous = promiscuous;
        self.waiting_for = None;
        self.watch = Watch::new(stalled);
        self.ask(ways::asks(&self.policy));
        self.events.say(format!("joined {}", self.mode()));
        for warning in self.warnings_of_ports() {
            self.events.warn(warning);
        }
        self.look_up();
        if let Err(why) = self.balance_again() {
            self.events.warn(format!("cannot balance: {why}; it is tried again"));
        }
        Ok(())
    }

    /// A wire has no address on the networks that it joins. What is in no VLAN of a stick, and all
    /// that is for a router, a switch or a host, is the kernel's: they get back what a wire left
    /// that was killed.
    fn take_off_addresses(&mut self) {
        let forwarding = &self.options.forwarding;
        if forwarding.is_stick() || !forwarding.is_paired() {
            self.addresses.put_back();
        } else {
            self.addresses.take_off(forwarding.devices(), &mut self.events);
        }
    }

    /// Reports carriers that were lost, or came back.
    fn see_carriers(&mut self) {
        let Some(plane) = &self.plane else { return };
        for (device, facts) in plane.devices().iter_enumerated() {
            let has_carrier = plane.device(device).carrier;
            self.carriers.see(device, &facts.name, has_carrier, &mut self.events);
        }
    }

    /// How many queues of each of `devices` are served.
    fn queues_of(&self, devices: &PerDevice<DeviceFacts>) -> Result<usize, InstanceError> {
        let Some(first) = devices.first() else { return Ok(1) };
        let other = devices.iter().find(|device| device.queues != first.queues);
        match other.filter(|_| !self.needs_no_queues()) {
            Some(other) => {
                let named = |device: &DeviceFacts| (device.name.clone(), device.queues);
                Err(InstanceError::Queues(named(first), named(other)))
            }
            None => Ok(first.queues as usize),
        }
    }

    /// Lays the policy of each port out over `queues` queues.
    fn compile(&self, queues: usize) -> Result<PerPort<Plan>, InstanceError> {
        let ports = self.options.forwarding.ids();
        ports.map(|port| self.lay_out(&self.enforced, port, queues)).collect()
    }

    /// Lays out `policy` of the port `id` over `queues` queues, for its plane.
    fn lay_out(&self, policy: &Policy, id: PortId, queues: usize) -> Result<Plan, InstanceError> {
        let port = &*planning::in_force(policy, &self.options.forwarding, id)?;
        self.fitted(id, port, Plan::of(port, self.laid_over(queues)))
    }

    /// `plan` of `port`, which is `id`, for its plane.
    fn fitted(
        &self,
        id: PortId,
        port: &PortPolicy,
        plan: Result<Plan, PolicyError>,
    ) -> Result<Plan, InstanceError> {
        let (name, kind) = (self.options.forwarding.name(id), self.options.plane);
        let plan = plan.and_then(|plan| planning::filtered(plan, kind, port));
        let plan = plan.map_err(|source| planning::does_not_fit(name, source))?;
        planning::runnable(name, kind, plan, None)
    }

    /// Over how many queues the plan of a port with `queues` queues is laid out.
    fn laid_over(&self, queues: usize) -> usize {
        planning::laid_over(self.options.plane, queues)
    }

    /// Whether packets wait elsewhere than in queues that workers serve.
    fn needs_no_queues(&self) -> bool {
        !self.options.plane.has_workers()
    }

    /// Turns the look-up of addresses before translation on for the ports whose qdiscs need it, and
    /// off for others.
    fn look_up(&mut self) {
        let Some(plane) = &mut self.plane else { return };
        let forwarding = &self.options.forwarding;
        let looks_up = |port| {
            let port = planning::in_force(&self.policy, forwarding, port);
            port.is_ok_and(|port| port.looks_up_translations())
        };
        let wanted = forwarding.ids().map(looks_up).collect();
        self.look_ups.set(wanted, &mut **plane, forwarding, &mut self.events);
    }

    /// Whether qdiscs can get addresses before translation, as far as known.
    pub(crate) fn can_look_up(&self) -> bool {
        self.plane.as_ref().is_none_or(|plane| plane.can_look_up())
    }

    /// Releases the ports, which traffic then passes as if this process were gone, for the reason
    /// `why`.
    ///
    /// # Errors
    /// If they were released already.
    pub(crate) fn let_go(&mut self, why: String) -> Result<(), InstanceError> {
        if let Some(other) = &self.let_go {
            return Err(InstanceError::LetGo(other.clone()));
        }
        self.watch_standby();
        self.close(true);
        self.events.warn(format!("released the ports: {why}"));
        self.waiting_for = Some(format!("{why} to be done"));
        self.let_go = Some(why);
        Ok(())
    }

    /// Joins the ports again. If that is not possible now, retries go on, and the answer says what
    /// is missing.
    pub(crate) fn join_again(&mut self) -> Result<String, String> {
        self.let_go = None;
        self.reconsider();
        match &self.plane {
            Some(_) => Ok(self.mode()),
            None => Err(self.waiting_for.clone().unwrap_or_default()),
        }
    }

    /// Maintains the standby bridge.
    fn watch_standby(&mut self) {
        if let Err(error) = self.standby.watch(&self.options.forwarding, &mut self.events)
            && self.plane.is_some()
        {
            self.events.warn(error.to_string());
            self.close(true);
            self.waiting_for = Some(error.to_string());
        }
    }

    /// Switches off harmful offloads.
    fn repair(&mut self) {
        if self.plane.is_some() {
            self.repairs.repair(&mut self.events);
        }
    }

    /// Records the process that keeps this one, for views.
    pub(crate) fn kept_by(&mut self, process: Option<i32>) {
        self.kept_by = process;
    }

    /// Records the findings of `doctor` at the start, for views.
    pub fn examined(&mut self, findings: Vec<doctor::Finding>) {
        let shown = |finding: doctor::Finding| Finding {
            subject: finding.subject,
            severity: finding.severity.name().to_owned(),
            what: finding.what,
            remedy: finding.remedy,
        };
        self.findings = findings.into_iter().map(shown).collect();
    }

    /// The present problems.
    fn warnings(&self) -> Vec<String> {
        let of_offloads = self.repairs.stubborn().iter().chain(self.repairs.unreached());
        let of_ports = self.warnings_of_ports().chain(of_offloads.cloned());
        of_ports.chain(self.unknown.clone()).collect()
    }

    fn warnings_of_ports(&self) -> std::vec::IntoIter<String> {
        let forwarding = &self.options.forwarding;
        let warnings = self.plane.as_ref().map(|plane| warnings::of_ports(&**plane, forwarding));
        warnings.unwrap_or_default().into_iter()
    }

    /// Releases the ports, if they are joined, and keeps the counts.
    fn close(&mut self, drain: bool) {
        let Some(plane) = self.plane.take() else { return };
        let Closed { counts, left_behind, not_restored } = plane.close(drain);
        not_restored.into_iter().for_each(|what| self.events.warn(what));
        self.gates.release();
        if !left_behind.is_empty() {
            self.events.warn(watch::left_behind(&left_behind));
        }
        self.past.add(&counts);
        self._promiscuous.clear();
    }

    /// Closes a session whose ports have changed, and opens a new one if possible.
    fn reconsider(&mut self) {
        if self.let_go.is_some() {
            return;
        }
        if let Some(plane) = &self.plane {
            let zero_copy = plane.mode().is_zero_copy();
            let devices = plane.devices().iter();
            let is_paired = self.options.forwarding.is_paired();
            let changes: Vec<String> =
                devices.filter_map(|device| device.change(zero_copy, is_paired)).collect();
            if changes.is_empty() {
                return;
            }
            self.events.warn(changes.join("; "));
            self.close(false);
        }
        if let Err(error) = self.open() {
            let reason = error.to_string();
            // Repeating the same reason every second would bury the important ones.
            if self.waiting_for.as_ref() != Some(&reason) {
                self.events.warn(format!("waiting: {reason}"));
                self.waiting_for = Some(reason);
            }
        }
    }
}

/// The facts about the devices of `forwarding`.
fn read_all(forwarding: &Forwarding) -> Result<PerDevice<DeviceFacts>, InstanceError> {
    forwarding.devices().iter().map(|name| DeviceFacts::read(name)).collect()
}
