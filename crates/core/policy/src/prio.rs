//! `prio`: strict bands; the lowest is served first.
//!
//! As in the kernel (`net/sched/sch_prio.c`). Difference: bands to which filters assign packets
//! cannot be removed.
//!
//! `pfifo_fast` is a `prio` with three bands that cannot be changed, and whose classes nobody sees
//! (`net/sched/sch_generic.c`).

use crate::assignments::Assignments;
use crate::classful::Classful;
use crate::kind::{Classes, Rules, Site};
use crate::plan::SharedLimit;
use crate::{Params, PolicyError};
use narrows_classify::{Blocks, Otherwise};
use narrows_qdisc::Config;
use narrows_qdisc::bands::{self, Class, Discipline};

/// The band for each priority, counted from 0 (`TC_PRIO_MAX`).
pub type Priomap = [u8; 16];

/// The qdisc.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prio {
    /// Its parameters.
    pub params: PrioParams,
    leaf_limit: u32,
    /// Whether it is a `pfifo_fast`.
    is_fast: bool,
    pub(crate) filters: Assignments,
}

/// The parameters of a `prio`, as `tc` sends them: all at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrioParams {
    /// The number of bands: 2 to 16.
    pub bands: u16,
    /// The band of packets that no filter matches.
    pub priomap: Priomap,
}

impl Default for PrioParams {
    fn default() -> Self {
        Self { bands: 3, priomap: [1, 2, 2, 2, 1, 2, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1] }
    }
}

impl PrioParams {
    /// The allowed number of bands (`TCQ_PRIO_BANDS`).
    const BANDS: std::ops::RangeInclusive<u16> = 2..=16;

    fn check(&self) -> Result<(), PolicyError> {
        if !Self::BANDS.contains(&self.bands) {
            return Err(PolicyError::Prio("bands are 2 to 16."));
        }
        if self.priomap.iter().any(|band| u16::from(*band) >= self.bands) {
            return Err(PolicyError::Prio(
                "the priomap names a band that is not there: give all 16 elements, below bands.",
            ));
        }
        Ok(())
    }
}

impl Prio {
    pub(crate) fn new(site: &Site<'_>) -> Self {
        let leaf_limit = site.facts.tx_queue_len;
        let (params, filters) = (PrioParams::default(), Assignments::default());
        Self { params, leaf_limit, is_fast: false, filters }
    }

    /// A `pfifo_fast`.
    pub(crate) fn fast(site: &Site<'_>) -> Self {
        Self { is_fast: true, ..Self::new(site) }
    }

    /// Whether it is a `pfifo_fast`.
    pub fn is_fast(&self) -> bool {
        self.is_fast
    }
}

/// The rule for packets that no filter matches.
pub(crate) fn by_priority(priomap: &Priomap) -> Otherwise {
    Otherwise::Priority(priomap.map(|band| u32::from(band) + 1))
}

impl Classful for Prio {
    fn has_class(&self, minor: u32) -> bool {
        (1..=u32::from(self.params.bands)).contains(&minor)
    }

    fn leaves(&self) -> Vec<u32> {
        (1..=u32::from(self.params.bands)).collect()
    }

    fn leaf_limit(&self) -> u32 {
        self.leaf_limit
    }

    fn filters(&self) -> &Blocks {
        self.filters.blocks()
    }

    fn otherwise(&self) -> Otherwise {
        by_priority(&self.params.priomap)
    }
}

impl Rules for Prio {
    fn name(&self) -> &'static str {
        if self.is_fast { "pfifo_fast" } else { "prio" }
    }

    fn classes(&self) -> Classes {
        if self.is_fast { Classes::Hidden } else { Classes::Bands }
    }

    fn change(&mut self, params: &Params, _: &Site<'_>) -> Result<(), PolicyError> {
        let Params::Prio(params) = params else { return Ok(()) };
        params.check()?;
        self.params = *params;
        Ok(())
    }

    fn plan(&self, _: usize) -> (Config, Option<SharedLimit>) {
        let classes = (1..=self.params.bands).map(|id| Class { id, quantum: None }).collect();
        let otherwise = Some(u16::from(self.params.priomap[0]) + 1);
        let discipline = Discipline::Prio;
        (Config::Bands(bands::Config { discipline, classes, otherwise }), None)
    }
}
