//! Rates, sizes and times in scenarios: as `tc` writes them, and relative to the limit.
//!
//! | quantity | absolute | relative to the limit |
//! | --- | --- | --- |
//! | rate | `15gbit` | `200%` |
//! | size | `1514`, `64k` | `50us of the limit` |
//! | time | `5ms`, `500ns` | `100000 packets` (as long as so many full frames take) |
//!
//! Sizes and times take bounds behind a comma: `100000 packets, at least 20ms, at most 2s`.
//! Relative ones let one file sweep from 10 Mbit/s to 400 Gbit/s.

use narrows_tc::number;
use narrows_units::{Bytes, Nanos, Rate};
use serde::de::{Deserialize, Deserializer, Visitor};
use std::fmt;

/// A quantity as it is written; a bare number counts as written, too.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Quantity(pub(super) String);

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Written;
        impl Visitor<'_> for Written {
            type Value = Quantity;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, or a quantity in quotation marks as \"15gbit\"")
            }
            fn visit_str<E>(self, text: &str) -> Result<Quantity, E> {
                Ok(Quantity(text.to_owned()))
            }
            fn visit_i64<E>(self, number: i64) -> Result<Quantity, E> {
                Ok(Quantity(number.to_string()))
            }
            fn visit_u64<E>(self, number: u64) -> Result<Quantity, E> {
                Ok(Quantity(number.to_string()))
            }
            fn visit_f64<E>(self, number: f64) -> Result<Quantity, E> {
                Ok(Quantity(number.to_string()))
            }
        }
        deserializer.deserialize_any(Written)
    }
}

/// The reference of relative quantities.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    /// The limit.
    pub(super) limit: Rate,
    /// The largest frame of all traffic.
    pub(super) frame: Bytes,
}

impl Quantity {
    /// A whole number from `least` to `most`.
    pub(super) fn number(&self, least: u64, most: u64) -> Result<u64, String> {
        let number = self.0.trim().parse::<u64>().ok();
        number.filter(|number| (least..=most).contains(number)).ok_or_else(|| {
            format!("\"{}\" cannot be: write a whole number from {least} to {most}", self.0)
        })
    }

    /// A rate of its own.
    pub(super) fn rate(&self) -> Result<Rate, String> {
        number::rate(self.0.trim())
            .filter(|rate| !rate.is_zero())
            .ok_or_else(|| format!("\"{}\" is no rate: {}", self.0, number::RATE_HINT))
    }

    /// A rate, perhaps in percent of the limit.
    pub(super) fn load(&self, limit: Rate) -> Result<Rate, String> {
        let Some(percent) = self.0.trim().strip_suffix('%') else {
            return self.rate().map_err(|why| format!("{why}, or a part of the limit, as 90%"));
        };
        let percent = percent.trim().parse::<f64>().ok().filter(|it| *it > 0.0 && *it <= 1e6);
        let bits = percent.map(|percent| limit.bits_per_sec() as f64 * percent / 100.0);
        match bits {
            // Below 2^63: nothing is lost that a rate could show.
            Some(bits) if (1.0..9.2e18).contains(&bits) => Ok(Rate::from_bits_per_sec(bits as u64)),
            _ => Err(format!(
                "\"{}\" is no part of the limit: write a number above 0, as 90%",
                self.0
            )),
        }
    }

    /// A size in bytes.
    pub(super) fn size(&self, scale: Scale) -> Result<Bytes, String> {
        bounded(&self.0, |text| match text.strip_suffix("of the limit") {
            Some(span) => Ok(scale.limit.bytes_in(time(span.trim())?)),
            None => number::size(text).map(|bytes| Bytes(u64::from(bytes))).ok_or_else(|| {
                format!(
                    "\"{text}\" is no size: {}, or what passes in a time, as 5ms of the limit",
                    number::SIZE_HINT
                )
            }),
        })
    }

    /// A time.
    pub(super) fn time(&self, scale: Scale) -> Result<Nanos, String> {
        bounded(&self.0, |text| {
            let Some(packets) = text.strip_suffix("packets") else { return time(text) };
            let packets = packets.trim().parse::<u64>().ok().filter(|it| *it <= 1_000_000_000_000);
            let packets = packets.ok_or_else(|| {
                format!("\"{text}\": write a whole number before packets, as 100000 packets")
            })?;
            Ok(scale.limit.time_for(Bytes(packets * scale.frame.0)))
        })
    }
}

/// `text` up to a comma as `read` reads it, and bounds behind it.
fn bounded<T: Ord>(text: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<T, String> {
    let mut parts = text.split(',').map(str::trim);
    let mut value = read(parts.next().unwrap_or_default())?;
    for bound in parts {
        if let Some(least) = bound.strip_prefix("at least") {
            value = value.max(read(least.trim())?);
        } else if let Some(most) = bound.strip_prefix("at most") {
            value = value.min(read(most.trim())?);
        } else {
            return Err(format!(
                "\"{bound}\": behind a comma write at least, or at most, and a bound"
            ));
        }
    }
    Ok(value)
}

/// A time as `tc` takes it, or in nanoseconds, which `tc` does not know.
fn time(text: &str) -> Result<Nanos, String> {
    let nanos = text.strip_suffix("ns").and_then(|number| number.trim().parse::<f64>().ok());
    let nanos = nanos.filter(|nanos| (0.0..1e18).contains(nanos)).map(|nanos| Nanos(nanos as u64));
    nanos.or_else(|| number::time(text)).ok_or_else(|| {
        format!(
            "\"{text}\" is no time: {}, or in ns, or in packets, as 1000 packets",
            number::TIME_HINT
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCALE: Scale =
        Scale { limit: Rate::from_bits_per_sec(8_000_000_000), frame: Bytes(1000) };

    fn quantity(text: &str) -> Quantity {
        Quantity(text.to_owned())
    }

    #[test]
    fn a_time_can_be_counted_in_packets_and_bounded() {
        let time = |text| quantity(text).time(SCALE).unwrap();
        assert_eq!(time("500ns"), Nanos(500));
        assert_eq!(time("2us"), Nanos::from_micros(2));
        assert_eq!(time("1000 packets"), Nanos::from_millis(1));
        assert_eq!(time("1000 packets, at least 20ms"), Nanos::from_millis(20));
        assert_eq!(time("1000 packets, at least 1us, at most 5us"), Nanos::from_micros(5));
    }

    #[test]
    fn a_size_can_be_what_passes_in_a_time() {
        let size = |text| quantity(text).size(SCALE).unwrap();
        assert_eq!(size("64k"), Bytes(65_536));
        assert_eq!(size("50us of the limit"), Bytes(50_000));
        assert_eq!(size("1us of the limit, at least 1514"), Bytes(1514));
    }

    #[test]
    fn a_load_can_be_a_part_of_the_limit() {
        let load = |text| quantity(text).load(SCALE.limit);
        assert_eq!(load("150%"), Ok(Rate::from_bits_per_sec(12_000_000_000)));
        assert_eq!(load("1gbit"), Ok(Rate::from_bits_per_sec(1_000_000_000)));
        for nonsense in ["0%", "-5%", "nan%", "%", "1e9%", "fast"] {
            assert!(load(nonsense).is_err(), "{nonsense}");
        }
    }

    #[test]
    fn an_invalid_value_is_answered_with_valid_ones() {
        let error = quantity("15gibt").rate().unwrap_err();
        assert!(error.contains("15gibt") && error.contains("100mbit"), "{error}");
        let error = quantity("5 fortnights").time(SCALE).unwrap_err();
        assert!(error.contains("5ms"), "{error}");
        let error = quantity("1ms, about 2ms").time(SCALE).unwrap_err();
        assert!(error.contains("at least"), "{error}");
        let error = quantity("200").number(1, 128).unwrap_err();
        assert!(error.contains("from 1 to 128"), "{error}");
    }
}
