//! RADIUS accounting and changes of authorization.
//!
//! *Idea.* A NAS that reports its sessions here is a client; so is a server that changes or ends
//! them. [`Sessions`] checks each packet, keeps the sessions, and answers. What a session says is
//! made into a [`Subscriber`](narrows_directory::Subscriber) under the rules of a [`Config`].
//!
//! *Source.* RFC 2865, 2866, 2869, 3162, 4818, 6911 (attributes), RFC 2866 (accounting), RFC 5176
//! (Disconnect and CoA), RFC 3579 (Message-Authenticator).

pub mod attribute;
mod config;
mod duplicates;
mod listener;
mod offer;
pub mod packet;
pub mod rates;
mod report;
mod saved;
mod sessions;
mod table;

pub use config::{Client, Config, ConfigError, Limits, RateRule, Reading};
pub use listener::{Datagram, Listener};
pub use offer::Offer;
pub use sessions::{Counters, Now, Sessions};
pub use table::Change;
