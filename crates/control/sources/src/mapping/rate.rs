//! Rates and their units.

use crate::fault::quoted;
use narrows_units::Rate;
use serde::Deserialize;

/// The unit of rates in a source, in words of `tc`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Bits a second.
    Bit,
    /// Thousands of bits a second.
    Kbit,
    /// Millions of bits a second.
    Mbit,
    /// Thousands of millions of bits a second.
    Gbit,
}

impl Unit {
    const ALL: [(&'static str, Self); 4] =
        [("kbit", Self::Kbit), ("mbit", Self::Mbit), ("gbit", Self::Gbit), ("bit", Self::Bit)];

    fn in_bits(self) -> f64 {
        match self {
            Self::Bit => 1.0,
            Self::Kbit => 1e3,
            Self::Mbit => 1e6,
            Self::Gbit => 1e9,
        }
    }
}

/// The rate that `text` says: a number, in `unit`, or with a unit of its own as `50mbit`.
///
/// # Errors
/// If it is no rate up to 100 Tbit/s, or has no unit.
pub fn rate(text: &str, unit: Option<Unit>) -> Result<Rate, String> {
    /// More is a wrong unit.
    const BITS_MAX: f64 = 1e14;
    let lower = text.trim().to_ascii_lowercase();
    let own =
        Unit::ALL.into_iter().find_map(|(word, unit)| Some((lower.strip_suffix(word)?, unit)));
    let (number, unit) = match (own, unit) {
        (Some(own), _) => own,
        (None, Some(unit)) => (lower.as_str(), unit),
        (None, None) => {
            return Err(format!("{} is no rate with a unit, as 50mbit", quoted(text)));
        }
    };
    let number = number.trim().parse::<f64>().ok().filter(|number| number.is_finite());
    let Some(bits) = number.map(|number| number * unit.in_bits()) else {
        let hint = if text.contains(',') { ": write a decimal point, as 10.5" } else { "" };
        return Err(format!("{} is no rate{hint}", quoted(text)));
    };
    if bits < 0.0 {
        return Err(format!("{} is below zero", quoted(text)));
    }
    if bits > BITS_MAX {
        return Err(format!("{} is above 100 Tbit/s: look at the unit", quoted(text)));
    }
    Ok(Rate::from_bits_per_sec(bits.round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_number_in_the_unit_of_the_source_or_its_own() {
        let bits = |text: &str, unit| rate(text, unit).map(Rate::bits_per_sec);
        assert_eq!(bits("50", Some(Unit::Mbit)), Ok(50_000_000));
        assert_eq!(bits("2.5", Some(Unit::Kbit)), Ok(2_500));
        assert_eq!(bits("1 Gbit", Some(Unit::Kbit)), Ok(1_000_000_000));
        assert_eq!(bits("64000bit", None), Ok(64_000));
        for wrong in ["", "fast", "-1", "1e300", "nan", "inf", "10,5"] {
            assert!(rate(wrong, Some(Unit::Mbit)).is_err(), "{wrong}");
        }
        assert!(rate("50", None).unwrap_err().contains("as 50mbit"));
    }
}
