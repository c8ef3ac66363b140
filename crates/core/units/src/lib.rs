//! The three quantities of a shaper, the one place where a frame becomes a length on the wire, a
//! histogram of times, numbers with their nouns, and the mark that text may begin with.
//!
//! Time is [`Nanos`], sizes are [`Bytes`], rates are [`Rate`] in bits per second. Each is an
//! integer with a type of its own, so that a rate in bytes or a time in microseconds cannot be
//! passed by mistake. Nothing here reads a clock.
//!
//! Non-goals: printing in `tc`'s notation (the `tc` layer does that), calculating with floating
//! point, calendar time.

mod byte_time;
mod bytes;
mod counted;
mod mark;
mod nanos;
mod rate;
mod spread;
pub mod wire;
pub mod word;

pub use byte_time::ByteTime;
pub use bytes::Bytes;
pub use counted::{counted, plural};
pub use mark::{bytes_without_mark, without_mark};
pub use nanos::Nanos;
pub use rate::Rate;
pub use spread::Spread;
