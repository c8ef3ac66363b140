//! `ets`: strict bands, and after them bands that take turns.
//!
//! As in the kernel (`net/sched/sch_ets.c`). Difference: bands to which filters assign packets
//! cannot be removed.

use crate::assignments::Assignments;
use crate::classful::{Classful, MINOR_MAX};
use crate::edit::Changed;
use crate::htb::number;
use crate::kind::{Classes, Rules, Site};
use crate::plan::SharedLimit;
use crate::prio::{Priomap, by_priority};
use crate::{ClassEdit, ClassParams, Handle, Params, PolicyError, Verb};
use narrows_classify::{Blocks, Otherwise};
use narrows_qdisc::Config;
use narrows_qdisc::bands::{self, Class, Discipline, QUANTUM_MAX, QUANTUM_MIN};

/// The most bands (`TCQ_ETS_MAX_BANDS`).
const BANDS_MAX: u16 = 16;

/// The qdisc.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ets {
    /// The number of strict bands; the others take turns.
    pub strict: u16,
    /// The quantum of each of the others, in bytes.
    pub quanta: Vec<u32>,
    /// The band of packets that no filter matches.
    pub priomap: Priomap,
    leaf_limit: u32,
    pub(crate) filters: Assignments,
}

/// The options of a command for an `ets`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EtsOptions {
    /// The number of bands.
    pub bands: u16,
    /// The number of strict bands.
    pub strict: u16,
    /// The quantum of each other band, in bytes. Missing entries default to a full frame.
    pub quanta: Vec<u32>,
    /// The bands of the first priorities. All further priorities go to the last band.
    pub priomap: Vec<u8>,
}

impl Ets {
    pub(crate) fn new(site: &Site<'_>) -> Self {
        let leaf_limit = site.facts.tx_queue_len;
        let filters = Assignments::default();
        Self { strict: 0, quanta: Vec::new(), priomap: [0; 16], leaf_limit, filters }
    }

    /// The number of bands.
    pub fn bands(&self) -> u16 {
        self.strict + self.quanta.len() as u16
    }

    /// The quantum of the class `minor` in bytes, if it takes turns.
    pub fn quantum(&self, minor: u32) -> Option<u32> {
        let place = minor.checked_sub(u32::from(self.strict) + 1)?;
        self.quanta.get(usize::try_from(place).ok()?).copied()
    }

    /// Applies `edit` to the classes; `handle` is the qdisc's.
    pub(crate) fn edit(
        &mut self,
        handle: Handle,
        edit: &ClassEdit,
    ) -> Result<Changed, PolicyError> {
        let refuse = |why: &str| Err(PolicyError::Ets(why.to_owned()));
        let id = number(handle, edit.class, MINOR_MAX).map_err(PolicyError::Ets)?;
        let is_there = self.has_class(id.minor);
        match edit.verb {
            Verb::Change | Verb::Replace if is_there => {}
            Verb::Change => return Err(PolicyError::NoSuchClass(id)),
            Verb::Add if is_there => return Err(PolicyError::ClassExists(id)),
            _ => {
                return refuse(
                    "Fine-grained class addition and removal is not supported: change the qdisc's \
                     bands.",
                );
            }
        }
        let quantum = match &edit.params {
            Some(ClassParams::Ets { quantum }) => *quantum,
            Some(params) => {
                let given = params.kind_name();
                return Err(PolicyError::OtherClassKind { handle, present: "ets", given });
            }
            None => None,
        };
        let Some(quantum) = quantum else { return Ok(Changed::default()) };
        let Some(place) = id.minor.checked_sub(u32::from(self.strict) + 1) else {
            return refuse(
                "Strict bands do not have a configurable quantum: take it out of strict first.",
            );
        };
        self.quanta[place as usize] = quantum.clamp(QUANTUM_MIN, QUANTUM_MAX);
        Ok(Changed::default())
    }
}

impl Classful for Ets {
    fn has_class(&self, minor: u32) -> bool {
        (1..=u32::from(self.bands())).contains(&minor)
    }

    fn leaves(&self) -> Vec<u32> {
        (1..=u32::from(self.bands())).collect()
    }

    fn leaf_limit(&self) -> u32 {
        self.leaf_limit
    }

    fn filters(&self) -> &Blocks {
        self.filters.blocks()
    }

    fn otherwise(&self) -> Otherwise {
        by_priority(&self.priomap)
    }
}

impl Rules for Ets {
    fn name(&self) -> &'static str {
        "ets"
    }

    fn classes(&self) -> Classes {
        Classes::Bands
    }

    fn change(&mut self, params: &Params, site: &Site<'_>) -> Result<(), PolicyError> {
        let Params::Ets(options) = params else { return Ok(()) };
        let refuse = |why: &str| Err(PolicyError::Ets(why.to_owned()));
        let EtsOptions { bands, strict, quanta, priomap } = options;
        if !(1..=BANDS_MAX).contains(bands) {
            return refuse("Invalid number of bands: 1 to 16.");
        }
        if strict > bands {
            return refuse("Invalid number of strict bands: there are fewer bands.");
        }
        let shared = usize::from(bands - strict);
        if quanta.len() > shared {
            return refuse("ETS quanta has more values than bands behind the strict ones.");
        }
        if priomap.iter().any(|band| u16::from(*band) >= *bands) {
            return refuse("Invalid band number in ETS priomap: they are below bands.");
        }
        let frame = site.facts.frame();
        let given = quanta.iter().copied().chain(std::iter::repeat(frame));
        let clamped = given.map(|quantum| quantum.clamp(QUANTUM_MIN, QUANTUM_MAX));
        self.strict = *strict;
        self.quanta = clamped.take(shared).collect();
        self.priomap = [(bands - 1) as u8; 16];
        for (to, from) in self.priomap.iter_mut().zip(priomap) {
            *to = *from;
        }
        Ok(())
    }

    fn plan(&self, _: usize) -> (Config, Option<SharedLimit>) {
        let class = |id| Class { id, quantum: self.quantum(u32::from(id)) };
        let classes = (1..=self.bands()).map(class).collect();
        let otherwise = Some(u16::from(self.priomap[0]) + 1);
        let discipline = Discipline::Ets;
        (Config::Bands(bands::Config { discipline, classes, otherwise }), None)
    }
}
