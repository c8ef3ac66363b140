//! Counts the instructions that a packet costs, with valgrind, and holds them against the
//! budgets in `instructions.json`. Of a tree with many classes also the cache lines that it
//! touches, which is what a packet costs there.
//!
//! `--check` fails if a structure is more than 3 % over its budget; `--write` makes the present
//! counts the budget. `--work NAME PACKETS` does the work of one structure, for valgrind to watch:
//! so one program is optimised as a whole, and not one for each kind of work.

use anyhow::{Context, bail, ensure};
use narrows_bench::callgrind::{self, Event, Program};
use narrows_bench::{Structure, cake, classify, heaviest, tree, wheels};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::Path;

/// Packets in the short run and in the long one.
const FEW: u64 = 10_000;
const MANY: u64 = 110_000;
/// Flows of `cake`: as many as a tin has queues.
const CAKE_FLOWS: u32 = 1024;
/// The tree of `bench tree` in the middle: leaf classes, and classes above each.
const TREE_CLASSES: u32 = 1024;
const TREE_DEPTH: u32 = 4;
/// The tree of which cache lines are counted: larger than the cache of the model.
const LARGE_TREE_CLASSES: u32 = 4096;
/// Flows that timing wheels hold: what `bench wheels` is about.
const WHEELS_FLOWS: u32 = 1024;
/// How far over its budget a structure may be, in percent: compilers differ by less.
const TOLERANCE_PERCENT: f64 = 3.0;

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (check, write) = match words[..] {
        [] => (false, false),
        ["--check"] => (true, false),
        ["--write"] => (false, true),
        ["--work", name, packets] => {
            let (_, _, work) =
                works().into_iter().find(|(it, ..)| it == name).context("no such work")?;
            println!("{}", work.run(packets.parse()?)?);
            return Ok(());
        }
        _ => bail!("say --check, --write, --work NAME PACKETS, or nothing"),
    };
    ensure!(
        !cfg!(debug_assertions),
        "only optimised code is worth counting: run it with `cargo run --release`"
    );
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("instructions.json");
    let budgets: BTreeMap<String, f64> = if write {
        BTreeMap::new()
    } else {
        let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        serde_json::from_str(&text).with_context(|| file.display().to_string())?
    };
    let path = std::env::current_exe()?;
    let mut counts = serde_json::Map::new();
    let mut over = Vec::new();
    println!("{:<16} {:>19} {:>8} {:>8}", "structure", "instructions/packet", "budget", "over");
    for (name, event, _) in works() {
        let arguments = vec!["--work".to_owned(), name.clone()];
        let program = Program { path: path.clone(), arguments };
        let per_packet = callgrind::events_per_packet(&program, event, FEW, MANY)?;
        match budgets.get(&name) {
            Some(budget) => {
                let excess = 100.0 * (per_packet / budget - 1.0);
                println!("{name:<16} {per_packet:>19.1} {budget:>8.1} {excess:>+7.1}%");
                if excess > TOLERANCE_PERCENT {
                    over.push(name.clone());
                }
            }
            None => {
                println!("{name:<16} {per_packet:>19.1} {:>8} {:>8}", "-", "-");
                if check {
                    over.push(format!("{name} (which has none)"));
                }
            }
        }
        counts.insert(name, ((per_packet * 10.0).round() / 10.0).into());
    }
    if write {
        std::fs::write(&file, serde_json::to_string_pretty(&counts)? + "\n")?;
    }
    ensure!(!check || over.is_empty(), "over budget: {}", over.join(", "));
    Ok(())
}

/// A kind of work.
enum Work {
    /// A structure of `bench qdisc`.
    Structure(Structure),
    /// Look-ups of classes.
    Classify(classify::Rules),
    /// `cake` with flows.
    Cake(cake::Subject),
    /// A tree of so many classes, each with a FIFO.
    Tree(tree::Subject, u32, tree::Load),
    /// Timing wheels.
    Wheels(wheels::Subject),
    /// The heaviest hosts and flows, from the start of a window.
    Heaviest,
}

impl Work {
    /// Does it for so many packets, and says how many there were.
    fn run(self, packets: u64) -> anyhow::Result<u64> {
        Ok(match self {
            Self::Structure(structure) => structure.workload().run(packets),
            Self::Classify(rules) => {
                let mut work = classify::Work::new(classify::Subject::TablesFromBytes, rules);
                black_box(work.run(packets));
                packets
            }
            Self::Cake(subject) => cake::Work::new(subject, CAKE_FLOWS)?.run(packets),
            Self::Tree(subject, classes, load) => {
                let shape = tree::Shape::busy(classes, TREE_DEPTH, load);
                tree::Work::new(subject, shape)?.run(packets)
            }
            Self::Wheels(subject) => {
                let plan = wheels::Plan::new(WHEELS_FLOWS, wheels::Rates::Equal)?;
                wheels::Work::new(subject, &plan, wheels::Mode::Drain).run(packets)
            }
            Self::Heaviest => {
                black_box(heaviest::Work::new(1500).run(packets));
                packets
            }
        })
    }
}

/// What is measured, by name, and what is counted.
fn works() -> Vec<(String, Event, Work)> {
    use wheels::Subject::{Carousel, Eiffel, FlowBundler};
    let structures = Structure::all().into_iter().map(|it| (it.name(), Work::Structure(it)));
    let rules = classify::Rules::ALL;
    let rules = rules.map(|it| (format!("classify-{}", it.name()), Work::Classify(it)));
    let cakes = [cake::Subject::CakeBesteffort, cake::Subject::CakeDiffserv4];
    let cakes = cakes.map(|it| (it.name().to_owned(), Work::Cake(it)));
    let of = |load| Work::Tree(tree::Subject::TreeFifo, TREE_CLASSES, load);
    let trees = tree::Load::ALL.map(|it| (format!("tree-{}", it.name()), of(it)));
    let hfsc = Work::Tree(tree::Subject::HfscFifo, TREE_CLASSES, tree::Load::Bound);
    let wheels = [Carousel, Eiffel, FlowBundler];
    let wheels = wheels.map(|it| (it.name().to_owned(), Work::Wheels(it)));
    let large = |load| Work::Tree(tree::Subject::TreeFifo, LARGE_TREE_CLASSES, load);
    let lines = tree::Load::ALL.map(|it| (format!("lines-{}", it.name()), large(it)));
    let lines = lines.map(|(name, work)| (name, Event::CacheLines, work));
    structures
        .chain(rules)
        .chain(cakes)
        .chain(trees)
        .chain([("hfsc-bound".to_owned(), hfsc)])
        .chain(wheels)
        .chain([("heaviest".to_owned(), Work::Heaviest)])
        .map(|(name, work)| (name, Event::Instructions, work))
        .chain(lines)
        .collect()
}
