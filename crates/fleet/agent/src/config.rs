//! The agent's configuration, `/etc/narrows/fleet.toml`.
//!
//! ```toml
//! fleet = "edge"              # the same on all boxes, as are the members
//! me = "a"                    # this box
//! ports = ["eth1", "eth2"]    # the instance's; only needed if several run here
//! interval = "50ms"           # between two reports, 5ms to 125ms
//! lease = "2s"                # of what is lent, at least 20 intervals, at most 2500ms
//! claims = "fleet/claims.json"  # which boxes are off; /var/lib/narrows-fleet/edge.a.json
//!
//! [[member]]
//! name = "a"
//! [[member]]
//! name = "b"
//! most = "400mbit"            # at most so much of any limit, whatever it asks for
//! weight = 2                  # against the others where demands exceed a limit; 1 to 1000000
//!
//! [engine]
//! servers = ["tls://10.0.0.1:4222", "tls://10.0.0.2:4222"]
//! nkey = "fleet/agent/agent.nkey"
//! authority = "fleet/agent/authority.pem"
//! certificate = "fleet/agent/agent.pem"
//! key = "fleet/agent/agent.key"
//! ```
//!
//! Paths that are not absolute begin at the file's folder. A key that is not known is an error: a
//! word that is misspelt must not be a default.

mod secret;

use crate::name::Name;
use narrows_lending::{INTERVAL_MIN_NS, INTERVALS_PER_LEASE, LEASE_MAX_NS};
use narrows_tc::number;
use narrows_units::{Nanos, Rate};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

pub use secret::{SecretError, check_files, seed};

/// Where it is, unless something else is said.
pub const CONFIG: &str = "/etc/narrows/fleet.toml";
/// The folder of what outlasts the agent, unless the configuration says something else.
pub const STATE: &str = "/var/lib/narrows-fleet";
/// The most members of a fleet.
pub const MEMBERS_MAX: usize = 1_000;
/// The most servers.
const SERVERS_MAX: usize = 64;
/// The most bytes of a file.
const FILE_MAX: usize = 1 << 20;
/// The default and the bounds of the interval.
const INTERVAL: Nanos = Nanos::from_millis(50);
const INTERVALS: [Nanos; 2] = [Nanos(INTERVAL_MIN_NS), Nanos(LEASE_MAX_NS / INTERVALS_PER_LEASE)];
/// The default and the bound of the lease.
const LEASE: Nanos = Nanos::from_secs(2);
const LEASE_MAX: Nanos = Nanos(LEASE_MAX_NS);
/// The bounds of a weight.
const WEIGHTS: std::ops::RangeInclusive<u32> = 1..=1_000_000;

/// What an agent has to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The fleet's name.
    pub fleet: Name,
    /// This box.
    pub me: Name,
    /// All boxes, this one too.
    pub members: Vec<Member>,
    /// Ports of the instance; none: the only one that runs here.
    pub ports: Vec<String>,
    /// The time between two reports.
    pub interval: Nanos,
    /// How long a loan holds.
    pub lease: Nanos,
    /// Where it answers `narrows-fleet show`; none: beside the instance's socket.
    pub view: Option<PathBuf>,
    /// The file in which it saves which boxes are off.
    pub claims: PathBuf,
    /// How it reaches the others.
    pub link: Link,
}

/// A box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: Name,
    /// It has at most so much of any limit.
    pub most: Option<Rate>,
    /// Its weight where demands exceed a limit.
    pub weight: u32,
}

/// A way to the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The addresses of servers, the first that is tried first.
    pub servers: Vec<String>,
    /// The file with the seed of this box's key.
    pub nkey: Option<PathBuf>,
    /// The file with the authority that attests the servers; none: those of the system.
    pub authority: Option<PathBuf>,
    /// The files with this box's certificate and with its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

/// Why a configuration is none.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error(
        "cannot read {}: {source}; `narrows-fleet init` writes one for each box", path.display()
    )]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It has more than a megabyte.
    #[error("a configuration has at most {} KiB", FILE_MAX >> 10)]
    TooLong,
    /// It is not TOML, or a key is missing, unknown or of another type.
    #[error("{0}")]
    Syntax(#[from] toml::de::Error),
    /// A value cannot be.
    #[error("{key}: {why}")]
    Value {
        /// Of which key.
        key: String,
        /// Why.
        why: String,
    },
}

fn wrong(key: impl Into<String>, why: impl Into<String>) -> ConfigError {
    ConfigError::Value { key: key.into(), why: why.into() }
}

/// The file as it stands.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    fleet: Name,
    me: Name,
    #[serde(default)]
    ports: Vec<String>,
    interval: Option<String>,
    lease: Option<String>,
    view: Option<PathBuf>,
    claims: Option<PathBuf>,
    #[serde(default)]
    member: Vec<MemberInFile>,
    engine: EngineInFile,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MemberInFile {
    name: Name,
    most: Option<String>,
    weight: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EngineInFile {
    servers: Vec<String>,
    nkey: Option<PathBuf>,
    authority: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
}

impl Config {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// If it cannot be read, or is no configuration.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let unreadable = |source| ConfigError::Unreadable { path: path.to_owned(), source };
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        Self::parse(&text, path.parent().unwrap_or(Path::new("/")))
    }

    /// The configuration in `text`, whose file is in `folder`.
    ///
    /// # Errors
    /// If it is none.
    pub fn parse(text: &str, folder: &Path) -> Result<Self, ConfigError> {
        if text.len() > FILE_MAX {
            return Err(ConfigError::TooLong);
        }
        let file: File = toml::from_str(text)?;
        let members: Vec<Member> =
            file.member.into_iter().map(MemberInFile::understood).collect::<Result<_, _>>()?;
        check_members(&file.me, &members)?;
        if let Some(port) = file.ports.iter().find(|port| !is_port(port)) {
            return Err(wrong("ports", format!("{port:?} is no name of an interface")));
        }
        let interval = time("interval", file.interval.as_deref())?.unwrap_or(INTERVAL);
        let lease = time("lease", file.lease.as_deref())?.unwrap_or(LEASE);
        if interval < INTERVALS[0] || interval > INTERVALS[1] {
            let [least, most] = INTERVALS;
            return Err(wrong("interval", format!("it is at least {least} and at most {most}")));
        }
        if lease.0 < INTERVALS_PER_LEASE * interval.0 || lease > LEASE_MAX {
            let why = format!(
                "it is at least {INTERVALS_PER_LEASE} intervals of {interval}, and at most \
                 {LEASE_MAX}"
            );
            return Err(wrong("lease", why));
        }
        // One for each agent, also where several run on a machine.
        let usual = || Path::new(STATE).join(format!("{}.{}.json", file.fleet, file.me));
        let claims = file.claims.map_or_else(usual, |path| folder.join(path));
        Ok(Self {
            fleet: file.fleet,
            me: file.me,
            members,
            ports: file.ports,
            interval,
            lease,
            view: file.view.map(|path| folder.join(path)),
            claims,
            link: file.engine.understood(folder)?,
        })
    }
}

impl MemberInFile {
    fn understood(self) -> Result<Member, ConfigError> {
        let key = || format!("most of the member {}", self.name);
        let most = self.most.as_deref().map(|word| {
            let rate = number::rate(word).filter(|rate| rate.bits_per_sec() > 0);
            rate.ok_or_else(|| {
                wrong(key(), format!("{word:?} is no rate above zero: {}", number::RATE_HINT))
            })
        });
        let most = most.transpose()?;
        let weight = self.weight.unwrap_or(1);
        if !WEIGHTS.contains(&weight) {
            let why = format!("it is {} to {}", WEIGHTS.start(), WEIGHTS.end());
            return Err(wrong(format!("weight of the member {}", self.name), why));
        }
        Ok(Member { name: self.name, most, weight })
    }
}

impl EngineInFile {
    fn understood(self, folder: &Path) -> Result<Link, ConfigError> {
        if self.servers.is_empty() || self.servers.len() > SERVERS_MAX {
            return Err(wrong("servers", format!("there are 1 to {SERVERS_MAX} of them")));
        }
        for server in &self.servers {
            check_server(server).map_err(|why| wrong("servers", why))?;
        }
        let certificate = match (self.certificate, self.key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some((folder.join(certificate), folder.join(key))),
            (Some(_), None) => return Err(wrong("certificate", "it needs its key, too")),
            (None, Some(_)) => return Err(wrong("key", "it needs its certificate, too")),
        };
        Ok(Link {
            servers: self.servers,
            nkey: self.nkey.map(|path| folder.join(path)),
            authority: self.authority.map(|path| folder.join(path)),
            certificate,
        })
    }
}

/// Whether `url` is the address of a NATS server.
///
/// # Errors
/// What is wrong with it.
pub fn check_server(url: &str) -> Result<(), String> {
    let begins = ["nats://", "tls://"].iter().any(|scheme| url.starts_with(scheme));
    let has_host = url.parse::<async_nats::ServerAddr>().is_ok_and(|it| !it.host().is_empty());
    if begins && has_host {
        Ok(())
    } else {
        Err(format!("{url:?} is no address of a server, as tls://10.0.0.1:4222"))
    }
}

fn check_members(me: &Name, members: &[Member]) -> Result<(), ConfigError> {
    if !(2..=MEMBERS_MAX).contains(&members.len()) {
        let why = format!("a fleet has 2 to {MEMBERS_MAX} members, and here are {}", members.len());
        return Err(wrong("member", why));
    }
    let mut names = BTreeSet::new();
    if let Some(twice) = members.iter().find(|member| !names.insert(&member.name)) {
        return Err(wrong("member", format!("{} is there twice", twice.name)));
    }
    if !names.contains(me) {
        return Err(wrong("me", format!("{me} is none of the members")));
    }
    Ok(())
}

/// As the kernel has it.
fn is_port(name: &str) -> bool {
    let is_bad = |letter: char| letter == '/' || letter.is_whitespace() || letter.is_control();
    (1..=15).contains(&name.len()) && !matches!(name, "." | "..") && !name.contains(is_bad)
}

fn time(key: &str, word: Option<&str>) -> Result<Option<Nanos>, ConfigError> {
    let time = |word| {
        let why = || format!("{word:?} is no time: {}", number::TIME_HINT);
        number::time(word).ok_or_else(|| wrong(key, why()))
    };
    word.map(time).transpose()
}
