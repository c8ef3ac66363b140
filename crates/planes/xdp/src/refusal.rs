//! Refusals of the XDP plane: a sentence that says which plane can do it.

/// Why a plan cannot run in the driver.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// A qdisc that needs a queue.
    #[error(
        "the XDP plane has no queues, so it cannot run {0}: use `--plane xsk`, or htb, prio, drr, \
         ets and tbf with pfifo, bfifo or codel in their classes"
    )]
    NeedsQueue(&'static str),
    /// A setting of queues.
    #[error("{0} says how queues share a rate, and the XDP plane has none: use `--plane xsk`")]
    Coordination(&'static str),
    /// `peakrate`
    #[error("the XDP plane keeps one rate: leave out peakrate, or use `--plane xsk`")]
    PeakRate,
    /// More than there is room for.
    #[error("the XDP plane has room for {room} {what}, and this needs {needed}: use `--plane xsk`")]
    Room {
        /// The kind that was refused.
        what: &'static str,
        /// How many there may be.
        room: usize,
        /// How many there would be.
        needed: usize,
    },
    /// A filter that the program cannot run.
    #[error("the XDP plane does not run {what}: {instead}, or use `--plane xsk`")]
    Filter {
        /// Which.
        what: &'static str,
        /// What does.
        instead: &'static str,
    },
}
