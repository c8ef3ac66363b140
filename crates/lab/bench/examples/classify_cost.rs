//! Prints what it costs to find a packet's class, as `narrows bench classify` does, without
//! building all of Narrows: `cargo run --release -p narrows-bench --example classify_cost`.

use narrows_bench::classify::{Options, run};

fn main() {
    print!("{}", run(&Options::default()));
}
