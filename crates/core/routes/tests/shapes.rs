//! Images of IPv6 of many prefixes, whatever these have in common: how much they take, how many
//! reads a look-up is, and that they follow when most prefixes go and come back.

use narrows_image::{Full, Memory, Prefix, Words};
use narrows_routes::Number;
use narrows_routes::image::{Family, Layout, Source};
use std::cell::Cell;
use std::collections::BTreeMap;

/// So many prefixes that a look-up through all of them would take too long.
const PREFIXES: usize = 20_000;
/// The words of the first field, and at most so many for each prefix.
const FIRST_WORDS: usize = 4096;
const WORDS_MAX: usize = 32;

/// The model: prefixes, which are looked up by each length that there is.
#[derive(Clone)]
struct Prefixes {
    all: BTreeMap<Prefix, Number>,
    lengths: [u32; 129],
}

impl Prefixes {
    fn new(all: impl IntoIterator<Item = Prefix>) -> Self {
        let mut prefixes = Self { all: BTreeMap::new(), lengths: [0; 129] };
        for (at, prefix) in all.into_iter().enumerate() {
            prefixes.add(prefix, number(at));
        }
        prefixes
    }

    fn add(&mut self, prefix: Prefix, number: Number) {
        if self.all.insert(prefix, number).is_none() {
            self.lengths[usize::from(prefix.len)] += 1;
        }
    }

    fn remove(&mut self, prefix: Prefix) {
        if self.all.remove(&prefix).is_some() {
            self.lengths[usize::from(prefix.len)] -= 1;
        }
    }
}

/// Neighbours have different ones.
fn number(at: usize) -> Number {
    Number(3 + (at % 61) as u16)
}

impl Source for Prefixes {
    fn prefixes(&self) -> usize {
        self.all.len()
    }

    fn number_of(&self, place: Prefix) -> Number {
        let lengths = (1..=place.len).rev().filter(|len| self.lengths[usize::from(*len)] > 0);
        let mut covering = lengths.map(|len| Prefix::new(place.bits, len));
        covering.find_map(|prefix| self.all.get(&prefix).copied()).unwrap_or(Number::DEFAULT)
    }

    fn within(&self, place: Prefix) -> impl Iterator<Item = (Prefix, Number)> {
        let first = Prefix { bits: place.bits, len: place.len + 1 };
        let within = self.all.range(first..=Prefix { bits: place.last(), len: u8::MAX });
        within.map(|(prefix, number)| (*prefix, *number))
    }
}

/// Memory that counts what is read of it.
struct Read<'a>(&'a Words, Cell<usize>);

impl Memory for Read<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn read(&self, at: usize) -> u64 {
        self.1.set(self.1.get() + 1);
        self.0.read(at)
    }

    fn write(&mut self, _: usize, _: u64) {
        unreachable!("a look-up writes nothing")
    }

    fn publish(&mut self, _: usize, _: u64) {
        unreachable!("a look-up writes nothing")
    }
}

/// Numbers that look random, the same each time (splitmix64).
fn random(seed: u64) -> impl FnMut() -> u128 {
    let mut state = seed;
    let mut next = move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        u128::from(mixed ^ mixed >> 31)
    };
    move || next() << 64 | next()
}

/// With a full table's lengths, all over 2000::/3.
fn full_table(count: usize) -> Prefixes {
    const LENGTHS: [u8; 20] =
        [48, 48, 48, 48, 48, 48, 48, 48, 48, 32, 32, 32, 44, 44, 40, 40, 36, 46, 42, 29];
    let mut next = random(6);
    let prefix = |at| Prefix::new(1 << 125 | next() >> 3, LENGTHS[at % LENGTHS.len()]);
    Prefixes::new((0..count).map(prefix))
}

fn shapes() -> Vec<(&'static str, Prefixes)> {
    let begin = 0x2001_0db8_u128 << 96;
    let all = 0..PREFIXES as u128;
    let any_length = {
        let mut next = random(1);
        all.clone().map(|_| Prefix::new(next(), 1 + (next() % 128) as u8)).collect::<Vec<_>>()
    };
    // One differs early, one later, and so on: fields that hardly tell the others apart.
    let stragglers = (12..125).map(|bit| Prefix::new(begin ^ 1 << (127 - bit), 126));
    vec![
        ("a full table", full_table(PREFIXES)),
        (
            "each /48 of a /32",
            Prefixes::new(all.clone().map(|at| Prefix::new(begin | at << 80, 48))),
        ),
        (
            "each /64 of a /48",
            Prefixes::new(all.clone().map(|at| Prefix::new(begin | at << 64, 64))),
        ),
        ("hosts of a link", Prefixes::new(all.clone().map(|at| Prefix::new(begin | at, 128)))),
        (
            "hosts of many links",
            Prefixes::new(all.clone().map(|at| Prefix::new(begin | at << 72 | 1, 128))),
        ),
        (
            "a host in each /16",
            Prefixes::new(all.clone().map(|at| Prefix::new(at << 112 | at << 20 | 1, 128))),
        ),
        ("any length", Prefixes::new(any_length)),
        (
            "one in the other",
            Prefixes::new(all.clone().map(|at| {
                Prefix::new(begin | (at / 97) << 85 | u128::MAX >> 50, 32 + (at % 97) as u8)
            })),
        ),
        ("stragglers", Prefixes::new(all.map(|at| Prefix::new(begin | at, 128)).chain(stragglers))),
    ]
}

fn laid_out(prefixes: &Prefixes) -> (Layout, Words) {
    let size = Layout::size(prefixes, Family::V6);
    let mut words = Words(vec![0; size]);
    let layout = Layout::new(prefixes, Family::V6, &mut words).expect("it was measured");
    // Room for changes.
    words.0.resize(size + size / 4 + 16_384, 0);
    (layout, words)
}

/// Looks up both ends of each of `prefixes`, and what is beside them.
fn agree(shape: &str, prefixes: &Prefixes, all: &Prefixes, (layout, words): &(Layout, Words)) {
    for prefix in all.all.keys() {
        let last = prefix.last();
        for address in [prefix.bits, last, prefix.bits.wrapping_sub(1), last.wrapping_add(1)] {
            let expected = prefixes.number_of(Prefix { bits: address, len: 128 });
            assert_eq!(layout.find(words, address), expected, "{shape}: {address:x}");
        }
    }
}

/// Updates the image, or lays it out again.
fn update(prefixes: &Prefixes, changed: &[Prefix], image: &mut (Layout, Words)) {
    if image.0.update(prefixes, changed, &mut image.1) == Err(Full) {
        *image = laid_out(prefixes);
    }
}

#[test]
fn no_shape_takes_many_words_for_a_prefix() {
    for (shape, prefixes) in shapes() {
        let most = FIRST_WORDS + WORDS_MAX * prefixes.all.len();
        let size = Layout::size(&prefixes, Family::V6);
        assert!(size <= most, "{shape}: {size} words for {} prefixes", prefixes.all.len());
    }
}

#[test]
fn most_addresses_of_a_full_table_take_one_read_behind_the_first_field_in_12_mib() {
    let prefixes = full_table(220_000);
    let (layout, words) = laid_out(&prefixes);
    assert!(words.len() * size_of::<u64>() <= 12 << 20, "{} words", words.len());
    let read = Read(&words, Cell::new(0));
    let few = prefixes.all.keys().filter(|prefix| {
        read.1.set(0);
        layout.find(&read, prefix.bits);
        read.1.get() <= 2
    });
    let share = few.count() as f64 / prefixes.all.len() as f64;
    assert!(share > 0.75, "{share}");
}

#[test]
fn images_of_any_shape_follow_when_most_prefixes_go_and_come_back() {
    for (shape, all) in shapes() {
        let mut image = laid_out(&all);
        agree(shape, &all, &all, &image);
        let mut left = all.clone();
        let going: Vec<Prefix> = all
            .all
            .keys()
            .copied()
            .enumerate()
            .filter(|(at, _)| at % 16 > 0)
            .map(|it| it.1)
            .collect();
        // In batches, as notifications come.
        for batch in going.chunks(going.len() / 8) {
            batch.iter().for_each(|prefix| left.remove(*prefix));
            update(&left, batch, &mut image);
        }
        agree(shape, &left, &all, &image);
        // From a small image on.
        image = laid_out(&left);
        for (at, batch) in going.chunks(going.len() / 8).enumerate() {
            batch.iter().for_each(|prefix| left.add(*prefix, number(at)));
            update(&left, batch, &mut image);
        }
        agree(shape, &left, &all, &image);
    }
}
