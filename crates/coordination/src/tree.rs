//! A tree of classes that all queues keep together.
//!
//! Each class has a rate that is assured and a ceiling that it never exceeds; what it does not use
//! it lends, by way of the classes above it (HTB's rules, `tc-htb(8)`). One class's flows land on
//! many queues, and it is still one class with one rate. No queue owns a class, and no lock is
//! taken: as with `fair` for one limit, exactness and fairness are two mechanisms that do not
//! depend on each other.
//!
//! *A ledger at every node, for the rate and for the ceiling* ([`ledger`]). A queue buys what it is
//! about to send, at its class and at every class above it; where one of them has too little,
//! nothing is bought at any. So the sum of no node exceeds its ceiling in any window by more than
//! its burst, whatever the queues believe of each other. What is bought is sent at once or given
//! back: nobody holds credit.
//!
//! *A race at every lender* ([`race`]). Who borrows in what proportion is said by virtual times:
//! one that the lender's sales move on, and one for each class that borrows from it. A class that
//! is two frames ahead leaves to one that waits and is not what would not be lost soon; so does one
//! of a worse priority. So nothing is lost, and no class has to know how many others there are or
//! on which cores. Queues that send for the same class run a race of their own, in the same way.
//!
//! *Cushions in HTB's order.* At a ceiling what is assured may take all credit; who borrows leaves
//! a part of it, and more where the lender stands further up. So an assured packet finds credit at
//! once, and between cores, too, what is not borrowed goes first.
//!
//! *Who waits says so.* A queue that is refused says at the lender until when it waits. Rights
//! differ only while somebody does: a class that is held up by its own ceiling, or wants less than
//! its share, slows nobody down, and the race goes on from where those are who do buy.
//!
//! Differences from the kernel's HTB: a ceiling holds for what is assured as well (there, children
//! whose rates add up to more than their parent's ceiling exceed it); a burst below [`LEAST_TIME`]
//! at the rate, or below [`LEAST_FRAMES`], counts as that; 16 levels instead of 8.
//!
//! *Non-goals.* Queues, packets and the order of classes on one queue: they are the qdisc's.
//!
//! Cost: a purchase takes two atomic updates for each class on the way to the root (one where rate
//! and ceiling are the same), two for each class up to the lender, and one for the queues. It is
//! made for as many packets as leave together, up to a quantum.
//!
//! Source: M. Devera, `sch_htb.c` and its theory; start-time fair queueing (P. Goyal, H. Vin, H.
//! Cheng, 1996) for the races; FlowValve (CoNEXT'21) for the idea of a tree without a lock.
//!
//! [`LEAST_TIME`]: terms::LEAST_TIME
//! [`LEAST_FRAMES`]: terms::LEAST_FRAMES

use crate::sync::{Mutex, lock};
use narrows_packet::Reading;
use narrows_qdisc::htb::{Class, ClassMeter, LeafClass, TreeMeter};
use narrows_qdisc::{Config, NodeId, Spec};
use node::Node;
use seat::Seat;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

mod ledger;
mod node;
mod race;
mod seat;
mod terms;

/// What waits below a leaf class.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Below {
    /// Its name.
    pub id: NodeId,
    /// Its kind and parameters.
    pub config: Config,
}

/// A class, and what waits below it.
struct Member {
    node: Arc<Node>,
    class: Class,
    below: Option<Below>,
}

/// The classes of a tree; see the module's documentation.
#[derive(Default)]
pub struct Tree {
    /// By their number. Locked when a class comes, goes or is first used by a queue.
    members: Mutex<HashMap<u32, Member>>,
}

impl Tree {
    /// One without classes.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Makes the classes what `classes` says, those above others before them. A class carries on,
    /// with its credit and its debt, where it is below the same classes as before.
    ///
    /// # Panics
    /// Where a parent is none of them: the policy sees to that.
    pub fn become_these(&self, classes: &BTreeMap<u32, (Class, Option<Below>)>) {
        let mut members = lock(&self.members);
        let mut before = std::mem::take(&mut *members);
        let depth = |id: &u32| {
            std::iter::successors(Some(*id), |id| {
                classes.get(id).and_then(|(class, _)| class.parent)
            })
            .count()
        };
        let mut order: Vec<&u32> = classes.keys().collect();
        order.sort_by_cached_key(|id| depth(id));
        for id in order {
            let Some((class, below)) = classes.get(id) else { continue };
            let above = |id| members.get(&id).unwrap_or_else(|| panic!("there is no class {id:x}"));
            let parent = class.parent.map(|id| Arc::clone(&above(id).node));
            let is_same = |node: &Node| match (&node.parent, &parent) {
                (Some(one), Some(other)) => Arc::ptr_eq(one, other),
                (one, other) => one.is_none() && other.is_none(),
            };
            let node = match before.remove(id) {
                Some(member) if is_same(&member.node) => {
                    member.node.terms.set(class);
                    member.node
                }
                _ => Arc::new(Node::new(class, parent)),
            };
            members.insert(*id, Member { node, class: *class, below: below.clone() });
        }
    }

    /// A queue's seat.
    pub fn seat(self: &Arc<Self>) -> Box<dyn TreeMeter> {
        Box::new(Queue { tree: Arc::clone(self) })
    }
}

struct Queue {
    tree: Arc<Tree>,
}

impl TreeMeter for Queue {
    fn leaf(&self, id: u32) -> Option<LeafClass> {
        let members = lock(&self.tree.members);
        let Member { class, below, .. } = members.get(&id)?;
        let Below { id, config } = below.clone()?;
        Some(LeafClass { class: *class, qdisc: Spec { id, ..Spec::new(config) } })
    }

    fn meter(&self, id: u32) -> Option<Box<dyn ClassMeter>> {
        let node = Arc::clone(&lock(&self.tree.members).get(&id)?.node);
        Some(Box::new(Seat::new(node)))
    }

    fn reading(&self) -> Reading {
        let members = lock(&self.tree.members);
        members
            .values()
            .filter_map(|member| member.below.as_ref())
            .fold(Reading::NOTHING, |reading, below| reading.and(below.config.reading()))
    }
}
