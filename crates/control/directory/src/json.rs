//! The JSON form of rates: bits per second, a whole number.

use narrows_units::Rate;
use serde::{Deserialize, Deserializer, de};
use std::fmt;

/// The largest whole number of which a float says each digit.
const FLOAT_MAX: f64 = 9_007_199_254_740_992.0;

/// A rate in bits per second. JSON has one kind of numbers (RFC 8259, section 6), so `1e6` and
/// `1000000.0` are whole numbers, too: some languages write these.
struct Bits(u64);

impl<'de> Deserialize<'de> for Bits {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct BitsVisitor;

        impl de::Visitor<'_> for BitsVisitor {
            type Value = Bits;

            fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
                formatter.write_str("a rate as a whole number of bits per second, as 50000000")
            }

            fn visit_u64<E>(self, number: u64) -> Result<Bits, E> {
                Ok(Bits(number))
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Bits, E> {
                if number.fract() != 0.0 || !(0.0..=FLOAT_MAX).contains(&number) {
                    return Err(E::invalid_value(de::Unexpected::Float(number), &self));
                }
                Ok(Bits(number as u64))
            }
        }

        deserializer.deserialize_u64(BitsVisitor)
    }
}

/// A pair of rates.
pub(crate) mod rates {
    use super::{Bits, Rate};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(rates: &[Rate; 2], to: S) -> Result<S::Ok, S::Error> {
        rates.map(Rate::bits_per_sec).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[Rate; 2], D::Error> {
        Ok(<[Bits; 2]>::deserialize(from)?.map(|Bits(bits)| Rate::from_bits_per_sec(bits)))
    }
}

/// A pair of rates that may be missing.
pub(crate) mod capacity {
    use super::{Bits, Rate};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        rates: &[Option<Rate>; 2],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        rates.map(|rate| rate.map(Rate::bits_per_sec)).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<[Option<Rate>; 2], D::Error> {
        let rates = <[Option<Bits>; 2]>::deserialize(from)?;
        Ok(rates.map(|rate| rate.map(|Bits(bits)| Rate::from_bits_per_sec(bits))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_whole_number_however_it_is_written() {
        let read = |text: &str| serde_json::from_str(text).map(|Bits(bits)| bits);
        for text in ["1000000", "1e6", "1000000.0"] {
            assert_eq!(read(text).unwrap(), 1_000_000, "{text}");
        }
        assert_eq!(read("0").unwrap(), 0);
        assert_eq!(read("18446744073709551615").unwrap(), u64::MAX);
        for text in ["-5", "1.5", "1e20", "\"1mbit\"", "null", "true"] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains("a whole number of bits per second"), "{text}: {error}");
        }
    }
}
