//! A plan for the planes without queues, XDP and host: the configuration of the program in the
//! driver or at egress, as plain data.
//!
//! [`compile`] turns a [`Plan`](narrows_policy::Plan) into an [`Image`](narrows_bpf::tree::Image),
//! the contents of the program's maps, or says why that plane cannot run it and which one can.
//! Classes get [`Numbers`], which they keep from plan to plan: credit and counters are stored under
//! them in the kernel. Where a plan differs from the one before in nothing but rates
//! ([`changed_rates`]), [`Limits`] say which classes that changes, without a compilation.
//! [`figures`] turns what the program counted into the figures of qdiscs and classes. [`headers`]
//! says in the programs' terms what a filter asks of a packet, here and in front of either plane.
//!
//! *Non-goals.* Loading, attaching, and when a plan is installed: that is the data plane's.

mod changes;
mod compile;
mod enforcement;
mod figures;
mod flatten;
mod headers;
mod limits;
mod numbers;
mod rates;
mod refusal;
mod rules;
mod terms;
mod valves;
mod virtual_queue;

pub use changes::{Change, changed_rates};
pub use compile::{Compiled, compile};
pub use enforcement::Enforcement;
pub use figures::{Counted, figures, successor_classes};
pub use headers::headers;
pub use limits::Limits;
pub use numbers::{DIRECT, Name, Numbers};
pub use refusal::Refusal;
