//! Namespaces in a row, the devices between them, and their end: what traffic goes through.

pub mod bed;
pub mod bridge;
pub mod guard;
pub mod namespace;
pub mod receiving;
pub mod requirements;
pub mod stale;
pub mod steering;
pub mod translation;
