//! The policy file of a supervisor, in which lines for a pattern hold for each device that it
//! matches.
//!
//! It is checked whole before any of it is used, as if each pattern were a port. What a process
//! gets is its own part, with its device's name in the pattern's place. A device that comes later
//! gets what was read last, and not what the file has become since.

use super::wanted::Target;
use crate::instance::Planner;
use crate::plane::PlaneKind;
use crate::policy_file;
use crate::run::RunError;
use narrows_forwarding::Forwarding;
use narrows_policy::Policy;
use narrows_tc::part;
use std::path::PathBuf;

/// The policy file, as it was read last.
pub(super) struct Policies {
    path: PathBuf,
    /// All names and patterns, as ports.
    ports: Forwarding,
    text: String,
}

impl Policies {
    /// Reads the file at `path`, for `ports`: names, and patterns as they are written.
    ///
    /// # Errors
    /// If it cannot be read, has a mistake, or the host plane cannot run it.
    pub(super) fn read(path: PathBuf, ports: Forwarding) -> Result<Self, RunError> {
        let mut policies = Self { path, ports, text: String::new() };
        policies.read_again()?;
        Ok(policies)
    }

    /// Reads the file again.
    ///
    /// # Errors
    /// As [`Policies::read`]; then what was read before stays.
    pub(super) fn read_again(&mut self) -> Result<(), RunError> {
        let file = policy_file::read(&self.path, &self.ports)?;
        let policy = file.policy(&Policy::default())?;
        Planner::apart(self.ports.clone(), PlaneKind::Host).plan(policy)?;
        self.text = file.into_text();
        Ok(())
    }

    /// The file.
    pub(super) fn path(&self) -> &PathBuf {
        &self.path
    }

    /// The part for `target`; `patterns` are the words of the user.
    pub(super) fn part(&self, target: &Target, patterns: &[String]) -> String {
        match target {
            Target::Named(names) => {
                part(&self.text, |dev| names.iter().find(|name| *name == dev).map(String::as_str))
            }
            Target::Matched { name, pattern, .. } => {
                part(&self.text, |dev| (dev == patterns[*pattern]).then_some(name.as_str()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: [&str; 3] = ["nrw-none0", "veth*", "tap?"];

    /// The policies in `text`, or the refusal.
    fn policies(name: &str, text: &str) -> Result<Policies, String> {
        let path = std::env::temp_dir().join(format!("nrw-{name}-{}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        let ports = Forwarding::host(&WORDS.map(str::to_owned)).unwrap();
        let read = Policies::read(path.clone(), ports);
        std::fs::remove_file(&path).unwrap();
        read.map_err(|error| error.to_string())
    }

    #[test]
    fn each_process_has_its_lines_under_the_name_of_its_device() {
        let text = "qdisc add dev nrw-none0 root handle 1: htb\n\
                    qdisc add dev veth* root tbf rate 10mbit burst 15k latency 50ms\n\
                    qdisc add dev \"tap?\" root tbf rate 1mbit burst 15k latency 50ms\n";
        let policies = policies("parts", text).unwrap();
        let patterns = ["veth*", "tap?"].map(str::to_owned);
        let part = |target: &Target| policies.part(target, &patterns);
        let named = Target::Named(vec![WORDS[0].to_owned()]);
        assert_eq!(part(&named), "qdisc add dev nrw-none0 root handle 1: htb\n");
        let matched = Target::Matched { name: "tap3".to_owned(), ifindex: 9, pattern: 1 };
        let expected = "\n\nqdisc add dev \"tap3\" root tbf rate 1mbit burst 15k latency 50ms\n";
        assert_eq!(part(&matched), expected);
    }

    #[test]
    fn a_mistake_is_refused_with_its_line_and_so_is_what_the_plane_cannot_run() {
        let refused = |name: &str, text: &str| policies(name, text).err().unwrap();
        let unknown = refused("unknown", "\nqdisc add dev veth1 root pfifo\n");
        assert!(unknown.contains(":2: Cannot find device \"veth1\""), "{unknown}");
        assert!(unknown.contains("Ports here are nrw-none0, veth*, tap?"), "{unknown}");
        let wrong = refused("wrong", "qdisc add dev veth* root tbf rate x\n");
        assert!(wrong.contains(":1: "), "{wrong}");
        let cake = refused("cake", "qdisc add dev veth* root cake bandwidth 10mbit\n");
        assert!(cake.contains("veth*") && cake.contains("cannot run cake"), "{cake}");
    }
}
