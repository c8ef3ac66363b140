//! What runs a measurement: processes, rounds, progress, tables, plots.

pub mod background;
pub mod collect;
pub(crate) mod delays_plot;
pub mod hang;
pub(crate) mod hogs;
pub mod interrupt;
pub mod narrows;
pub(crate) mod plot;
pub mod process;
pub mod progress;
pub(crate) mod rounds;
pub(crate) mod table;
