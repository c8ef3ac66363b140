//! A number with its noun: `1 packet`, `2 packets`, `0 classes`.
//!
//! Non-goals: irregular plurals, languages other than English, `tc`'s own output (its words are
//! always plural).

use std::fmt::Display;

/// `number` and `noun`, which is given in the singular and gets its plural unless `number` is 1.
pub fn counted<N: Copy + PartialEq + From<u8> + Display>(number: N, noun: &str) -> String {
    format!("{number} {}", plural(number, noun))
}

/// `noun`, which is given in the singular, in the form for `number` of it.
pub fn plural<N: PartialEq + From<u8>>(number: N, noun: &str) -> String {
    if number == N::from(1) {
        return noun.to_owned();
    }
    let vowel_y = ["ay", "ey", "oy", "uy"].iter().any(|end| noun.ends_with(end));
    match noun.strip_suffix('y') {
        Some(stem) if !vowel_y => format!("{stem}ies"),
        _ if ["s", "x", "ch", "sh"].iter().any(|end| noun.ends_with(end)) => format!("{noun}es"),
        _ => format!("{noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_is_singular() {
        assert_eq!([0_u64, 1, 2].map(|of| counted(of, "circuit")).join(" "), {
            "0 circuits 1 circuit 2 circuits"
        });
    }

    #[test]
    fn nouns_have_the_endings_of_english() {
        for (noun, many) in [
            ("class", "classes"),
            ("box", "boxes"),
            ("switch", "switches"),
            ("entry", "entries"),
            ("play", "plays"),
            ("CPU", "CPUs"),
            ("queue pair", "queue pairs"),
        ] {
            assert_eq!(plural(2_u32, noun), many);
        }
    }
}
