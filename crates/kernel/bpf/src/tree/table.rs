//! Rules as the program looks them up: slots by hash, and sieves before them.
//!
//! *Slots.* A rule is in the slot that its key's hash says, or in one of the next few, with no
//! empty one between. So a look-up ends at the first empty slot. The table grows until all rules
//! are that near to their places.
//!
//! *Sieves.* For a byte of the key, each of its 256 values has a word with a bit for each mask:
//! whether it has a rule that such a byte may fit. A few bytes are enough; those are taken that
//! rule out most masks, and none if it would not.
//!
//! *Ranks.* Of all rules and terms the first by order decides. A rank is the number of one in that
//! order, from 1 on, so that rank and class fit into a word and the least word decides.
//!
//! *Scopes.* The rules of all scopes are in the same slots, each under its scope's number. Masks,
//! their ranks and sieves are common to them; each scope knows which masks its rules use.
//!
//! *Names.* The classes that a priority may name are in slots, too, under a mask that no packet is
//! looked up by.
//!
//! Non-goals: maps. This is pure.

use super::Term;
use super::layout::{BY_NAME, KEY_BYTES, Key, Mask, PROBES_MAX, Rule, SIEVES_MAX, SLOT_BYTES};
use std::collections::{BTreeMap, BTreeSet};

/// Slots for each rule at first.
const ROOM: usize = 4;
/// With so few masks a look-up under each costs no more than to ask sieves first.
const MASKS_FEW: usize = 2;
/// How often the table is doubled before it is given up.
const DOUBLINGS: u32 = 6;
/// A sieve is used if it leaves less than this part of the masks, on average over all values of its
/// byte.
const LEAVES: f64 = 0.75;

/// The factors of the hash in `programs/find_class.h`.
const FACTORS: [u64; 6] = [
    0x9e37_79b9_7f4a_7c15,
    0xbf58_476d_1ce4_e5b9,
    0x94d0_49bb_1331_11eb,
    0xd6e8_feb8_6659_fd93,
    0xa076_1d64_78bd_642f,
    0xe703_7ed1_a0b4_28db,
];

/// A byte of the key that rules out masks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Sieve {
    /// Which byte of the key.
    pub(super) at: u8,
    /// For each of its values the masks that are left.
    pub(super) left: Vec<u32>,
}

/// The look-up structure of the program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Table {
    /// The shift from a hash to a slot's number.
    pub(super) shift: u32,
    /// How many slots there are.
    pub(super) slots: u32,
    /// Those that are not empty, by their numbers.
    pub(super) filled: Vec<(u32, [u8; SLOT_BYTES])>,
    /// The least rank of the rules of each mask.
    pub(super) first: Vec<u64>,
    /// By scope, a bit for each mask that its rules use.
    used: BTreeMap<u16, u32>,
    /// By scope, the number of its first term, and how many it has.
    asked: BTreeMap<u16, [u16; 2]>,
    /// The ranks of the terms.
    pub(super) terms: Vec<u32>,
    /// At most [`SIEVES_MAX`].
    pub(super) sieves: Vec<Sieve>,
}

impl Default for Table {
    /// No rules.
    fn default() -> Self {
        let (filled, first, used, asked, terms, sieves) = Default::default();
        let slots = 2 + PROBES_MAX as u32;
        Self { shift: 63, slots, filled, first, used, asked, terms, sieves }
    }
}

impl Table {
    /// The table of names, and of rules whose keys have only bits of their masks, beside `terms`.
    /// `None` if so many collide that no table of a sensible size holds them.
    pub(super) fn of(
        masks: &[Mask],
        rules: &[Rule],
        names: &BTreeMap<u32, u32>,
        terms: &[Term],
    ) -> Option<Self> {
        let of_terms = terms.iter().map(|term| term.order);
        let orders: BTreeSet<u64> = rules.iter().map(|rule| rule.order).chain(of_terms).collect();
        let orders: Vec<u64> = orders.into_iter().collect();
        let place = |order: u64| 1 + orders.partition_point(|other| *other < order) as u64;
        let rank = |rule: &Rule| place(rule.order);
        let mut first = vec![u64::MAX; masks.len()];
        let mut used = BTreeMap::new();
        for rule in rules {
            *used.entry(rule.scope).or_default() |= 1 << rule.mask;
            if let Some(first) = first.get_mut(usize::from(rule.mask)) {
                *first = rank(rule).min(*first);
            }
        }
        let of = |rule: &Rule| (rule.bytes(), rank(rule) << 32 | u64::from(rule.class));
        let named = names.iter().map(|(name, class)| {
            let key = Key { mark: *name, ..Key::default() };
            // Any rank: a name has one class.
            (key.bytes(BY_NAME), 1 << 32 | u64::from(*class))
        });
        let keyed: Vec<([u8; 48], u64)> = rules.iter().map(of).chain(named).collect();
        let least = (keyed.len() * ROOM).next_power_of_two().trailing_zeros().max(1);
        let (bits, places) =
            (least..=least + DOUBLINGS).find_map(|bits| Some((bits, places(&keyed, bits)?)))?;
        let filled = places.into_iter().zip(&keyed).map(|(place, (key, rule))| {
            let mut slot = [0; SLOT_BYTES];
            slot[..48].copy_from_slice(key);
            slot[48..56].copy_from_slice(&rule.to_ne_bytes());
            (place, slot)
        });
        let slots = (1 << bits) + PROBES_MAX as u32;
        let sieves = if masks.len() > MASKS_FEW { sieves(masks, rules) } else { Vec::new() };
        let mut asked: BTreeMap<u16, [u16; 2]> = BTreeMap::new();
        for (number, term) in (0..).zip(terms) {
            asked.entry(term.scope).or_insert([number, 0])[1] += 1;
        }
        let (filled, terms) = (filled.collect(), terms.iter().map(|term| place(term.order) as u32));
        let terms = terms.collect();
        Some(Self { shift: 64 - bits, slots, filled, first, used, asked, terms, sieves })
    }

    /// A bit for each mask that the rules of a scope use.
    pub(super) fn masks_of(&self, scope: u16) -> u32 {
        self.used.get(&scope).copied().unwrap_or(0)
    }

    /// The number of the first term of a scope, and how many it has.
    pub(super) fn terms_of(&self, scope: u16) -> [u16; 2] {
        self.asked.get(&scope).copied().unwrap_or_default()
    }
}

/// The place of `key` among `1 << bits`.
fn place(key: &[u8; 48], bits: u32) -> u32 {
    let (words, _) = key.as_chunks();
    let products = words.iter().zip(FACTORS);
    let hash = products.fold(0u64, |sum, (word, factor)| {
        sum.wrapping_add(u64::from_ne_bytes(*word).wrapping_mul(factor))
    });
    (hash >> (64 - bits)) as u32
}

/// A slot for each of `keys`; `None` if one would be too far from its place.
fn places(keys: &[([u8; 48], u64)], bits: u32) -> Option<Vec<u32>> {
    let mut taken = vec![false; (1 << bits) + PROBES_MAX];
    let find = |(key, _): &([u8; 48], u64)| {
        let place = place(key, bits) as usize;
        let free = (place..place + PROBES_MAX).find(|slot| !taken[*slot])?;
        taken[free] = true;
        Some(free as u32)
    };
    keys.iter().map(find).collect()
}

/// The bytes that rule out most masks.
fn sieves(masks: &[Mask], rules: &[Rule]) -> Vec<Sieve> {
    let bits: Vec<[u8; 48]> = masks.iter().map(|mask| mask.bits.bytes(0)).collect();
    let keys: Vec<(usize, [u8; 48])> =
        rules.iter().map(|rule| (usize::from(rule.mask), rule.key.bytes(0))).collect();
    let sieve = |at: usize| {
        let mut left = vec![0u32; 256];
        let mut seen = BTreeSet::new();
        for (mask, key) in &keys {
            let asked = bits[*mask][at];
            if !seen.insert((*mask, key[at])) {
                continue;
            }
            let fits = |value: &usize| *value as u8 & asked == key[at];
            (0..256).filter(fits).for_each(|value| left[value] |= 1 << mask);
        }
        let ones: u32 = left.iter().map(|masks| masks.count_ones()).sum();
        (ones, Sieve { at: at as u8, left })
    };
    let most = (LEAVES * 256.0 * masks.len() as f64) as u32;
    let mut all: Vec<_> = (0..KEY_BYTES).map(sieve).filter(|(ones, _)| *ones < most).collect();
    all.sort_by_key(|(ones, _)| *ones);
    all.truncate(SIEVES_MAX);
    all.into_iter().map(|(_, sieve)| sieve).collect()
}

#[cfg(test)]
mod tests {
    use super::super::layout::SCOPE_SHIFT;
    use super::*;

    /// The program's look-up: sieves, then slots under each remaining mask.
    fn find(table: &Table, masks: &[Mask], scope: u16, key: &Key) -> Option<u32> {
        let bytes = key.bytes(0);
        let left = table.sieves.iter().fold(table.masks_of(scope), |left, sieve| {
            left & sieve.left[usize::from(bytes[usize::from(sieve.at)])]
        });
        let mut best: Option<u64> = None;
        for (number, mask) in masks.iter().enumerate().filter(|(mask, _)| left >> mask & 1 == 1) {
            if best.is_some_and(|best| table.first[number] > best >> 32) {
                break;
            }
            let masked = key.masked(&mask.bits).bytes(scope << SCOPE_SHIFT | number as u16);
            let place = place(&masked, 64 - table.shift);
            for slot in place..place + PROBES_MAX as u32 {
                let filled = table.filled.iter().find(|(at, _)| *at == slot);
                let Some((_, slot)) = filled else { break };
                if slot[..48] == masked {
                    let rule = u64::from_ne_bytes(slot[48..56].try_into().unwrap());
                    best = Some(best.map_or(rule, |best| best.min(rule)));
                    break;
                }
            }
        }
        best.map(|rule| rule as u32)
    }

    /// A walk over all rules.
    fn naive(masks: &[Mask], rules: &[Rule], scope: u16, key: &Key) -> Option<u32> {
        let matches = |rule: &&Rule| {
            rule.scope == scope && key.masked(&masks[usize::from(rule.mask)].bits) == rule.key
        };
        rules.iter().filter(matches).min_by_key(|rule| rule.order).map(|rule| rule.class)
    }

    /// A generator of numbers, the same each time: Knuth's.
    fn numbers(mut state: u64) -> impl FnMut(u64) -> u64 {
        move |below| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        }
    }

    /// Masks in the order of their rules, as `narrows-xdp` makes them.
    fn random(seed: u64, masks: u64, rules: u64) -> (Vec<Mask>, Vec<Rule>) {
        let mut next = numbers(seed);
        let mut by = BTreeMap::<Key, Vec<(u16, Key, u64, u32)>>::new();
        let mut keys = BTreeSet::new();
        for order in 0..rules {
            // Half of the fields, or all, by number.
            let number = next(masks) as u32;
            let bits = Key {
                source: u128::from(u32::MAX << (number % 5 * 6)),
                destination_port: if number.is_multiple_of(2) { u16::MAX } else { 0xfff0 },
                protocol: if number.is_multiple_of(3) { u8::MAX } else { 0 },
                ..Key::default()
            };
            let key = packet(&mut next).masked(&bits);
            let scope = next(3) as u16;
            if keys.insert((bits, scope, key)) {
                by.entry(bits).or_default().push((scope, key, order * 3, next(100) as u32));
            }
        }
        let mut by: Vec<_> = by.into_iter().collect();
        by.sort_by_key(|(_, rules)| rules[0].2);
        let masks = by.iter().map(|(bits, rules)| Mask { bits: *bits, first: rules[0].2 });
        let rules = (0u16..).zip(&by).flat_map(|(mask, (_, rules))| {
            let rule = move |&(scope, key, order, class)| Rule { scope, mask, key, order, class };
            rules.iter().map(rule)
        });
        (masks.collect(), rules.collect())
    }

    fn packet(next: &mut impl FnMut(u64) -> u64) -> Key {
        Key {
            source: u128::from(0x0a00_0000 + (next(4) << 16) + next(40)),
            destination_port: next(64) as u16,
            protocol: [6, 17][next(2) as usize],
            has: 1,
            ip: 4,
            ..Key::default()
        }
    }

    #[test]
    fn a_look_up_agrees_with_a_walk_over_all_rules() {
        for (seed, masks, count) in [(1, 1, 40), (2, 3, 100), (3, 10, 400), (4, 30, 300)] {
            let (masks, rules) = random(seed, masks, count);
            // Names are in the same slots, and no packet finds them.
            let names = (0..count as u32).map(|minor| (1 << 16 | minor, 1000)).collect();
            let table = Table::of(&masks, &rules, &names, &[]).unwrap();
            assert_eq!(table.filled.len(), rules.len() + count as usize);
            let (mut next, mut found) = (numbers(seed + 100), 0);
            for look in 0..3000 {
                let (mut key, mut scope) = (packet(&mut next), next(4) as u16);
                // Every other one is of a rule.
                if look % 2 == 0 {
                    let Rule { scope: of, mask, key: rule, .. } =
                        rules[next(rules.len() as u64) as usize];
                    scope = of;
                    let bits = masks[usize::from(mask)].bits;
                    key.source = key.source & !bits.source | rule.source;
                    key.destination_port =
                        key.destination_port & !bits.destination_port | rule.destination_port;
                    key.protocol = key.protocol & !bits.protocol | rule.protocol;
                }
                let expected = naive(&masks, &rules, scope, &key);
                assert_eq!(find(&table, &masks, scope, &key), expected, "{key:?}");
                found += u32::from(expected.is_some());
            }
            assert!(found > 1000, "{found}");
        }
    }

    #[test]
    fn neighbouring_addresses_and_ports_stay_near_their_places() {
        let bits = Key { destination: u32::MAX.into(), destination_port: 0xffff, ..Key::default() };
        let masks = [Mask { bits, first: 0 }];
        let key = |number: u32| Key {
            destination: u128::from(0x0a00_0000 + number / 4),
            destination_port: (number % 4) as u16,
            ..Key::default()
        };
        let rule =
            |number| Rule { scope: 0, mask: 0, key: key(number), order: number.into(), class: 1 };
        let rules: Vec<Rule> = (0..super::super::layout::RULES_MAX as u32).map(rule).collect();
        let table = Table::of(&masks, &rules, &BTreeMap::new(), &[]).unwrap();
        assert!(table.slots as usize <= 8 * rules.len(), "{}", table.slots);
    }

    #[test]
    fn a_byte_that_rules_nothing_out_is_no_sieve() {
        let bits = |port: u16| Key { destination_port: port, has: 1, ..Key::default() };
        let masks = [0xffff, 0xfffe, 0xfffc].map(|port| Mask { bits: bits(port), first: 0 });
        let rules = [0, 1, 2].map(|mask| Rule {
            scope: 0,
            mask,
            key: bits(8),
            order: mask.into(),
            class: 1,
        });
        let table = Table::of(&masks, &rules, &BTreeMap::new(), &[]).unwrap();
        // Both bytes of the port and whether there is one: addresses say nothing.
        assert_eq!(table.sieves.iter().map(|sieve| sieve.at).max(), Some(41));
        assert_eq!(table.sieves.len(), 3);
        // With a mask or two there are none.
        let few = Table::of(&masks[..2], &rules[..2], &BTreeMap::new(), &[]).unwrap();
        assert_eq!(few.sieves, []);
    }
}
