//! Patterns of names of devices: `veth*`, `tap?`.
//!
//! `*` stands for any number of characters, also for none, and `?` for one: as in a shell and in
//! nftables, but for brackets, which the kernel allows in names. A pattern matches a whole name.
//!
//! Source: glob(7).

use crate::NAME_MAX;
use std::fmt;
use std::str::FromStr;

/// A pattern that names of devices match.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Pattern(String);

/// A word that is no pattern of names.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoPattern {
    /// Nothing in it stands for anything.
    #[error("\"{0}\" is a name: a pattern has a * (any characters) or a ? (one)")]
    Name(String),
    /// It has what no name has.
    #[error(
        "the pattern \"{0}\" matches no interface: names have no blank and none of / : # ' \" \\ ,"
    )]
    Letters(String),
    /// It is too long.
    #[error(
        "the pattern \"{0}\" matches no interface: names have at most {NAME_MAX} characters, and \
         it asks for more"
    )]
    Long(String),
}

/// Whether `word` is to be read as a pattern, and not as a name.
pub fn is_pattern(word: &str) -> bool {
    word.contains(['*', '?'])
}

impl FromStr for Pattern {
    type Err = NoPattern;

    fn from_str(word: &str) -> Result<Self, NoPattern> {
        let is_foreign = |letter: char| {
            letter.is_whitespace() || letter.is_control() || "/:#'\"\\,".contains(letter)
        };
        if !is_pattern(word) {
            return Err(NoPattern::Name(word.to_owned()));
        }
        if word.contains(is_foreign) {
            return Err(NoPattern::Letters(word.to_owned()));
        }
        let least: usize = word.chars().filter(|&letter| letter != '*').map(char::len_utf8).sum();
        if least > NAME_MAX {
            return Err(NoPattern::Long(word.to_owned()));
        }
        Ok(Self(word.to_owned()))
    }
}

impl Pattern {
    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the whole of `name` matches.
    pub fn matches(&self, name: &str) -> bool {
        let (mut pattern, mut name) = (self.0.chars(), name.chars());
        // After the last star: what follows it, and what it has not taken yet.
        let mut star = None;
        loop {
            match (pattern.next(), name.clone().next()) {
                (Some('*'), _) => star = Some((pattern.clone(), name.clone())),
                (None, None) => return true,
                (Some('?'), Some(_)) => drop(name.next()),
                (Some(wanted), Some(letter)) if wanted == letter => drop(name.next()),
                _ => {
                    // The last star takes one more. Earlier ones need not: it can take whatever
                    // they could.
                    let Some((behind, rest)) = &mut star else { return false };
                    if rest.next().is_none() {
                        return false;
                    }
                    (pattern, name) = (behind.clone(), rest.clone());
                }
            }
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matches(pattern: &str, name: &str) -> bool {
        pattern.parse::<Pattern>().unwrap().matches(name)
    }

    #[test]
    fn a_star_is_any_number_of_characters_and_a_question_mark_is_one() {
        for (pattern, name) in [
            ("veth*", "veth"),
            ("veth*", "veth12"),
            ("tap?", "tap0"),
            ("*", "eth0"),
            ("*.100", "eth0.100"),
            ("v*h*1", "veth.eth21"),
            ("?*", "a"),
            ("t?p", "täp"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("veth*", "eth0"),
            ("veth*", "aveth1"),
            ("tap?", "tap"),
            ("tap?", "tap10"),
            ("*.100", "eth0.1000"),
            ("?*", ""),
            ("[a]*", "a1"),
        ] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn what_no_name_can_match_is_refused() {
        let refused = |word: &str| word.parse::<Pattern>().unwrap_err().to_string();
        assert!(refused("veth0").contains("is a name"));
        for word in ["a b*", "a/*", "a:*", "\"a*\"", "a*#", "a,*"] {
            assert!(refused(word).contains("names have no blank"), "{word}");
        }
        assert!(refused("sixteen-letters-*").contains("at most 15"));
        assert!("fifteen-letters*".parse::<Pattern>().is_ok());
    }

    /// By the definition, one character at a time.
    fn naive(pattern: &[char], name: &[char]) -> bool {
        match (pattern, name) {
            ([], []) => true,
            (['*', rest @ ..], _) => (0..=name.len()).any(|taken| naive(rest, &name[taken..])),
            (['?', rest @ ..], [_, others @ ..]) => naive(rest, others),
            ([wanted, rest @ ..], [letter, others @ ..]) => wanted == letter && naive(rest, others),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn it_matches_as_the_definition_says(
            pattern in "[ab*?ä]{0,7}[*?][ab*?]{0,3}",
            name in "[abä]{0,12}",
        ) {
            let letters = |text: &str| text.chars().collect::<Vec<_>>();
            let expected = naive(&letters(&pattern), &letters(&name));
            prop_assert_eq!(matches(&pattern, &name), expected);
        }
    }
}
