//! Prints what a packet costs in `cake` and beside it, as `narrows bench cake` does, without
//! building all of Narrows: `cargo run --release -p narrows-bench --example cake_cost`.
//! With a structure, flows and packets it does that work only, for a profiler to watch.

use narrows_bench::cake::{Options, Subject, Work, run};
use narrows_bench::callgrind::Program;

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [name, flows, packets] = words.as_slice() {
        let subject = Subject::from_name(name);
        let subject =
            subject.ok_or_else(|| anyhow::anyhow!("no structure is called \"{name}\""))?;
        println!("{}", Work::new(subject, flows.parse()?)?.run(packets.parse()?));
        return Ok(());
    }
    let counted = Some(Program { path: std::env::current_exe()?, arguments: vec![] });
    let options = Options { packets: 100_000, repeats: 21, counted };
    print!("{}", run(&options, |title| eprintln!("{title}"))?);
    Ok(())
}
