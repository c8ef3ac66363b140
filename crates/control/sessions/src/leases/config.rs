//! The configuration: which servers, and whose a lease is.

use super::Field;
use crate::{config_file, duration};
use narrows_units::Nanos;
use serde::Deserialize;
use std::io;
use std::path::{Path, PathBuf};

const SERVERS_MAX: usize = 64;
const RULES_MAX: usize = 64;
/// How often a control socket is asked, without another word.
const EVERY: Nanos = Nanos::from_secs(5);

/// Which servers, and whose their leases are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Where leases come from.
    pub servers: Vec<Server>,
    /// How the subscriber of a lease is found; the first rule that finds one wins.
    pub rules: Vec<Rule>,
}

/// A DHCP server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Server {
    /// A file that Kea keeps its leases in, for IPv4 or IPv6.
    KeaFile(PathBuf),
    /// Kea's control socket.
    KeaSocket {
        /// Where.
        path: PathBuf,
        /// Whether it serves DHCPv6.
        is_v6: bool,
        /// How often it is asked.
        every: Nanos,
    },
    /// The file that ISC's dhcpd keeps its leases in, for IPv4 or IPv6.
    IscFile(PathBuf),
    /// The lease file of dnsmasq.
    Dnsmasq(PathBuf),
}

/// A lease is the one of the subscriber that has the same value.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// A field of the lease.
    #[serde(rename = "lease")]
    pub field: Option<Field>,
    /// Or a key of its user context.
    pub context: Option<String>,
    /// The label of the subscriber; none for its identity.
    pub label: Option<String>,
}

/// Why a configuration is none.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is too long.
    #[error("a configuration has at most {} KiB", config_file::LENGTH_MAX >> 10)]
    TooLong,
    /// It is not TOML, or a key is missing, unknown or of another type.
    #[error("{0}")]
    Syntax(#[from] toml::de::Error),
    /// A value cannot be.
    #[error("{key}: {why}")]
    Value {
        /// Of which key.
        key: &'static str,
        /// Why.
        why: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    server: Vec<ServerInFile>,
    #[serde(default, rename = "match")]
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerInFile {
    kea_file: Option<PathBuf>,
    kea_socket: Option<PathBuf>,
    dnsmasq_file: Option<PathBuf>,
    isc_file: Option<PathBuf>,
    family: Option<u8>,
    every: Option<String>,
}

impl Config {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// If it cannot be read, or is no configuration.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let unreadable = |source| ConfigError::Unreadable { path: path.to_owned(), source };
        let file = std::fs::File::open(path).map_err(unreadable)?;
        Self::parse(&config_file::text(file).map_err(unreadable)?)
    }

    /// The configuration in `text`.
    ///
    /// # Errors
    /// If it is none.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        if config_file::is_too_long(text) {
            return Err(ConfigError::TooLong);
        }
        let file: File = toml::from_str(text)?;
        if file.server.is_empty() || file.server.len() > SERVERS_MAX {
            return Err(wrong("server", format!("there are 1 to {SERVERS_MAX} [[server]]")));
        }
        if file.rules.is_empty() || file.rules.len() > RULES_MAX {
            return Err(wrong("match", format!("there are 1 to {RULES_MAX} [[match]]")));
        }
        if file.rules.iter().any(|rule| rule.field.is_some() == rule.context.is_some()) {
            return Err(wrong(
                "match",
                "each has `lease`, a field, or `context`, a key".to_owned(),
            ));
        }
        let servers = file.server.into_iter().map(ServerInFile::understood);
        Ok(Self { servers: servers.collect::<Result<_, _>>()?, rules: file.rules })
    }
}

fn wrong(key: &'static str, why: String) -> ConfigError {
    ConfigError::Value { key, why }
}

impl ServerInFile {
    fn understood(self) -> Result<Server, ConfigError> {
        let every = self.every.map(|word| {
            let every = duration::parse(&word).filter(|every| every.0 > 0);
            every.ok_or_else(|| {
                wrong("every", format!("{word:?} is no time above zero: {}", duration::HINT))
            })
        });
        let every = every.transpose()?;
        match (self.kea_file, self.kea_socket, self.dnsmasq_file, self.isc_file) {
            (None, Some(path), None, None) => {
                let is_v6 = match self.family {
                    Some(4) => false,
                    Some(6) => true,
                    _ => return Err(wrong("family", "a kea_socket needs 4 or 6".to_owned())),
                };
                Ok(Server::KeaSocket { path, is_v6, every: every.unwrap_or(EVERY) })
            }
            _ if self.family.is_some() || every.is_some() => {
                Err(wrong("server", "`family` and `every` are for a kea_socket".to_owned()))
            }
            (Some(path), None, None, None) => Ok(Server::KeaFile(path)),
            (None, None, Some(path), None) => Ok(Server::Dnsmasq(path)),
            (None, None, None, Some(path)) => Ok(Server::IscFile(path)),
            _ => {
                let why = "each has one of `kea_file`, `kea_socket`, `isc_file` and `dnsmasq_file`";
                Err(wrong("server", why.to_owned()))
            }
        }
    }
}
