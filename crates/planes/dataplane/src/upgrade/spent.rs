//! How far limits are used, as it is passed on.
//!
//! There may be many thousand classes, and nothing is forwarded meanwhile, so that of classes is
//! binary, little-endian: for each port the number of classes (32 bits), and for each the major
//! number of its qdisc and its own (32), and up to when its rate and its ceiling are sold (64).

use super::binary::{StateError, read, read_u32};
use narrows_coordination::Spent;
use narrows_policy::Handle;
use narrows_shaper::Used;
use narrows_units::Nanos;
use std::collections::BTreeMap;

/// A class that does not have its whole credit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpentClass {
    /// The major number of its qdisc.
    pub major: u32,
    /// Its own, and its buckets.
    pub spent: Spent,
}

/// The times up to which the limits of `used` are, by the major numbers of their qdiscs.
pub(crate) fn of_limits(used: &Used) -> BTreeMap<u32, u64> {
    used.limits.iter().map(|(handle, time)| (handle.major(), time.0)).collect()
}

/// The classes of `used`.
pub(crate) fn of_classes(used: &Used) -> Vec<SpentClass> {
    let of_tree = |(handle, spent): (&Handle, &Vec<Spent>)| {
        let major = handle.major();
        spent.iter().map(move |spent| SpentClass { major, spent: *spent }).collect::<Vec<_>>()
    };
    used.classes.iter().flat_map(of_tree).collect()
}

/// The inverse of both. Numbers that no qdisc can have are left out.
pub(crate) fn used(limits: &BTreeMap<u32, u64>, classes: &[SpentClass]) -> Used {
    let in_time = |(&major, &time): (&u32, &u64)| Some((Handle::new(major)?, Nanos(time)));
    let limits = limits.iter().filter_map(in_time).collect();
    let mut used = Used { limits, ..Used::default() };
    for SpentClass { major, spent } in classes {
        if let Some(handle) = Handle::new(*major) {
            used.classes.entry(handle).or_default().push(*spent);
        }
    }
    used
}

pub(super) fn write(classes: &[SpentClass], into: &mut Vec<u8>) {
    into.extend((classes.len() as u32).to_le_bytes());
    for SpentClass { major, spent: Spent { class, rate, ceil } } in classes {
        into.extend(major.to_le_bytes());
        into.extend(class.to_le_bytes());
        into.extend(rate.0.to_le_bytes());
        into.extend(ceil.0.to_le_bytes());
    }
}

pub(super) fn read_all(from: &mut &[u8]) -> Result<Vec<SpentClass>, StateError> {
    let count = read_u32(from)?;
    // A claimed number reserves no memory: only bytes that are there are read.
    let one = |_| {
        let (major, class) = (read_u32(from)?, read_u32(from)?);
        let [rate, ceil] = [read(from)?, read(from)?].map(|time| Nanos(u64::from_le_bytes(time)));
        Ok(SpentClass { major, spent: Spent { class, rate, ceil } })
    };
    (0..count).map(one).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    prop_compose! {
        pub(in crate::upgrade) fn class()(
            major in any::<u32>(), class in any::<u32>(), rate in any::<u64>(), ceil in any::<u64>(),
        ) -> SpentClass {
            SpentClass { major, spent: Spent { class, rate: Nanos(rate), ceil: Nanos(ceil) } }
        }
    }

    #[test]
    fn limits_and_classes_come_back_by_their_qdiscs() {
        let handles = [Handle::new(1), Handle::new(0x8001)].map(Option::unwrap);
        let spent = |class| Spent { class, rate: Nanos(5), ceil: Nanos::ZERO };
        let used_before = Used {
            limits: BTreeMap::from([(handles[0], Nanos(7))]),
            classes: BTreeMap::from([
                (handles[0], vec![spent(1), spent(2)]),
                (handles[1], vec![spent(1)]),
            ]),
        };
        assert_eq!(used(&of_limits(&used_before), &of_classes(&used_before)), used_before);
        let nobody = SpentClass { major: 0, spent: spent(1) };
        assert_eq!(used(&BTreeMap::from([(0, 1)]), &[nobody]), Used::default());
    }
}
