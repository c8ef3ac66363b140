//! Names of fields, each of which is in memory once.
//!
//! tc has a few hundred, and each class and qdisc has dozens of them. Names are kept for the life
//! of the process, so their number and length are bounded: what an instance sends cannot fill
//! memory. Others are written out where they are.

use std::collections::HashMap;
use std::sync::{OnceLock, PoisonError, RwLock};

/// The most names.
const NAMES_MAX: usize = 1024;
/// The longest name, in bytes.
const LENGTH_MAX: usize = 64;

/// By number; read without a lock.
static NAMES: [OnceLock<&str>; NAMES_MAX] = [const { OnceLock::new() }; NAMES_MAX];
static NUMBERS: RwLock<Option<HashMap<&str, usize>>> = RwLock::new(None);

/// The number of `name`, if it has one or can have one. Once it has none, it never has.
pub(crate) fn number(name: &str) -> Option<usize> {
    if let Some(number) = known(name) {
        return Some(number);
    }
    if name.len() > LENGTH_MAX {
        return None;
    }
    let mut numbers = NUMBERS.write().unwrap_or_else(PoisonError::into_inner);
    let numbers = numbers.get_or_insert_default();
    // Another thread may have been here.
    let number = numbers.get(name).copied().unwrap_or(numbers.len());
    let place = NAMES.get(number)?;
    let kept = place.get_or_init(|| Box::leak(name.into()));
    numbers.insert(kept, number);
    Some(number)
}

/// The number of `name`, if it has one.
pub(crate) fn known(name: &str) -> Option<usize> {
    let numbers = NUMBERS.read().unwrap_or_else(PoisonError::into_inner);
    numbers.as_ref()?.get(name).copied()
}

/// The name with this number.
pub(crate) fn name(number: usize) -> &'static str {
    NAMES.get(number).and_then(OnceLock::get).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_number() {
        let [one, two] = ["lended", "borrowed"].map(|name| number(name).unwrap());
        assert_ne!(one, two);
        assert_eq!(
            (number("lended"), known("lended"), name(one)),
            (Some(one), Some(one), "lended")
        );
        assert_eq!((number(&"x".repeat(LENGTH_MAX + 1)), known("never told")), (None, None));
    }
}
