//! The XDP plane continues in another process: what the old process offers, and how the new process
//! inherits it.
//!
//! The new process loads programs of its own onto the old process's maps, and then replaces the old
//! process's in their links. So plan, credit and counters are the same before and after, no frame
//! waits, and no program has to stop. Only after that the new process installs the plan as it
//! compiles it itself.
//!
//! *Non-goals.* Filters in front start over, with counters and accounts of their own, as on the
//! other plane.

use super::{InDriver, Installed, failed, has_several_buffers};
use crate::counters::Counts;
use crate::error::InstanceError;
use crate::front::{Fronts, PortFront};
use crate::options::SessionOptions;
use crate::plane::{InheritedPlane, Plane, Still};
use crate::port::{PortFacts, losses};
use crate::upgrade::state::{DriverManifest, PortManifest, ProgramState};
use narrows_bpf::Hook;
use narrows_bpf::tree::{ClassCounters, Totals, Tree};
use narrows_classify::{ActionId, ActionKind};
use narrows_policy::{Handle, Plan};
use narrows_shaper::Side;
use narrows_units::Nanos;
use narrows_xdp::Numbers;
use std::os::fd::OwnedFd;

impl InDriver {
    /// The manifest for another process. `None` if there are no descriptors left.
    pub(super) fn manifest(&self) -> Option<(DriverManifest, Vec<OwnedFd>)> {
        let mut descriptors = Vec::new();
        for tree in &self.trees {
            descriptors.push(tree.hold()?.try_clone_to_owned().ok()?);
            for map in tree.maps() {
                descriptors.push(map.try_clone_to_owned().ok()?);
            }
        }
        let ports = Side::BOTH.map(|side| {
            let index = side.index();
            PortManifest::new(&self.ports[index], self.hooks[index], self.trees[index].entry())
        });
        Some((DriverManifest { ports }, descriptors))
    }

    /// What maps do not say.
    pub(super) fn still(&self) -> Still {
        let programs = self.installed.each_ref().map(|installed| ProgramState {
            numbers: installed
                .numbers
                .named()
                .map(|((qdisc, class), number)| [qdisc.major(), class, number])
                .collect(),
            actions: installed
                .numbers
                .actions()
                .map(|(id, number)| [id.kind as u32, id.index, number])
                .collect(),
            before_root: installed.before_root.words(),
            inherited: installed
                .inherited
                .iter()
                .map(|((qdisc, class), counted)| ([qdisc.major(), *class], counted.words()))
                .collect(),
        });
        let losses = Side::BOTH.map(|side| self.device(side).losses);
        let mut counts = Counts { losses, ..Counts::default() };
        self.add_dropped_in_front(&mut counts);
        Still { counts, programs: programs.into(), ..Still::default() }
    }
}

/// The programs of another process, with ones ready to replace them.
pub(crate) struct InheritedPrograms {
    plane: InDriver,
    plans: [Plan; 2],
    /// The link of each port's program, or the array of its gate.
    holds: [OwnedFd; 2],
}

impl InheritedPrograms {
    /// Loads programs onto the maps that `manifest` describes for `ports`, from `descriptors`, to
    /// run the plan of each port, with `fronts` in front. Nothing of the other process is changed.
    pub(crate) fn prepare(
        manifest: DriverManifest,
        ports: [PortFacts; 2],
        descriptors: Vec<OwnedFd>,
        plans: [Plan; 2],
        fronts: &Fronts<'_>,
    ) -> Result<Self, InstanceError> {
        // A link and the maps of a program.
        let of_port = descriptors.len() / 2;
        let mut descriptors = descriptors.into_iter();
        let missing = || InstanceError::Inheritance("descriptors are missing".to_owned());
        let mut inherit = |side: Side| {
            let (port, described) = (&ports[side.index()], &manifest.ports[side.index()]);
            let changed = || InstanceError::Inheritance(format!("{} has changed", port.name));
            let hook = described.hook_on(port).ok_or_else(changed)?;
            let mut own = descriptors.by_ref().take(of_port);
            let hold = own.next().ok_or_else(missing)?;
            let maps: Vec<OwnedFd> = own.collect();
            let (several, entry) = (has_several_buffers(port), described.entry());
            let tree =
                Tree::inherit(port.own(), several, entry, hook, &maps).map_err(failed(port))?;
            Ok::<_, InstanceError>((tree, hook, hold))
        };
        let [(tree_a, hook_a, hold_a), (tree_b, hook_b, hold_b)] =
            [inherit(Side::A)?, inherit(Side::B)?];
        let hooks: [Hook; 2] = [hook_a, hook_b];
        let mut plane = InDriver {
            trees: [tree_a, tree_b],
            fronts: <[PortFront; 2]>::default(),
            installed: <[Installed; 2]>::default(),
            losses_before: losses(&ports),
            ports,
            hooks,
        };
        for side in Side::BOTH {
            plane.put_in_front(side, &fronts.terms[side.index()], fronts.tables)?;
        }
        plane.connect()?;
        Ok(Self { plane, plans, holds: [hold_a, hold_b] })
    }
}

impl InheritedPlane for InheritedPrograms {
    fn take_in(&mut self, still: Still) -> Result<(), InstanceError> {
        let unfit = || InstanceError::Inheritance("its classes have no numbers".to_owned());
        let [a, b] = <[ProgramState; 2]>::try_from(still.programs).map_err(|_| unfit())?;
        for (side, state) in Side::BOTH.into_iter().zip([a, b]) {
            let name = |major, class| Some((Handle::new(major)?, class));
            let classes = state.numbers.into_iter();
            let classes = classes.map(|[major, class, number]| Some((name(major, class)?, number)));
            let classes: Vec<_> = classes.collect::<Option<_>>().ok_or_else(unfit)?;
            let actions = state.actions.into_iter();
            let actions = actions.map(|[kind, index, number]| {
                let kind = ActionKind::ALL.into_iter().find(|known| *known as u32 == kind)?;
                Some((ActionId { kind, index }, number))
            });
            let actions: Vec<_> = actions.collect::<Option<_>>().ok_or_else(unfit)?;
            let inherited = state.inherited.into_iter();
            let inherited = inherited.map(|([major, class], words)| {
                Some((name(major, class)?, ClassCounters::of(words)))
            });
            // It is not in force here yet.
            let plan = self.plans[side.index()].clone();
            self.plane.installed[side.index()] = Installed {
                plan,
                numbers: Numbers::of(classes, actions),
                before_root: Totals::of(state.before_root),
                inherited: inherited.collect::<Option<_>>().ok_or_else(unfit)?,
            };
        }
        Ok(())
    }

    fn start(
        self: Box<Self>,
        _: &SessionOptions,
    ) -> Result<(Box<dyn Plane>, Option<Nanos>), InstanceError> {
        let Self { mut plane, plans, holds } = *self;
        for (side, hold) in Side::BOTH.into_iter().zip(holds) {
            let port = &plane.ports[side.index()];
            let tree = &mut plane.trees[side.index()];
            tree.resume().map_err(failed(port))?;
            tree.take_over(hold).map_err(failed(port))?;
        }
        for (side, plan) in Side::BOTH.into_iter().zip(plans) {
            plane.install(side, plan)?;
        }
        Ok((Box::new(plane), None))
    }
}
