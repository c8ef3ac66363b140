//! `ipset`'s grammar: words into a command.

use crate::kind::{Family, Kind, Shape};
use narrows_classify::SetName;
use narrows_units::Rate;

/// As in the kernel (`IPSET_MAX_TIMEOUT`), in seconds: 24 days.
const TIMEOUT_MAX: u32 = 2_147_483;
/// As in the kernel (`IPSET_MAX_COMMENT_SIZE`), in bytes.
const COMMENT_MAX: usize = 255;
/// A set of more than this needs more memory than a list is worth.
const MAXELEM_MAX: u32 = 1 << 26;

/// Words that are no command, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseError(pub String);

/// How `list` and `save` print.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Listing {
    /// As lines that make the sets again.
    pub(crate) as_save: bool,
    /// Names only.
    pub(crate) names: bool,
    /// Without members.
    pub(crate) terse: bool,
}

/// The options of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Details<'a> {
    pub(crate) timeout: Option<u32>,
    pub(crate) packets: Option<u64>,
    pub(crate) bytes: Option<u64>,
    pub(crate) comment: Option<&'a str>,
    pub(crate) rate: Option<Rate>,
    pub(crate) is_exception: bool,
}

/// A command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Action<'a> {
    Create {
        set: &'a str,
        kind: Kind,
    },
    Add {
        set: &'a str,
        entry: &'a str,
        details: Details<'a>,
    },
    Del {
        set: &'a str,
        entry: &'a str,
    },
    Test {
        set: &'a str,
        entry: &'a str,
    },
    Destroy {
        set: Option<&'a str>,
    },
    Flush {
        set: Option<&'a str>,
    },
    List {
        set: Option<&'a str>,
        listing: Listing,
    },
    Rename {
        from: &'a str,
        to: &'a str,
    },
    Swap {
        one: &'a str,
        other: &'a str,
    },
    /// The end of a part of a restored file (`COMMIT`). Everything before it is in force.
    Commit,
    Help,
    Version,
}

/// A command with its options.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Command<'a> {
    pub(crate) action: Action<'a>,
    /// Whether to ignore that the thing to create exists, or that the thing to delete does not.
    pub(crate) may_exist: bool,
    /// Whether nothing is printed.
    pub(crate) is_quiet: bool,
}

fn wrong<T>(why: impl Into<String>) -> Result<T, ParseError> {
    Err(ParseError(why.into()))
}

/// Parses `words`. Blank lines, and lines that begin with `#`, are no command.
pub(crate) fn parse<'a>(words: impl Iterator<Item = &'a str>) -> Result<Command<'a>, ParseError> {
    let (mut rest, mut listing) = (Vec::new(), Listing::default());
    let (mut may_exist, mut is_quiet) = (false, false);
    let mut words = words.peekable();
    while let Some(word) = words.next() {
        let is_behind_comment = rest.last() == Some(&"comment");
        match word {
            _ if is_behind_comment => rest.push(word),
            "-exist" | "-!" | "--exist" => may_exist = true,
            "-quiet" | "-q" | "--quiet" => is_quiet = true,
            "-sorted" | "-s" | "--sorted" | "-resolve" | "-r" | "--resolve" => {}
            "-name" | "-n" | "--name" => listing.names = true,
            "-terse" | "-t" | "--terse" => listing.terse = true,
            "-output" | "-o" | "--output" => match words.next() {
                Some("plain") => listing.as_save = false,
                Some("save") => listing.as_save = true,
                other => {
                    let other = other.unwrap_or_default();
                    return wrong(format!("output \"{other}\" is not there: plain or save"));
                }
            },
            _ => rest.push(word),
        }
    }
    let action = action(&rest, listing)?;
    Ok(Command { action, may_exist, is_quiet })
}

fn action<'a>(words: &[&'a str], mut listing: Listing) -> Result<Action<'a>, ParseError> {
    let mut words = Cursor(words.iter());
    let action = match words.0.next().copied().unwrap_or("help") {
        "create" | "n" | "-N" | "--create" => {
            let set = name(words.one("SETNAME")?)?;
            Action::Create { set, kind: kind(&mut words)? }
        }
        "add" | "a" | "-A" | "--add" => {
            let (set, entry) = (words.one("SETNAME")?, words.one("ENTRY")?);
            Action::Add { set, entry, details: details(&mut words)? }
        }
        "del" | "d" | "-D" | "--del" => {
            let (set, entry) = (words.one("SETNAME")?, words.one("ENTRY")?);
            // Options do not identify a member, but a saved line may include them.
            details(&mut words)?;
            Action::Del { set, entry }
        }
        "test" | "t" | "-T" | "--test" => {
            let (set, entry) = (words.one("SETNAME")?, words.one("ENTRY")?);
            details(&mut words)?;
            Action::Test { set, entry }
        }
        "destroy" | "x" | "-X" | "--destroy" => Action::Destroy { set: words.next() },
        "flush" | "f" | "-F" | "--flush" => Action::Flush { set: words.next() },
        "list" | "l" | "-L" | "--list" => Action::List { set: words.next(), listing },
        "save" | "s" | "-S" | "--save" => {
            listing.as_save = true;
            Action::List { set: words.next(), listing }
        }
        "rename" | "e" | "-E" | "--rename" => {
            Action::Rename { from: words.one("SETNAME")?, to: name(words.one("SETNAME")?)? }
        }
        "swap" | "w" | "-W" | "--swap" => {
            Action::Swap { one: words.one("SETNAME")?, other: words.one("SETNAME")? }
        }
        "COMMIT" => Action::Commit,
        "help" | "h" | "-h" | "--help" => {
            // Of a type, as ipset has it: all types are in one text here.
            words.next();
            Action::Help
        }
        "version" | "v" | "-v" | "--version" => Action::Version,
        other => {
            return wrong(format!(
                "unknown command \"{other}\": create, add, del, test, destroy, list, save, restore, \
                 flush, rename, swap, help or version"
            ));
        }
    };
    match words.next() {
        None => Ok(action),
        Some(word) => wrong(format!("unknown argument \"{word}\"")),
    }
}

/// The words of a command, one after the other.
struct Cursor<'w, 'a>(std::slice::Iter<'w, &'a str>);

impl<'a> Cursor<'_, 'a> {
    fn next(&mut self) -> Option<&'a str> {
        self.0.next().copied()
    }

    fn one(&mut self, what: &str) -> Result<&'a str, ParseError> {
        self.next().ok_or_else(|| ParseError(format!("missing mandatory argument {what}")))
    }

    fn number<T: std::str::FromStr + PartialOrd + std::fmt::Display>(
        &mut self,
        what: &str,
        least: T,
        most: T,
    ) -> Result<T, ParseError> {
        let word = self.one(what)?;
        let number = word.parse().ok().filter(|number| (&least..=&most).contains(&number));
        number.ok_or_else(|| {
            ParseError(format!("\"{word}\" is no {what}: a number from {least} to {most}"))
        })
    }
}

/// A name that a set may have.
fn name(name: &str) -> Result<&str, ParseError> {
    match SetName::new(name) {
        Some(_) => Ok(name),
        None => wrong(format!(
            "\"{name}\" is no name of a set: up to {} letters without blanks, quotes, commas and \
             parentheses",
            SetName::LONGEST
        )),
    }
}

fn kind(words: &mut Cursor<'_, '_>) -> Result<Kind, ParseError> {
    let shape = match words.one("TYPENAME")? {
        "hash:ip" | "iphash" => Shape::Ip { netmask: u8::MAX },
        "hash:net" | "nethash" => Shape::Net,
        "hash:net,port" => Shape::NetPort,
        "hash:mac" => Shape::Mac,
        other => {
            return wrong(format!(
                "type \"{other}\" is not there: hash:ip, hash:net, hash:net,port or hash:mac"
            ));
        }
    };
    let mut kind = Kind::new(shape);
    let mut netmask = None;
    while let Some(word) = words.next() {
        match word {
            "family" => {
                kind.family = match words.one("family")? {
                    "inet" | "ipv4" | "-4" => Family::Inet,
                    "inet6" | "ipv6" | "-6" => Family::Inet6,
                    other => return wrong(format!("family \"{other}\" is not there: inet, inet6")),
                }
            }
            "-4" => kind.family = Family::Inet,
            "-6" => kind.family = Family::Inet6,
            "hashsize" => kind.hashsize = words.number("hashsize", 1, u32::MAX)?,
            // As in the kernel, 0 means the default; a size beyond all memory means the maximum.
            "maxelem" => {
                kind.maxelem = match words.number("maxelem", 0, u32::MAX)? {
                    0 => 65_536,
                    most => most.min(MAXELEM_MAX),
                }
            }
            "bucketsize" => kind.bucketsize = Some(words.number("bucketsize", 1, 255)?),
            "initval" => {
                let word = words.one("initval")?;
                let digits = word.strip_prefix("0x").unwrap_or(word);
                let value = u32::from_str_radix(digits, 16);
                kind.initval = Some(value.map_err(|_| {
                    ParseError(format!("\"{word}\" is no initval: a number such as 0x1234abcd"))
                })?);
            }
            "netmask" => netmask = Some(words.number("netmask", 1, 128)?),
            "timeout" => kind.timeout = Some(words.number("timeout", 0, TIMEOUT_MAX)?),
            "counters" => kind.counters = true,
            "comment" => kind.comment = true,
            "rate" => kind.rates = true,
            "skbinfo" => return wrong("skbinfo is not there: filters say what becomes of packets"),
            "forceadd" => {
                return wrong("forceadd is not there: create the set with a larger maxelem");
            }
            other => return wrong(format!("unknown argument \"{other}\" of {}", shape.name())),
        }
    }
    let bits = kind.family.bits();
    match (&mut kind.shape, netmask) {
        (Shape::Ip { netmask }, wanted) => {
            *netmask = wanted.unwrap_or(bits);
            if *netmask > bits {
                return wrong(format!("netmask {netmask} is too long: up to {bits}"));
            }
        }
        (_, None) => {}
        (shape, Some(_)) => return wrong(format!("netmask is not for {}", shape.name())),
    }
    if kind.rates && !kind.shape.is_of_addresses() {
        return wrong(format!(
            "rate is not for {}: members of hash:ip and hash:net have rates",
            kind.shape.name()
        ));
    }
    Ok(kind)
}

fn details<'a>(words: &mut Cursor<'_, 'a>) -> Result<Details<'a>, ParseError> {
    let mut details = Details::default();
    while let Some(word) = words.next() {
        match word {
            "timeout" => details.timeout = Some(words.number("timeout", 0, TIMEOUT_MAX)?),
            "packets" => details.packets = Some(words.number("packets", 0, u64::MAX)?),
            "bytes" => details.bytes = Some(words.number("bytes", 0, u64::MAX)?),
            "nomatch" => details.is_exception = true,
            "rate" => {
                let word = words.one("rate")?;
                let read = narrows_units::word::rate(word).filter(|rate| !rate.is_zero());
                details.rate = Some(read.ok_or_else(|| {
                    ParseError(format!("\"{word}\" is no rate: a rate from 8bit on, as 5mbit"))
                })?);
            }
            "comment" => {
                let comment = words.one("comment")?;
                if comment.len() > COMMENT_MAX || comment.contains(['"', '\n', '\r']) {
                    return wrong(format!(
                        "a comment has at most {COMMENT_MAX} bytes, in one line and without quotes"
                    ));
                }
                details.comment = Some(comment);
            }
            "skbmark" | "skbprio" | "skbqueue" => {
                return wrong(format!("{word} is not there: filters say what becomes of packets"));
            }
            other => return wrong(format!("unknown argument \"{other}\"")),
        }
    }
    Ok(details)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Command<'_>, ParseError> {
        parse(line.split_whitespace())
    }

    fn refusal(line: &str) -> String {
        read(line).unwrap_err().0
    }

    #[test]
    fn options_may_stand_anywhere() {
        let command = read("-exist add a 1.2.3.4 -q timeout 7").unwrap();
        assert!(command.may_exist && command.is_quiet);
        let details = Details { timeout: Some(7), ..Details::default() };
        assert_eq!(command.action, Action::Add { set: "a", entry: "1.2.3.4", details });
        let listing = Listing { as_save: true, names: false, terse: true };
        assert_eq!(read("list -t -o save").unwrap().action, Action::List { set: None, listing });
    }

    #[test]
    fn lines_saved_by_ipset_are_read() {
        let line = "create a hash:net family inet6 hashsize 4096 maxelem 200000 timeout 300 \
                    counters comment bucketsize 12 initval 0xd3fd5e6b";
        let kind = Kind {
            family: Family::Inet6,
            hashsize: 4096,
            maxelem: 200_000,
            timeout: Some(300),
            counters: true,
            comment: true,
            bucketsize: Some(12),
            initval: Some(0xd3fd_5e6b),
            ..Kind::new(Shape::Net)
        };
        assert_eq!(read(line).unwrap().action, Action::Create { set: "a", kind });
    }

    #[test]
    fn unknown_names_are_refused_with_the_known_ones() {
        assert!(refusal("create a bitmap:ip").contains("hash:ip, hash:net"));
        assert!(refusal("create a hash:net netmask 3").contains("not for hash:net"));
        assert!(refusal("create a hash:ip netmask 33").contains("up to 32"));
        assert!(refusal("create a hash:ip forceadd").contains("maxelem"));
        assert!(refusal("create a(b hash:ip").contains("no name of a set"));
        assert!(refusal("create").contains("SETNAME"));
        assert!(refusal("add a 1.2.3.4 timeout 2147484").contains("0 to 2147483"));
        assert!(refusal("swap a").contains("SETNAME"));
        assert!(refusal("swap a b c").contains("unknown argument \"c\""));
        assert!(refusal("sawp a b").contains("create, add"));
        assert!(refusal("list -o xml").contains("plain or save"));
    }

    #[test]
    fn a_comment_may_be_any_word() {
        let words = ["add", "a", "1.2.3.4", "comment", "-exist"];
        let command = parse(words.into_iter()).unwrap();
        let details = Details { comment: Some("-exist"), ..Details::default() };
        assert_eq!(command.action, Action::Add { set: "a", entry: "1.2.3.4", details });
        assert!(!command.may_exist);
    }
}
