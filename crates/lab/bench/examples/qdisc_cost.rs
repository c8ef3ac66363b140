//! Prints what a packet costs in each structure:
//! `cargo run --release -p narrows-bench --example qdisc_cost`.

use narrows_bench::Structure;
use narrows_bench::qdisc::{Options, run};

fn main() {
    println!("{:<12} {:>6} {:>10} {:>7}", "structure", "queues", "ns/packet", "ratio");
    for row in run(&Structure::all(), Options::default()) {
        let (name, queues) = (row.structure, row.queues);
        println!("{name:<12} {queues:>6} {:>10.1} {:>7.2}", row.ns_per_packet, row.ratio);
    }
}
