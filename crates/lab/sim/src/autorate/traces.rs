//! Built-in traces of lines: the rate of each 100 ms.
//!
//! They are made by `examples/line_traces.rs` from published statistics, as recorded traces may not
//! be copied here; each file says from which.

use super::Step;
use narrows_units::{Nanos, Rate};

/// How long each rate lasts.
const LASTS: Nanos = Nanos::from_millis(100);

const TRACES: [(&str, &str); 2] = [
    ("lte", include_str!("../../traces/lte.txt")),
    ("starlink-upload", include_str!("../../traces/starlink-upload.txt")),
];

/// The built-in trace `name`.
///
/// # Errors
/// There is none of that name; which there are.
pub fn trace(name: &str) -> Result<Vec<Step>, String> {
    let found = TRACES.iter().find(|(known, _)| *known == name);
    let (_, text) = found.ok_or_else(|| {
        let names: Vec<&str> = TRACES.iter().map(|(name, _)| *name).collect();
        format!("there is no trace {name:?}: write {}", names.join(" or "))
    })?;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let numbers = lines.flat_map(str::split_whitespace);
    numbers
        .map(|kbit| {
            let kbit = kbit.parse::<u64>().ok().filter(|kbit| *kbit > 0);
            let kbit = kbit.ok_or("a trace has whole numbers above 0, in kbit/s")?;
            Ok(Step { lasts: LASTS, rate: Rate::from_bits_per_sec(kbit * 1000) })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_traces_are_read_and_others_are_named() {
        for (name, _) in TRACES {
            assert!(trace(name).is_ok_and(|steps| steps.len() >= 600), "{name}");
        }
        assert!(trace("5g").is_err_and(|why| why.contains("lte")));
    }
}
