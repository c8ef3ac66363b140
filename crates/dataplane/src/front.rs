//! What stands in front of a plane: filters in the driver, and the sets that they look up.
//!
//! The instance has the sets, whatever plane there is and while there is none. A plane has a
//! [`PortFront`] for each port: it puts a program of the port's filters in front of its own and
//! counts what that does. What is dropped in front is received and dropped like anything else: the
//! books know it by the reason `filter`. Programs count by CPU. So does the XDP plane; where queues
//! count, it is told of the port's first one.
//!
//! *Non-goals.* Which filters these are (`narrows_policy`), how a set is looked up (`narrows_bpf`).

use narrows_bpf::tree::TreeError;
use narrows_bpf::{Counted, Front, FrontMaps, FrontPort, LoadError, SetTables, SteerError, Term};
use narrows_classify::{ActionId, ActionStats};
use narrows_policy::Policy;
use narrows_sets::{Host, Key, Named};
use std::collections::{BTreeMap, BTreeSet};

/// Filters cannot run in the driver.
#[derive(Debug, thiserror::Error)]
pub enum FrontError {
    /// They name a set that is not there.
    #[error("there is no set \"{0}\": `narrows set create {0} hash:net`")]
    NoSet(String),
    /// They look it up by other words than it takes.
    #[error("the set \"{set}\" is a {shape}: ask for ipset({set} {words})")]
    Words {
        /// The set.
        set: String,
        /// Its type.
        shape: &'static str,
        /// What it takes.
        words: &'static str,
    },
    /// The kernel does not load them.
    #[error("the kernel does not load the filters that run in the driver: {0}")]
    Load(LoadError),
    /// They cannot be put in front of the plane's program.
    #[error(transparent)]
    Steer(#[from] SteerError),
    /// The same of the XDP plane's.
    #[error(transparent)]
    Tree(#[from] TreeError),
}

mod terms;

pub(crate) use terms::{Terms, resolve};

/// What is to run in front of the plane at each port, and where it looks up.
pub(crate) struct Fronts<'a> {
    pub(crate) terms: [Terms; 2],
    /// There where there are sets.
    pub(crate) tables: Option<&'a SetTables>,
}

/// What runs in front of the plane at a port.
#[derive(Default)]
pub(crate) struct PortFront {
    terms: Terms,
    maps: Option<FrontMaps>,
    /// By action: its counter, and what that said before.
    seats: BTreeMap<ActionId, Seat>,
}

#[derive(Clone, Copy)]
struct Seat {
    counter: u8,
    before: Counted,
}

impl PortFront {
    /// Has `put` put `terms` in front of the plane's program at `port`, or nothing where there are
    /// none. No frame goes without the ones or the others.
    ///
    /// # Errors
    /// Where the kernel refuses; all is as it was then.
    pub(crate) fn set<E: Into<FrontError>>(
        &mut self,
        terms: &Terms,
        tables: Option<&SetTables>,
        port: FrontPort<'_>,
        put: impl FnOnce(Option<Front>) -> Result<(), E>,
    ) -> Result<(), FrontError> {
        if self.terms == *terms {
            return Ok(());
        }
        let seats = if terms.is_empty() {
            put(None).map_err(Into::into)?;
            BTreeMap::new()
        } else {
            let maps = match self.maps.take() {
                Some(maps) => maps,
                None => FrontMaps::new().map_err(FrontError::Load)?,
            };
            let maps = self.maps.insert(maps);
            let seats = seats(terms, &self.seats, maps);
            let counted = |id: &ActionId| seats.get(id).map(|seat| seat.counter);
            let counted: Vec<Term> = terms.iter().map(|term| term.counted_by(counted)).collect();
            let front = Front::load(port, &counted, tables, maps);
            put(Some(front.map_err(FrontError::Load)?)).map_err(Into::into)?;
            seats
        };
        self.seats = seats;
        self.terms.clone_from(terms);
        Ok(())
    }

    /// All that was dropped since the ports were joined, by CPU.
    pub(crate) fn dropped(&self) -> Vec<Counted> {
        self.maps.as_ref().map(FrontMaps::dropped).unwrap_or_default()
    }

    /// What each action has done.
    pub(crate) fn action_stats(&self) -> impl Iterator<Item = (ActionId, ActionStats)> {
        self.maps.iter().flat_map(|maps| {
            self.seats.iter().map(move |(id, Seat { counter, before })| {
                let now = maps.get(*counter);
                let stats = ActionStats {
                    packets: now.packets - before.packets,
                    bytes: now.bytes - before.bytes,
                    drops: now.drops - before.drops,
                    overlimits: now.overlimits - before.overlimits,
                    blocked: now.blocked - before.blocked,
                    newcomers: now.newcomers - before.newcomers,
                };
                (*id, stats)
            })
        })
    }
}

/// A counter for each action of `terms`: the one that it has in `present`, or a free one.
fn seats(
    terms: &Terms,
    present: &BTreeMap<ActionId, Seat>,
    maps: &FrontMaps,
) -> BTreeMap<ActionId, Seat> {
    let counting: BTreeSet<ActionId> = terms.iter().flat_map(|term| term.counting()).collect();
    let kept = present.iter().filter(|(id, _)| counting.contains(id));
    let mut seats: BTreeMap<ActionId, Seat> = kept.map(|(id, seat)| (*id, *seat)).collect();
    let mut free: BTreeSet<u8> = (0..narrows_bpf::COUNTERS_MAX as u8).collect();
    for seat in seats.values() {
        free.remove(&seat.counter);
    }
    for id in counting {
        // There are as many as steps.
        if !seats.contains_key(&id)
            && let Some(counter) = free.pop_first()
        {
            seats.insert(id, Seat { counter, before: maps.get(counter) });
        }
    }
    seats
}

/// What is known of sets beside themselves.
pub(crate) struct Uses<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) tables: Option<&'a SetTables>,
}

impl Host for Uses<'_> {
    fn references(&self, name: &str) -> usize {
        let sets = self.policy.ports().flat_map(|(_, port)| port.sets());
        sets.filter(|set| **set == *name).count()
    }

    fn counted(&self, named: &Named, key: &Key) -> (u64, u64) {
        let counted = self.tables.and_then(|tables| tables.counted(named.contents, key));
        counted.unwrap_or_else(|| named.set.initial(key))
    }
}

#[cfg(test)]
mod tests;
