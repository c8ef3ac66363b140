//! Prints what it costs to find a packet's class, as `narrows bench classify` does, without
//! building all of Narrows: `cargo run --release -p narrows-bench --example classify_cost`. With a
//! set of filters and packets it looks up so many in the tables, for a profiler to watch.

use anyhow::Context;
use narrows_bench::classify::{Options, Rules, Subject, Work, run};

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [rules, packets] = words.as_slice() {
        let rules = Rules::from_name(rules).context("no such filters")?;
        let packets = packets.parse()?;
        std::hint::black_box(Work::new(Subject::TablesFromBytes, rules).run(packets));
        println!("{packets}");
        return Ok(());
    }
    print!("{}", run(&Options::default()));
    Ok(())
}
