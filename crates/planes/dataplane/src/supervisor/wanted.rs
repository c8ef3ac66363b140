//! Which processes there should be for the devices that there are.

use narrows_forwarding::pattern::{Pattern, is_pattern};
use narrows_link::{LinkStatus, doctor};
use std::collections::{BTreeMap, BTreeSet};

/// What one process is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Target {
    /// The devices that are named, together.
    Named(Vec<String>),
    /// A device that a pattern matches.
    Matched {
        /// Its name.
        name: String,
        /// Its index: another device of the same name has another one.
        ifindex: u32,
        /// The number of the pattern.
        pattern: usize,
    },
}

impl Target {
    /// The ports of the process.
    pub(super) fn ports(&self) -> &[String] {
        match self {
            Self::Named(names) => names,
            Self::Matched { name, .. } => std::slice::from_ref(name),
        }
    }

    /// Its ports as one word.
    pub(super) fn label(&self) -> String {
        self.ports().join(",")
    }

    /// Whether both are for the same device.
    pub(super) fn is_at(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Matched { ifindex, .. }, Self::Matched { ifindex: other, .. }) => {
                ifindex == other
            }
            _ => false,
        }
    }
}

/// The processes that there should be, by their label, each with whether it can start now.
pub(super) type Wanted = BTreeMap<String, (Target, bool)>;

/// A device that a pattern matches, and that cannot be shaped.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct PassedOver {
    pub(super) name: String,
    pub(super) ifindex: u32,
    pub(super) why: String,
}

/// What is wanted where the user has given `names` and `patterns`: a process for all of `names`,
/// and one for each of the other `devices` that matches, by the first pattern that it matches. A
/// device that is down can wait: it sends nothing. Returns also what is passed over.
pub(super) fn wanted<'a>(
    names: &[String],
    patterns: &[Pattern],
    devices: impl Iterator<Item = &'a LinkStatus>,
) -> (Wanted, BTreeSet<PassedOver>) {
    let mut wanted = Wanted::new();
    let mut passed_over = BTreeSet::new();
    if !names.is_empty() {
        let named = Target::Named(names.to_vec());
        wanted.insert(named.label(), (named, true));
    }
    for device in devices.filter(|device| !names.contains(&device.name)) {
        let matches = |pattern: &Pattern| pattern.matches(&device.name);
        let Some(pattern) = patterns.iter().position(matches) else { continue };
        let (name, ifindex) = (device.name.clone(), device.ifindex);
        if let Some(why) = unfit(device) {
            passed_over.insert(PassedOver { name, ifindex, why });
        } else {
            let target = Target::Matched { name, ifindex, pattern };
            wanted.insert(target.label(), (target, device.up));
        }
    }
    (wanted, passed_over)
}

/// Why a device cannot be a port of its own; `None` if it can.
fn unfit(device: &LinkStatus) -> Option<String> {
    let unusable = unusable(&device.name).map(str::to_owned);
    unusable.or_else(|| doctor::blocks_own_traffic(device).map(|blocker| blocker.what))
}

/// Why no device with this name can; `None` if one can. The kernel allows names that neither an
/// option nor a policy file can hold.
fn unusable(name: &str) -> Option<&'static str> {
    if is_pattern(name) {
        return Some("its name is a pattern itself");
    }
    let is_odd = |letter: char| letter.is_control() || ",#'\"\\".contains(letter);
    name.contains(is_odd).then_some("its name has a comma, a quote, a # or a \\")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(words: &[&str]) -> Vec<Pattern> {
        words.iter().map(|word| word.parse().unwrap()).collect()
    }

    fn device(ifindex: u32, name: &str) -> LinkStatus {
        let (name, up, ethernet) = (name.to_owned(), true, true);
        LinkStatus { ifindex, name, up, ethernet, ..LinkStatus::default() }
    }

    #[test]
    fn each_device_has_the_first_pattern_that_it_matches_and_named_ones_are_together() {
        let devices = [
            LinkStatus { ethernet: false, ..device(1, "le") },
            device(6, "ve,th"),
            device(7, "other"),
            device(2, "eth0"),
            device(3, "veth1"),
            device(4, "veth22"),
            LinkStatus { up: false, ..device(5, "tap0") },
        ];
        let names = ["eth0".to_owned(), "veth1".to_owned()];
        let (wanted, passed_over) =
            wanted(&names, &patterns(&["veth*", "?e*", "tap?"]), devices.iter());
        let passed_over: Vec<&str> = passed_over.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(passed_over, ["le", "ve,th"]);
        let shown: Vec<String> = wanted
            .iter()
            .map(|(label, (target, may_start))| match target {
                Target::Named(names) => format!("{label}: {} names {may_start}", names.len()),
                Target::Matched { ifindex, pattern, .. } => {
                    format!("{label}: {ifindex} by {pattern} {may_start}")
                }
            })
            .collect();
        assert_eq!(
            shown,
            ["eth0,veth1: 2 names true", "tap0: 5 by 2 false", "veth22: 4 by 0 true"]
        );
    }

    #[test]
    fn patterns_alone_want_nothing_without_devices() {
        assert!(wanted(&[], &patterns(&["*"]), std::iter::empty()).0.is_empty());
    }

    #[test]
    fn a_name_that_no_option_can_hold_is_unusable() {
        for name in ["a,b", "a#b", "a'b", "veth*", "tap?"] {
            assert!(unusable(name).is_some(), "{name}");
        }
        for name in ["veth1", "eth0.100", "-a", "ä"] {
            assert_eq!(unusable(name), None, "{name}");
        }
    }
}
