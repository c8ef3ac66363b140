//! Sets of addresses, with `ipset`'s words.
//!
//! A blocklist is a set: thousands or a million addresses and prefixes, which change while packets
//! are looked up in it. [`Sets`] holds them by name and runs what `ipset(8)` takes (`create`, `add`,
//! `swap` and so on), one command or a whole `ipset save` text ([`Restore`]) at a time. A filter
//! names a set (`basic match 'ipset(NAME src)'`).
//!
//! *Who looks up.* Not this crate: a program in the driver does. A [`Set`] says what it holds and
//! what changed since it was last asked, and [`image`] lays its prefixes out as the program reads
//! them: a few words for each address that is looked up, whatever the number of prefixes.
//!
//! *Principles.* No I/O, no clock: `now` is an argument. A line that fails changes nothing and says
//! what to type instead. No input whatsoever panics, and none takes more room than `maxelem` allows.
//!
//! *Non-goals.* Other types than `hash:ip`, `hash:net`, `hash:net,port` and `hash:mac`; `skbinfo`;
//! XML and JSON.
//!
//! Source: `ipset(8)` 7.17; what it prints, as that version prints it.

mod command;
mod entry;
pub mod image;
mod key;
mod kind;
mod restore;
mod set;
mod sets;
mod text;
mod words;

pub use command::ParseError;
pub use key::{Key, PrefixLen};
pub use kind::{Family, Kind, Shape};
pub use restore::Restore;
pub use set::{Changes, Element, Match, Set};
pub use sets::{Host, Named, Reply, SETS_MAX, Sets};
