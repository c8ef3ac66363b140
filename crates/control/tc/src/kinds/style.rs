//! How a qdisc is printed.

/// What of its parameters is worth printing.
#[derive(Clone, Copy)]
pub(crate) struct Style {
    /// `-details`.
    pub(crate) details: bool,
    /// Whether several queues share the qdisc's limit, so that their coordination matters.
    pub(crate) shared: bool,
}
