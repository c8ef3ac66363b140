//! BIRD in a namespace: a routing daemon as sites run it, so that routes come and go by BGP and
//! not by a test's hand.
//!
//! Principles:
//!
//! - *A daemon of our own.* It reads our configuration, has its socket in a folder of ours, and is
//!   in one namespace. It has nothing to do with the service that Debian's package brings.
//! - *BIRD alone writes routes.* What it exports to the kernel is all that it knows.
//! - *Seconds, not minutes.* A link without a carrier ends its sessions at once. Without a word,
//!   neighbours miss each other after three seconds, the least that BGP has, so that a stall of a
//!   busy machine is no failure of a link.
//!
//! BGP, and not OSPF: BIRD waits for up to five seconds before it tells of a second change of its
//! links (`MinLSInterval` of RFC 2328).
//!
//! Non-goals: other daemons, other protocols, policies, authentication.

use crate::collect::Collector;
use crate::namespace::Namespace;
use crate::process::{self, Process};
use anyhow::{Context, Result, bail, ensure};
use std::fmt::Write as _;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// How long it may take until it listens to commands.
const START: Duration = Duration::from_secs(5);
/// What it says then.
const STARTED: &str = "Started";
/// The families as it calls them, in the order of a neighbour's addresses.
const FAMILIES: [&str; 2] = ["ipv4", "ipv6"];

/// The first number of a router's autonomous system.
const FIRST_AS: u32 = 65_000;

/// A session with the router at the other end of a cable.
#[derive(Clone, Debug)]
pub struct Neighbour {
    /// The device of the cable.
    pub device: &'static str,
    /// The number of that router.
    pub id: u8,
    /// Our addresses on the cable and theirs, a pair for each family.
    pub addresses: [[IpAddr; 2]; 2],
    /// How much its routes are liked: the most win.
    pub preference: u32,
}

/// What a router tells its daemon.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Its number, which is its own.
    pub id: u8,
    /// Those that it speaks with.
    pub neighbours: Vec<Neighbour>,
    /// Its devices with hosts at the other end: it announces their networks.
    pub hosts: Vec<&'static str>,
    /// Sets of networks that it announces while they are [on](Bird::announce): the name of each,
    /// and its prefixes of IPv4. What comes for them is discarded there.
    pub announced: Vec<(&'static str, Vec<String>)>,
}

impl Config {
    /// In BIRD's words.
    fn written(&self) -> String {
        let id = self.id;
        let mut text = format!("log stderr all;\nrouter id 10.255.0.{id};\nprotocol device {{}}\n");
        for family in FAMILIES {
            let _ = writeln!(
                text,
                "protocol kernel {{ {family} {{ import none; export where source != RTS_DEVICE; \
                 }}; }}"
            );
        }
        let hosts: Vec<String> = self.hosts.iter().map(|host| format!("\"{host}\"")).collect();
        if !hosts.is_empty() {
            let _ =
                writeln!(text, "protocol direct {{ ipv4; ipv6; interface {}; }}", hosts.join(", "));
        }
        for neighbour in &self.neighbours {
            let Neighbour { device, id: other, preference, .. } = neighbour;
            let (us, them) = (FIRST_AS + u32::from(id), FIRST_AS + u32::from(*other));
            for (family, [ours, theirs]) in FAMILIES.into_iter().zip(neighbour.addresses) {
                let _ = write!(
                    text,
                    "protocol bgp {device}_{family} {{\n\
                     \x20 local {ours} as {us};\n\
                     \x20 neighbor {theirs} as {them};\n\
                     \x20 interface \"{device}\";\n\
                     \x20 direct;\n\
                     \x20 hold time 3; keepalive time 1;\n\
                     \x20 connect delay time 1; connect retry time 1; error wait time 1, 2;\n\
                     \x20 {family} {{\n\
                     \x20   import filter {{ bgp_local_pref = {preference}; accept; }};\n\
                     \x20   export all;\n\
                     \x20 }};\n\
                     }}\n"
                );
            }
        }
        for (name, prefixes) in &self.announced {
            let _ = writeln!(text, "protocol static {name} {{\n  disabled;\n  ipv4;");
            for prefix in prefixes {
                let _ = writeln!(text, "  route {prefix} blackhole;");
            }
            text += "}\n";
        }
        text
    }
}

/// A running daemon; stopped when dropped.
#[derive(Debug)]
pub struct Bird {
    namespace: Namespace,
    process: Process,
    socket: PathBuf,
    log: Collector,
}

impl Bird {
    /// Starts one in `namespace`, with its files in `folder`.
    pub fn start(namespace: &Namespace, folder: &Path, config: &Config) -> Result<Self> {
        let file = |ending: &str| folder.join(format!("{}.{ending}", namespace.name()));
        let (conf, socket) = (file("conf"), file("ctl"));
        fs::write(&conf, config.written())
            .with_context(|| format!("cannot write {}", conf.display()))?;
        let mut command = namespace.command("bird");
        command.args(["-f", "-c"]).arg(&conf).arg("-s").arg(&socket).stdin(Stdio::null());
        let log = Collector::over_both(&mut command)?;
        let process = Process::start(&mut command)?;
        // With it goes our copy of the log's writing end, so that the log ends.
        drop(command);
        let mut bird = Self { namespace: namespace.clone(), process, socket, log };
        let started = |log: &[u8]| String::from_utf8_lossy(log).contains(STARTED);
        if !bird.log.wait_until(started, START) {
            let how = if bird.process.is_running() { "is not ready" } else { "has ended" };
            bail!("bird {how}:\n{}", bird.log.text());
        }
        Ok(bird)
    }

    /// Runs a command of `birdc`, and returns what it answered.
    pub fn ask(&self, words: &[&str]) -> Result<String> {
        let mut birdc = self.namespace.command("birdc");
        process::run(birdc.arg("-s").arg(&self.socket).args(words))
    }

    /// Announces the networks of the set `name`, or withdraws them.
    pub fn announce(&self, name: &str, does: bool) -> Result<()> {
        let (word, wanted) = if does { ("enable", "enabled") } else { ("disable", "disabled") };
        let answer = self.ask(&[word, name])?;
        ensure!(answer.contains(wanted), "birdc {word} {name}: {answer}");
        Ok(())
    }

    /// Its output so far.
    pub fn log(&self) -> String {
        self.log.text()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_router_has_a_session_for_each_family_and_announces_only_when_asked() {
        let addresses = [["10.9.2.1", "10.9.2.2"], ["fd09::1", "fd09::2"]];
        let addresses = addresses.map(|pair| pair.map(|address| address.parse().unwrap()));
        let config = Config {
            id: 1,
            neighbours: vec![Neighbour { device: "fast", id: 2, addresses, preference: 200 }],
            hosts: vec!["west"],
            announced: vec![("many", vec!["10.128.0.0/24".to_owned()])],
        };
        let text = config.written();
        for (part, times) in [
            ("router id 10.255.0.1;", 1),
            ("local fd09::1 as 65001;\n  neighbor fd09::2 as 65002;", 1),
            ("bgp_local_pref = 200;", 2),
            ("protocol direct { ipv4; ipv6; interface \"west\"; }", 1),
            ("protocol static many {\n  disabled;\n", 1),
            ("route 10.128.0.0/24 blackhole;", 1),
        ] {
            assert_eq!(text.matches(part).count(), times, "{part} in\n{text}");
        }
        assert_eq!(text.matches('{').count(), text.matches('}').count());
    }
}
