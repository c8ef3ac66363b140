//! The host plane: what this host sends through its ports, shaped at their egress.
//!
//! A port has two trees. One is where packets arrive, as at a host's port in the XDP plane: it has
//! no classes, and filters, sets and a balancer are in front of it. The other one is at egress, and
//! its plan is the port's.
//!
//! At egress packets get departure times, and `fq` holds them until then. Where there is no `fq`,
//! times would limit nothing: the same tree polices there, and a warning says so. Others may
//! replace an `fq` at any time, so it is looked at every second, and the program changes with it.
//!
//! What arrives at a port with an ifb is redirected there, and shaped at the ifb's egress as what
//! leaves is at a port's.
//!
//! The programs at egress are attached last and taken off first: no packet gets a time before
//! something holds it. Only what redirects to ifbs comes later and goes earlier.

use super::{GENERIC, InDriver, NATIVE, failed};
use crate::device::DeviceFacts;
use crate::error::InstanceError;
use crate::front::Fronts;
use crate::gates::Gates;
use crate::look_ups::LooksUp;
use crate::plane::Plane;
use crate::upgrade::state::EgressManifest;
use narrows_bpf::tree::{self, Departures, HostAddresses, Totals, Tree, TreeError};
use narrows_bpf::{AttachError, Entry, Hook, RoutedBy, SlowPath, SteerError, ToIfb};
use narrows_forwarding::{Forwarding, PerDevice, PerPort, PortId};
use narrows_link::fq::{FqError, Held, Standing};
use narrows_policy::{Plan, PortPolicy};
use narrows_snapshot::OwnTraffic;
use narrows_xdp::{Enforcement, Limits};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// As many bytes may depart together, late: a super-packet's worth. More would be a burst that the
/// next hop has to queue.
const RELEASED_TOGETHER: u64 = 64 << 10;
/// The least and the most by which a packet may depart late for that. The least is the kernel's
/// own; by the most a timer ticks 3,300 times a second, and the calendar's slots are longer.
const SLACK: [Duration; 2] = [Duration::from_micros(10), Duration::from_micros(300)];

/// By how much packets may depart late, so that one timer of `fq` releases several of them, under
/// a limit of so many bytes per second, if there is one.
fn slack(rate: Option<u64>) -> Duration {
    let [least, most] = SLACK;
    let rate = rate.filter(|rate| *rate > 0);
    let time = rate.map(|rate| Duration::from_nanos(RELEASED_TOGETHER * 1_000_000_000 / rate));
    time.map_or(least, |time| time.clamp(least, most))
}

/// What is at the egress of a port.
pub(super) struct AtEgress {
    // Declared first: it is detached before the maps go.
    program: Program,
    /// For its maps: its own program is for what arrives, and is attached nowhere.
    pub(super) tree: Tree,
    /// What holds packets until their departure times, or why nothing does.
    fq: Result<Held, FqError>,
    /// By which addresses its program tells hosts apart, if it shapes.
    hosts: HostAddresses,
    /// How late its `fq` may release packets; none if that is to be set.
    slack: Option<Duration>,
}

enum Program {
    /// Packets get departure times.
    Shapes(Departures),
    /// Packets without room are dropped.
    Polices(SlowPath),
}

impl Program {
    /// The one that shapes, on what another one has `kept`, or that polices.
    fn load(
        tree: &Tree,
        shapes: bool,
        kept: &[BorrowedFd<'_>],
        hosts: HostAddresses,
    ) -> Result<Self, TreeError> {
        if shapes {
            Ok(Self::Shapes(tree.departures(kept, hosts)?))
        } else {
            Ok(Self::Polices(tree.slow_path()?))
        }
    }

    fn at_egress(&self) -> &SlowPath {
        match self {
            Self::Shapes(Departures { program, .. }) | Self::Polices(program) => program,
        }
    }

    fn at_egress_mut(&mut self) -> &mut SlowPath {
        match self {
            Self::Shapes(Departures { program, .. }) | Self::Polices(program) => program,
        }
    }
}

/// What has become of an `fq`.
enum News {
    /// This was so, and it is there again.
    Repaired(&'static str),
    /// There is one now, or no longer one.
    Changed(Result<Held, FqError>),
}

/// Maps of another process's programs at the egress of a port.
#[derive(Default)]
pub(super) struct InheritedEgress {
    /// The tree's.
    tree: Vec<OwnedFd>,
    /// What its departure times are kept in.
    kept: Vec<OwnedFd>,
}

impl InheritedEgress {
    /// Those that `manifest` describes, the next ones of `descriptors`.
    pub(super) fn of(
        manifest: &EgressManifest,
        descriptors: &mut impl Iterator<Item = OwnedFd>,
    ) -> Self {
        let tree = descriptors.by_ref().take(manifest.maps).collect();
        Self { tree, kept: descriptors.take(manifest.kept).collect() }
    }
}

impl AtEgress {
    /// The programs for the device `facts`, whose packets may be `headerless`, on the maps of
    /// another process if it has any, with an `fq` below if there is one to be had. Nothing is
    /// attached.
    pub(super) fn load(
        facts: &DeviceFacts,
        headerless: bool,
        inherited: &InheritedEgress,
    ) -> Result<Self, InstanceError> {
        let port = tree::Port::new(facts.own(), false, Entry::Own);
        let port = tree::Port { headerless, only_egress: true, ..port };
        let tree = Tree::at(port, NATIVE, &inherited.tree).map_err(failed(facts))?;
        let fq = Held::install(facts.ifindex);
        let kept: Vec<BorrowedFd<'_>> = inherited.kept.iter().map(AsFd::as_fd).collect();
        let hosts = HostAddresses::default();
        let program = Program::load(&tree, fq.is_ok(), &kept, hosts).map_err(failed(facts))?;
        Ok(Self { program, tree, fq, hosts, slack: None })
    }

    /// How the limits hold.
    pub(super) fn enforcement(&self) -> Enforcement {
        match self.program {
            Program::Shapes(_) => Enforcement::Shaping,
            Program::Polices(_) => Enforcement::PolicingAtHost,
        }
    }

    /// What happens to the traffic of the host itself, for views.
    pub(super) fn own_traffic(&self) -> OwnTraffic {
        if self.enforcement().is_shaping() { OwnTraffic::Shaped } else { OwnTraffic::Policed }
    }

    fn kept(&self) -> Vec<BorrowedFd<'_>> {
        match &self.program {
            Program::Shapes(departures) => departures.maps(),
            Program::Polices(_) => Vec::new(),
        }
    }

    /// Puts `next` in the place of its program. Each packet passes one of them.
    fn replace(&mut self, mut next: Program, ifindex: u32) -> io::Result<()> {
        match self.hold() {
            Some(link) => {
                let link = link.try_clone_to_owned()?;
                next.at_egress_mut().take_over(link, ifindex)?;
            }
            None => next.at_egress_mut().attach(ifindex)?,
        }
        self.program = next;
        Ok(())
    }

    /// Tells hosts apart by these addresses from now on.
    fn tell_hosts_by(&mut self, hosts: HostAddresses, ifindex: u32) -> Result<(), SteerError> {
        if hosts == self.hosts {
            return Ok(());
        }
        // Policing shares nothing among hosts.
        if self.fq.is_ok() {
            let refused = |error| match error {
                TreeError::Load(why) => SteerError::NoLookUp(why),
                other => SteerError::Replace(io::Error::other(other)),
            };
            let next = Program::load(&self.tree, true, &self.kept(), hosts).map_err(refused)?;
            self.replace(next, ifindex).map_err(SteerError::Replace)?;
        }
        self.hosts = hosts;
        Ok(())
    }

    fn attach(&mut self, facts: &DeviceFacts) -> Result<(), InstanceError> {
        self.program.at_egress_mut().attach(facts.ifindex).map_err(not_attached(facts))
    }

    /// Takes the place of another process's program, which the `link` keeps attached.
    pub(super) fn take_over(
        &mut self,
        link: OwnedFd,
        facts: &DeviceFacts,
    ) -> Result<(), InstanceError> {
        self.tree.resume().map_err(failed(facts))?;
        let program = self.program.at_egress_mut();
        program.take_over(link, facts.ifindex).map_err(not_attached(facts))
    }

    /// What keeps it attached, for another process.
    pub(super) fn hold(&self) -> Option<BorrowedFd<'_>> {
        self.program.at_egress().hold()
    }

    /// Its maps, for another process.
    pub(super) fn maps(&self) -> Vec<BorrowedFd<'_>> {
        let mut maps = self.tree.maps();
        maps.extend(self.kept());
        maps
    }

    /// What these maps are.
    pub(super) fn manifest(&self) -> EgressManifest {
        EgressManifest { maps: self.tree.maps().len(), kept: self.kept().len() }
    }

    /// Takes the program off, and then what holds packets. What was there before is there again.
    pub(super) fn release(&mut self) -> Result<(), FqError> {
        self.program.at_egress_mut().detach();
        self.fq.as_ref().map_or(Ok(()), |held| held.clone().restore())
    }

    /// Why packets without room are dropped here, and do not wait.
    fn refusal(&self) -> Option<&FqError> {
        self.fq.as_ref().err()
    }

    /// Looks whether there is still an `fq` at `ifindex`, or one now. Repairs it if it can.
    fn look(&mut self, ifindex: u32) -> Option<News> {
        match &self.fq {
            Ok(held) => {
                let lost = match held.standing() {
                    Ok(Standing::Gone) => "fq was gone",
                    Ok(Standing::Bare(_)) => "queues had no fq",
                    Ok(Standing::Replaced(_)) => "fq was replaced",
                    // A device that is gone is noticed elsewhere.
                    Ok(Standing::Holds) | Err(_) => return None,
                };
                Some(
                    held.repair()
                        .map_or_else(|error| News::Changed(Err(error)), |()| News::Repaired(lost)),
                )
            }
            // To ask again would have the kernel search for a module each time.
            Err(FqError::Missing) => None,
            Err(_) => Held::install(ifindex).map(|held| News::Changed(Ok(held))).ok(),
        }
    }

    /// Has `fq` release packets up to `slack` late, if it does not already.
    fn be_late_by(&mut self, slack: Duration) {
        let Ok(held) = &self.fq else { return };
        if self.slack == Some(slack) {
            return;
        }
        self.slack = Some(slack);
        // Only what it costs depends on it.
        if let Err(error) = held.set_slack(slack) {
            log::debug!("{error}");
        }
    }

    /// What it has counted, by CPU.
    pub(super) fn totals_by_cpu(&self) -> Vec<Totals> {
        self.tree.slow_path_totals_by_cpu().unwrap_or_default()
    }
}

impl InDriver {
    /// Shapes what this host sends through the ports of `forwarding`, each by its plan, with
    /// `fronts` in front of what arrives there: at the hook `only`, or else at tcx, where the stack
    /// has merged packets already, or the best that works. `gates` has places beside other
    /// programs.
    pub(crate) fn open_host(
        forwarding: &Forwarding,
        devices: PerDevice<DeviceFacts>,
        only: Option<Hook>,
        plans: PerPort<Plan>,
        fronts: &Fronts<'_>,
        gates: &Gates,
    ) -> Result<Self, InstanceError> {
        let free = forwarding.ids().map(|_| unlimited()).collect::<Result<PerPort<_>, _>>()?;
        let at = |hook| {
            let (devices, free) = (devices.clone(), free.clone());
            Self::open(forwarding, devices, hook, free, fronts, gates, RoutedBy::Routes)
        };
        let mut plane = match only {
            Some(_) => at(only)?,
            None => at(Some(Hook::Tcx)).or_else(|error| {
                log::debug!("{}: {error}", Hook::Tcx);
                at(None)
            })?,
        };
        plane.admits_ifbs()?;
        let nothing = forwarding.ids().map(|_| InheritedEgress::default()).collect();
        plane.load_egress(&nothing)?;
        for (port, plan) in plans.into_iter_enumerated() {
            plane.install(port, plan)?;
        }
        for (port, egress) in plane.egress.iter_mut_enumerated() {
            egress.attach(&plane.devices[plane.forwarding.device_of(port)])?;
        }
        plane.redirect_to_ifbs()?;
        Ok(plane)
    }

    /// Whether no packet passes a port's program a second time once it comes from an ifb: the
    /// kernel keeps it from tcx, and not from generic XDP.
    fn admits_ifbs(&self) -> Result<(), InstanceError> {
        let is_passed_again = |port: &PortId| {
            let hook = self.hooks[self.forwarding.device_of(*port)];
            hook == GENERIC && self.forwarding.ifb(*port).is_some()
        };
        match self.forwarding.ids().find(is_passed_again) {
            Some(port) => Err(InstanceError::IfbAtGeneric(self.forwarding.name(port).to_owned())),
            None => Ok(()),
        }
    }

    /// Redirects what arrives at ports with an ifb, in place of what another process redirects by.
    fn redirect_to_ifbs(&mut self) -> Result<(), InstanceError> {
        for port in self.forwarding.ids() {
            let Some(ifb) = self.forwarding.ifb(port) else { continue };
            let [facts, ifb] = [port, ifb].map(|port| self.facts(port));
            let refused = |source| {
                let name = facts.name.clone();
                InstanceError::NotRedirected { port: name, source }
            };
            let redirecting = ToIfb::attach(facts.ifindex, ifb.ifindex).map_err(refused)?;
            self.to_ifbs.push(redirecting);
        }
        Ok(())
    }

    /// Loads what is at the egress of each port, on maps of another process if it has any: none in
    /// other planes.
    pub(super) fn load_egress(
        &mut self,
        inherited: &PerPort<InheritedEgress>,
    ) -> Result<(), InstanceError> {
        for (port, maps) in inherited.iter_enumerated() {
            let facts = &self.devices[self.forwarding.device_of(port)];
            // An ifb has what arrives as it is at the port.
            let arrives_at = self.forwarding.ports()[port].ifb_of.unwrap_or(port);
            let headerless = self.facts(arrives_at).headerless;
            self.egress.push(AtEgress::load(facts, headerless, maps)?);
        }
        Ok(())
    }

    /// Why limits at egress police and do not shape, by port, in words.
    pub(super) fn why_policed(&self) -> Vec<String> {
        let refusal = |(port, egress): (PortId, &AtEgress)| {
            let (name, why) = (self.forwarding.name(port), egress.refusal()?);
            Some(format!(
                "{name}: nothing holds packets until their departure times, so what exceeds a limit \
                 is dropped: {why}"
            ))
        };
        self.egress.iter_enumerated().filter_map(refusal).collect()
    }

    /// Looks after what holds packets at egress. Returns what has changed, in words.
    pub(super) fn look_after_egress(&mut self) -> Vec<String> {
        let mut news = Vec::new();
        for port in PortId::first(self.egress.len()) {
            let name = self.forwarding.name(port).to_owned();
            let ifindex = self.facts(port).ifindex;
            let rate = self.installed[port].limits.as_ref().and_then(Limits::outermost_rate);
            let found = self.egress[port].look(ifindex);
            if found.is_some() {
                self.egress[port].slack = None;
            }
            self.egress[port].be_late_by(slack(rate));
            news.extend(match found {
                None => None,
                Some(News::Repaired(what)) => Some(format!("{name}: {what}: it is there again")),
                Some(News::Changed(fq)) => Some(self.change_egress(port, fq).map_or_else(
                    |error| format!("{name}: {error}"),
                    |()| match self.egress[port].refusal() {
                        None => format!("{name}: fq holds packets now"),
                        Some(why) => format!("{name}: limits police from now on: {why}"),
                    },
                )),
            });
        }
        news
    }

    /// Shapes from now on at the egress of `port`, or polices, as there is an `fq`.
    fn change_egress(
        &mut self,
        port: PortId,
        fq: Result<Held, FqError>,
    ) -> Result<(), InstanceError> {
        let facts = &self.devices[self.forwarding.device_of(port)];
        let egress = &mut self.egress[port];
        let next = Program::load(&egress.tree, fq.is_ok(), &[], egress.hosts);
        let next = next.map_err(failed(facts))?;
        egress.replace(next, facts.ifindex).map_err(not_attached(facts))?;
        egress.fq = fq;
        // Virtual queues have other lengths.
        let plan = self.installed[port].plan.clone();
        self.install(port, plan)
    }

    /// Whether hosts behind network address translation can be told apart at the ports' egress.
    pub(super) fn can_tell_inside(&self) -> bool {
        self.egress.iter().all(|egress| match egress.program {
            Program::Polices(_) => true,
            Program::Shapes(_) => {
                egress.hosts == HostAddresses::Inside
                    || egress.tree.departures(&egress.kept(), HostAddresses::Inside).is_ok()
            }
        })
    }

    /// Takes the places of another process's programs at egress, which `links` keep attached.
    pub(super) fn take_over_egress(
        &mut self,
        links: PerDevice<OwnedFd>,
    ) -> Result<(), InstanceError> {
        for (port, link) in self.forwarding.ids().zip(links) {
            let facts = &self.devices[self.forwarding.device_of(port)];
            if let Some(egress) = self.egress.get_mut(port) {
                egress.take_over(link, facts)?;
            }
        }
        self.redirect_to_ifbs()
    }
}

/// Only at the host plane's egress does something read addresses before translation.
impl LooksUp for InDriver {
    fn look_up(&mut self, port: PortId, wanted: bool) -> Result<(), SteerError> {
        let ifindex = self.facts(port).ifindex;
        let hosts = if wanted { HostAddresses::Inside } else { HostAddresses::InHeaders };
        let egress = self.egress.get_mut(port);
        egress.map_or(Ok(()), |egress| egress.tell_hosts_by(hosts, ifindex))
    }
}

/// A problem with the program at the egress of a port.
fn not_attached(port: &DeviceFacts) -> impl Fn(io::Error) -> InstanceError + use<> {
    let failed = failed(port);
    move |source| failed(AttachError { hook: Hook::Tcx, source }.into())
}

/// The plan of a port without a policy.
pub(super) fn unlimited() -> Result<Plan, InstanceError> {
    // Over several queues, as all plans of a plane without queues.
    let plan = Plan::of(&PortPolicy::default(), 2);
    plan.map_err(|source| InstanceError::Policy { port: String::new(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_much_departs_together_as_a_super_packet_has_and_nothing_is_later_than_a_slot() {
        let at = |mbit: u64| slack(Some(mbit * 125_000)).as_micros();
        assert_eq!([10, 200, 1_000, 10_000, 100_000].map(at), [300, 300, 300, 52, 10]);
        assert_eq!([slack(None), slack(Some(0))], [SLACK[0]; 2]);
    }
}
