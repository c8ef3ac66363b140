//! Foreign data becomes a [`Directory`](narrows_directory::Directory).
//!
//! *Idea.* A billing system, a spreadsheet or an inventory says who there is, in words of its own.
//! A [`Mapping`], a TOML file, says where in these data a subscriber's identity, site, plan, rates
//! and addresses are. Reading has two steps. First, records are loaded into named [`Lists`]: from
//! CSV, from JSON, or page by page over HTTP. Then [`convert`] applies the mapping, without I/O.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`mapping`] | the mapping file: lists, fields, plans |
//! | [`csv`], [`json`], [`files`] | records of files |
//! | [`http`] | records of any JSON API, with pages, retries and limits |
//! | [`netbox`] | the mapping for NetBox |
//! | [`convert`] | records and mapping become a directory |
//!
//! *Principles.* Strict: an unknown key in a mapping is an error, and a record that cannot be used
//! is left out and named, never guessed. All or nothing: a list of which a page is missing is no
//! list. All numbers that a foreign system chooses have bounds.
//!
//! *Non-goals.* Writing to the foreign system, and a language for programs: who needs more than a
//! mapping can say prepares JSON with a tool such as `jq`.

mod convert;
pub mod csv;
mod fault;
pub mod files;
pub mod http;
pub mod json;
mod list;
pub mod mapping;
pub mod netbox;

pub use convert::{Converted, convert};
pub use fault::{Fault, Faults};
pub use list::{List, Lists};
pub use mapping::Mapping;

/// Why a source gives no directory at all.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The mapping is wrong.
    #[error("the mapping: {0}")]
    Mapping(String),
    /// A file cannot be read.
    #[error("cannot read {0}: {1}")]
    File(String, std::io::Error),
    /// The data are not in their format.
    #[error("{0}: {1}")]
    Format(String, String),
    /// A limit is exceeded.
    #[error("{0}")]
    TooMuch(String),
    /// The other system does not answer as it should.
    #[error(transparent)]
    Http(#[from] http::HttpError),
}
