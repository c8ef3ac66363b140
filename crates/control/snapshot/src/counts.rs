//! Delays with their numbers of packets, in few bytes: dozens for each class.

use crate::packed::{Unpack, from_thousandths, put_number, thousandths};
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// Delays in microseconds, each with its number of packets, in a fixed order. As JSON, a list of
/// pairs.
///
/// A delay takes two to five bytes if it is a whole number of nanoseconds, as all are that Narrows
/// measures, and a count one to five.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Counts(Box<[u8]>);

impl Counts {
    /// The pairs.
    pub fn iter(&self) -> impl Iterator<Item = (f64, u64)> + Clone + '_ {
        let mut from = Unpack(&self.0);
        std::iter::from_fn(move || {
            if from.is_over() {
                return None;
            }
            let time = match from.number() {
                REAL => from.real(),
                number => from_thousandths(number - 1),
            };
            Some((time, from.number()))
        })
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Before a time that is no whole number of thousandths. Others have theirs, and one.
const REAL: u64 = 0;

fn put(bytes: &mut Vec<u8>, time: f64, packets: u64) {
    match thousandths(time).and_then(|number| number.checked_add(1)) {
        Some(number) => put_number(bytes, number),
        None => {
            put_number(bytes, REAL);
            bytes.extend_from_slice(&time.to_le_bytes());
        }
    }
    put_number(bytes, packets);
}

impl FromIterator<(f64, u64)> for Counts {
    fn from_iter<I: IntoIterator<Item = (f64, u64)>>(pairs: I) -> Self {
        let mut bytes = Vec::new();
        pairs.into_iter().for_each(|(time, packets)| put(&mut bytes, time, packets));
        Self(bytes.into())
    }
}

impl fmt::Debug for Counts {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_list().entries(self.iter()).finish()
    }
}

impl Serialize for Counts {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for Counts {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Pairs;

        impl<'de> Visitor<'de> for Pairs {
            type Value = Counts;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("a list of delays with their numbers of packets")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut pairs: A) -> Result<Counts, A::Error> {
                let mut bytes = Vec::new();
                while let Some((time, packets)) = pairs.next_element()? {
                    put(&mut bytes, time, packets);
                }
                Ok(Counts(bytes.into()))
            }
        }

        from.deserialize_seq(Pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn they_are_those_that_were_put_in(
            times in proptest::collection::vec((0u64..1 << 40, any::<u64>()), 0..40),
            odd: f64,
        ) {
            let mut pairs: Vec<(f64, u64)> =
                times.into_iter().map(|(ns, packets)| (ns as f64 / 1e3, packets)).collect();
            pairs.push((odd, 1));
            let counts: Counts = pairs.iter().copied().collect();
            prop_assert!(counts.iter().eq(pairs.iter().copied()));
            let text = serde_json::to_string(&counts).unwrap();
            prop_assert_eq!(&text, &serde_json::to_string(&pairs).unwrap());
            let read: Vec<(f64, u64)> = serde_json::from_str(&text).unwrap();
            let counts: Counts = serde_json::from_str(&text).unwrap();
            prop_assert!(counts.iter().eq(read));
        }
    }

    #[test]
    fn a_time_and_its_packets_take_a_few_bytes() {
        let counts: Counts = [(24.584, 7), (14_417.919, 70_000)].into_iter().collect();
        assert_eq!(counts.0.len(), 3 + 1 + 4 + 3);
        assert!(Counts::default().is_empty() && Counts::default().iter().next().is_none());
    }
}
