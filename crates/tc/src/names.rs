//! Names of classes: the file that `tc -nm` reads, `/etc/iproute2/tc_cls`.
//!
//! Each line is `MAJOR:MINOR NAME` with hexadecimal numbers, as tc-class handles are written; `#`
//! begins a comment. The names are for people: nothing takes one in the place of a handle, as in
//! `tc`. A handle has the same name at every device.
//!
//! Source: iproute2 6.1, `lib/names.c` and `tc/tc_util.c`. It ignores nothing and stops at a line
//! that it cannot read; here such a line is left out, since a page should not go dark for it.

use narrows_policy::ClassId;
use std::collections::HashMap;

/// Where `tc` has them.
pub const NAMES_FILE: &str = "/etc/iproute2/tc_cls";

/// Longest name, in characters; what is longer is cut. That of `tc`.
const LONGEST: usize = 255;

/// Names by class.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClassNames(HashMap<ClassId, String>);

impl ClassNames {
    /// Those in the text of a names file. Of two for one class the last holds.
    pub fn parse(text: &str) -> Self {
        let named = |line: &str| {
            let line = line.split('#').next()?;
            let mut words = line.split_ascii_whitespace();
            let class = class(words.next()?)?;
            let name = words.next()?;
            let clean = |letter: &char| !letter.is_control();
            Some((class, name.chars().filter(clean).take(LONGEST).collect()))
        };
        Self(text.lines().filter_map(named).collect())
    }

    /// The name of `class`, where it has one.
    pub fn get(&self, class: ClassId) -> Option<&str> {
        self.0.get(&class).map(String::as_str)
    }

    /// The name of the class whose handle is written as `handle`: `1:10`.
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
    fn a_line_that_is_none_is_left_out() {
        let names = ClassNames::parse("ten north\n1:10\n1:zz x\n#1:1 x\n1:2 ok\x1b[31m\n");
        assert_eq!(names.0.len(), 1);
        assert_eq!(names.of("1:2"), Some("ok[31m"));
    }
}
