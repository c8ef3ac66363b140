//! The numbers of classes: each follows the identity of its subscriber or site.
//!
//! A running class keeps its queue and its counters under its number. So a subscriber must not get
//! another's number because a row was added, removed or moved. The first choice is a hash of the
//! identity, which is the same in every import. Two identities may choose one number; then the
//! result depends on nothing but the set of identities. Numbers of a former import, which the
//! caller may keep in a file, come first.
//!
//! Hash: FNV-1a (Fowler, Noll, Vo; 64 bits) with the last mixing step of MurmurHash3. It is part
//! of the format: another one would renumber every subscriber.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// The numbers for subscribers and sites. A class and its qdisc share the number: these are above
/// those that the kernel and people choose for qdiscs, which have 16 bits.
pub(crate) const RANGE: std::ops::RangeInclusive<u32> = 0x1_0000..=0xff_ffff;

/// Why a file of numbers cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct NumbersError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong.
    pub why: &'static str,
}

/// The numbers that were given before, by key. The key of a subscriber is `circuit IDENTITY`, that
/// of a site `node IDENTITY`. Clones share them: one is made for each application of a directory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Numbers(Arc<Kept>);

/// Kept numbers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Kept {
    by_key: HashMap<String, u32>,
    /// All of them, so that a new one costs no look at all others.
    taken: HashSet<u32>,
}

impl Kept {
    fn insert(&mut self, key: String, number: u32) {
        if let Some(former) = self.by_key.insert(key, number) {
            self.taken.remove(&former);
        }
        self.taken.insert(number);
    }
}

/// What the key of a subscriber begins with.
pub(crate) const SUBSCRIBER: &str = "circuit ";
/// What the key of a site begins with.
pub(crate) const SITE: &str = "node ";

/// The key of a subscriber's number.
fn of_subscriber(identity: &str) -> String {
    format!("{SUBSCRIBER}{identity}")
}

/// The key of a site's number.
fn of_site(identity: &str) -> String {
    format!("{SITE}{identity}")
}

impl Numbers {
    /// The number of a subscriber, if it has one.
    pub fn of_subscriber(&self, identity: &str) -> Option<u32> {
        self.0.by_key.get(&of_subscriber(identity)).copied()
    }

    /// The number of a site, if it has one.
    pub fn of_site(&self, identity: &str) -> Option<u32> {
        self.0.by_key.get(&of_site(identity)).copied()
    }

    /// Keeps `number` for `key`.
    pub fn keep(&mut self, key: String, number: u32) {
        Arc::make_mut(&mut self.0).insert(key, number);
    }

    /// The keys of all sites and subscribers of `directory` that have no number yet, each with the
    /// number that it gets.
    pub fn missing(&self, directory: &crate::Directory) -> Vec<(String, u32)> {
        let sites = directory.sites.keys().map(|identity| of_site(identity));
        let subscribers = directory.subscribers.keys().map(|identity| of_subscriber(identity));
        let keys: Vec<String> =
            sites.chain(subscribers).filter(|key| !self.0.by_key.contains_key(key)).collect();
        let numbers = self.assign(&keys);
        keys.into_iter().zip(numbers).collect()
    }

    /// The numbers of keys that are given as their beginning and their rest, and differ.
    pub(crate) fn of_keys<'a>(
        &self,
        keys: impl Iterator<Item = (&'static str, &'a str)>,
    ) -> Vec<u32> {
        let (mut key, mut missing) = (String::new(), Vec::new());
        let mut numbers: Vec<u32> = Vec::new();
        for (kind, identity) in keys {
            key.clear();
            key.push_str(kind);
            key.push_str(identity);
            let number = self.0.by_key.get(&key).copied();
            if number.is_none() {
                missing.push((numbers.len(), key.clone()));
            }
            numbers.push(number.unwrap_or_default());
        }
        let (places, keys): (Vec<usize>, Vec<String>) = missing.into_iter().unzip();
        if !keys.is_empty() {
            for (place, number) in places.into_iter().zip(self.assign(&keys)) {
                numbers[place] = number;
            }
        }
        numbers
    }

    /// The numbers of what is in `rows`, old and new ones, and of nothing else.
    pub fn of_rows(&self, rows: &crate::Rows) -> Self {
        let sites = rows.sites.iter().map(|row| of_site(&row.identity));
        let subscribers = rows.subscribers.iter().map(|row| of_subscriber(&row.identity));
        let keys: Vec<String> = sites.chain(subscribers).collect();
        let numbers = self.assign(&keys);
        keys.into_iter().zip(numbers).collect()
    }

    /// Reads what [`write`](Self::write) wrote.
    ///
    /// # Errors
    /// If a line is not from there, or says a number or a key again.
    pub fn read(text: &str) -> Result<Self, NumbersError> {
        let mut kept = Kept::default();
        for (index, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let entry = line.split_once(' ').and_then(|(number, identity)| {
                let number = u32::from_str_radix(number, 16).ok();
                let identity = serde_json::from_str::<String>(identity).ok()?;
                Some((number.filter(|number| RANGE.contains(number))?, identity))
            });
            let why = |why| NumbersError { line: index + 1, why };
            let (number, identity) = entry.ok_or_else(|| {
                why("a number and an identity are expected, as an import wrote them")
            })?;
            if kept.taken.contains(&number) || kept.by_key.contains_key(&identity) {
                return Err(why("a number or an identity occurs twice"));
            }
            kept.insert(identity, number);
        }
        Ok(Self(Arc::new(kept)))
    }

    /// A number for each of `identities` (keys), which differ from each other and fit the range.
    pub fn assign(&self, identities: &[String]) -> Vec<u32> {
        let mut numbers: Vec<Option<u32>> =
            identities.iter().map(|identity| self.0.by_key.get(identity).copied()).collect();
        // A subscriber that is gone leaves its number free only for the next import: in this one,
        // the class of that number still runs.
        let mut taken: HashSet<u32> = HashSet::new();
        let mut waiting: BTreeSet<(&str, usize)> = (identities.iter().enumerate())
            .filter(|(index, _)| numbers[*index].is_none())
            .map(|(index, identity)| (identity.as_str(), index))
            .collect();
        // All first choices come before the second ones, so few depend on others.
        for attempt in 0_u64.. {
            waiting.retain(|(identity, index)| {
                let choice = choice(identity, attempt);
                let is_free = !self.0.taken.contains(&choice) && taken.insert(choice);
                if is_free {
                    numbers[*index] = Some(choice);
                }
                !is_free
            });
            if waiting.is_empty() {
                break;
            }
        }
        numbers.into_iter().flatten().collect()
    }

    /// The file for the next import.
    pub fn write(&self) -> String {
        let sorted: BTreeMap<&String, &u32> = self.0.by_key.iter().collect();
        let mut text = "# The numbers of classes, for the next import.\n".to_owned();
        for (identity, number) in sorted {
            text.push_str(&format!("{number:x} {}\n", serde_json::Value::from(identity.as_str())));
        }
        text
    }
}

impl FromIterator<(String, u32)> for Numbers {
    fn from_iter<I: IntoIterator<Item = (String, u32)>>(numbers: I) -> Self {
        let mut kept = Kept::default();
        numbers.into_iter().for_each(|(key, number)| kept.insert(key, number));
        Self(Arc::new(kept))
    }
}

/// The number that `identity` chooses at an attempt.
fn choice(identity: &str, attempt: u64) -> u32 {
    let bytes = identity.bytes().chain(attempt.to_le_bytes());
    let fnv = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let mixed = (fnv ^ (fnv >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let mixed = mixed ^ (mixed >> 33);
    let width = u64::from(RANGE.end() - RANGE.start()) + 1;
    // Below the width, which has 24 bits.
    RANGE.start() + (mixed % width) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(range: std::ops::Range<u32>) -> Vec<String> {
        range.map(|index| format!("circuit {index}")).collect()
    }

    #[test]
    fn the_hash_is_part_of_the_format() {
        /// Written down from the first version.
        const KNOWN: [u32; 3] = [7_445_761, 6_832_399, 985_278];
        assert_eq!(Numbers::default().assign(&names(0..3)), KNOWN);
    }

    #[test]
    fn numbers_differ_however_many_there_are() {
        let names = names(0..200_000);
        let numbers = Numbers::default().assign(&names);
        assert_eq!(numbers.len(), names.len());
        assert_eq!(numbers.iter().collect::<HashSet<_>>().len(), names.len());
        assert!(numbers.iter().all(|number| RANGE.contains(number)));
    }

    #[test]
    fn the_order_of_rows_does_not_matter() {
        let names = names(0..100_000);
        let numbers = Numbers::default().assign(&names);
        let mut turned: Vec<String> = names.clone();
        turned.reverse();
        let mut again = Numbers::default().assign(&turned);
        again.reverse();
        assert_eq!(numbers, again);
    }

    #[test]
    fn kept_numbers_stay_and_are_not_given_to_others() {
        let old = names(0..1_000);
        let mut numbers = Numbers::default().assign(&old);
        // A number that no hash chose.
        numbers[7] = 0x1_0001;
        let kept =
            Numbers::read(&old.iter().cloned().zip(numbers.clone()).collect::<Numbers>().write())
                .unwrap();
        let new = names(500..2_000);
        let again = kept.assign(&new);
        assert_eq!(again[..500], numbers[500..]);
        let gone: HashSet<u32> = numbers[..500].iter().copied().collect();
        assert!(again.iter().all(|number| !gone.contains(number)));
    }

    #[test]
    fn a_file_that_is_not_a_former_imports_is_refused_with_its_line() {
        for text in [
            "x",
            "10000",
            "10000 name",
            "1 \"a\"",
            "10000 \"a\"\n10000 \"b\"",
            "10001 \"a\"\n10000 \"a\"",
        ] {
            let why = Numbers::read(text).unwrap_err().to_string();
            assert!(why.starts_with("line "), "{why}");
        }
        assert!(Numbers::read("# a\n\n10000 \"a \\\" b\"\n").is_ok());
    }
}
