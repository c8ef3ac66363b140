//! What stands in front of a plane: filters in the driver, and the sets that they look up.
//!
//! The instance has the sets, whatever plane there is and while there is none. A plane has a
//! [`PortFront`] for each port: it puts a program of the port's filters in front of its own and
//! counts what that does. What is dropped in front is received and dropped like anything else: the
//! books know it by the reason `filter`. As programs run wherever a frame comes in, it is counted at
//! the port's first queue.
//!
//! *Non-goals.* Which filters these are (`narrows_policy`), how a set is looked up (`narrows_bpf`).

use narrows_bpf::tree::TreeError;
use narrows_bpf::{
    By, Counted, Front, FrontCounters, FrontPort, LoadError, LookUp, SetTables, SteerError, Term,
};
use narrows_classify::{ActionId, ActionStats, End};
use narrows_policy::{FrontTerm, Policy};
use narrows_sets::{Host, Key, Named, Sets};
use std::collections::BTreeMap;

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
    #[error("the kernel does not load the filters that look sets up: {0}")]
    Load(LoadError),
    /// They cannot be put in front of the plane's program.
    #[error(transparent)]
    Steer(#[from] SteerError),
    /// The same of the XDP plane's.
    #[error(transparent)]
    Tree(#[from] TreeError),
}

/// Terms whose sets are known by their numbers, each with the action that counts it.
pub(crate) type Terms = Vec<(Term, Option<ActionId>)>;

/// `front` as programs know it.
///
/// # Errors
/// It names sets that are not there, or are something else.
pub(crate) fn resolve(front: &[FrontTerm], sets: &Sets) -> Result<Terms, FrontError> {
    let resolve = |term: &FrontTerm| {
        let FrontTerm { ether_type, look_ups, drops, action } = term;
        let mut resolved = Vec::with_capacity(look_ups.len());
        for look_up in look_ups {
            let Some(named) = sets.get(&look_up.set) else {
                return Err(FrontError::NoSet(look_up.set.to_string()));
            };
            let shape = named.set.kind().shape;
            if 1 + usize::from(look_up.port.is_some()) != shape.dimensions() {
                return Err(FrontError::Words {
                    set: look_up.set.to_string(),
                    shape: shape.name(),
                    words: if shape.dimensions() == 2 { "src,dst" } else { "src" },
                });
            }
            resolved.push(LookUp {
                set: named.slot as u16,
                address: by(look_up.address),
                port: look_up.port.map(by),
                is_negated: look_up.is_negated,
            });
        }
        let (ether_type, drops) = (*ether_type, *drops);
        Ok((Term { ether_type, look_ups: resolved, drops, counter: None }, *action))
    };
    front.iter().map(resolve).collect()
}

fn by(end: End) -> By {
    match end {
        End::Source => By::Source,
        End::Destination => By::Destination,
    }
}

/// What is to run in front of the plane at each port, and where it looks up.
pub(crate) struct Fronts<'a> {
    pub(crate) terms: [Terms; 2],
    /// There where any term looks something up.
    pub(crate) tables: Option<&'a SetTables>,
}

/// What runs in front of the plane at a port.
#[derive(Default)]
pub(crate) struct PortFront {
    terms: Terms,
    counters: Option<FrontCounters>,
    /// By action: its counter, what that said before, and whether the action drops.
    seats: BTreeMap<ActionId, Seat>,
}

#[derive(Clone, Copy)]
struct Seat {
    counter: u8,
    before: Counted,
    drops: bool,
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
        port: FrontPort,
        put: impl FnOnce(Option<Front>) -> Result<(), E>,
    ) -> Result<(), FrontError> {
        if self.terms == *terms {
            return Ok(());
        }
        let seats = match (tables, terms.is_empty()) {
            (Some(tables), false) => {
                let counters = match self.counters.take() {
                    Some(counters) => counters,
                    None => FrontCounters::new().map_err(FrontError::Load)?,
                };
                let counters = self.counters.insert(counters);
                let seats = seats(terms, &self.seats, counters);
                let counted = terms.iter().map(|(term, action)| {
                    let seat = action.and_then(|action| seats.get(&action));
                    Term { counter: seat.map(|seat| seat.counter), ..term.clone() }
                });
                let counted: Vec<Term> = counted.collect();
                let front = Front::load(port, &counted, tables, counters);
                put(Some(front.map_err(FrontError::Load)?)).map_err(Into::into)?;
                seats
            }
            _ => {
                put(None).map_err(Into::into)?;
                BTreeMap::new()
            }
        };
        self.seats = seats;
        self.terms.clone_from(terms);
        Ok(())
    }

    /// All that was dropped since the ports were joined.
    pub(crate) fn dropped(&self) -> Counted {
        self.counters.as_ref().map(FrontCounters::dropped).unwrap_or_default()
    }

    /// What each action has done.
    pub(crate) fn action_stats(&self) -> impl Iterator<Item = (ActionId, ActionStats)> {
        let counters = self.counters.iter();
        counters.flat_map(|counters| {
            self.seats.iter().map(move |(id, seat)| {
                let now = counters.get(seat.counter);
                let packets = now.packets - seat.before.packets;
                let bytes = now.bytes - seat.before.bytes;
                let drops = if seat.drops { packets } else { 0 };
                (*id, ActionStats { packets, bytes, drops, overlimits: 0 })
            })
        })
    }
}

/// A counter for each action of `terms`: the one that it has in `present`, or a free one.
fn seats(
    terms: &Terms,
    present: &BTreeMap<ActionId, Seat>,
    counters: &FrontCounters,
) -> BTreeMap<ActionId, Seat> {
    let mut seats = BTreeMap::new();
    let named = || terms.iter().filter_map(|(term, action)| Some(((*action)?, term.drops)));
    for (action, drops) in named() {
        if let Some(seat) = present.get(&action) {
            seats.insert(action, Seat { drops, ..*seat });
        }
    }
    for (action, drops) in named() {
        let used = |counter: &u8| seats.values().any(|seat: &Seat| seat.counter == *counter);
        // There are as many as terms.
        if !seats.contains_key(&action)
            && let Some(counter) = (0..narrows_bpf::COUNTERS_MAX as u8).find(|one| !used(one))
        {
            seats.insert(action, Seat { counter, before: counters.get(counter), drops });
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
