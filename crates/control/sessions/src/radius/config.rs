//! The configuration: who may speak, what names a subscriber, and what its plan is.

use super::attribute::{
    FILTER_ID, MIKROTIK_RATE_LIMIT, USER_NAME, WISPR_MAX_DOWN, WISPR_MAX_UP, WISPR_MIN_DOWN,
    WISPR_MIN_UP,
};
use super::packet::Type;
use super::rates::{DOWN, UP};
use crate::{config_file, duration, prefix};
use narrows_directory::{Plan, Prefix, Queueing};
use narrows_tc::number;
use narrows_units::{Nanos, Rate};
use serde::Deserialize;
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// The permissions that nobody but the owner may have.
const OTHERS: u32 = 0o077;
const CLIENTS_MAX: usize = 1_000;
const PREFIXES_MAX: usize = 64;
const LISTEN_MAX: usize = 16;
const RULES_MAX: usize = 64;
const PLANS_MAX: usize = 10_000;
/// Shorter secrets are found by trying: RFC 2865 section 3 asks for 16 bytes, and many clients are
/// configured with less.
const SECRET_LENGTHS: std::ops::RangeInclusive<usize> = 8..=128;
const SESSIONS_MAX: usize = 1_000_000;
const RATE_MIN: Rate = Rate::from_bits_per_sec(8_000);
const RATE_MAX: Rate = Rate::from_bits_per_sec(100_000_000_000);
const MINUTE: u64 = 60_000_000_000;

/// What a listener of RADIUS does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Where it listens. All ports take all kinds of packets.
    pub listen: Vec<SocketAddr>,
    /// Whose packets it takes.
    pub clients: Vec<Client>,
    /// The attribute whose value is the identity of a subscriber.
    pub identity: Type,
    /// The attribute that names it for people; none: its identity does.
    pub name: Option<Type>,
    /// The sites of NASes, by NAS-Identifier or address.
    pub sites: BTreeMap<String, String>,
    /// The plans that attributes name.
    pub plans: BTreeMap<String, Plan>,
    /// The plan of a session that says nothing of one.
    pub default_plan: Option<Plan>,
    /// Where rates come from, the most important first.
    pub rules: Vec<RateRule>,
    /// The queues of subscribers whose plan has no name.
    pub queueing: Queueing,
    /// A session of a NAS that sends Interim-Updates ends without one for this long.
    pub silent: Nanos,
    /// A subscriber without a session keeps its class for this long.
    pub keep: Nanos,
    /// How far the Event-Timestamp of a CoA or Disconnect may be from now; zero for any.
    pub window: Nanos,
    /// How far the Event-Timestamp of an accounting request may be from now; zero for any.
    pub accounting_window: Nanos,
    /// Whether a CoA with an attribute that is not supported is refused, as RFC 5176 section 3
    /// wants, or obeyed without it.
    pub refuse_unsupported: bool,
    /// Whether Framed-IP-Netmask makes the address a network of the subscriber's own. Many NASes
    /// send the mask of the network in which all subscribers are.
    pub use_netmask: bool,
    /// What sessions may have.
    pub limits: Limits,
}

/// Bounds on what sessions say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// How many sessions there may be.
    pub sessions: usize,
    /// The least rate.
    pub rate_min: Rate,
    /// The most, and the rate of a session without a limit.
    pub rate_max: Rate,
    /// The shortest prefix of a session, for IPv4 and IPv6, in bits.
    pub shortest: [u8; 2],
}

impl Default for Limits {
    fn default() -> Self {
        Self { sessions: 200_000, rate_min: RATE_MIN, rate_max: RATE_MAX, shortest: [22, 40] }
    }
}

/// Somebody whose packets are taken.
#[derive(Clone, PartialEq, Eq)]
pub struct Client {
    /// For people, and a part of the key of its sessions.
    pub name: String,
    /// Its addresses.
    pub from: Vec<Prefix>,
    /// What it signs with.
    pub secret: Vec<u8>,
    /// It may report sessions.
    pub accounting: bool,
    /// It may change and end sessions.
    pub coa: bool,
    /// Packets without a Message-Authenticator are dropped.
    pub needs_message_authenticator: bool,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the secret.
        f.debug_struct("Client").field("name", &self.name).field("from", &self.from).finish()
    }
}

/// An attribute that says how fast a session is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RateRule {
    /// Which.
    pub attribute: Type,
    /// How its value is read.
    pub reading: Reading,
    /// Only values that begin with this count, and it is not a part of them.
    pub prefix: String,
}

/// How a value says a rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reading {
    /// The name of a plan.
    Plan,
    /// The words of `Mikrotik-Rate-Limit`, for both directions.
    Mikrotik,
    /// An integer: the ceiling downstream, in bit/s.
    DownBps,
    /// An integer: the ceiling upstream, in bit/s.
    UpBps,
    /// An integer: the ceiling downstream, in kbit/s.
    DownKbps,
    /// An integer: the ceiling upstream, in kbit/s.
    UpKbps,
    /// An integer: the assured rate downstream, in bit/s.
    DownMinBps,
    /// An integer: the assured rate upstream, in bit/s.
    UpMinBps,
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
    /// Others may read the secrets in it.
    #[error("others may read {}, which has secrets: chmod 600 {}", .0.display(), .0.display())]
    Open(PathBuf),
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
    listen: Option<Vec<SocketAddr>>,
    identity: Option<String>,
    name: Option<String>,
    default_plan: Option<String>,
    queueing: Option<QueueingInFile>,
    silent: Option<String>,
    keep: Option<String>,
    window: Option<String>,
    accounting_window: Option<String>,
    unsupported_in_coa: Option<Unsupported>,
    #[serde(default)]
    use_netmask: bool,
    #[serde(default)]
    limits: LimitsInFile,
    #[serde(default)]
    client: Vec<ClientInFile>,
    #[serde(default)]
    plans: BTreeMap<String, PlanInFile>,
    #[serde(default)]
    sites: BTreeMap<String, String>,
    #[serde(default)]
    rate: Vec<RateInFile>,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum Unsupported {
    Refuse,
    Ignore,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum QueueingInFile {
    Cake,
    FqCodel,
    Fifo,
}

impl From<QueueingInFile> for Queueing {
    fn from(word: QueueingInFile) -> Self {
        match word {
            QueueingInFile::Cake => Self::Cake,
            QueueingInFile::FqCodel => Self::FqCodel,
            QueueingInFile::Fifo => Self::Fifo,
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct LimitsInFile {
    sessions: Option<usize>,
    rate_min: Option<String>,
    rate_max: Option<String>,
    shortest_ipv4: Option<u8>,
    shortest_ipv6: Option<u8>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClientInFile {
    name: String,
    from: Vec<String>,
    secret: String,
    allow: Option<Vec<Allowed>>,
    #[serde(default)]
    needs_message_authenticator: bool,
}

#[derive(Deserialize, PartialEq, Eq, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum Allowed {
    Accounting,
    Coa,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanInFile {
    down: String,
    up: String,
    down_min: Option<String>,
    up_min: Option<String>,
    queueing: Option<QueueingInFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RateInFile {
    attribute: String,
    #[serde(rename = "as")]
    reading: Reading,
    #[serde(default)]
    prefix: String,
}

impl Config {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// If it cannot be read, if others than its owner may read it, or if it is no configuration.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let unreadable = |source| ConfigError::Unreadable { path: path.to_owned(), source };
        let file = std::fs::File::open(path).map_err(unreadable)?;
        if file.metadata().map_err(unreadable)?.permissions().mode() & OTHERS != 0 {
            return Err(ConfigError::Open(path.to_owned()));
        }
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
        let limits = file.limits.understood()?;
        let queueing = file.queueing.map(Queueing::from).unwrap_or_default();
        if file.plans.len() > PLANS_MAX {
            return Err(wrong("plans", format!("there are at most {PLANS_MAX}")));
        }
        let plans = file.plans.into_iter().map(|(name, plan)| {
            let plan = plan.understood(&name, queueing, &limits)?;
            Ok((name, plan))
        });
        let plans = plans.collect::<Result<BTreeMap<_, _>, ConfigError>>()?;
        let default_plan = file.default_plan.map(|name| {
            let unknown = || wrong("default_plan", format!("there is no [plans.{name}]"));
            plans.get(&name).cloned().ok_or_else(unknown)
        });
        Ok(Self {
            listen: listen(file.listen)?,
            clients: clients(file.client)?,
            identity: attribute("identity", file.identity.as_deref())?.unwrap_or(USER_NAME),
            name: attribute("name", file.name.as_deref())?,
            sites: file.sites,
            default_plan: default_plan.transpose()?,
            plans,
            rules: rules(file.rate)?,
            queueing,
            silent: time("silent", file.silent, 60 * MINUTE)?,
            keep: time("keep", file.keep, 24 * 60 * MINUTE)?,
            window: time("window", file.window, 5 * MINUTE)?,
            accounting_window: time("accounting_window", file.accounting_window, 24 * 60 * MINUTE)?,
            refuse_unsupported: !matches!(file.unsupported_in_coa, Some(Unsupported::Ignore)),
            use_netmask: file.use_netmask,
            limits,
        })
    }

    /// The client that sends from `ip`: the one with the longest prefix.
    pub fn client(&self, ip: IpAddr) -> Option<&Client> {
        let ip = ip.to_canonical();
        let matching = self.clients.iter().filter_map(|client| {
            let bits = client.from.iter().filter(|from| prefix::contains(from, ip));
            bits.map(|from| from.bits).max().map(|bits| (bits, client))
        });
        matching.max_by_key(|(bits, _)| *bits).map(|(_, client)| client)
    }
}

fn listen(given: Option<Vec<SocketAddr>>) -> Result<Vec<SocketAddr>, ConfigError> {
    let any = std::net::Ipv6Addr::UNSPECIFIED;
    let listen = given.unwrap_or_else(|| vec![(any, 1813).into(), (any, 3799).into()]);
    if listen.is_empty() || listen.len() > LISTEN_MAX {
        return Err(wrong("listen", format!("it has 1 to {LISTEN_MAX} addresses with ports")));
    }
    Ok(listen)
}

fn clients(given: Vec<ClientInFile>) -> Result<Vec<Client>, ConfigError> {
    if given.is_empty() || given.len() > CLIENTS_MAX {
        return Err(wrong("client", format!("there are 1 to {CLIENTS_MAX} [[client]]")));
    }
    let clients: Vec<Client> =
        given.into_iter().map(ClientInFile::understood).collect::<Result<_, _>>()?;
    let (mut names, mut prefixes) = (HashSet::new(), HashSet::new());
    for client in &clients {
        if !names.insert(&client.name) {
            return Err(wrong("client", format!("two are called {:?}", client.name)));
        }
        if let Some(twice) = client.from.iter().find(|from| !prefixes.insert(**from)) {
            let why = format!("{} is given twice", prefix::show(twice));
            return Err(wrong(format!("client {:?}: from", client.name), why));
        }
    }
    Ok(clients)
}

/// The rules that the file gives, then those that everybody has.
fn rules(given: Vec<RateInFile>) -> Result<Vec<RateRule>, ConfigError> {
    if given.len() > RULES_MAX {
        return Err(wrong("rate", format!("there are at most {RULES_MAX} [[rate]]")));
    }
    let given = given.into_iter().map(|rule| {
        let attribute = attribute("rate: attribute", Some(&rule.attribute))?.unwrap_or(FILTER_ID);
        Ok(RateRule { attribute, reading: rule.reading, prefix: rule.prefix })
    });
    let mut rules = given.collect::<Result<Vec<_>, ConfigError>>()?;
    rules.extend(
        [
            (MIKROTIK_RATE_LIMIT, Reading::Mikrotik),
            (WISPR_MAX_DOWN, Reading::DownBps),
            (WISPR_MAX_UP, Reading::UpBps),
            (WISPR_MIN_DOWN, Reading::DownMinBps),
            (WISPR_MIN_UP, Reading::UpMinBps),
            (FILTER_ID, Reading::Plan),
        ]
        .map(|(attribute, reading)| RateRule { attribute, reading, prefix: String::new() }),
    );
    Ok(rules)
}

fn attribute(key: &str, word: Option<&str>) -> Result<Option<Type>, ConfigError> {
    let understood = |word: &str| {
        Type::named(word).ok_or_else(|| {
            let why = "is no attribute known by name: write its number, or VENDOR.NUMBER";
            wrong(key, format!("{word:?} {why}"))
        })
    };
    word.map(understood).transpose()
}

fn time(key: &str, word: Option<String>, otherwise: u64) -> Result<Nanos, ConfigError> {
    let Some(word) = word else { return Ok(Nanos(otherwise)) };
    duration::parse(&word)
        .ok_or_else(|| wrong(key, format!("{word:?} is no time: {}", duration::HINT)))
}

fn rate(key: &str, word: &str) -> Result<Rate, ConfigError> {
    let rate = number::rate(word).filter(|rate| !rate.is_zero());
    rate.ok_or_else(|| wrong(key, format!("{word:?} is no rate above zero: {}", number::RATE_HINT)))
}

impl LimitsInFile {
    fn understood(self) -> Result<Limits, ConfigError> {
        let standard = Limits::default();
        let given = |key: &str, word: Option<String>, otherwise| {
            word.map_or(Ok(otherwise), |word| rate(key, &word))
        };
        let limits = Limits {
            sessions: self.sessions.unwrap_or(standard.sessions),
            rate_min: given("limits.rate_min", self.rate_min, standard.rate_min)?,
            rate_max: given("limits.rate_max", self.rate_max, standard.rate_max)?,
            shortest: [
                self.shortest_ipv4.unwrap_or(standard.shortest[0]),
                self.shortest_ipv6.unwrap_or(standard.shortest[1]),
            ],
        };
        if limits.sessions == 0 || limits.sessions > SESSIONS_MAX {
            return Err(wrong("limits.sessions", format!("it is 1 to {SESSIONS_MAX}")));
        }
        if limits.rate_min < RATE_MIN || limits.rate_max > RATE_MAX {
            let why = format!("it is at least {RATE_MIN} and at most {RATE_MAX}");
            return Err(wrong("limits.rate_min, limits.rate_max", why));
        }
        if limits.rate_min > limits.rate_max {
            return Err(wrong("limits.rate_min", "it is above limits.rate_max"));
        }
        let [ipv4, ipv6] = limits.shortest;
        if !(8..=32).contains(&ipv4) || !(16..=128).contains(&ipv6) {
            let why = "it is 8 to 32 bits for IPv4, and 16 to 128 for IPv6";
            return Err(wrong("limits.shortest_ipv4, limits.shortest_ipv6", why));
        }
        Ok(limits)
    }
}

impl ClientInFile {
    fn understood(self) -> Result<Client, ConfigError> {
        let key = |part: &str| format!("client {:?}: {part}", self.name);
        let is_hidden = self.name.contains(narrows_escape::is_hidden);
        if self.name.is_empty() || self.name.len() > 64 || is_hidden {
            return Err(wrong(key("name"), "it has 1 to 64 bytes of printable text"));
        }
        if !SECRET_LENGTHS.contains(&self.secret.len()) {
            let [least, most] = [SECRET_LENGTHS.start(), SECRET_LENGTHS.end()];
            return Err(wrong(key("secret"), format!("it has {least} to {most} bytes")));
        }
        if self.from.is_empty() || self.from.len() > PREFIXES_MAX {
            return Err(wrong(key("from"), format!("it has 1 to {PREFIXES_MAX} prefixes")));
        }
        let from = self.from.iter().map(|text| {
            let why = || format!("{text:?} is no address and no prefix such as 192.0.2.0/24");
            prefix::parse(text).ok_or_else(|| wrong(key("from"), why()))
        });
        let from = from.collect::<Result<Vec<_>, _>>()?;
        let allow = self.allow.unwrap_or_else(|| vec![Allowed::Accounting]);
        if allow.is_empty() {
            return Err(wrong(key("allow"), "it has \"accounting\", \"coa\" or both"));
        }
        Ok(Client {
            from,
            secret: self.secret.into_bytes(),
            accounting: allow.contains(&Allowed::Accounting),
            coa: allow.contains(&Allowed::Coa),
            needs_message_authenticator: self.needs_message_authenticator,
            name: self.name,
        })
    }
}

impl PlanInFile {
    fn understood(
        self,
        name: &str,
        queueing: Queueing,
        limits: &Limits,
    ) -> Result<Plan, ConfigError> {
        let within = |part: &str, word: &str| {
            let key = format!("plans.{name}.{part}");
            let rate = rate(&key, word)?;
            if rate < limits.rate_min || rate > limits.rate_max {
                let why = format!(
                    "{rate} is not between limits.rate_min, {}, and limits.rate_max, {}",
                    limits.rate_min, limits.rate_max
                );
                return Err(wrong(key, why));
            }
            Ok(rate)
        };
        let mut plan = Plan {
            name: Some(name.to_owned()),
            ceiling: [within("down", &self.down)?, within("up", &self.up)?],
            queueing: [self.queueing.map_or(queueing, Queueing::from); 2],
            ..Plan::default()
        };
        for (direction, part, word) in
            [(DOWN, "down_min", &self.down_min), (UP, "up_min", &self.up_min)]
        {
            let Some(word) = word else { continue };
            plan.assured[direction] = within(part, word)?;
            if plan.assured[direction] > plan.ceiling[direction] {
                return Err(wrong(format!("plans.{name}.{part}"), "it is above the plan's rate"));
            }
        }
        Ok(plan)
    }
}
