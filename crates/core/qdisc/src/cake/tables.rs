//! Look-up by hash: the flows of a tin, and their hosts.
//!
//! Allocated when the first packet of a tin comes, and given back after a rest.
//!
//! Cost: as `ways.rs` and `hosts.rs` say.

use super::Isolation;
use super::flow::Flow;
use super::hosts::Hosts;
use super::neighbours::Neighbours;
use super::ways::Ways;
use crate::Census;

/// Allocated when the first packet of a tin arrives.
pub(super) struct Tables {
    pub(super) ways: Ways,
    /// By end, where hosts matter there.
    pub(super) sources: Option<Hosts>,
    pub(super) destinations: Option<Hosts>,
}

impl Tables {
    /// The tables of the tin `at`. Hosts are counted if they share; if hosts are the flows, only
    /// those on other queues matter.
    pub(super) fn new(
        isolation: Isolation,
        has_siblings: bool,
        at: usize,
        window: u16,
    ) -> Box<Self> {
        let (sources, destinations) = match isolation {
            Isolation::Flowblind | Isolation::Flows => (false, false),
            Isolation::Srchost | Isolation::Hosts => (has_siblings, false),
            Isolation::Dsthost => (false, has_siblings),
            Isolation::DualSrchost => (true, false),
            Isolation::DualDsthost => (false, true),
            Isolation::TripleIsolate => (true, true),
        };
        let salt = 2 * at as u64;
        Box::new(Self {
            ways: Ways::new(),
            sources: sources.then(|| Hosts::new(salt, window)),
            destinations: destinations.then(|| Hosts::new(salt + 1, window)),
        })
    }

    /// Another window of time has begun.
    pub(super) fn begin_window(&mut self, window: u16) {
        for hosts in [&mut self.sources, &mut self.destinations].into_iter().flatten() {
            hosts.begin_window(window);
        }
    }

    pub(super) fn memory(&self) -> usize {
        let hosts = [&self.sources, &self.destinations];
        size_of::<Self>()
            + Ways::memory()
            + hosts.into_iter().flatten().map(Hosts::memory).sum::<usize>()
    }

    /// A flow gets a backlog, or loses it.
    pub(super) fn stand(&mut self, flow: &Flow, begins: bool) {
        if let Some(hosts) = &mut self.sources {
            hosts.stand(flow.source, begins);
        }
        if let Some(hosts) = &mut self.destinations {
            hosts.stand(flow.destination, begins);
        }
    }

    fn tell(&mut self, flow: &Flow, begins: bool, census: &mut dyn Census) {
        if let Some(hosts) = &mut self.sources {
            hosts.tell(flow.source, begins, census);
        }
        if let Some(hosts) = &mut self.destinations {
            hosts.tell(flow.destination, begins, census);
        }
    }

    /// New siblings know no hosts yet.
    pub(super) fn forget_published_figures(&mut self) {
        for hosts in [&mut self.sources, &mut self.destinations].into_iter().flatten() {
            hosts.forget_published_figures();
        }
    }

    /// The most flows that one of its hosts has, if there are no siblings.
    #[inline(always)]
    pub(super) fn own_load(&mut self, flow: &Flow) -> u16 {
        let mut load = 1;
        if let Some(hosts) = &mut self.sources {
            load = load.max(hosts.own_load(flow.source));
        }
        if let Some(hosts) = &mut self.destinations {
            load = load.max(hosts.own_load(flow.destination));
        }
        load
    }

    /// The most flows that one of its hosts has.
    #[inline(always)]
    pub(super) fn load(&mut self, flow: &Flow, neighbours: &Neighbours) -> u16 {
        let mut load = 1;
        if let Some(hosts) = &mut self.sources {
            load = load.max(hosts.load(flow.source, neighbours));
        }
        if let Some(hosts) = &mut self.destinations {
            load = load.max(hosts.load(flow.destination, neighbours));
        }
        u16::try_from(load).unwrap_or(u16::MAX)
    }

    /// The most flows that one of its hosts has. Publishes the flow, which has used up its quantum.
    #[inline(never)]
    pub(super) fn tell_and_load(&mut self, flow: &mut Flow, neighbours: &mut Neighbours) -> u16 {
        if !flow.published {
            flow.published = true;
            self.tell(flow, true, &mut *neighbours.census);
        }
        self.load(flow, neighbours)
    }

    /// Withdraws the published flow: it has no debt and no packets.
    #[inline(never)]
    pub(super) fn take_back(&mut self, flow: &mut Flow, neighbours: &mut Neighbours) {
        flow.published = false;
        self.tell(flow, false, &mut *neighbours.census);
    }
}
