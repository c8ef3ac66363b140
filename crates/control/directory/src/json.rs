//! The JSON form of rates: bits per second.

use narrows_units::Rate;

/// A pair of rates.
pub(crate) mod rates {
    use super::Rate;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(rates: &[Rate; 2], to: S) -> Result<S::Ok, S::Error> {
        rates.map(Rate::bits_per_sec).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[Rate; 2], D::Error> {
        Ok(<[u64; 2]>::deserialize(from)?.map(Rate::from_bits_per_sec))
    }
}

/// A pair of rates that may be missing.
pub(crate) mod capacity {
    use super::Rate;
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
        let rates = <[Option<u64>; 2]>::deserialize(from)?;
        Ok(rates.map(|rate| rate.map(Rate::from_bits_per_sec)))
    }
}
