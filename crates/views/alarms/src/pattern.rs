//! Names with `*` for any letters.

/// Whether `name` has the form of `pattern`. Takes time in proportion to both lengths multiplied.
pub(crate) fn fits(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut in_name) = (0, 0);
    // Where the last star was, and how far the name was then.
    let mut star: Option<(usize, usize)> = None;
    while in_name < name.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at + 1, in_name));
                at += 1;
            }
            Some(letter) if *letter == name[in_name] => {
                at += 1;
                in_name += 1;
            }
            _ => match &mut star {
                Some((behind, from)) => {
                    *from += 1;
                    (at, in_name) = (*behind, *from);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|letter| *letter == '*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn naive(pattern: &[u8], name: &[u8]) -> bool {
        match pattern.split_first() {
            None => name.is_empty(),
            Some((b'*', rest)) => (0..=name.len()).any(|skip| naive(rest, &name[skip..])),
            Some((letter, rest)) => name.first() == Some(letter) && naive(rest, &name[1..]),
        }
    }

    proptest! {
        #[test]
        fn it_fits_as_the_naive_model_does(pattern in "[ab*]{0,7}", name in "[ab]{0,9}") {
            prop_assert_eq!(fits(&pattern, &name), naive(pattern.as_bytes(), name.as_bytes()));
        }
    }
}
