//! Prints what a packet costs in trees of classes, as `narrows bench tree` does, without building
//! all of Narrows: `cargo run --release -p narrows-bench --example tree_cost 1024,65536 5`, the
//! numbers of classes and of repeats; then, where it is not to be all, the structures and the loads
//! (`tree-fifo free`). With a structure, classes, depth, active classes and load it prints how much
//! memory that takes; with a number of packets behind it does that work only, for a profiler to
//! watch.

use anyhow::{Context, Result, bail};
use narrows_bench::callgrind::Program;
use narrows_bench::tree::{Footprint, Load, Options, Shape, Subject, Work, run};
use std::time::Duration;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [classes, repeats, rest @ ..] if rest.len() <= 2 => {
            let or_all = |at: usize, all: &'static str| rest.get(at).copied().unwrap_or(all);
            let options = Options {
                classes: list(classes, |number| number.parse().ok())?,
                structures: list(or_all(0, "tree-fifo,tree-cake,hfsc-fifo"), Subject::from_name)?,
                loads: list(or_all(1, "free,bound,ceil,mixed"), Load::from_name)?,
                packets: 100_000,
                repeats: repeats.parse()?,
                threads: Some(1),
                window: Duration::from_millis(500),
                weighed: Program { path: std::env::current_exe()?, arguments: vec![] },
            };
            print!("{}", run(&options, |title| eprintln!("{title}"))?);
        }
        [structure, classes, depth, active, load, rest @ ..] => {
            let subject = Subject::from_name(structure).context("no such structure")?;
            let load = Load::from_name(load).context("no such load")?;
            let (classes, depth, active) = (classes.parse()?, depth.parse()?, active.parse()?);
            let shape = Shape { classes, depth, active, load };
            match rest {
                [] => {
                    let footprint = Footprint::measure(subject, shape)?;
                    println!("{}", serde_json::to_string(&footprint)?);
                }
                [packets, ..] => println!("{}", Work::new(subject, shape)?.run(packets.parse()?)),
            }
        }
        _ => bail!("give classes and repeats, or a structure with its shape"),
    }
    Ok(())
}

fn list<T>(words: &str, parse: impl Fn(&str) -> Option<T>) -> Result<Vec<T>> {
    let parse = |word| parse(word).with_context(|| format!("\"{word}\" is none that is known"));
    words.split(',').map(parse).collect()
}
