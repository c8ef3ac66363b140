//! The delays of the packets of a class or a tin. The kernel does not count them, so they are only
//! in JSON, where an additional key does no harm.

use crate::render::Json;
use narrows_units::{Nanos, Spread};

/// The key `delays` with percentiles and counts in microseconds; none if no packet left.
pub(crate) fn json(delays: &Spread) -> Option<(&'static str, Json)> {
    let quantile = |of| delays.quantile(of).map(|time| Json::Float(micros(time)));
    let [p50, p99, p999, max] = [0.5, 0.99, 0.999, 1.0].map(quantile);
    let counts = delays.counts().map(|(time, packets)| (micros(time), packets));
    let value = Json::Object(vec![
        ("p50_us", p50?),
        ("p99_us", p99?),
        ("p999_us", p999?),
        ("max_us", max?),
        ("counts", Json::Pairs(counts.collect())),
    ]);
    Some(("delays", value))
}

fn micros(time: Nanos) -> f64 {
    time.0 as f64 / 1e3
}
