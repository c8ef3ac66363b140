//! Refusals of the planes without queues: a sentence that says which plane can do it.

/// Why a plan cannot run without queues.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// A qdisc that needs a queue.
    #[error(
        "the XDP plane has no queues, so it cannot run {0}: use `--plane xsk`, or htb, prio, drr, \
         ets and tbf with pfifo, bfifo or codel in their classes"
    )]
    NeedsQueue(&'static str),
    /// A qdisc that the host plane cannot run.
    #[error(
        "the host plane gives packets departure times and has no queues of its own, so it cannot run \
         {0}: use htb, prio, drr, ets and tbf with pfifo, bfifo, codel, fq_codel or fq in their \
         classes, or a wire between two ports with `--plane xsk`"
    )]
    NotAtHost(&'static str),
    /// A setting of queues.
    #[error("{0} says how queues share a rate, and this plane has none: use `--plane xsk`")]
    Coordination(&'static str),
    /// `peakrate`
    #[error("this plane keeps one rate: leave out peakrate, or use `--plane xsk`")]
    PeakRate,
    /// More than there is room for.
    #[error("this plane has room for {room} {what}, and this needs {needed}: use `--plane xsk`")]
    Room {
        /// The kind that was refused.
        what: &'static str,
        /// How many there may be.
        room: usize,
        /// How many there would be.
        needed: usize,
    },
    /// A filter that the program cannot run.
    #[error("this plane does not run {what}: {instead}, or use `--plane xsk`")]
    Filter {
        /// Which.
        what: &'static str,
        /// What does.
        instead: &'static str,
    },
}
