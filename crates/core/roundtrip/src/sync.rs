//! The primitives that queues share, as the standard library has them or, under `--cfg loom`, as
//! the model checker does.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
