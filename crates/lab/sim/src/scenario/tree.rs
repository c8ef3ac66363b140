//! Scenarios of a tree of classes: from a file with a table `[tree]` to runs, one for each
//! scheduler, or, with a table `[capacity]`, one for each scheduler, size and number of cores.

use super::error::{ScenarioError, Wrong};
use super::overridden::{self, at};
use super::paths::Override;
use super::quantity::{Quantity, Scale};
use super::{About, Runs, costs};
use crate::setup::Costs;
use crate::tree::capacity::{self, Load};
use crate::tree::{self, App, Keeper, Outcome, Phase, Scheduler, Setup};
use narrows_coordination::TreeStrategy;
use narrows_units::{Bytes, Nanos};
use serde::Deserialize;

/// Tables in which a key without a dot is looked for.
const USUAL_TABLES: [&str; 3] = ["tree", "capacity", "run"];
/// The most connections of an application.
const FLOWS_MOST: u64 = 1000;
/// The longest packet: a super-packet of full frames.
const SIZE_MOST: u64 = 65_226;
/// The most cores.
const CORES_MOST: u64 = 128;

/// Policy files that can be named.
const POLICIES: [(&str, &str); 5] = [
    ("motivation", include_str!("../../../../../examples/flowvalve/motivation.tc")),
    ("motivation-htb", include_str!("../../../../../examples/flowvalve/motivation-htb.tc")),
    ("fair-queueing", include_str!("../../../../../examples/flowvalve/fair-queueing.tc")),
    ("weighted", include_str!("../../../../../examples/flowvalve/weighted.tc")),
    ("four-levels", include_str!("../../scenarios/four-levels.tc")),
];

/// A scenario, read and complete.
#[derive(Clone, Debug)]
pub struct TreeScenario {
    /// Its description.
    pub about: About,
    /// The applications.
    pub setup: Setup,
    /// The systems that are compared.
    pub schedulers: Vec<Scheduler>,
    /// What the paper has.
    pub paper: Vec<TreePaper>,
    /// The question about cores, if the scenario asks one.
    pub capacity: Option<Capacity>,
}

/// How many packets pass.
#[derive(Clone, PartialEq, Debug)]
pub struct Capacity {
    /// By size, among them by what lines cost, and among them by number of cores.
    pub points: Vec<CapacityPoint>,
    /// What the paper has.
    pub paper: Vec<CapacityPaper>,
}

impl Capacity {
    /// How long cores are busy with what: the least of all points, and the most.
    pub(crate) fn costs(&self) -> (Costs, Costs) {
        let all = self.points.iter().map(|point| point.costs);
        Costs::range(all).unwrap_or_else(|| (costs::measured(), costs::measured()))
    }
}

/// The cores that pass packets, and what they are like.
#[derive(Clone, PartialEq, Debug)]
pub struct CapacityPoint {
    /// Their load.
    pub load: Load,
    /// What shared lines cost, as a multiple of the machine's costs.
    pub line_factor: f64,
    /// How long they are busy with what.
    pub costs: Costs,
}

/// The paper's values for a phase.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TreePaper {
    /// The phase, from 1.
    pub phase: usize,
    /// The application, or `all`.
    pub app: String,
    /// In Gbit/s.
    pub gbit: f64,
}

/// The paper's values for a size.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CapacityPaper {
    /// The measurement.
    pub system: String,
    /// In bytes.
    pub size: u64,
    /// Scheduling cores; any number, if there is none.
    pub cores: Option<usize>,
    /// Packets a second, in millions.
    pub mpps: f64,
}

/// The result of a run.
#[derive(Clone, PartialEq, Debug)]
pub enum TreeOutcome {
    /// Of applications.
    Rates(Outcome),
    /// Of cores: millions of packets per second.
    Mpps(f64),
}

/// A file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: String,
    source: Option<String>,
    tree: TreeTable,
    scheduler: Vec<SchedulerTable>,
    app: Vec<AppTable>,
    #[serde(default)]
    phase: Vec<PhaseTable>,
    capacity: Option<CapacityTable>,
    run: RunTable,
    #[serde(default)]
    paper: Vec<TreePaper>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TreeTable {
    line: Quantity,
    buffer: Quantity,
    round_trip: Quantity,
    time_out: Quantity,
    frame: Quantity,
    settle: Quantity,
    window: Quantity,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SchedulerTable {
    name: String,
    /// The name of a built-in policy, or a whole policy file.
    policy: String,
    coordination: String,
    #[serde(default)]
    drops: bool,
    /// Applications that go before the tree.
    #[serde(default)]
    before: Vec<String>,
    line: Option<Quantity>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AppTable {
    name: String,
    /// Its minor number, hexadecimal.
    class: String,
    flows: Quantity,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PhaseTable {
    length: Quantity,
    apps: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CapacityTable {
    sizes: Vec<u64>,
    cores: Vec<u64>,
    /// The machine whose lines they share: a name, or a file of `narrows bench coordination
    /// --json`.
    machine: Option<String>,
    /// What a shared line costs, times each of these.
    #[serde(default = "as_measured")]
    line_factors: Vec<f64>,
    length: Quantity,
    #[serde(default)]
    paper: Vec<CapacityPaper>,
}

fn as_measured() -> Vec<f64> {
    vec![1.0]
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunTable {
    seed: Quantity,
}

impl TreeScenario {
    /// Whether cores take a lock for any system.
    pub(crate) fn has_lock(&self) -> bool {
        let lock = Keeper::Workers(TreeStrategy::Lock);
        self.schedulers.iter().any(|scheduler| scheduler.keeper == lock)
    }

    /// Reads the scenario `text`, which is called `name` in results, with `overrides`.
    ///
    /// # Errors
    /// The mistake, where it is, and what to write instead.
    pub fn read(name: &str, text: &str, overrides: &[Override]) -> Result<Self, ScenarioError> {
        overridden::read(name, text, overrides, &USUAL_TABLES, |file| scenario(name, file))
    }
}

impl Runs for TreeScenario {
    type Outcome = TreeOutcome;

    fn about(&self) -> &About {
        &self.about
    }

    fn count(&self) -> usize {
        self.schedulers.len() * self.capacity.as_ref().map_or(1, |it| it.points.len())
    }

    fn run(&self, number: usize, tell: &mut dyn FnMut(f64)) -> Result<TreeOutcome, String> {
        let scheduler = &self.schedulers[number % self.schedulers.len()];
        let failed = |why| format!("{}, seed {}: {why}", scheduler.name, self.setup.seed);
        match &self.capacity {
            None => tree::run(&self.setup, scheduler, tell).map(TreeOutcome::Rates),
            Some(Capacity { points, .. }) => {
                let CapacityPoint { load, costs, .. } = &points[number / self.schedulers.len()];
                capacity::run(scheduler, load, costs).map(TreeOutcome::Mpps)
            }
        }
        .map_err(failed)
    }
}

fn scenario(name: &str, file: File) -> Result<TreeScenario, Wrong> {
    let File { title, source, tree, scheduler, app, phase, capacity, run, paper } = file;
    let line = tree.line.rate().map_err(at("tree.line"))?;
    let frame = Bytes(tree.frame.number(64, 9_000).map_err(at("tree.frame"))?);
    let scale = Scale { limit: line, frame };
    let time = |quantity: &Quantity, path: &str| quantity.time(scale).map_err(at(path));
    let window = time(&tree.window, "tree.window")?;
    if window == Nanos::ZERO {
        return Err(Wrong::new("tree.window", "write a time above 0"));
    }
    let apps = app.iter().map(self::app).collect::<Result<Vec<_>, _>>().map_err(at("app"))?;
    if apps.is_empty() {
        return Err(Wrong::new("app", "name at least one"));
    }
    let named = |names: &[String]| -> Result<Vec<bool>, String> {
        match names.iter().find(|name| apps.iter().all(|app| app.name != **name)) {
            Some(unknown) => Err(format!("\"{unknown}\" is no app")),
            None => Ok(apps.iter().map(|app| names.contains(&app.name)).collect()),
        }
    };
    let settle = time(&tree.settle, "tree.settle")?;
    let phases = phase.iter().map(|it| {
        let length = it.length.time(scale)?;
        if length <= settle {
            return Err(format!("a phase of {length}: write more than {settle}, which settles"));
        }
        Ok(Phase { length, sends: named(&it.apps)? })
    });
    let schedulers = scheduler.iter().map(|it| self::scheduler(it, &named));
    let schedulers = schedulers.collect::<Result<Vec<_>, _>>().map_err(at("scheduler"))?;
    for scheduler in &schedulers {
        tree::check(scheduler, apps.len()).map_err(|why| Wrong::new("scheduler", why))?;
    }
    let setup = Setup {
        line,
        buffer: tree.buffer.size(scale).map_err(at("tree.buffer"))?,
        round_trip: time(&tree.round_trip, "tree.round_trip")?,
        time_out: time(&tree.time_out, "tree.time_out")?,
        frame,
        settle,
        window,
        phases: phases.collect::<Result<_, _>>().map_err(at("phase"))?,
        seed: run.seed.number(0, u64::MAX).map_err(at("run.seed"))?,
        apps,
    };
    let unknown = paper.iter().find(|it| {
        let is_app = it.app == "all" || setup.apps.iter().any(|app| app.name == it.app);
        !is_app || it.phase == 0 || it.phase > setup.phases.len()
    });
    if let Some(TreePaper { phase, app, .. }) = unknown {
        return Err(Wrong::new("paper", format!("there is no app \"{app}\" in a phase {phase}")));
    }
    let capacity = capacity.map(|it| self::capacity(&it, &setup, scale));
    let capacity = capacity.transpose().map_err(at("capacity"))?;
    if capacity.is_none() && setup.phases.is_empty() {
        return Err(Wrong::new("phase", "write at least one"));
    }
    Ok(TreeScenario { about: About::new(name, title, source), setup, schedulers, paper, capacity })
}

fn app(table: &AppTable) -> Result<App, String> {
    let class = u32::from_str_radix(&table.class, 16).map_err(|_| {
        format!("\"{}\" is no class: write its minor number, hexadecimal, as \"10\"", table.class)
    })?;
    let flows = table.flows.number(1, FLOWS_MOST)? as u32;
    Ok(App { name: table.name.clone(), class, flows })
}

fn scheduler(
    table: &SchedulerTable,
    named: &impl Fn(&[String]) -> Result<Vec<bool>, String>,
) -> Result<Scheduler, String> {
    let built_in = POLICIES.iter().find(|(name, _)| *name == table.policy);
    let keeper = Keeper::from_name(&table.coordination);
    Ok(Scheduler {
        name: table.name.clone(),
        policy: built_in.map_or(table.policy.as_str(), |(_, text)| text).to_owned(),
        keeper: keeper.ok_or_else(|| {
            format!(
                "\"{}\": write fair, flowvalve, lock, xdp, xdp-flowvalve or departures",
                table.coordination
            )
        })?,
        drops: table.drops,
        before: named(&table.before)?,
        line: table.line.as_ref().map(Quantity::rate).transpose()?,
    })
}

fn capacity(table: &CapacityTable, setup: &Setup, scale: Scale) -> Result<Capacity, String> {
    let length = table.length.time(scale)?;
    if length == Nanos::ZERO {
        return Err("write a length above 0".to_owned());
    }
    if table.line_factors.is_empty() {
        return Err("name one of line_factors at least, as [1.0]".to_owned());
    }
    let mut points = Vec::new();
    for &size in &table.sizes {
        for &line_factor in &table.line_factors {
            for &cores in &table.cores {
                if !(64..=SIZE_MOST).contains(&size) || !(1..=CORES_MOST).contains(&cores) {
                    return Err(format!(
                        "{size} bytes on {cores} cores: write 64 to {SIZE_MOST} on 1 to {CORES_MOST}"
                    ));
                }
                let classes = setup.apps.iter().map(|app| app.class).collect();
                let (frame, cores, line) = (Bytes(size), cores as usize, setup.line);
                let costs = costs::on(table.machine.as_deref(), cores)?;
                let costs = costs::times(costs, Some(line_factor))?;
                let load = Load { classes, frame, cores, line, length };
                points.push(CapacityPoint { load, line_factor, costs });
            }
        }
    }
    Ok(Capacity { points, paper: table.paper.clone() })
}
