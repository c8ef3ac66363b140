//! The words of a `netem`, whose JSON has an object for each impairment.
//!
//! Shares are fractions of 1 and times are seconds there. `tc` prints no distribution, and nothing
//! of `slot` that could be given again.

use super::qdisc::bits;
use super::value::word;
use super::{Draft, Object};
use serde_json::Value;

/// Takes what is known out of `options`, and adds its words. The qdisc is `of`.
pub(super) fn words(
    options: &mut Object,
    of: &str,
    words: &mut Vec<String>,
    draft: &mut Draft,
) -> Option<()> {
    if let Some(Value::Object(delay)) = options.remove("delay") {
        let jitter = secs(&delay, "jitter")?;
        let mut said = format!("delay {}us", secs(&delay, "delay")?);
        if jitter > 0 {
            said += &format!(" {jitter}us {}", share(&delay, "correlation")?);
        }
        words.push(said);
        match delay.get("distribution") {
            Some(name) => words.push(format!("distribution {}", word(name)?)),
            None if jitter > 0 => {
                draft.fault(&format!("{of}: tc prints no distribution: uniform is assumed"));
            }
            None => {}
        }
    }
    for (key, word, shares) in [
        ("loss-random", "loss random", &["loss", "correlation"][..]),
        ("loss-state", "loss state", &["p13", "p31", "p32", "p23", "p14"]),
        ("loss-gemodel", "loss gemodel", &["p", "r", "1-h", "1-k"]),
        ("duplicate", "duplicate", &["duplicate", "correlation"]),
        ("reorder", "reorder", &["reorder", "correlation"]),
        ("corrupt", "corrupt", &["corrupt", "correlation"]),
    ] {
        if let Some(Value::Object(object)) = options.remove(key) {
            let shares: Option<Vec<String>> =
                shares.iter().map(|key| share(&object, key)).collect();
            words.push(format!("{word} {}", shares?.join(" ")));
        }
    }
    if let Some(Value::Object(rate)) = options.remove("rate") {
        let number = |key: &str| rate.get(key).map_or(Some(0), Value::as_i64);
        let (packet, cell, of_cell) =
            (number("packetoverhead")?, number("cellsize")?, number("celloverhead")?);
        let rate = bits(rate.get("rate")?)?;
        words.push(format!("rate {rate}bit {packet} {cell} {of_cell}"));
    }
    // Always there, and 0 without a gap.
    let gap = options.remove("gap").map_or(Some(0), |gap| gap.as_u64())?;
    if gap > 0 {
        words.push(format!("gap {gap}"));
    }
    Some(())
}

/// A time in whole microseconds, as `netem` keeps it.
fn secs(object: &Object, key: &str) -> Option<u64> {
    let secs = object.get(key).map_or(Some(0.0), Value::as_f64)?;
    let micros = (secs * 1e6).round();
    (0.0..=f64::from(u32::MAX)).contains(&micros).then_some(micros as u64)
}

/// A share, as a percentage.
fn share(object: &Object, key: &str) -> Option<String> {
    let share = object.get(key).map_or(Some(0.0), Value::as_f64)?;
    (0.0..=1.0).contains(&share).then(|| format!("{}%", share * 100.0))
}
