//! Sets of addresses, with `ipset`'s words.
//!
//! A blocklist is a set of thousands to a million prefixes that changes while packets are looked up
//! in it. [`Sets`] holds sets by name and executes the commands of `ipset(8)` (`create`, `add`,
//! `swap` and so on), one at a time or a whole `ipset save` text ([`Restore`]). A filter names a
//! set (`basic match 'ipset(NAME src)'`).
//!
//! *Look-ups* are done by a program in the driver. A [`Set`] reports its members
//! and its changes, and [`image`] lays its prefixes out as the program reads them: a few words for
//! each look-up, however many prefixes there are. Only the rates of members are looked up here, by
//! workers ([`RateReader`]).
//!
//! *Principles.* No I/O, no clock: `now` is an argument. A line that fails changes nothing and says
//! what to type instead. No input causes a panic, and none takes more memory than `maxelem` allows.
//!
//! *Non-goals.* Other types than `hash:ip`, `hash:net`, `hash:net,port` and `hash:mac`; `skbinfo`;
//! XML and JSON.
//!
//! Source: `ipset(8)` 7.17; output is formatted as that version formats it.

mod command;
mod entry;
pub mod image;
mod key;
mod kind;
mod member_rates;
mod members;
mod restore;
mod set;
mod sets;
mod text;
mod words;

pub use command::ParseError;
pub use key::{Key, PrefixLen};
pub use kind::{Family, Kind, Shape};
pub use member_rates::{RateBoard, RateReader, RateTable};
pub use restore::Restore;
pub use set::{Changes, Element, Match, Set};
pub use sets::{Host, Named, Reply, SETS_MAX, Sets};
