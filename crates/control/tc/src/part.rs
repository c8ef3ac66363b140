//! The part of a policy file that is for one device, where lines may name a pattern of devices.
//!
//! Each line stays at its number, so that complaints name the line in the file that the operator
//! wrote. A line that names no device is in every part, as with [`route`](crate::route()).

use crate::lines::{lines, words};
use crate::route::named;

/// The lines of `text` that name no device, or one to which `name` gives a name, which takes its
/// place.
pub fn part<'a>(text: &str, name: impl Fn(&str) -> Option<&'a str>) -> String {
    let mut part = String::new();
    let mut at = 1;
    for line in lines(text) {
        let taken = match words(&line.text) {
            Ok(words) if words.is_empty() => continue,
            Ok(words) => match named(&words) {
                Some(dev) => name(dev).map(|name| replaced(&line.text, dev, name)),
                None => Some(line.text.to_string()),
            },
            // Its complaint is the same in every part.
            Err(_) => Some(line.text.to_string()),
        };
        let Some(taken) = taken else { continue };
        part.extend(std::iter::repeat_n('\n', line.number - at));
        part.push_str(&taken);
        if taken.ends_with('\\') {
            // It was before a comment, and does not continue the line.
            part.push(' ');
        }
        at = line.number;
    }
    if !part.is_empty() {
        part.push('\n');
    }
    part
}

/// `text` with `name` in the place of `word`, which is a part of it.
fn replaced(text: &str, word: &str, name: &str) -> String {
    let begin = word.as_ptr().addr() - text.as_ptr().addr();
    let (before, behind) = (&text[..begin], &text[begin + word.len()..]);
    [before, name, behind].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of_veth(text: &str) -> String {
        part(text, |dev| (dev == "veth*").then_some("veth12"))
    }

    #[test]
    fn a_line_for_the_pattern_names_the_device_and_stays_at_its_number() {
        let text = "# veth*\n\
                    qdisc add dev eth0 root pfifo\n\
                    qdisc add dev veth* root \\\n handle 1: htb # veth*\n\
                    class add dev \"veth*\" parent 1: classid 1:1 htb rate 1mbit\n\
                    class add parent 1: classid 1:2 dev 'veth*' htb rate 1mbit\n";
        let expected = "\n\n\nqdisc add dev veth12 root  handle 1: htb \n\
                        class add dev \"veth12\" parent 1: classid 1:1 htb rate 1mbit\n\
                        class add parent 1: classid 1:2 dev 'veth12' htb rate 1mbit\n";
        assert_eq!(of_veth(text), expected);
    }

    #[test]
    fn only_the_device_is_replaced_and_what_names_none_is_for_all() {
        let text = "filter add dev veth* parent 1: basic action mirred egress mirror dev veth*\n";
        assert!(
            of_veth(text)
                .ends_with("dev veth12 parent 1: basic action mirred egress mirror dev veth*\n")
        );
        assert_eq!(
            of_veth("actions add action drop index 1\n"),
            "actions add action drop index 1\n"
        );
        assert_eq!(of_veth("qdisc add dev eth0 root pfifo"), "");
        assert_eq!(of_veth("qdisc add dev 'veth*"), "qdisc add dev 'veth*\n");
    }

    fn said(text: &str) -> Vec<(usize, Vec<String>)> {
        let owned = |text: &str| -> Vec<String> {
            words(text).unwrap_or_default().into_iter().map(str::to_owned).collect()
        };
        let lines = lines(text).map(|line| (line.number, owned(&line.text)));
        lines.filter(|(_, words)| !words.is_empty()).collect()
    }

    proptest! {
        #[test]
        fn a_part_says_what_the_file_says_of_the_device_and_nothing_else(
            text in "(dev |veth\\* |eth0 |\"veth\\*\" |a |# |\\\\\n|\\\\ |\n){0,24}",
        ) {
            let mut expected = said(&text);
            expected.retain_mut(|(_, words)| {
                let Some(at) = words.iter().position(|word| word == "dev") else { return true };
                match words.get_mut(at + 1) {
                    Some(dev) if dev == "veth*" => *dev = "veth12".to_owned(),
                    Some(_) => return false,
                    None => {}
                }
                true
            });
            prop_assert_eq!(said(&of_veth(&text)), expected);
        }
    }
}
