//! From the workers' figures back to the tree.

use crate::compile::Installed;
use crate::{Handle, Parent};
use narrows_qdisc::Stats;

/// The figures of one qdisc of a port, all queues together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeStats {
    /// Where it hangs.
    pub parent: Parent,
    /// Its handle; `None` for what nobody put there, such as the `bfifo` in a `tbf`.
    pub handle: Option<Handle>,
    /// What it has done.
    pub stats: Stats,
}

impl Installed {
    /// The figures of every qdisc of the port. `per_queue[i]` is what `Qdisc::stats` of queue
    /// `i` yields. Below an `mq` or a `cake_mq` each queue's qdiscs are entries of their own, and
    /// it is their sum; otherwise the queues run the same tree and each entry is a sum over them.
    ///
    /// A queue that has not come round to its update yet may yield a list of another length;
    /// what it lacks counts as nothing, what it has beyond is left out.
    pub fn gather(&self, per_queue: &[Vec<Stats>]) -> Vec<NodeStats> {
        let mut nodes: Vec<NodeStats> = Vec::new();
        if let Some(handle) = self.mq {
            let mut stats = Stats::default();
            per_queue.iter().filter_map(|queue| queue.first()).for_each(|root| stats.merge(root));
            // As in the kernel it is a sum of what every qdisc counts, and no more.
            stats.cake = None;
            stats.fq = None;
            stats.pacing = None;
            nodes.push(NodeStats { parent: Parent::Root, handle: Some(handle), stats });
        }
        for (running, figures) in self.queues.iter().zip(per_queue) {
            for (running, figures) in running.iter().zip(figures) {
                let (parent, handle) = (running.place.parent, running.place.handle);
                match nodes.iter_mut().find(|at| (at.parent, at.handle) == (parent, handle)) {
                    Some(node) => node.stats.merge(figures),
                    None => nodes.push(NodeStats { parent, handle, stats: figures.clone() }),
                }
            }
        }
        nodes
    }
}
