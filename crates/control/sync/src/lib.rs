//! Subscribers from files and systems, into the store and into a running instance.
//!
//! *Idea.* A [`Source`] says who there is. [`Store::replace`](narrows_store::Store::replace) keeps
//! it. An [`Applier`] finds what differs from the directory as it was applied last, and gives the
//! running instance only that, as one batch of `tc` commands. It also writes the policy file and
//! the file of names, so that a restart comes up the same.
//!
//! | module | what |
//! | --- | --- |
//! | [`source`] | what a source gives |
//! | [`libreqos`] | the files of LibreQoS |
//! | `mapped` | tables, documents and APIs with a mapping file |
//! | [`applier`] | from the store to the instance |
//! | [`online`] | what commands do that run on |
//! | [`radius`] | RADIUS sessions |
//! | [`leases`] | DHCP leases |
//! | `compiler` | the commands from what was applied last |
//! | `files` | the files from which an instance starts |
//! | `files_writer` | the thread that writes them |
//! | `instance` | commands to an instance: all of them, or none |
//! | `pace` | when changes go to the instance |
//! | `running` | what an instance runs, as rows that can be compared |
//!
//! *Principles.* All or nothing: a batch that the instance refuses in the middle is undone, and the
//! directory stays marked as not applied. If what runs is not what was applied last, it is read
//! from the instance and compared.
//!
//! *Non-goals.* What is not of the directory: other ports, other qdiscs and classes, filters of
//! other kinds stay as they are.

pub mod applier;
mod compiler;
mod files;
mod files_writer;
mod instance;
pub mod leases;
pub mod libreqos;
#[cfg(feature = "mapped")]
pub mod mapped;
pub mod online;
mod pace;
pub mod radius;
mod running;
pub mod source;

pub use applier::{Applied, Applier, ApplyError, Settings};
pub use files_writer::FilesWriter;
pub use online::Online;
pub use source::{Gathered, Source};
