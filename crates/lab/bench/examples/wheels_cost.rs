//! Prints what a packet costs in timing wheels and beside them, as `narrows bench wheels` does,
//! without building all of Narrows: `cargo run --release -p narrows-bench --example wheels_cost`.
//! With numbers of flows only with these; with a structure, flows, rates, mode and packets it
//! does that work only, for a profiler to watch.

use anyhow::Context;
use narrows_bench::callgrind::Program;
use narrows_bench::wheels::{FLOWS, Mode, Options, Plan, Rates, Row, Subject, Work, header, run};

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [name, flows, rates, mode, packets] = words.as_slice() {
        let subject = Subject::from_name(name).context("no such structure")?;
        let rates = Rates::from_name(rates).context("rates are \"equal\" or \"mix\"")?;
        let mode = Mode::from_name(mode).context("a mode is \"drain\" or \"poll\"")?;
        let plan = Plan::new(flows.parse()?, rates)?;
        println!("{}", Work::new(subject, &plan, mode).run(packets.parse()?));
        return Ok(());
    }
    let mut flows: Vec<u32> = words.iter().map(|word| word.parse()).collect::<Result<_, _>>()?;
    if flows.is_empty() {
        flows.extend(FLOWS);
    }
    let counted = Some(Program { path: std::env::current_exe()?, arguments: vec![] });
    let options = Options { flows, counted, ..Options::default() };
    println!("{}", header());
    let show = |rows: &[Row]| rows.iter().for_each(|row| println!("{row}"));
    print!("{}", run(&options, |title| eprintln!("{title}"), show)?);
    Ok(())
}
