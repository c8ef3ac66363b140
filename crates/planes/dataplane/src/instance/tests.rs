//! The instance over a plane that forwards nothing and records its calls.

use super::*;
use crate::counters::QueueCounters;
use crate::front::Terms;
use crate::look_ups::LooksUp;
use crate::plane::{Mode, PlaneKind, Still};
use crate::upgrade::state::PlaneManifest;
use crate::workers::Standstill;
use narrows_bpf::{Pulse, SetTables, SteerError, Verdicts};
use narrows_forwarding::DeviceId;
use narrows_link::{Device, QueueCounts, Queues};
use narrows_packet::Backlog;
use narrows_shaper::{Arrived, PathCounters};
use narrows_snapshot::{FLEET_FLOOR, FleetOrder, FleetShare};
use narrows_units::{Bytes, Rate};
use narrows_xsk::CopyMode;
use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

const PORTS: [&str; 2] = ["nrw-none-a", "nrw-none-b"];

/// The calls that the plane received.
#[derive(Default)]
struct Calls {
    installed: Vec<(PortId, Plan)>,
    looked_up: PerPort<bool>,
    closed: Vec<bool>,
}

struct FakePlane {
    devices: PerDevice<DeviceFacts>,
    plans: PerPort<Plan>,
    counts: Counts,
    silent: Vec<SilentWorker>,
    refuses: Refuses,
    calls: Rc<RefCell<Calls>>,
}

/// What the kernel does not take, once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Refuses {
    Nothing,
    Front(PortId),
    Plan(PortId),
}

impl Refuses {
    fn check(&mut self, what: Self) -> Result<(), InstanceError> {
        if *self != what {
            return Ok(());
        }
        *self = Self::Nothing;
        Err(InstanceError::ForeignPort("out of memory".to_owned()))
    }
}

impl LooksUp for FakePlane {
    fn look_up(&mut self, egress: PortId, wanted: bool) -> Result<(), SteerError> {
        self.calls.borrow_mut().looked_up[egress] = wanted;
        Ok(())
    }
}

impl Plane for FakePlane {
    fn devices(&self) -> &PerDevice<DeviceFacts> {
        &self.devices
    }

    fn queues(&self) -> usize {
        2
    }

    fn mode(&self) -> Mode {
        let hooks = vec![Hook::Xdp(XdpMode::Native); 2].into();
        Mode { hooks, frames: Some((CopyMode::Copy, 2048)) }
    }

    fn device(&self, _: DeviceId) -> Device {
        Device { carrier: true, ..Device::default() }
    }

    fn plan(&self, port: PortId) -> &Plan {
        &self.plans[port]
    }

    fn install(&mut self, port: PortId, plan: Plan) -> Result<(), InstanceError> {
        self.refuses.check(Refuses::Plan(port))?;
        self.plans[port] = plan.clone();
        self.calls.borrow_mut().installed.push((port, plan));
        Ok(())
    }

    fn put_in_front(
        &mut self,
        port: PortId,
        _: &Terms,
        _: Option<&SetTables>,
    ) -> Result<(), InstanceError> {
        self.refuses.check(Refuses::Front(port))
    }

    fn stats(&self, _: PortId) -> Vec<NodeStats> {
        Vec::new()
    }

    fn action_stats(&self) -> Vec<(ActionId, ActionStats)> {
        Vec::new()
    }

    fn report(&self) -> Report {
        Report { counts: self.counts.clone(), ..Report::default() }
    }

    fn pulses(&self) -> Vec<Pulse> {
        Vec::new()
    }

    fn silent(&self) -> Vec<SilentWorker> {
        self.silent.clone()
    }

    fn can_look_up(&self) -> bool {
        true
    }

    fn offer(&self) -> Result<(PlaneManifest, Vec<OwnedFd>), &'static str> {
        Err("a worker does not answer")
    }

    fn stand_still(&self, _: Duration) -> Option<(Still, Standstill)> {
        Some((Still { counts: self.counts.clone(), ..Still::default() }, Standstill::default()))
    }

    fn close(self: Box<Self>, drain: bool) -> Closed {
        self.calls.borrow_mut().closed.push(drain);
        let mut counts = self.counts;
        counts.clear_backlogs();
        Closed { counts, left_behind: Vec::new(), not_restored: Vec::new() }
    }
}

fn plane(counts: Counts) -> (FakePlane, Rc<RefCell<Calls>>) {
    let calls = Calls { looked_up: vec![false; 2].into(), ..Calls::default() };
    let calls = Rc::new(RefCell::new(calls));
    let now = Queues { rx: 2, tx: 2 };
    let devices = PORTS.map(|name| DeviceFacts {
        name: name.into(),
        ifindex: u32::MAX,
        mac: [2; 6],
        way_in: Default::default(),
        mtu: 1500,
        queues: 2,
        rx_ring: 0,
        counts: QueueCounts { now, most: now, combined: false },
        driver: "none".into(),
        headerless: false,
    });
    let (plans, silent) = (vec![Plan::default(); 2].into(), Vec::new());
    let devices = Vec::from(devices).into();
    let refuses = Refuses::Nothing;
    (FakePlane { devices, plans, counts, silent, refuses, calls: Rc::clone(&calls) }, calls)
}

/// An instance whose ports `plane` joins.
fn joined(plane: FakePlane) -> Instance {
    let options = InstanceOptions {
        forwarding: Forwarding::wire(PORTS[0], PORTS[1]).unwrap(),
        fail: FailMode::Closed,
        plane: PlaneKind::Xsk,
        session: SessionOptions {
            frames: 64,
            ring: 64,
            cpus: vec![0],
            busy_poll: false,
            hook: None,
            copy_mode: None,
            receive_on: Vec::new(),
            round_trips: false,
        },
        skip_netfilter: false,
        dispatcher: None,
    };
    let repairs = Repairs::new("/nonexistent/nrw-repairs".into());
    let mut instance = Instance::new(options, repairs, Gates::none());
    instance.plane = Some(Box::new(plane));
    instance
}

fn policy(lines: &str) -> Policy {
    narrows_tc::load(lines, "policy", &narrows_tc::OfflineHost::default()).unwrap()
}

/// A plane's counters at port A, queue 1: `received` arrived there, `queued` of them wait to leave
/// at port B.
fn counts(received: u64, queued: u32) -> Counts {
    let mut counts = Counts::none(2);
    let sent = received - u64::from(queued);
    let path = PathCounters { rx_packets: received, tx_packets: sent, ..PathCounters::default() };
    let backlog = Backlog { packets: queued, bytes: Bytes(u64::from(queued) * 100) };
    let none = QueueCounters::default();
    let [a, b] = [PortId::FIRST, PortId::SECOND];
    counts.ports[a].queues =
        vec![none, QueueCounters { arrived: Arrived { packets: received, bytes: 0 }, ..none }];
    counts.ports[b].queues = vec![none, QueueCounters { outward: path, backlog, ..none }];
    counts.ports[a].verdicts = Verdicts { unserved: 3, ..Verdicts::default() };
    counts
}

/// The plans that run at the end, if the plane refuses that while a policy for both ports follows
/// another one.
fn plans_after(refuses: Refuses) -> [Plan; 2] {
    let text = |limit: u32| {
        let line = |port| format!("qdisc add dev {port} root handle 1: pfifo limit {limit}\n");
        PORTS.map(line).concat()
    };
    let (mut plane, _) = plane(Counts::none(2));
    plane.plans =
        PORTS.iter().map(|port| Plan::of(policy(&text(10)).port(port), 2).unwrap()).collect();
    plane.refuses = refuses;
    let mut instance = joined(plane);
    instance.adopt_policy(policy(&text(10)));
    let applied = instance.apply(policy(&text(20)));
    let in_force = if refuses == Refuses::Nothing { 20 } else { 10 };
    assert_eq!(applied.is_ok(), in_force == 20, "{refuses:?}");
    assert_eq!(*instance.policy(), policy(&text(in_force)), "{refuses:?}");
    [PortId::FIRST, PortId::SECOND].map(|port| instance.plane.as_ref().unwrap().plan(port).clone())
}

#[test]
fn a_policy_is_in_force_at_both_ports_or_at_none() {
    let new = plans_after(Refuses::Nothing);
    let old = plans_after(Refuses::Front(PortId::FIRST));
    assert_ne!(new, old);
    assert_eq!(old, plans_after(Refuses::Plan(PortId::FIRST)));
    assert_eq!(old, plans_after(Refuses::Front(PortId::SECOND)));
    assert_eq!(old, plans_after(Refuses::Plan(PortId::SECOND)));
}

#[test]
fn a_change_of_one_port_s_policy_is_installed_there_and_nowhere_else() {
    let (plane, calls) = plane(Counts::none(2));
    let mut instance = joined(plane);
    let [a, b] = PORTS;
    let both = format!(
        "qdisc add dev {a} root handle 1: pfifo limit 10\n\
         qdisc add dev {b} root handle 1: tbf rate 10mbit burst 32k latency 5ms\n"
    );
    instance.apply(policy(&both)).unwrap();
    let changed = both.replace("10mbit", "20mbit");
    instance.apply(policy(&changed)).unwrap();
    instance.apply(policy(&changed)).unwrap();
    let calls = calls.borrow();
    let ports: Vec<PortId> = calls.installed.iter().map(|(port, _)| *port).collect();
    assert_eq!(ports, [PortId::FIRST, PortId::SECOND, PortId::SECOND]);
    assert!(calls.installed.iter().all(|(_, plan)| plan.queues() == 2));
    assert_ne!(calls.installed[1].1, calls.installed[2].1);
}

#[test]
fn a_policy_that_its_plane_cannot_run_is_refused_with_a_plane_that_can() {
    let (plane, calls) = plane(Counts::none(2));
    let mut instance = joined(plane);
    instance.options.plane = PlaneKind::Xdp;
    let [a, _] = PORTS;
    let policed = policy(&format!("qdisc add dev {a} root tbf rate 1mbit burst 10k latency 5ms\n"));
    instance.apply(policed.clone()).unwrap();
    let queued = policy(&format!("qdisc add dev {a} root cake bandwidth 1mbit\n"));
    for plane in [instance.plane.take(), None] {
        instance.plane = plane;
        let refusal = instance.apply(queued.clone()).unwrap_err().to_string();
        assert!(refusal.contains("--plane xsk"), "{refusal}");
    }
    assert_eq!((calls.borrow().installed.len(), instance.policy()), (1, &policed));
}

#[test]
fn a_policy_for_another_port_is_refused_and_nothing_is_installed() {
    let (plane, calls) = plane(Counts::none(2));
    let mut instance = joined(plane);
    let [a, _] = PORTS;
    let foreign = format!(
        "qdisc add dev {a} root pfifo limit 10\nqdisc add dev elsewhere root pfifo limit 10\n"
    );
    let error = instance.apply(policy(&foreign)).unwrap_err();
    assert!(matches!(error, InstanceError::ForeignPort(port) if port == "elsewhere"));
    assert!(calls.borrow().installed.is_empty());
    assert_eq!(instance.policy(), &Policy::default());
}

#[test]
fn a_host_has_filters_where_packets_arrive_and_nothing_where_its_own_leave() {
    let host = Forwarding::host(&["a".to_owned()]).unwrap();
    let refused = |lines: &str| {
        let lines = lines.replace(';', "\n");
        planning::check_ports(&policy(&lines), &host, PlaneKind::Xdp)
            .err()
            .map(|error| error.to_string())
    };
    let filter = "action drop;";
    assert_eq!(
        refused(&format!("qdisc add dev a clsact;filter add dev a ingress matchall {filter}")),
        None
    );
    for lines in [
        "qdisc add dev a root pfifo limit 10;",
        &format!("qdisc add dev a clsact;filter add dev a egress matchall {filter}"),
    ] {
        let said = refused(lines).unwrap();
        assert!(said.starts_with("a is a host port"), "{said}");
    }
    assert!(refused("qdisc add dev b clsact;").unwrap().contains("not a port of this instance"));
}

#[test]
fn a_policy_set_while_ports_are_away_applies_when_they_return() {
    let (plane, calls) = plane(Counts::none(2));
    let mut instance = joined(plane);
    instance.plane = None;
    let wanted = policy(&format!("qdisc add dev {} root pfifo limit 10\n", PORTS[0]));
    instance.apply(wanted.clone()).unwrap();
    assert!(calls.borrow().installed.is_empty());
    assert_eq!(instance.policy(), &wanted);
}

#[test]
fn translations_are_looked_up_where_a_cake_wants_them_and_only_there() {
    let (plane, calls) = plane(Counts::none(2));
    let mut instance = joined(plane);
    let nat = format!("qdisc add dev {} root cake bandwidth 1mbit nat\n", PORTS[1]);
    instance.apply(policy(&nat)).unwrap();
    assert_eq!(calls.borrow().looked_up.raw, [false, true]);
    instance.apply(policy(&nat.replace("nat", "nonat"))).unwrap();
    assert_eq!(calls.borrow().looked_up.raw, [false, false]);
}

#[test]
fn counters_continue_across_planes_and_backlogs_do_not() {
    let (first, calls) = plane(counts(10, 4));
    let mut instance = joined(first);
    assert_eq!(instance.show().conservation.queued, 4);
    instance.close(true);
    assert_eq!(calls.borrow().closed, [true]);
    let waiting = instance.show();
    assert_eq!((waiting.state.as_str(), waiting.conservation.queued), ("waiting", 0));
    assert_eq!(waiting.conservation.received, 10);

    let (second, _) = plane(counts(5, 1));
    instance.plane = Some(Box::new(second));
    let shown = instance.show();
    assert_eq!(shown.state, "running");
    assert_eq!((shown.conservation.received, shown.conservation.sent), (15, 10));
    assert_eq!((shown.conservation.queued, shown.conservation.bypassed), (1, 6));
    let [a, b] = &shown.ports[..] else { panic!("two ports") };
    assert_eq!((a.per_queue[1].rx_packets, a.unserved), (15, 6));
    assert_eq!((b.per_queue[1].tx_packets, b.total.backlog_packets), (10, 1));
    assert_eq!((a.xdp.as_str(), a.copy.as_str(), a.mtu, a.queues), ("native", "copy", 1500, 2));
}

#[test]
fn ports_are_released_once_after_their_queues_drain() {
    let (plane, calls) = plane(Counts::none(2));
    let mut instance = joined(plane);
    instance.let_go("a new cable".into()).unwrap();
    assert_eq!(calls.borrow().closed, [true]);
    assert_eq!(instance.show().waiting_for.as_deref(), Some("a new cable to be done"));
    let error = instance.let_go("another".into()).unwrap_err();
    assert!(matches!(error, InstanceError::LetGo(why) if why == "a new cable"));
}

#[test]
fn a_silent_worker_is_reported_and_stops_the_instance_s_heartbeat() {
    let (mut plane, _) = plane(Counts::none(2));
    plane.silent = vec![SilentWorker { queue: 1, silence: Nanos::from_secs(2) }];
    let instance = joined(plane);
    assert!(!instance.is_beating());
    assert_eq!(instance.silent_workers()[0].queue, 1);
}

#[test]
fn an_upgrade_needs_every_worker_and_the_policy_that_was_offered() {
    let (plane, _) = plane(counts(10, 4));
    let mut instance = joined(plane);
    let refusal = instance.offer(1, "test", 0).err().unwrap();
    assert_eq!(refusal, "a worker does not answer");

    instance.plane = None;
    let (offer, ..) = instance.offer(1, "test", 0).unwrap();
    assert!(instance.stand_still(&offer, Duration::ZERO).is_ok());
    let [a, _] = PORTS;
    instance.apply(policy(&format!("qdisc add dev {a} root pfifo limit 10\n"))).unwrap();
    let refusal = instance.stand_still(&offer, Duration::ZERO).err().unwrap();
    assert!(refusal.contains("the policy has changed meanwhile"), "{refusal}");
}

/// An instance with a shared limit at port B, whose plane runs what is enforced, and the calls that
/// this one gets.
fn sharing(refuses: Refuses) -> (Instance, Rc<RefCell<Calls>>) {
    let text = format!(
        "qdisc add dev {} root handle 1: tbf rate 8mbit burst 10k limit 10k fleet site safe 4mbit\n",
        PORTS[1]
    );
    let policy = policy(&text);
    let (mut plane, calls) = plane(Counts::none(2));
    plane.refuses = refuses;
    let none = Policy::default();
    let floor = |_: &FleetName, limit: &FleetLimit| {
        Rate::from_bits_per_sec(limit.safe.bits_per_sec() / FLEET_FLOOR)
    };
    let enforced = policy.enforced(&none, &none, floor);
    plane.plans = PORTS.iter().map(|port| Plan::of(enforced.port(port), 2).unwrap()).collect();
    let mut instance = joined(plane);
    instance.adopt_policy(policy);
    assert_eq!(instance.enforced, enforced);
    (instance, calls)
}

fn lending(lent_bps: u64) -> FleetOrder {
    let shares = vec![FleetShare { name: "site".into(), lent_bps, borrowed_bps: 0 }];
    FleetOrder { shares, deadline_ns: clock::since_boot() + 60_000_000_000, since: 0 }
}

#[test]
fn an_order_is_enforced_when_it_is_answered_and_shown_policies_stay() {
    let (mut instance, calls) = sharing(Refuses::Nothing);
    let saved = narrows_tc::save(instance.policy());
    let facts = instance.share(&lending(1_000_000)).unwrap();
    assert_eq!(facts.limits[0].in_force_bps, 3_000_000);
    let rate = |plan: &Plan| plan.limits.values().next().unwrap().0.limit.rate.bits_per_sec();
    let installed: Vec<u64> = calls.borrow().installed.iter().map(|(_, plan)| rate(plan)).collect();
    assert_eq!(installed, [3_000_000]);
    // The same again costs the plane nothing, and is no change.
    let again = FleetOrder { since: facts.cursor, ..lending(1_000_000) };
    assert!(instance.share(&again).unwrap().limits.is_empty());
    assert_eq!(calls.borrow().installed.len(), 1);
    assert_eq!(narrows_tc::save(instance.policy()), saved);
    // What has nothing to do with it leaves it as it is.
    let more = format!("{saved}qdisc add dev {} root pfifo\n", PORTS[0]);
    instance.apply(policy(&more)).unwrap();
    let at_b = calls.borrow().installed.iter().filter(|(port, _)| *port == PortId::SECOND).count();
    assert_eq!((at_b, calls.borrow().installed.len()), (1, 2));
}

#[test]
fn an_order_that_the_plane_refuses_changes_nothing() {
    let (mut instance, calls) = sharing(Refuses::Plan(PortId::SECOND));
    assert!(instance.share(&lending(1_000_000)).is_err());
    let facts = instance.share(&FleetOrder::default()).unwrap();
    assert_eq!((facts.limits[0].in_force_bps, facts.deadline_ns), (31_250, 0));
    assert_eq!(instance.share(&lending(0)).unwrap().limits[0].in_force_bps, 4_000_000);
    // The one that was restored, and the one that was ordered.
    assert_eq!(calls.borrow().installed.len(), 2);
}

#[test]
fn an_fq_codel_that_shares_among_hosts_is_for_the_host_plane() {
    let check = |plane, words: &str| {
        let lines = format!(
            "qdisc add dev {dev} root handle 1: tbf rate 10mbit burst 20k latency 50ms\n\
             qdisc add dev {dev} parent 1:1 fq_codel {words}\n",
            dev = PORTS[0]
        );
        let plan = Plan::of(policy(&lines).port(PORTS[0]), 2).unwrap();
        planning::runnable(PORTS[0], plane, plan, None).map(drop)
    };
    assert!(check(PlaneKind::Host, "hosts dst").is_ok());
    assert!(check(PlaneKind::Xsk, "hosts none").is_ok());
    let refusal = check(PlaneKind::Xsk, "hosts src").unwrap_err().to_string();
    assert!(refusal.contains("Give the class a cake with dual-srchost"), "{refusal}");
    assert!(check(PlaneKind::Xdp, "hosts src").is_err());
}
