//! Prefixes whose membership is the opposite of their surroundings.

use crate::key::Key;
use crate::kind::Shape;
use crate::set::{Element, Set};
use narrows_image::Prefix;

/// A prefix whose membership is the opposite of its surroundings. In order, one comes before those
/// within it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Flip {
    pub(super) bits: u128,
    pub(super) len: u8,
}

impl Flip {
    /// At the prefix of `key`.
    pub(super) fn of(key: &Key) -> Self {
        Self { bits: u128::from_be_bytes(*key.bytes()), len: key.len() }
    }
}

/// Whether what `element` of `set` covers is in, as an image has it: of members with ports, if
/// there is anything to look up.
fn says(set: &Set, element: Element) -> bool {
    set.kind().shape == Shape::NetPort || !element.is_exception
}

/// The flips of `set` within `place` that are longer than it, in order; the rest of `place` has the
/// membership `is_in`.
pub(super) fn flips(set: &Set, place: Prefix, is_in: bool) -> Vec<Flip> {
    let mut found = Vec::new();
    // The flips around the present position, the outermost first, with the membership there.
    let mut around: Vec<(Prefix, bool)> = Vec::new();
    for (key, element) in set.from(Key::at(place.bits, place.len + 1)) {
        let flip = Flip::of(&key);
        if !place.covers(flip.bits) {
            break;
        }
        while around.pop_if(|(prefix, _)| !prefix.covers(flip.bits)).is_some() {}
        let outside = around.last().map_or(is_in, |(_, is_in)| *is_in);
        let inside = says(set, element);
        if inside != outside {
            found.push(flip);
            around.push((Prefix { bits: flip.bits, len: flip.len }, inside));
        }
    }
    found
}

/// Whether the longest prefix of `set` that covers all of `place` says that it is in.
pub(super) fn is_covered(set: &Set, place: Prefix) -> bool {
    let covering = set.lengths().filter(|len| *len <= place.len).find_map(|len| {
        let from = Key::at(place.bits, len);
        let (key, element) = set.from(from).next()?;
        // Of several with ports the first will do.
        let is_it = key.bytes() == from.bytes() && key.len() == len;
        is_it.then(|| says(set, element))
    });
    covering.unwrap_or(false)
}
