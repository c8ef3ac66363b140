//! What processors can do and the language has no safe words for, a safe function for each.
//!
//! Only what every processor of an architecture has is used, so nothing is asked at run time.
//! Elsewhere than on x86-64 the functions do the same in plain words, or nothing where it is a
//! hint.
//!
//! Cost: [`prefetch`] is one instruction, [`prefetch_all`] two or three for each line,
//! [`equal_lanes`] six.
//!
//! Non-goals: instructions that some processors lack, anything that needs more than its arguments
//! to be sound.

mod lanes;
mod memory;

pub use lanes::equal_lanes;
pub use memory::{prefetch, prefetch_all};
