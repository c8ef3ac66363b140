//! The front of a plane: filters in the driver, and the sets that they look up.
//!
//! The instance owns the sets, with any plane and without one. A plane has a [`PortFront`] for each
//! port: it puts a program of the port's filters in front of its own and counts what that does.
//! Packets dropped in front count as received, and as dropped with the reason `filter`. The
//! programs count by CPU. So does the XDP plane; a plane that counts by queue counts these packets
//! at the port's first queue. On the XDP plane, where programs go on while another process takes
//! over, that one's count in the same place.
//!
//! *Non-goals.* Which filters these are (`narrows_policy`), how a set is looked up (`narrows_bpf`).

use narrows_bpf::tree::TreeError;
use narrows_bpf::{
    Counted, Front, FrontMaps, FrontPort, LoadError, SetTables, SteerError, Term, UserFront,
};
use narrows_classify::{ActionId, ActionStats};
use narrows_escape::shell;
use narrows_forwarding::PerPort;
use narrows_policy::Policy;
use narrows_sets::{Host, Key, Named, RateBoard, RateReader};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Filters cannot run in the driver.
#[derive(Debug, thiserror::Error)]
pub enum FrontError {
    /// They name a missing set.
    #[error("there is no set \"{0}\": `narrows set create {word} hash:net`", word = shell(.0))]
    NoSet(String),
    /// Their look-up does not fit the set's type.
    #[error("the set \"{set}\" is a {shape}: ask for ipset({set} {words})")]
    Words {
        /// The set.
        set: String,
        /// Its type.
        shape: &'static str,
        /// Its memory.
        words: &'static str,
    },
    /// They give flows the rates of members that have none.
    #[error(
        "the members of the set \"{0}\" have no rates: make one with \
         `narrows set create NAME hash:net rate` and swap it"
    )]
    NoRates(String),
    /// The kernel does not load them.
    #[error("the kernel does not load the filters that run in the driver: {0}")]
    Load(LoadError),
    /// They cannot be put in front of the plane's program.
    #[error(transparent)]
    Steer(#[from] SteerError),
    /// They cannot be put in front of the XDP plane's program.
    #[error(transparent)]
    Tree(#[from] TreeError),
}

mod terms;

pub(crate) use terms::{Terms, resolve};

/// The filters in front of the plane at each port, and the tables for their look-ups.
pub(crate) struct Fronts<'a> {
    pub(crate) terms: PerPort<Terms>,
    /// Present if there are sets.
    pub(crate) tables: Option<&'a SetTables>,
    /// A user's own program, in front of them.
    pub(crate) users: Option<&'a UserFront>,
    /// The rates of members of sets, for filters behind the driver.
    pub(crate) rates: &'a Arc<RateBoard>,
}

impl Fronts<'_> {
    /// A worker's view of these rates.
    pub(crate) fn member_rates(&self) -> Box<RateReader> {
        Box::new(RateReader::new(Arc::clone(self.rates)))
    }
}

/// What runs in front of the plane at a port.
#[derive(Default)]
pub(crate) struct PortFront {
    terms: Terms,
    maps: Option<FrontMaps>,
    /// Where another process counts drops, until programs go on there.
    inherited: Option<OwnedFd>,
    /// By action: its counter, and the counter's previous value.
    counters: BTreeMap<ActionId, ActionCounter>,
}

#[derive(Clone, Copy)]
struct ActionCounter {
    number: u8,
    before: Counted,
}

impl PortFront {
    /// One that goes on counting drops where another process's programs do.
    pub(crate) fn counting_on(inherited: Option<OwnedFd>) -> Self {
        Self { inherited, ..Self::default() }
    }

    /// Where its programs count drops, for another process. None if there are no programs.
    pub(crate) fn counts_dropped(&self) -> Option<BorrowedFd<'_>> {
        self.maps.as_ref().filter(|_| !self.terms.is_empty()).map(FrontMaps::counts_dropped)
    }

    /// Makes `put` replace the program in front of the plane at `port` by one for `terms`, or
    /// remove it if there are none. Each frame passes the old or the new filters.
    ///
    /// # Errors
    /// If the kernel refuses; all is as it was then.
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
        let counters = if terms.is_empty() {
            put(None).map_err(Into::into)?;
            BTreeMap::new()
        } else {
            let maps = match self.maps.take() {
                Some(maps) => maps,
                None => {
                    let inherited = self.inherited.take();
                    FrontMaps::counting_on(inherited).map_err(FrontError::Load)?
                }
            };
            let maps = self.maps.insert(maps);
            let counters = counters(terms, &self.counters, maps);
            let counted = |id: &ActionId| counters.get(id).map(|counter| counter.number);
            let counted: Vec<Term> = terms.iter().map(|term| term.counted_by(counted)).collect();
            let front = Front::load(port, &counted, tables, maps);
            put(Some(front.map_err(FrontError::Load)?)).map_err(Into::into)?;
            counters
        };
        self.counters = counters;
        self.terms.clone_from(terms);
        Ok(())
    }

    /// All drops since the ports were joined, by CPU.
    pub(crate) fn dropped(&self) -> Vec<Counted> {
        self.maps.as_ref().map(FrontMaps::dropped).unwrap_or_default()
    }

    /// The counters of each action.
    pub(crate) fn action_stats(&self) -> impl Iterator<Item = (ActionId, ActionStats)> {
        self.maps.iter().flat_map(|maps| {
            self.counters.iter().map(move |(id, ActionCounter { number, before })| {
                let now = maps.get(*number);
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

/// A counter for each action of `terms`: its counter in `present`, or a free one.
fn counters(
    terms: &Terms,
    present: &BTreeMap<ActionId, ActionCounter>,
    maps: &FrontMaps,
) -> BTreeMap<ActionId, ActionCounter> {
    let counting: BTreeSet<ActionId> = terms.iter().flat_map(|term| term.counting()).collect();
    let kept = present.iter().filter(|(id, _)| counting.contains(id));
    let mut counters: BTreeMap<ActionId, ActionCounter> =
        kept.map(|(id, counter)| (*id, *counter)).collect();
    let mut free: BTreeSet<u8> = (0..narrows_bpf::COUNTERS_MAX as u8).collect();
    for counter in counters.values() {
        free.remove(&counter.number);
    }
    for id in counting {
        // There are as many as steps.
        if !counters.contains_key(&id)
            && let Some(number) = free.pop_first()
        {
            counters.insert(id, ActionCounter { number, before: maps.get(number) });
        }
    }
    counters
}

/// The use of sets by filters.
pub(crate) struct Uses<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) tables: Option<&'a SetTables>,
}

impl Host for Uses<'_> {
    fn references(&self, name: &str) -> usize {
        let sets = self.policy.ports().flat_map(|(_, port)| port.sets());
        let rates = self.policy.rate_sets().filter(|set| set.as_str() == name);
        sets.filter(|set| **set == *name).count() + rates.count()
    }

    fn counted(&self, named: &Named, key: &Key) -> (u64, u64) {
        let counted = self.tables.and_then(|tables| tables.counted(named.contents, key));
        counted.unwrap_or_else(|| named.set.initial(key))
    }
}

#[cfg(test)]
mod tests;
