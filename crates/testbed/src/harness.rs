//! What runs a measurement: processes, rounds, progress, tables.

pub mod background;
pub mod collect;
pub mod hang;
pub mod interrupt;
pub mod narrows;
pub mod process;
pub mod progress;
pub(crate) mod rounds;
pub(crate) mod table;
