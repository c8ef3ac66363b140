//! Prints what a worker pays to know the heaviest hosts and flows:
//! `cargo run --release -p narrows-bench --example heaviest_cost`.

fn main() {
    print!("{}", narrows_bench::heaviest::run());
}
