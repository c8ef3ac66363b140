//! The policy file of an instance: read at the start, and again on request.
//!
//! It is read against the ports as they are, so it means the same whenever it is read, and
//! completely before any of it takes effect. All errors are reported, each with its line. Facts
//! about the ports are asked once for the whole file.

use crate::device::policy_facts;
use narrows_forwarding::{Forwarding, PerDevice, PerPort};
use narrows_link::Link;
use narrows_policy::{Policy, PortFacts};
use narrows_tc::{Host, INPUT_MAX};
use std::fmt::{self, Display};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Read;
use std::path::Path;
use std::sync::LazyLock;

/// Why a policy file was not loaded.
#[derive(Debug, thiserror::Error)]
pub enum PolicyFileError {
    /// It cannot be read.
    #[error("cannot read the policy file \"{name}\": {source}")]
    Unreadable {
        /// Its name.
        name: String,
        /// Why.
        source: std::io::Error,
    },
    /// It has mistakes.
    #[error("the policy is not usable:\n{0}")]
    Wrong(Mistakes),
}

/// The mistakes in a policy file: one line for each, with file and line.
#[derive(Debug)]
pub struct Mistakes(Vec<String>);

impl Mistakes {
    /// From the complaints of a batch, each followed by file and line.
    fn of(complaints: &str) -> Self {
        let mut mistakes = Vec::new();
        let mut open: Vec<&str> = Vec::new();
        for line in complaints.lines().filter(|line| !line.trim().is_empty()) {
            match line.strip_prefix("Command failed ") {
                Some(at) => mistakes.push(format!("{at}: {}", open.drain(..).as_slice().join(" "))),
                None => open.push(line.trim()),
            }
        }
        mistakes.extend(open.iter().map(|&line| line.to_owned()));
        Self(mistakes)
    }

    /// Each of them.
    pub fn lines(&self) -> &[String] {
        &self.0
    }
}

impl Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

/// The policy in the file at `path`, `-` for standard input, for `ports`. Logs a warning about
/// values that are surely not meant. Qdiscs without a handle
/// in the file keep the one that they have in `running`.
///
/// # Errors
/// If the file cannot be read or has a mistake.
pub(crate) fn load(
    path: &Path,
    ports: &Forwarding,
    running: &Policy,
) -> Result<Policy, PolicyFileError> {
    read(path, ports)?.policy(running)
}

/// Reads the file at `path`, `-` for standard input, and the facts about `ports` that its meaning
/// depends on.
///
/// # Errors
/// If the file cannot be read.
pub(crate) fn read(path: &Path, ports: &Forwarding) -> Result<PolicyFile, PolicyFileError> {
    let name = path.display().to_string();
    let unreadable = |source| PolicyFileError::Unreadable { name: name.clone(), source };
    let bytes = if is_stdin(path) {
        let mut bytes = Vec::new();
        std::io::stdin().take(INPUT_MAX).read_to_end(&mut bytes).map_err(unreadable)?;
        bytes
    } else {
        narrows_tc::read_input(path).map_err(unreadable)?
    };
    // Text that is not UTF-8 is no valid word either: the complaint about its line will show it.
    let text = String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    // Once, and not for every line. A port that is away has its policy all the same.
    let devices: PerDevice<PortFacts> = ports
        .devices()
        .iter()
        .map(|name| {
            Link::by_name(name).map_or(PortFacts::ETHERNET, |link| policy_facts(&link, None))
        })
        .collect();
    let facts = ports.ids().map(|port| devices[ports.device_of(port)]).collect();
    Ok(PolicyFile { name, text, ports: ports.clone(), facts })
}

/// A policy file that was read, and the ports that it is for.
pub(crate) struct PolicyFile {
    name: String,
    text: String,
    ports: Forwarding,
    facts: PerPort<PortFacts>,
}

/// Identifies the contents of a policy file and the facts on which their meaning depends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Source {
    /// Under two secret keys, so that nobody can make another text with the same.
    digest: [u64; 2],
    len: usize,
    facts: PerPort<PortFacts>,
}

impl PolicyFile {
    /// What identifies it.
    pub(crate) fn source(&self) -> Source {
        static KEYS: LazyLock<[RandomState; 2]> = LazyLock::new(Default::default);
        let digest = KEYS.each_ref().map(|keys| {
            let mut hasher = keys.build_hasher();
            hasher.write(self.text.as_bytes());
            hasher.finish()
        });
        Source { digest, len: self.text.len(), facts: self.facts.clone() }
    }

    /// Its text.
    pub(crate) fn into_text(self) -> String {
        self.text
    }

    /// The policy in it. Qdiscs without a handle in it keep the one that they have in `running`.
    ///
    /// # Errors
    /// If it has a mistake.
    pub(crate) fn policy(&self, running: &Policy) -> Result<Policy, PolicyFileError> {
        let policy = narrows_tc::load(&self.text, &self.name, &Reader { file: self, running })
            .map_err(|complaints| PolicyFileError::Wrong(Mistakes::of(&complaints)))?;
        for warning in narrows_tc::warnings(&self.text, &self.name) {
            log::warn!("{}", warning.trim_start_matches("Warning: "));
        }
        Ok(policy)
    }
}

/// Whether `path` means standard input.
pub(crate) fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// The ports for which a file is read.
struct Reader<'a> {
    file: &'a PolicyFile,
    running: &'a Policy,
}

impl Host for Reader<'_> {
    fn devices(&self) -> Vec<String> {
        self.file.ports.names().to_vec()
    }

    fn port(&self, dev: &str) -> Option<PortFacts> {
        Some(self.file.facts[self.file.ports.port(dev)?])
    }

    fn policy(&self) -> Policy {
        self.running.clone()
    }

    /// Reading changes nothing.
    fn apply(&mut self, _policy: Policy) -> Result<(), String> {
        Err("the policy is only read here".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mistake_is_a_line_that_begins_with_where_it_is() {
        let mistakes = Mistakes::of(
            "What is \"x\"?\nCommand failed f:2\nError: no\n more\nCommand failed f:9\n",
        );
        assert_eq!(mistakes.lines(), ["f:2: What is \"x\"?", "f:9: Error: no more"]);
        assert_eq!(Mistakes::of("alone\n").to_string(), "alone");
    }

    #[test]
    fn a_file_for_other_ports_is_refused_by_line() {
        let ports = Forwarding::wire("nrw-none-a", "nrw-none-b").unwrap();
        let path = std::env::temp_dir().join(format!("nrw-policy-{}", std::process::id()));
        std::fs::write(
            &path,
            "\nqdisc add dev eth9 root pfifo\nqdisc add dev nrw-none-a root pfifo x\n",
        )
        .unwrap();
        let refused = load(&path, &ports, &Policy::default());
        std::fs::remove_file(&path).unwrap();
        let Err(PolicyFileError::Wrong(mistakes)) = refused else { panic!("{refused:?}") };
        let [first, second] = mistakes.lines() else { panic!("{mistakes}") };
        assert!(
            first.contains(":2: Cannot find device \"eth9\". Ports here are nrw-none-a"),
            "{first}"
        );
        assert!(second.contains(":3: "), "{second}");
    }
}
