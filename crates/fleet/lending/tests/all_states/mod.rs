//! Visits all states of a small world, for the models of loans and of claims.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Calls `each` for every state that `next` leads to from `first`, once. Returns how many there
/// are.
pub fn visit<S: Hash>(first: S, next: impl Fn(&S) -> Vec<S>, mut each: impl FnMut(&S)) -> usize {
    let part = |key: u8, state: &S| {
        let mut hasher = DefaultHasher::new();
        (key, state).hash(&mut hasher);
        hasher.finish()
    };
    // Two hashes of different keys stand for a state: 128 bits do not meet by chance.
    let hash = |state: &S| (part(0, state), part(1, state));
    let mut seen = HashSet::from([hash(&first)]);
    let mut open = vec![first];
    while let Some(state) = open.pop() {
        each(&state);
        open.extend(next(&state).into_iter().filter(|next| seen.insert(hash(next))));
    }
    seen.len()
}

/// Takes one of what is left of something that may happen so often. Returns whether there was one.
pub fn spend(left: &mut u8) -> bool {
    let spent = left.checked_sub(1);
    *left = spent.unwrap_or(0);
    spent.is_some()
}
