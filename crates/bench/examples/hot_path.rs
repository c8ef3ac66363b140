//! Sends so many packets through one structure, for a profiler to watch:
//! `valgrind --tool=callgrind target/release/examples/hot_path tbf 200000`.

use narrows_bench::Structure;

fn main() -> anyhow::Result<()> {
    let mut words = std::env::args().skip(1);
    let (Some(name), Some(packets)) = (words.next(), words.next()) else {
        anyhow::bail!("usage: hot_path STRUCTURE PACKETS");
    };
    let structure = Structure::from_name(&name).ok_or_else(|| {
        let names: Vec<_> = Structure::all().into_iter().map(Structure::name).collect();
        anyhow::anyhow!("no structure is called \"{name}\"; there are {}", names.join(", "))
    })?;
    println!("{}", structure.workload().run(packets.parse()?));
    Ok(())
}
