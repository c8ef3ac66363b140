//! Names of classes: the file that `tc -nm` reads, `/etc/iproute2/tc_cls`.
//!
//! Each line is `MAJOR:MINOR NAME` with hexadecimal numbers, as in handles; `#` begins a comment.
//! Names are for display only: as in `tc`, no command accepts one in place of a handle. A handle
//! has the same name on all devices.
//!
//! Source: iproute2 6.1, `lib/names.c` and `tc/tc_util.c`. It stops at the first line that it
//! cannot read. Here such a line is skipped, because a live view should not lose all names for it.

use narrows_policy::ClassId;
use narrows_units::without_mark;
use std::collections::HashMap;

/// The default file of `tc`.
pub const NAMES_FILE: &str = "/etc/iproute2/tc_cls";

/// The longest name, in characters; longer ones are cut, as in `tc`.
const LONGEST: usize = 255;

/// Names by class.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClassNames(HashMap<ClassId, String>);

impl ClassNames {
    /// Parses a names file. Of two names for a class the last counts.
    pub fn parse(text: &str) -> Self {
        let named = |line: &str| {
            let line = line.split('#').next()?;
            let mut words = line.split_ascii_whitespace();
            let class = class(words.next()?)?;
            let name = words.next()?;
            let clean = |letter: &char| !letter.is_control();
            Some((class, name.chars().filter(clean).take(LONGEST).collect()))
        };
        Self(without_mark(text).lines().filter_map(named).collect())
    }

    /// The name of `class`, if it has one.
    pub fn get(&self, class: ClassId) -> Option<&str> {
        self.0.get(&class).map(String::as_str)
    }

    /// The name of the class with the textual handle `handle`: `1:10`.
    pub fn of(&self, handle: &str) -> Option<&str> {
        self.get(class(handle)?)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn class(handle: &str) -> Option<ClassId> {
    let (major, minor) = handle.split_once(':')?;
    let number = |text: &str| u32::from_str_radix(text, 16).ok();
    Some(ClassId { major: number(major)?, minor: number(minor)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_a_class() {
        let names = ClassNames::parse(
            "# sites\n1:10 north\n\n  1:1a\tAnn # since May\n1:10 north-2\n2: uplink\n",
        );
        assert_eq!(names.of("1:10"), Some("north-2"));
        assert_eq!(names.of("1:1a"), Some("Ann"));
        assert_eq!(names.of("1:1b"), None);
    }

    #[test]
    fn the_mark_of_an_editor_is_no_part_of_the_first_line() {
        let names = ClassNames::parse("\u{feff}1:10 north\r\n1:11 south\r\n");
        assert_eq!([names.of("1:10"), names.of("1:11")], [Some("north"), Some("south")]);
    }

    #[test]
    fn a_line_that_is_none_is_left_out() {
        let names = ClassNames::parse("ten north\n1:10\n1:zz x\n#1:1 x\n1:2 ok\x1b[31m\n");
        assert_eq!(names.0.len(), 1);
        assert_eq!(names.of("1:2"), Some("ok[31m"));
    }
}
