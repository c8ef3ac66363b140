//! Who has a history.

use narrows_snapshot::{Class, Port};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The most series, of all times together: the file and memory are bounded by it.
pub const SERIES_MAX: usize = 100_000;
/// The longest name, in bytes: what follows is cut off.
const NAME_MAX: usize = 200;

/// The number of a series in the file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SeriesId(pub u32);

/// What a subject is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A port.
    Port,
    /// A class with a name and with classes below it.
    Site,
    /// A class with a name and none below it.
    Subscriber,
    /// A class without a name.
    Class,
}

impl Kind {
    /// All.
    pub const ALL: [Self; 4] = [Self::Port, Self::Site, Self::Subscriber, Self::Class];

    /// Its word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Port => "port",
            Self::Site => "site",
            Self::Subscriber => "subscriber",
            Self::Class => "class",
        }
    }
}

/// One direction of a subject: what leaves through one port. A class with a name has its history
/// under the name, whatever its handle is; one without under its port and handle.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    /// What it is.
    pub kind: Kind,
    /// Its name: that of the port or class, or `eth1/1:10` of a class without one.
    pub name: String,
    /// The port through which it leaves.
    pub port: String,
}

impl Key {
    /// Of a port.
    pub fn of_port(port: &Port) -> Self {
        Self { kind: Kind::Port, name: short(&port.name), port: short(&port.name) }
    }

    /// Of a class of `port`; `has_classes` says whether it has classes below it.
    pub fn of_class(port: &Port, class: &Class, has_classes: bool) -> Self {
        let (kind, name) = match &class.name {
            Some(name) if has_classes => (Kind::Site, short(name)),
            Some(name) => (Kind::Subscriber, short(name)),
            None => (Kind::Class, short(&format!("{}/{}", port.name, class.handle))),
        };
        Self { kind, name, port: short(&port.name) }
    }

    /// The identity of its subject: `subscriber:NAME`.
    pub fn subject(&self) -> String {
        format!("{}:{}", self.kind.name(), self.name)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} at {}", self.subject(), self.port)
    }
}

/// No more than the longest name.
fn short(name: &str) -> String {
    name[..name.floor_char_boundary(NAME_MAX)].to_owned()
}
