//! Scenarios of a network of hosts: from a file with a table `[fabric]` to runs, one for each
//! structure.
//!
//! Keys are as in [`File`]; quantities are written as in other scenarios. There is no sweep: the
//! structures are what is compared, and everything else can be changed with `--set`.

use super::error::{ScenarioError, Wrong};
use super::overridden::{self, at};
use super::paths::Override;
use super::quantity::{Quantity, Scale};
use super::{About, Runs};
use crate::fabric::{
    self, Buffer, Late, Outcome, Pattern, Setup, Sizes, Structure, Topology, Traffic,
};
use narrows_units::{Bytes, Nanos, Rate};
use serde::Deserialize;

/// Tables in which a key without a dot is looked for.
const USUAL_TABLES: [&str; 3] = ["traffic", "fabric", "run"];
/// The most hosts and switches of a kind: links are numbered with 16 bits.
const MOST: u64 = 1000;

/// A scenario, read and complete.
#[derive(Clone, Debug)]
pub struct FabricScenario {
    /// Its description.
    pub about: About,
    /// The systems that are compared; the first is the reference.
    pub structures: Vec<Structure>,
    /// The network and its traffic.
    pub setup: Setup,
    /// The paper's values.
    pub paper: Vec<FabricPaper>,
}

/// The paper's values for batches.
#[derive(Clone, Debug, PartialEq)]
pub struct FabricPaper {
    /// With this structure.
    pub structure: Structure,
    /// At hosts of this pattern.
    pub pattern: Pattern,
    /// The ratio of packets per batch to those of the first structure.
    pub batch: f64,
}

/// A file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: String,
    source: Option<String>,
    structures: Vec<String>,
    fabric: FabricTable,
    traffic: TrafficTable,
    run: RunTable,
    #[serde(default)]
    paper: Vec<PaperTable>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FabricTable {
    leaves: Quantity,
    hosts_per_leaf: Quantity,
    spines: Quantity,
    downlink: Quantity,
    uplink: Quantity,
    buffer: Quantity,
    mark_above: Quantity,
    propagation: Quantity,
    host_delay: Quantity,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TrafficTable {
    flows: Quantity,
    load: Quantity,
    fanout: Quantity,
    /// Which part of the hosts fans out.
    fanning_out: f64,
    /// A size, and which part of all flows is no larger.
    sizes: Vec<(Quantity, f64)>,
    max_rate: Option<Quantity>,
    shared: bool,
    late: LateWord,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum LateWord {
    NextSlot,
    AtOnce,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunTable {
    seed: Quantity,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PaperTable {
    structure: String,
    pattern: PatternWord,
    batch: f64,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum PatternWord {
    FanOut,
    OneToOne,
}

impl From<PatternWord> for Pattern {
    fn from(word: PatternWord) -> Self {
        match word {
            PatternWord::FanOut => Self::Fanout,
            PatternWord::OneToOne => Self::OneToOne,
        }
    }
}

impl FabricScenario {
    /// Reads the scenario `text`, which is called `name` in results, with `overrides`.
    ///
    /// # Errors
    /// The mistake, where it is, and what to write instead.
    pub fn read(name: &str, text: &str, overrides: &[Override]) -> Result<Self, ScenarioError> {
        overridden::read(name, text, overrides, &USUAL_TABLES, |file| scenario(name, file))
    }
}

impl Runs for FabricScenario {
    type Outcome = Outcome;

    fn about(&self) -> &About {
        &self.about
    }

    fn count(&self) -> usize {
        self.structures.len()
    }

    fn run(&self, number: usize, tell: &mut dyn FnMut(f64)) -> Result<Outcome, String> {
        let Self { structures, setup, .. } = self;
        let structure = structures[number];
        fabric::run(setup, structure, tell)
            .map_err(|why| format!("{structure}, seed {}: {why}", setup.seed))
    }
}

fn scenario(name: &str, file: File) -> Result<FabricScenario, Wrong> {
    let File { title, source, structures, fabric, traffic, run, paper } = file;
    let topology = topology(&fabric)?;
    let line = topology.downlink;
    let structures = structures.iter().map(|words| structure(words, line));
    let structures = structures.collect::<Result<Vec<_>, _>>().map_err(at("structures"))?;
    if structures.is_empty() {
        return Err(Wrong::new("structures", "name at least one, as \"carousel 1us\""));
    }
    let traffic_at = |key: &str| format!("traffic.{key}");
    let setup = Setup {
        traffic: self::traffic(&traffic, &topology)
            .map_err(|(key, message)| Wrong::new(traffic_at(key), message))?,
        topology,
        late: match traffic.late {
            LateWord::NextSlot => Late::NextSlot,
            LateWord::AtOnce => Late::AtOnce,
        },
        seed: run.seed.number(0, u64::MAX).map_err(at("run.seed"))?,
    };
    let paper = paper.iter().map(|entry| {
        let structure = structure(&entry.structure, line)?;
        Ok(FabricPaper { structure, pattern: entry.pattern.into(), batch: entry.batch })
    });
    let paper = paper.collect::<Result<_, String>>().map_err(at("paper"))?;
    Ok(FabricScenario { about: About::new(name, title, source), structures, setup, paper })
}

fn structure(words: &str, line: Rate) -> Result<Structure, String> {
    let wrong = || {
        format!(
            "\"{words}\" is none: write \"carousel 1us\", \"flowbundler\" or \"flowbundler estimating\""
        )
    };
    match words.split_whitespace().collect::<Vec<_>>()[..] {
        ["flowbundler"] => Ok(Structure::FlowBundler),
        ["flowbundler", "estimating"] => Ok(Structure::Estimating),
        ["carousel", granularity] => {
            let granularity = Quantity(granularity.to_owned()).time(scale(line))?;
            if granularity == Nanos::ZERO {
                return Err(wrong());
            }
            Ok(Structure::Carousel(granularity))
        }
        _ => Err(wrong()),
    }
}

/// The reference of relative sizes and times.
fn scale(limit: Rate) -> Scale {
    Scale { limit, frame: Bytes(1500) }
}

fn topology(table: &FabricTable) -> Result<Topology, Wrong> {
    let downlink = table.downlink.rate().map_err(at("fabric.downlink"))?;
    let uplink = table.uplink.rate().map_err(at("fabric.uplink"))?;
    let number = |quantity: &Quantity, path: &str| {
        quantity.number(1, MOST).map(|number| number as u32).map_err(at(path))
    };
    let time = |quantity: &Quantity, path: &str| quantity.time(scale(downlink)).map_err(at(path));
    let size = |quantity: &Quantity, path: &str| quantity.size(scale(downlink)).map_err(at(path));
    let topology = Topology {
        leaves: number(&table.leaves, "fabric.leaves")?,
        hosts_per_leaf: number(&table.hosts_per_leaf, "fabric.hosts_per_leaf")?,
        spines: number(&table.spines, "fabric.spines")?,
        downlink,
        uplink,
        buffer: Buffer {
            limit: size(&table.buffer, "fabric.buffer")?,
            mark_above: size(&table.mark_above, "fabric.mark_above")?,
        },
        propagation: time(&table.propagation, "fabric.propagation")?,
        host_delay: time(&table.host_delay, "fabric.host_delay")?,
    };
    let links = 2 * (topology.hosts() + topology.leaves * topology.spines);
    if topology.hosts() < 2 || links > u32::from(u16::MAX) {
        let why =
            format!("{} hosts, {links} links: write 2 hosts to 65535 links", topology.hosts());
        return Err(Wrong::new("fabric.hosts_per_leaf", why));
    }
    Ok(topology)
}

/// Or the mistake, and its key.
fn traffic(table: &TrafficTable, topology: &Topology) -> Result<Traffic, (&'static str, String)> {
    let line = topology.downlink;
    let load = table.load.load(line).map_err(|why| ("load", why))?;
    let points = table.sizes.iter().map(|(size, part)| Ok((size.size(scale(line))?.0, *part)));
    let points = points.collect::<Result<Vec<_>, String>>().map_err(|why| ("sizes", why))?;
    if !(0.0..=1.0).contains(&table.fanning_out) {
        return Err(("fanning_out", "write a part of the hosts, from 0 to 1".to_owned()));
    }
    let others = u64::from(topology.hosts() - 1);
    Ok(Traffic {
        flows: table.flows.number(1, 10_000_000).map_err(|why| ("flows", why))? as u32,
        load: load.bits_per_sec() as f64 / line.bits_per_sec() as f64,
        fanning_out: table.fanning_out,
        fanout: table.fanout.number(1, others).map_err(|why| ("fanout", why))? as u32,
        sizes: Sizes::new(&points).map_err(|why| ("sizes", why))?,
        max_rate: table
            .max_rate
            .as_ref()
            .map(Quantity::rate)
            .transpose()
            .map_err(|why| ("max_rate", why))?,
        shared: table.shared,
    })
}
