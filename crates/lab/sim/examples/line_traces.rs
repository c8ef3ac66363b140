//! Makes the traces of lines in `traces/`, from published statistics:
//!
//! ```text
//! cargo run -p narrows-sim --example line_traces -- lte > crates/lab/sim/traces/lte.txt
//! ```
//!
//! * `lte`: the rate is a Brownian motion with a deviation of 200 packets a second after a second,
//!   up to 1,000 packets a second: the model of a cellular line of Winstein et al., "Stochastic
//!   forecasts achieve high throughput and low delay over cellular networks" (NSDI 2013), section
//!   3. It is reflected at 100 packets a second; outages are left out.
//! * `starlink-upload`: a new rate every 15 s, when satellites are assigned anew (Mohan et al., "A
//!   multifaceted look at Starlink performance", WWW 2024); log-normal around the median of
//!   17 Mbit/s that Michel et al., "A first look at Starlink performance" (IMC 2022), measured for
//!   uploads. The deviations between the assignments (0.35) and within one (a tenth of the rate,
//!   each second anew) are chosen.

use rand::SeedableRng;
use rand_distr::{Distribution, Normal};
use rand_pcg::Pcg64;

/// Rates in a trace, each of 100 ms: two minutes.
const RATES: usize = 1_200;
/// The bits of a full packet.
const PACKET_KBIT: f64 = 12.0;

fn main() -> Result<(), String> {
    let name = std::env::args().nth(1).unwrap_or_default();
    let rates = match name.as_str() {
        "lte" => lte()?,
        "starlink-upload" => starlink()?,
        _ => return Err("write lte or starlink-upload".to_owned()),
    };
    println!("# The rate of a line in kbit/s, a number for each 100 ms.");
    println!("# Made by crates/lab/sim/examples/line_traces.rs {name}, which says from what.");
    for line in rates.chunks(20) {
        let numbers: Vec<String> = line.iter().map(|kbit| format!("{kbit:.0}")).collect();
        println!("{}", numbers.join(" "));
    }
    Ok(())
}

fn lte() -> Result<Vec<f64>, String> {
    const LEAST: f64 = 100.0;
    const MOST: f64 = 1_000.0;
    let mut chance = Pcg64::seed_from_u64(1);
    // In 100 ms, from a deviation after a second.
    let step = normal(0.0, 200.0 * 0.1_f64.sqrt())?;
    let mut packets = 600.0;
    Ok((0..RATES)
        .map(|_| {
            packets += step.sample(&mut chance);
            if packets < LEAST {
                packets = 2.0 * LEAST - packets;
            }
            if packets > MOST {
                packets = 2.0 * MOST - packets;
            }
            packets * PACKET_KBIT
        })
        .collect())
}

fn starlink() -> Result<Vec<f64>, String> {
    const MEDIAN_KBIT: f64 = 17_000.0;
    let mut chance = Pcg64::seed_from_u64(2);
    let assigned = normal(0.0, 0.35)?;
    let within = normal(1.0, 0.1)?;
    let (mut slot, mut second) = (1.0_f64, 1.0_f64);
    Ok((0..RATES)
        .map(|number| {
            if number % 150 == 0 {
                slot = f64::exp(assigned.sample(&mut chance));
            }
            if number % 10 == 0 {
                second = f64::clamp(within.sample(&mut chance), 0.7, 1.3);
            }
            MEDIAN_KBIT * slot * second
        })
        .collect())
}

fn normal(mean: f64, deviation: f64) -> Result<Normal<f64>, String> {
    Normal::new(mean, deviation).map_err(|why| why.to_string())
}
