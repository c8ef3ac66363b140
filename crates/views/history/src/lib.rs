//! The history of ports, sites and subscribers: a year at decreasing resolution, in one file.
//!
//! *Idea.* A [`Recorder`] turns what each snapshot adds into points of four [`Resolution`]s, from
//! one second to one hour, and packs them into blocks of up to 60 points. A [`Store`] keeps the
//! blocks in a SQLite file: as many of each resolution as there is room for, the oldest makes way.
//! A [`History`] does both, in a thread of its own, and answers queries.
//!
//! *Principles.* The recorder does no I/O and reads no clock. Percentiles of an interval come from
//! the merged histograms of all its packets, not from percentiles of its parts. Values are rounded
//! to a stated precision ([`quantised`]). A direction that sends nothing costs less than a byte per
//! block. A crash, of the process or the machine, loses at most what was not yet committed: the
//! last minute of seconds, the last ten minutes of coarser points. What is missing stays missing:
//! there is no value for a time in which nothing was measured.
//!
//! *Non-goals.* Hosts and flows, whose number is unbounded; long retention of fine points (export
//! them to a database: [`csv`], [`remote_write`]).

mod bits;
mod block;
pub mod csv;
mod history;
mod key;
mod observed;
mod point;
pub mod quantised;
mod query;
mod recorder;
pub mod remote_write;
mod resolution;
mod store;
mod summary;
mod times;

pub use history::{Archive, History, Options};
pub use key::{Key, Kind, SERIES_MAX, SeriesId};
pub use observed::observed;
pub use point::{Point, Unit, What};
pub use query::{
    Found, POINTS_MAX, QueryError, Range, SUBJECTS_MAX, Series, Subject, Track, Worst,
};
pub use recorder::{Batch, Closed, Recorder};
pub use resolution::Resolution;
pub use store::{Store, StoreError};
pub use summary::Summary;
pub use times::Times;
