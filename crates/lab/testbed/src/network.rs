//! Namespaces in a row, the devices between them, and their end: what traffic goes through.

pub mod bed;
pub mod bird;
pub mod bridge;
pub mod diamond;
pub mod fleet;
pub(crate) mod folder;
pub mod guard;
pub mod namespace;
pub mod nginx;
pub mod receiving;
pub mod requirements;
pub mod stale;
pub mod steering;
pub mod translation;
pub mod web;
pub mod wires;
