//! Safe functions for processor features that the language has no safe words for.
//!
//! The scheduling classes of threads are here, too: Linux has them, and no safe crate sets them.
//!
//! They use only what every processor of the architecture has, so nothing is detected at run time.
//! On other architectures than x86-64 the functions do the same in plain Rust; a hint does nothing
//! there.
//!
//! Cost: [`prefetch`] is one instruction, [`prefetch_all`] two or three for each line,
//! [`equal_lanes`] six; [`ask_for_huge_pages`] is a system call, for where a table is made, and
//! [`trim_heap`] visits all free memory, for where one was dropped.
//!
//! Non-goals: instructions that some processors lack; functions whose soundness depends on more
//! than their arguments.

mod lanes;
mod memory;
mod model;
pub mod probes;
#[cfg(target_os = "linux")]
mod schedule;

pub use lanes::equal_lanes;
pub use memory::{ask_for_huge_pages, prefetch, prefetch_all, prefetch_to_write, trim_heap};
pub use model::model;
#[cfg(target_os = "linux")]
pub use schedule::{Class, schedule};
