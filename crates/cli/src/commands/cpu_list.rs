//! Lists of CPUs on the command line: `0,2-5`, as the kernel writes them (cpuset(7)).

use std::ops::RangeInclusive;
use std::str::FromStr;

/// The highest number of a CPU; Linux has at most 8,192.
const MOST: u32 = 8191;

/// One CPU, or those from one to another: what stands between commas.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cpus(RangeInclusive<u32>);

impl Cpus {
    /// The numbers in `list`, in its order.
    pub fn numbers(list: &[Self]) -> Vec<u32> {
        list.iter().flat_map(|part| part.0.clone()).collect()
    }
}

impl FromStr for Cpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse().ok().filter(|number| *number <= MOST);
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => Ok(Self(first..=last)),
            _ => Err(format!("give numbers of CPUs up to {MOST}, or from one to another: 0,2-5")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_ranges_are_lists() {
        let parts: Vec<Cpus> = "0,2-5,7-7".split(',').map(|it| it.parse().unwrap()).collect();
        assert_eq!(Cpus::numbers(&parts), [0, 2, 3, 4, 5, 7]);
        for wrong in ["", "-1", "1-", "5-2", "a", "1-2-3", "8192", "0-99999999999"] {
            assert!(Cpus::from_str(wrong).is_err(), "{wrong}");
        }
    }
}
