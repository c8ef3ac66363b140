//! Plans a policy, without the instance: on any thread, while that one goes on.
//!
//! A plan is data, complete in itself. So it stays valid if the policy in force changes while it is
//! made; only another number of queues makes it useless.

use crate::error::InstanceError;
use crate::plane::{PlaneKind, Reconciled};
use narrows_forwarding::{Forwarding, PerPort, PortId};
use narrows_policy::{
    FleetLimit, FleetName, Plan, Policy, PolicyError, PortPolicy, is_intermediate,
};
use narrows_qdisc::Config;
use narrows_qdisc::fq_codel::Hosts;
use narrows_shaper::Installation;
use narrows_shares::Shares;
use narrows_xdp::{Numbers, changed_rates, compile};
use std::borrow::Cow;
use std::sync::Arc;

/// What a plan depends on besides the policy.
pub(crate) struct Planner {
    pub(super) forwarding: Forwarding,
    pub(super) kind: PlaneKind,
    /// The policy in force,
    pub(super) policy: Policy,
    /// what is enforced in its place, and the shares for that,
    pub(super) enforced: Policy,
    pub(super) shares: Shares,
    /// its plans, while the ports are joined,
    pub(super) running: Option<PerPort<Plan>>,
    /// what runs, if plans can be reconciled with it on another thread,
    pub(super) installed: PerPort<Option<Arc<Installation>>>,
    /// and over how many queues each is laid out.
    pub(super) queues: usize,
}

/// A policy with the plans of the ports where it differs from that in force when it was planned.
pub(crate) struct Planned {
    pub(crate) policy: Policy,
    /// What was to be enforced in its place then: the plans are for that.
    pub(super) enforced: Policy,
    pub(super) plans: PerPort<Option<Ready>>,
}

/// A plan, as far as it is prepared.
pub(super) enum Ready {
    Plan(Box<Plan>),
    Reconciled(Box<Reconciled>),
}

impl Ready {
    pub(super) fn plan(&self) -> &Plan {
        match self {
            Self::Plan(plan) => plan,
            Self::Reconciled(reconciled) => reconciled.next.plan(),
        }
    }
}

/// What was in force before. Dropping it may take long, if it was large.
pub(crate) struct Replaced {
    pub(super) _policies: [Policy; 2],
    pub(super) _installed: Vec<Arc<Installation>>,
}

impl Planner {
    /// For ports that are not joined, and have no policy yet.
    pub(crate) fn apart(forwarding: Forwarding, kind: PlaneKind) -> Self {
        let installed = forwarding.ids().map(|_| None).collect();
        let queues = laid_over(kind, 1);
        let (policy, enforced) = (Policy::default(), Policy::default());
        let (shares, running) = (Shares::default(), None);
        Self { forwarding, kind, policy, enforced, shares, running, installed, queues }
    }

    /// The policy in force.
    pub(crate) fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Plans `policy`.
    ///
    /// # Errors
    /// If it does not fit the ports or their plane.
    pub(crate) fn plan(&self, policy: Policy) -> Result<Planned, InstanceError> {
        check_ports(&policy, &self.forwarding, self.kind)?;
        let in_force = |name: &FleetName, limit: &FleetLimit| self.shares.in_force(name, limit);
        let enforced = policy.enforced(&self.policy, &self.enforced, in_force);
        let plans = self.plan_enforced(&enforced)?;
        Ok(Planned { policy, enforced, plans })
    }

    /// The plans of the ports where `enforced` differs from what is enforced.
    ///
    /// # Errors
    /// As [`Planner::plan`].
    pub(super) fn plan_enforced(
        &self,
        enforced: &Policy,
    ) -> Result<PerPort<Option<Ready>>, InstanceError> {
        let mut plans: PerPort<Option<Ready>> = self.forwarding.ids().map(|_| None).collect();
        for id in self.forwarding.ids() {
            let name = self.forwarding.name(id);
            let before = in_force(&self.enforced, &self.forwarding, id)?;
            let port = in_force(enforced, &self.forwarding, id)?;
            let (before, port) = (&*before, &*port);
            if port == before {
                continue;
            }
            let next = match &self.running {
                Some(plans) if plans[id].queues() == self.queues => plans[id].next(before, port),
                Some(_) => Plan::of(port, self.queues),
                None if self.kind.has_workers() => continue,
                None => Plan::of(port, self.queues),
            };
            let running = self.running.as_ref().map(|plans| &plans[id]);
            let plan = next.and_then(|plan| filtered(plan, self.kind, port));
            let plan = plan.map_err(|source| does_not_fit(name, source))?;
            plans[id] = Some(Ready::Plan(Box::new(runnable(name, self.kind, plan, running)?)));
        }
        Ok(plans)
    }

    /// Plans `policy`, and does all else that needs no instance.
    ///
    /// # Errors
    /// As [`Planner::plan`].
    pub(crate) fn prepare(&self, policy: Policy) -> Result<Planned, InstanceError> {
        let Planned { policy, enforced, plans } = self.plan(policy)?;
        let ready = |plan: Option<Ready>, base: &Option<Arc<Installation>>| match (plan?, base) {
            (Ready::Plan(plan), Some(base)) => {
                let reconciled = Reconciled::new(*plan, Arc::clone(base));
                Some(Ready::Reconciled(Box::new(reconciled)))
            }
            (ready, _) => Some(ready),
        };
        let plans = plans.into_iter().zip(&self.installed);
        let plans = plans.map(|(plan, base)| ready(plan, base)).collect();
        Ok(Planned { policy, enforced, plans })
    }
}

/// Over how many queues the plan of a port with `queues` queues is laid out. A plane without queues
/// gets a plan as if for several: then bands below a rate are classes of one tree.
pub(super) fn laid_over(kind: PlaneKind, queues: usize) -> usize {
    if kind.has_workers() { queues } else { queues.max(2) }
}

/// Checks that each device of `policy` is one of `ports`, or one through which they redirect.
pub(super) fn check_ports(
    policy: &Policy,
    ports: &Forwarding,
    kind: PlaneKind,
) -> Result<(), InstanceError> {
    let is_known = |dev: &str| ports.port(dev).is_some() || is_intermediate(dev);
    if let Some((dev, _)) = policy.ports().find(|(dev, _)| !is_known(dev)) {
        return Err(InstanceError::ForeignPort(dev.to_owned()));
    }
    if !ports.is_router() && policy.asked_routes().next().is_some() {
        return Err(InstanceError::NoRoutes);
    }
    if ports.is_host()
        && kind != PlaneKind::Host
        && let Some(port) = ports.names().iter().find(|port| leaves(policy.port(port)))
    {
        return Err(InstanceError::OwnTraffic(port.clone()));
    }
    let elsewhere = |port: &&String| {
        let to = policy.redirected(port);
        to.is_some_and(|to| ports.arriving_through(to.as_str()) != Some(port.as_str()))
    };
    match ports.names().iter().filter(|_| !ports.is_paired()).find(elsewhere) {
        Some(port) if kind == PlaneKind::Host => Err(InstanceError::WithoutIfb(port.clone())),
        Some(port) => Err(InstanceError::Redirected(port.clone())),
        None => Ok(()),
    }
}

/// Whether something of `port` is for what leaves there.
fn leaves(port: &PortPolicy) -> bool {
    let has_egress = port.ends.as_ref().is_some_and(|ends| ends.egress.iter().next().is_some());
    port.root().is_some() || has_egress
}

/// What `port` runs under `policy`.
pub(super) fn in_force<'a>(
    policy: &'a Policy,
    ports: &Forwarding,
    port: PortId,
) -> Result<Cow<'a, PortPolicy>, InstanceError> {
    let name = ports.name(port);
    let Some(opposite) = ports.across(port) else { return Ok(Cow::Borrowed(policy.port(name))) };
    let in_force = policy.in_force(name, ports.name(opposite));
    in_force.map_err(|source| does_not_fit(name, source))
}

/// `plan` of `port`, with those filters in the driver that its plane has there.
pub(super) fn filtered(
    plan: Plan,
    kind: PlaneKind,
    port: &PortPolicy,
) -> Result<Plan, PolicyError> {
    match kind {
        PlaneKind::Xsk => Ok(plan.with_driver(port)),
        PlaneKind::Xdp | PlaneKind::Host => plan.without_workers(port),
    }
}

/// `plan` of the port `name`, if its plane can run it, as it can what is `running` there.
pub(super) fn runnable(
    name: &str,
    kind: PlaneKind,
    plan: Plan,
    running: Option<&Plan>,
) -> Result<Plan, InstanceError> {
    if let Some(enforcement) = kind.enforcement() {
        // No rate is refused.
        if running.is_some_and(|running| changed_rates(running, &plan).is_some()) {
            return Ok(plan);
        }
        let refused = |source| InstanceError::Refused { port: name.to_owned(), source };
        compile(&plan, &Numbers::default(), enforcement).map_err(refused)?;
    } else if plan.changed_qdiscs(running.unwrap_or(&Plan::default())).any(shares_among_hosts) {
        let why = "hosts: only `--plane host` has it. Give the class a cake with dual-srchost or \
                   dual-dsthost, or leave it out.";
        let source = PolicyError::Leaf { kind: "fq_codel", why: why.to_owned() };
        return Err(does_not_fit(name, source));
    }
    Ok(plan)
}

/// Whether it is an `fq_codel` that shares its rate among hosts first.
fn shares_among_hosts(config: &Config) -> bool {
    matches!(config, Config::FqCodel(fq_codel) if fq_codel.hosts != Hosts::None)
}

/// The refusal of a policy that does not fit `port`.
pub(super) fn does_not_fit(port: &str, source: PolicyError) -> InstanceError {
    InstanceError::Policy { port: port.to_owned(), source }
}
