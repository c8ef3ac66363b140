//! Prints what a worker pays to know the heaviest hosts and flows:
//! `cargo run --release -p narrows-bench --example heaviest_cost`. With a number of packets it lets
//! so many leave, for a profiler to watch.

use anyhow::ensure;
use narrows_bench::heaviest::{Work, run};

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.as_slice() {
        [] => print!("{}", run()),
        [packets] => {
            std::hint::black_box(Work::new(1500).run(packets.parse()?));
            println!("{packets}");
        }
        _ => ensure!(false, "give a number of packets, or nothing"),
    }
    Ok(())
}
