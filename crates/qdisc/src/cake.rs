//! `cake`: under construction.

mod config;
mod figures;

pub use config::{AckFilter, Config, Diffserv, Isolation};
pub use figures::{Figures, TinFigures};
