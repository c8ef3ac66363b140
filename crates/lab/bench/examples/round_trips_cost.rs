//! Prints what a worker pays to measure round trips:
//! `cargo run --release -p narrows-bench --example round_trips_cost`. With a number of packets it
//! lets so many pass, for a profiler to watch.

use anyhow::ensure;
use narrows_bench::round_trips::{Kind, Work, run};

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.as_slice() {
        [] => print!("{}", run()),
        [packets] => {
            let trips = Work::new(Kind::Tcp).run(packets.parse()?, true);
            println!("{trips} round trips");
        }
        _ => ensure!(false, "give a number of packets, or nothing"),
    }
    Ok(())
}
