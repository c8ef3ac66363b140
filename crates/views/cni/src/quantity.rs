//! Quantities as Kubernetes writes them: `10M`, `512Ki`.

/// What a suffix multiplies by.
const SUFFIXES: [(&str, u64); 10] = [
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("Pi", 1 << 50),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("P", 1_000_000_000_000_000),
];

/// A whole number, perhaps with a suffix; none for anything else, also for fractions.
pub(crate) fn quantity(word: &str) -> Option<u64> {
    let (digits, unit) = SUFFIXES
        .iter()
        .find_map(|(suffix, unit)| Some((word.strip_suffix(suffix)?, *unit)))
        .unwrap_or((word, 1));
    let is_number = !digits.is_empty() && digits.bytes().all(|letter| letter.is_ascii_digit());
    is_number.then(|| digits.parse::<u64>().ok()?.checked_mul(unit)).flatten()
}
