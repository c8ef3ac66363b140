//! Scenarios of boxes that share a limit: from a file with a table `[fleet]` to cases.

use super::error::{ScenarioError, Wrong};
use super::overridden::{self, at};
use super::paths::Override;
use super::quantity::{Quantity, Scale};
use super::{About, Runs};
use crate::fleet::{self, Case, Load, Row, Setup};
use narrows_fleet_world::{INTERVAL_MIN_NS, INTERVALS_PER_LEASE, LEASE_MAX_NS, Network};
use narrows_units::{Bytes, Nanos};
use serde::Deserialize;

/// Tables in which a key without a dot is looked for.
const USUAL_TABLES: [&str; 2] = ["fleet", "run"];

/// A scenario, read and complete.
#[derive(Clone, Debug)]
pub struct FleetScenario {
    /// Its description.
    pub about: About,
    /// The cases that run.
    pub setup: Setup,
}

/// A file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: String,
    source: Option<String>,
    fleet: FleetTable,
    case: Vec<CaseTable>,
    run: RunTable,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FleetTable {
    limit: Quantity,
    interval: Quantity,
    lease: Quantity,
    settle: Quantity,
    length: Quantity,
    /// Parts of a million.
    drift: Quantity,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseTable {
    name: String,
    boxes: Quantity,
    delay: Quantity,
    jitter: Option<Quantity>,
    /// Of a hundred messages.
    lost: Option<Quantity>,
    doubled: Option<Quantity>,
    late: Option<Quantity>,
    late_by: Option<Quantity>,
    load: String,
    every: Quantity,
    /// How many flows each box has, where the load is of flows.
    #[serde(default)]
    flows: Vec<Quantity>,
    /// Whether qdiscs count them; they do if it says nothing.
    counted: Option<bool>,
    faults: Option<Quantity>,
    histories: Quantity,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunTable {
    seed: Quantity,
}

impl FleetScenario {
    /// Reads the scenario `text`, which is called `name` in results, with `overrides`.
    ///
    /// # Errors
    /// The mistake, where it is, and what to write instead.
    pub fn read(name: &str, text: &str, overrides: &[Override]) -> Result<Self, ScenarioError> {
        overridden::read(name, text, overrides, &USUAL_TABLES, |file| scenario(name, file))
    }
}

impl Runs for FleetScenario {
    type Outcome = Row;

    fn about(&self) -> &About {
        &self.about
    }

    fn count(&self) -> usize {
        self.setup.cases.len()
    }

    fn run(&self, number: usize, tell: &mut dyn FnMut(f64)) -> Result<Row, String> {
        Ok(fleet::run(&self.setup, &self.setup.cases[number], tell))
    }
}

fn scenario(name: &str, file: File) -> Result<FleetScenario, Wrong> {
    let File { title, source, fleet, case, run } = file;
    let limit = fleet.limit.rate().map_err(at("fleet.limit"))?;
    // The reference of relative times: none here.
    let scale = Scale { limit, frame: Bytes(1500) };
    let bounded = |quantity: &Quantity, path: &str, least: Nanos, most: Nanos| {
        let time = quantity.time(scale).map_err(at(path))?;
        if time < least || time > most {
            return Err(Wrong::new(path, format!("write a time from {least} to {most}")));
        }
        Ok(time)
    };
    let ms = |ms: u64| Nanos(ms * 1_000_000);
    let interval = bounded(&fleet.interval, "fleet.interval", Nanos(INTERVAL_MIN_NS), ms(100))?;
    let least = Nanos(INTERVALS_PER_LEASE * interval.0);
    let lease = bounded(&fleet.lease, "fleet.lease", least, Nanos(LEASE_MAX_NS))?;
    let settle = bounded(&fleet.settle, "fleet.settle", ms(1), ms(600_000))?;
    let length = bounded(&fleet.length, "fleet.length", Nanos(settle.0 + 1), ms(3_600_000))?;
    let setup = Setup {
        limit,
        interval,
        lease,
        settle,
        length,
        drift_ppm: fleet.drift.number(0, 10_000).map_err(at("fleet.drift"))? as u32,
        seed: run.seed.number(0, u64::MAX).map_err(at("run.seed"))?,
        cases: case
            .iter()
            .map(|table| self::case(table, scale))
            .collect::<Result<_, _>>()
            .map_err(at("case"))?,
    };
    Ok(FleetScenario { about: About::new(name, title, source), setup })
}

fn case(table: &CaseTable, scale: Scale) -> Result<Case, String> {
    let percent = |quantity: &Option<Quantity>| match quantity {
        Some(quantity) => Ok::<_, String>(quantity.number(0, 100)? as f64 / 100.0),
        None => Ok(0.0),
    };
    let time = |quantity: &Option<Quantity>| match quantity {
        Some(quantity) => quantity.time(scale),
        None => Ok(Nanos::ZERO),
    };
    let every = table.every.time(scale)?;
    if every < Nanos(100_000_000) {
        return Err(format!("every {every}: write 100ms or more"));
    }
    let load = match table.load.as_str() {
        "moves" => Load::Moves { every },
        "wakes" => Load::Wakes { every },
        "redraws" => Load::Redraws { every },
        "flows" => Load::Flows { every },
        other => return Err(format!("load {other:?}: write moves, wakes, redraws or flows")),
    };
    let boxes = table.boxes.number(2, 1_000)? as usize;
    let flows = table.flows.iter().map(|flows| flows.number(1, 1_000).map(|flows| flows as u32));
    let flows: Vec<u32> = flows.collect::<Result<_, _>>()?;
    let wanted = if matches!(load, Load::Flows { .. }) { boxes } else { 0 };
    if flows.len() != wanted {
        return Err(match wanted {
            0 => "flows: leave them out, or write load = \"flows\"".to_owned(),
            _ => format!("flows: write {wanted} numbers, one for each box, as flows = [12, 4]"),
        });
    }
    let faults = table.faults.as_ref().map(|faults| faults.number(0, 10_000)).transpose()?;
    Ok(Case {
        name: table.name.clone(),
        boxes,
        network: Network {
            delay_ns: table.delay.time(scale)?.0,
            jitter_ns: time(&table.jitter)?.0,
            loss: percent(&table.lost)?,
            copies: percent(&table.doubled)?,
            late: percent(&table.late)?,
            late_ns: time(&table.late_by)?.0,
        },
        load,
        flows,
        counts_flows: table.counted.unwrap_or(true),
        faults: faults.unwrap_or(0) as u32,
        histories: table.histories.number(1, 1_000_000)? as u32,
    })
}
