//! Counts the instructions that a packet costs, with valgrind, and holds them against the
//! budgets in `instructions.json`.
//!
//! `--check` fails if a structure is more than 3 % over its budget; `--write` makes the present
//! counts the budget.

use anyhow::{Context, bail, ensure};
use narrows_bench::Structure;
use narrows_bench::cake::Subject;
use narrows_bench::callgrind::{self, Program};
use narrows_bench::classify::Rules;
use narrows_bench::wheels;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Packets in the short run and in the long one.
const FEW: u64 = 10_000;
const MANY: u64 = 110_000;
/// Flows of `cake`: as many as a tin has queues.
const CAKE_FLOWS: u32 = 1024;
/// Flows that timing wheels hold, and how: what `bench wheels` is about.
const WHEELS_WORK: [&str; 3] = ["1024", "equal", "drain"];
/// How far over its budget a structure may be, in percent: compilers differ by less.
const TOLERANCE_PERCENT: f64 = 3.0;

fn main() -> anyhow::Result<()> {
    let word = std::env::args().nth(1);
    let (check, write) = match word.as_deref() {
        None => (false, false),
        Some("--check") => (true, false),
        Some("--write") => (false, true),
        Some(word) => bail!("\"{word}\" is neither --check nor --write"),
    };
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("instructions.json");
    let budgets: BTreeMap<String, f64> = if write {
        BTreeMap::new()
    } else {
        let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        serde_json::from_str(&text).with_context(|| file.display().to_string())?
    };
    let folder = build()?;
    let mut counts = serde_json::Map::new();
    let mut over = Vec::new();
    println!("{:<16} {:>19} {:>8} {:>8}", "structure", "instructions/packet", "budget", "over");
    for (name, work) in works(&folder) {
        let per_packet = callgrind::per_packet(&work, FEW, MANY)?;
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

/// What is measured: each structure of `bench qdisc`, look-ups of classes, `cake` with flows,
/// timing wheels, and the heaviest hosts and flows, from the start of a window.
fn works(folder: &Path) -> Vec<(String, Program)> {
    let hot_path = |structure: Structure| {
        let name = structure.name();
        (name.clone(), Program { path: folder.join("hot_path"), arguments: vec![name] })
    };
    let cake = |subject: Subject| {
        let name = subject.name().to_owned();
        let arguments = vec![name.clone(), CAKE_FLOWS.to_string()];
        (name, Program { path: folder.join("cake_cost"), arguments })
    };
    let wheel = |subject: wheels::Subject| {
        let name = subject.name().to_owned();
        let arguments = [name.as_str()].into_iter().chain(WHEELS_WORK).map(str::to_owned).collect();
        (name, Program { path: folder.join("wheels_cost"), arguments })
    };
    let rules = Rules::ALL.map(|rules| {
        let name = rules.name().to_owned();
        let program = Program { path: folder.join("classify_cost"), arguments: vec![name.clone()] };
        (format!("classify-{name}"), program)
    });
    let heaviest = Program { path: folder.join("heaviest_cost"), arguments: vec![] };
    let structures = Structure::all().into_iter().map(hot_path);
    let cakes = [Subject::CakeBesteffort, Subject::CakeDiffserv4].map(cake);
    let wheels = [wheels::Subject::Carousel, wheels::Subject::Eiffel, wheels::Subject::FlowBundler];
    structures
        .chain(rules)
        .chain(cakes)
        .chain(wheels.map(wheel))
        .chain([("heaviest".to_owned(), heaviest)])
        .collect()
}

/// Builds the measured examples, and returns their folder, which is beside this program.
fn build() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let folder = own.parent().context("this program stands in no folder")?;
    ensure!(
        folder.ends_with("release"),
        "only optimised code is worth counting: run it with `cargo run --release`"
    );
    let built = Command::new(env!("CARGO"))
        .args(["build", "--release", "-p", "narrows-bench", "--examples"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()?;
    ensure!(built.success(), "the examples did not build");
    Ok(folder.join("examples"))
}
