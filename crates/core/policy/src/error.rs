//! The refusals of the "kernel".

use crate::{ClassId, Handle, KINDS, Parent};
use narrows_units::Nanos;
use thiserror::Error;

/// Why an edit was refused. `tc` prints it after `Error: ` and exits with
/// [`PolicyError::EXIT_CODE`]. If the kernel has a message for the case, this one begins with it,
/// so that scripts that look for it find it. The advice follows.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum PolicyError {
    /// `add` in a place that already has such a qdisc.
    #[error(
        "Exclusivity flag on, cannot modify. A {kind} {handle} is there already: use replace, or change to set its parameters."
    )]
    Exists {
        /// The kind of the qdisc there.
        kind: &'static str,
        /// Its handle.
        handle: Handle,
    },
    /// The qdisc in that place has another handle than the one given, and the verb is not
    /// `replace`.
    #[error(
        "NLM_F_REPLACE needed to override. The qdisc there is {present}: use replace to put {wanted} in its place."
    )]
    NeedsReplace {
        /// The handle of the qdisc there.
        present: Handle,
        /// The handle that was given.
        wanted: Handle,
    },
    /// Invalid parameters of an `htb` or of one of its classes.
    #[error("sch_htb: {0}")]
    Htb(String),
    /// Invalid parameters of an `hfsc` or of one of its classes.
    #[error("hfsc: {0}")]
    Hfsc(String),
    /// Invalid parameters of a `prio`.
    #[error("prio: {0}")]
    Prio(&'static str),
    /// An invalid class of a `drr`.
    #[error("drr: {0}")]
    Drr(String),
    /// Invalid parameters of an `ets` or of one of its classes.
    #[error("sch_ets: {0}")]
    Ets(String),
    /// A limit that cannot follow a line.
    #[error("autorate: {0}")]
    Autorate(String),
    /// A limit that a fleet cannot share.
    #[error("fleet {0}")]
    Fleet(String),
    /// A class of another kind than its qdisc.
    #[error("{handle} is a {present}, so its classes are {present}'s and not {given}'s.")]
    OtherClassKind {
        /// The qdisc.
        handle: Handle,
        /// Its kind.
        present: &'static str,
        /// The kind that was given.
        given: &'static str,
    },
    /// A class of a qdisc whose parameters determine its classes.
    #[error("Operation not supported. The classes of {handle} are its bands: change the {kind}.")]
    FixedClasses {
        /// The qdisc.
        handle: Handle,
        /// Its kind.
        kind: &'static str,
    },
    /// A class cannot be removed: filters assign packets to it.
    #[error("{kind} class is in use. Filters assign packets to {class}: delete them first.")]
    ClassAssigned {
        /// The kind of the qdisc.
        kind: String,
        /// The class.
        class: ClassId,
    },
    /// Too many nested classful qdiscs.
    #[error("Classful qdiscs can nest at most {} deep.", crate::CLASSFUL_DEPTH)]
    ClassfulTooDeep,
    /// A class number above 16 bits where only 16 bits fit.
    #[error(
        "Classes of {0} are {0}1 to {0}ffff: higher numbers are only for an htb that is not below another classful qdisc."
    )]
    WideClass(Handle),
    /// An invalid filter.
    #[error("{0}.")]
    Filter(&'static str),
    /// Filters that cannot run in the driver, although sets are looked up there.
    #[error("{0}")]
    Front(String),
    /// A filter at a qdisc that takes none.
    #[error(
        "Parent Qdisc doesn't exists. htb, hfsc, prio, drr and ets take filters, and so do inner classes of an htb or hfsc, ingress and egress: give the handle of one, as parent 1:, or add a clsact."
    )]
    NoFilterParent,
    /// A filter at ingress or egress of a port that has neither `clsact` nor `ingress`.
    #[error(
        "Parent Qdisc doesn't exists. Nothing is at the ends of this port: qdisc add dev NAME clsact."
    )]
    NoEnds,
    /// A filter at a class without child classes.
    #[error(
        "Parent Qdisc doesn't exists. No class is below {0}, so a filter has nothing to choose: attach it to the qdisc or to an inner class."
    )]
    LeafFilter(ClassId),
    /// `filter add` for a filter that exists.
    #[error("Filter already exists.")]
    FilterExists,
    /// `actions add` for an action that exists.
    #[error("File exists.")]
    ActionExists,
    /// An invalid action.
    #[error("{0}.")]
    Action(&'static str),
    /// A redirection to another device that has no meaning here.
    #[error("mirred: {0}")]
    Redirect(String),
    /// No action has this number.
    #[error("TC action \"{0}\" not found. There is no {0} with index {1}: see tc actions show.")]
    NoSuchAction(&'static str, u32),
    /// `class add` for a class that exists.
    #[error("Class {0} is there already: use replace, or change to set its parameters.")]
    ClassExists(ClassId),
    /// `class change` or `del` for a class that does not exist.
    #[error("Specified class not found. There is no class {0}: see class show.")]
    NoSuchClass(ClassId),
    /// `class del` for a class that is in use.
    #[error(
        "{kind} class in use. Classes are below {class}, or filters assign packets to it: delete them first."
    )]
    ClassInUse {
        /// The kind of the qdisc.
        kind: &'static str,
        /// The class.
        class: ClassId,
    },
    /// A qdisc cannot be attached there: the class is not a leaf.
    #[error("Specified class not found. {0} has classes below it: choose a leaf.")]
    InnerClass(ClassId),
    /// A qdisc with a rate of its own below a class.
    #[error(
        "sch_{above}: below a class, {kind} cannot have a rate of its own: the class has one, give it {}.",
        if *above == "htb" { "a ceil" } else { "an ul" }
    )]
    RateBelowClass {
        /// The kind of the qdisc that has the class.
        above: &'static str,
        /// The kind that has a rate.
        kind: &'static str,
    },
    /// No qdisc on the port takes classes.
    #[error(
        "Failed to find specified qdisc. There is no htb, hfsc, drr or ets {major:x}: on this port: add one first."
    )]
    NoClasses {
        /// The number that was given.
        major: u32,
    },
    /// The handle belongs to a qdisc elsewhere on the port.
    #[error(
        "Cannot move an existing qdisc to a different parent. {handle} is at {at}: delete it there first, or choose another handle."
    )]
    CannotMove {
        /// The handle that was asked for.
        handle: Handle,
        /// The place of its qdisc.
        at: Parent,
    },
    /// `change` if there is no qdisc to change.
    #[error(
        "Qdisc not found. To create specify NLM_F_CREATE flag. Nothing was set here: use add or replace."
    )]
    NothingToChange,
    /// No qdisc has the handle that was given.
    #[error("Specified qdisc not found. No qdisc here is {0}: see show.")]
    NoSuchQdisc(Handle),
    /// Neither a place nor a handle was given.
    #[error("Handle cannot be zero. Say where: root, or parent CLASSID.")]
    NoPlace,
    /// The kind differs from that of the qdisc in that place.
    #[error(
        "Invalid qdisc name: must match existing qdisc. {handle} is a {present}: for another kind, give another handle or none."
    )]
    OtherKind {
        /// The handle of the qdisc there.
        handle: Handle,
        /// Its kind.
        present: &'static str,
    },
    /// The kind given with `del` differs from that of the qdisc in that place.
    #[error("Invalid qdisc name: must match existing qdisc. The one there is a {present}.")]
    OtherKindThere {
        /// The kind of the qdisc there.
        present: &'static str,
    },
    /// An unknown kind, or none.
    #[error(
        "Specified qdisc kind is unknown. {}Known are {KINDS}.",
        .0.as_ref().map_or(String::new(), |name| format!("There is no \"{name}\". "))
    )]
    UnknownKind(Option<String>),
    /// The qdisc named as parent does not exist.
    #[error("Failed to find specified qdisc. There is no parent {major:x}: here; see show.")]
    NoParent {
        /// The parent's major number.
        major: u32,
    },
    /// The parent has no classes.
    #[error(
        "Parent qdisc is not classful. {handle} is a {kind}: only tbf, htb, hfsc, prio, drr, ets and mq take a child."
    )]
    NotClassful {
        /// The qdisc named as parent.
        handle: Handle,
        /// Its kind.
        kind: &'static str,
    },
    /// The parent has no such class.
    #[error("Specified class not found. {0}")]
    NoClass(String),
    /// A parent that is reserved for `ingress` and `clsact`.
    #[error(
        "Specified parent ID is reserved for ingress and clsact Qdiscs. Narrows shapes what leaves a port: use root."
    )]
    Ingress,
    /// `noqueue` below another qdisc.
    #[error("Cannot assign noqueue to a class. Delete the child instead: without one, {0}.")]
    NoqueueInClass(&'static str),
    /// `mq` elsewhere than at the root.
    #[error("mq can only be at the root: it has a child for each queue of the port.")]
    MqNotRoot,
    /// `mq` on a port with one queue.
    #[error("mq needs a port with several queues, this one has one: put the child at root.")]
    MqNeedsQueues,
    /// `cake_mq` elsewhere than at the root.
    #[error(
        "cake_mq can only be at the root: it has a cake for each queue of the port. Use cake here."
    )]
    CakeMqNotRoot,
    /// `cake_mq` on a port with one queue.
    #[error("cake_mq needs a port with several queues, this one has one: use cake.")]
    CakeMqNeedsQueues,
    /// Another qdisc, or other parameters, for one queue of a `cake_mq`.
    #[error(
        "can't replace cake_mq sub-qdiscs. All its queues have the same parameters: change the root, or use mq with a qdisc for each queue."
    )]
    CakeMqChild,
    /// `del` of a queue of a `cake_mq`.
    #[error(
        "Cannot delete qdisc with handle of zero. The cakes of a cake_mq cannot be deleted one by one: delete the root."
    )]
    CakeMqDelete,
    /// `autorate-ingress` on several queues: none of them sees all arrivals.
    #[error(
        "autorate-ingress: the queues of this port share the rate of a {0}, and each sees only a part of the arrivals. Give a bandwidth, or use a port with one queue."
    )]
    AutorateShared(&'static str),
    /// All handles are taken.
    #[error("No handle is free: give one with handle H:.")]
    NoHandleLeft,
    /// The tree would be deeper than a worker's stack allows.
    #[error("Qdiscs can nest at most {} deep.", crate::MAX_DEPTH)]
    TooDeep,
    /// `del` of a default qdisc.
    #[error(
        "Cannot delete qdisc with handle of zero. This is the default qdisc; there is nothing to delete."
    )]
    Default,
    /// `del` with another handle than that of the qdisc in that place.
    #[error("Invalid handle. The qdisc there is {0}.")]
    OtherHandle(Handle),
    /// `del` with an unknown handle.
    #[error("Failed to find qdisc with specified handle. See show.")]
    NoSuchHandle,
    /// `del` with an unknown parent.
    #[error("Failed to find qdisc with specified classid. There is no {major:x}: here: see show.")]
    NoSuchParent {
        /// The parent's major number.
        major: u32,
    },
    /// `del` with a handle but no place.
    #[error("Classid cannot be zero. Say where it is, too: {0}.")]
    NoClassid(Parent),
    /// Parameters of a token bucket filter that no packet could pass.
    #[error("tbf: {0}")]
    Tbf(String),
    /// Invalid parameters of a leaf.
    #[error("{kind}: {why}")]
    Leaf {
        /// The kind of the qdisc.
        kind: &'static str,
        /// What is wrong, and what to give instead.
        why: String,
    },
    /// A size table where none is possible.
    #[error("stab: {0}")]
    Stab(String),
    /// Invalid parameters of a fair queue.
    #[error("fq: {0}")]
    Fq(String),
    /// `coordination` for a qdisc that shares its rate with no other queue.
    #[error(
        "coordination: a qdisc under mq belongs to one queue and does not share its rate. Put it at the root to limit the port."
    )]
    CoordinationUnderMq,
    /// A pacing qdisc below a `tbf`, where both write departure times.
    #[error(
        "coordination edt: both {above} and the {kind} below it set departure times, and a packet can have only one. Give {above} coordination fair, equal or lock."
    )]
    StampedTwice {
        /// The `tbf`.
        above: Handle,
        /// The kind of the qdisc below it.
        kind: &'static str,
    },
    /// Queue management on a qdisc that keeps packets of different flows apart.
    #[error(
        "codel: departure times are set at release; apart hosts and safeguard need them on arrival. Give apart flows nosafeguard, or nocodel."
    )]
    CodelApart,
    /// Queue management on a qdisc whose packets have a second rate.
    #[error(
        "codel: departure times are set at release; hostrate and flowrate need them on arrival. Give hostrate 0 or flowrate 0, or nocodel."
    )]
    CodelBeside,
    /// A second rate for what is a flow.
    #[error(
        "{}", if *.are_hosts {
            "hostrate: with hosts, maxrate is the rate of each destination. Give maxrate, or flowrate for each flow to it."
        } else {
            "flowrate: with flows, maxrate is the rate of each flow. Give maxrate, or hostrate for each destination."
        }
    )]
    RatedTwice {
        /// Whether flows are hosts.
        are_hosts: bool,
    },
    /// A target above its interval.
    #[error(
        "codel: target {target} is more than interval {interval}. Give a target of a twentieth of the interval."
    )]
    CodelTarget {
        /// `target`
        target: Nanos,
        /// `interval`
        interval: Nanos,
    },
    /// A port without queues.
    #[error("The port has no queue to put a qdisc on.")]
    NoQueues,
}

impl PolicyError {
    /// What `tc` says of the kernel's error number, where scripts look for it: `EEXIST` if
    /// something was to be added that is there already, `ENOENT` if it is not there.
    pub fn answer(&self) -> Option<&'static str> {
        match self {
            Self::Exists { .. }
            | Self::ClassExists(_)
            | Self::FilterExists
            | Self::ActionExists => Some("File exists"),
            Self::NoSuchHandle | Self::NoSuchParent { .. } | Self::NoSuchClass(_) => {
                Some("No such file or directory")
            }
            _ => None,
        }
    }

    /// What `tc` exits with when the kernel refuses.
    pub const EXIT_CODE: i32 = 2;
}
