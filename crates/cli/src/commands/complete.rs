//! `narrows complete`: what may stand next on a command line, for the completions of shells.
//!
//! The scripts that `narrows manual` writes know the commands and their options. Where a word
//! depends on this host or is one of `tc`'s, they ask this hidden command: interfaces, the handles
//! of classes and qdiscs of running instances, the words of `tc` at this place.
//!
//! Principles: it answers at once with nothing where it knows nothing, and the shell falls back to
//! its own script. Non-goals: to check the line; all abbreviations that `tc` accepts.

mod words;

use super::setup;
use clap::Args;
use narrows_control::Client;
use std::process::ExitCode;
use words::{KINDS, OBJECTS, OPTIONS};

/// More answers than this help nobody.
const ANSWERS_MAX: usize = 500;

/// Print what may stand next on a command line, a word on each line.
#[derive(Args)]
pub struct Complete {
    /// The words behind `narrows`, the last one as far as it is typed.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "WORDS")]
    words: Vec<String>,
}

/// What the answers depend on beside the words.
trait Host {
    /// The interfaces here, those of running instances first.
    fn interfaces(&self) -> Vec<String>;
    /// The handles of qdiscs and classes at `dev`.
    fn handles(&self, dev: &str) -> Vec<String>;
}

/// This host.
struct Here;

impl Host for Here {
    fn interfaces(&self) -> Vec<String> {
        let (instances, _) = Client::survey(None).unwrap_or_default();
        let mut all: Vec<String> = instances.into_iter().flat_map(|one| one.ports).collect();
        for interface in setup::interfaces() {
            if !all.contains(&interface) {
                all.push(interface);
            }
        }
        all
    }

    fn handles(&self, dev: &str) -> Vec<String> {
        let Ok((instances, _)) = Client::survey(Some(dev)) else { return Vec::new() };
        let shown = instances.first().and_then(|client| client.snapshot(true).ok());
        let port = shown.as_ref().and_then(|shown| shown.port(dev));
        let Some(port) = port else { return Vec::new() };
        let qdiscs = port.qdiscs.iter().map(|qdisc| qdisc.handle.to_string());
        qdiscs.chain(port.classes.iter().map(|class| class.handle.to_string())).collect()
    }
}

/// The words that may stand in the place of the last of `words`.
fn candidates(words: &[String], host: &impl Host) -> Vec<String> {
    let Some((typed, before)) = words.split_last() else { return Vec::new() };
    let before: Vec<&str> = before.iter().map(String::as_str).collect();
    let all = match before.split_first() {
        Some((&"tc", before)) => of_tc(before, host),
        Some((command, before)) => of_others(command, before, typed, host),
        None => Vec::new(),
    };
    let fits = |word: &String| word.starts_with(typed.as_str());
    all.into_iter().filter(fits).take(ANSWERS_MAX).collect()
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Behind the other commands: interfaces where an option or a place takes them.
fn of_others(command: &str, before: &[&str], typed: &str, host: &impl Host) -> Vec<String> {
    let takes_interfaces =
        ["--ports", "--stick", "--router", "--switch", "--port", "--wan", "--dev"];
    let last = before.last().copied().unwrap_or_default();
    let has_place = ["show", "status", "top", "upgrade", "doctor"].contains(&command);
    let is_place = has_place && !typed.starts_with('-') && !last.starts_with("--");
    if !is_place && !takes_interfaces.contains(&last) {
        return Vec::new();
    }
    let interfaces = host.interfaces();
    // Options take several, with commas between them.
    match typed.rsplit_once(',').filter(|_| takes_interfaces.contains(&last)) {
        None => interfaces,
        Some((first, _)) => {
            let is_new = |name: &String| !first.split(',').any(|given| given == name);
            let more = interfaces.into_iter().filter(is_new);
            more.map(|name| format!("{first},{name}")).collect()
        }
    }
}

/// Behind `tc`: its words in the order in which its commands have them.
fn of_tc(before: &[&str], host: &impl Host) -> Vec<String> {
    let options = before.iter().take_while(|word| word.starts_with('-')).count();
    let [object, rest @ ..] = &before[options..] else {
        return owned(&[OPTIONS, OBJECTS].concat());
    };
    let Some(object) = OBJECTS.iter().find(|name| name.starts_with(object)) else {
        return Vec::new();
    };
    let last = rest.last().copied().unwrap_or_default();
    match (*object, last) {
        (_, "dev") => return host.interfaces(),
        ("save", "") => return owned(&["dev"]),
        ("save", _) => return Vec::new(),
        (_, "parent" | "classid" | "flowid" | "handle") => {
            let dev = rest.iter().position(|word| *word == "dev").and_then(|at| rest.get(at + 1));
            return dev.map(|dev| host.handles(dev)).unwrap_or_default();
        }
        (_, "") => return owned(&["add", "replace", "change", "del", "show", "list"]),
        (_, "protocol") => return owned(&["all", "ip", "ipv6", "arp", "802.1q", "802.1ad"]),
        _ => {}
    }
    if let Some((kind, at)) = kind_of(rest) {
        // A word that has just been given wants its value, and only the operator knows that.
        let values = kind.words_of(object);
        let given = rest.get(at + 1..).unwrap_or_default();
        let is_new = |word: &&&str| !given.contains(*word);
        return owned(&values.iter().filter(is_new).copied().collect::<Vec<_>>());
    }
    let places: &[&str] = match *object {
        "qdisc" => &["dev", "root", "parent", "handle", "ingress", "clsact"],
        "class" => &["dev", "parent", "classid", "root"],
        _ => &["dev", "parent", "ingress", "egress", "protocol", "prio", "pref", "handle"],
    };
    let new = places.iter().filter(|place| !rest.contains(place));
    let changes = ["show", "list", "ls"].iter().all(|shows| !rest.starts_with(&[*shows]));
    let kinds = KINDS.iter().filter(|kind| changes && kind.is_of(object)).map(|kind| &kind.name);
    owned(&new.chain(kinds).copied().collect::<Vec<_>>())
}

/// The kind that `rest` names, and where.
fn kind_of(rest: &[&str]) -> Option<(&'static words::Kind, usize)> {
    rest.iter().enumerate().find_map(|(at, word)| {
        // The name of an interface may be that of a kind.
        let is_value = at > 0 && ["dev", "parent", "handle", "classid"].contains(&rest[at - 1]);
        let kind = KINDS.iter().find(|kind| kind.name == *word && !is_value)?;
        Some((kind, at))
    })
}

impl Complete {
    pub fn execute(self) -> ExitCode {
        for word in candidates(&self.words, &Here) {
            crate::output::say(word);
        }
        ExitCode::SUCCESS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fake;

    impl Host for Fake {
        fn interfaces(&self) -> Vec<String> {
            owned(&["eth1", "eth2", "wan0"])
        }

        fn handles(&self, dev: &str) -> Vec<String> {
            assert_eq!(dev, "eth2");
            owned(&["1:", "1:1", "1:10"])
        }
    }

    fn after(line: &str) -> Vec<String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        candidates(&words, &Fake)
    }

    #[test]
    fn tc_has_its_words_where_they_stand() {
        assert_eq!(after("tc q"), ["qdisc"]);
        assert_eq!(after("tc -s qdisc s"), ["show"]);
        assert_eq!(after("tc qdisc replace dev eth2 ro"), ["root"]);
        assert_eq!(after("tc qdisc replace dev eth2 root ca"), ["cake", "cake_mq", "carousel"]);
        assert_eq!(after("tc qdisc replace dev eth2 root tbf la"), ["latency"]);
        assert_eq!(after("tc class add dev eth2 parent 1:1 classid 1:10 htb ce"), ["ceil"]);
        assert!(after("tc filter add dev eth2 parent 1: fl").contains(&"flower".to_owned()));
        assert!(!after("tc qdisc show dev eth2 ").contains(&"cake".to_owned()));
    }

    #[test]
    fn interfaces_and_classes_are_those_of_this_host() {
        assert_eq!(after("tc qdisc show dev "), ["eth1", "eth2", "wan0"]);
        assert_eq!(after("tc class show dev eth2 parent 1:"), ["1:", "1:1", "1:10"]);
        assert_eq!(after("show w"), ["wan0"]);
        assert_eq!(after("run --ports eth1,"), ["eth1,eth2", "eth1,wan0"]);
        assert_eq!(after("run --batch "), [""; 0]);
    }

    #[test]
    fn an_interface_that_is_called_like_a_kind_is_none() {
        assert!(after("tc qdisc add dev cake ro").contains(&"root".to_owned()));
    }

    #[test]
    fn nothing_is_known_of_an_unfinished_or_foreign_line() {
        for line in ["", "tc nonsense ", "sim ", "show --names "] {
            assert_eq!(after(line), [""; 0], "{line}");
        }
    }

    #[test]
    fn every_word_is_in_the_reference_of_tc_s_words() {
        let reference = include_str!("../../../../docs/tc.md");
        for kind in KINDS {
            assert!(reference.contains(kind.name), "{}", kind.name);
        }
    }
}
