//! Which server a flow may be at: the servers as they were made, and where each flow was seen.
//!
//! A flow of datagrams is recorded, so it stays at its server while that is there, whatever else
//! happens to the others. It moves once if its server goes. A process that is killed forgets what
//! it has recorded, and then the ring of the present servers decides: equal servers have equal
//! rings. Where servers take turns, it decides nothing.

use crate::chaos::traffic::Received;
use narrows_units::Nanos;
use std::collections::{BTreeMap, BTreeSet};

/// A server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Server {
    pub(super) weight: u32,
    pub(super) is_down: bool,
}

/// By their numbers.
pub(super) type Servers = BTreeMap<u8, Server>;

/// The servers that new connections go to, with their weights: what a ring is made of.
type Ring = BTreeMap<u8, u32>;

fn ring(servers: &Servers) -> Ring {
    let takes = servers.iter().filter(|(_, server)| server.weight > 0 && !server.is_down);
    takes.map(|(number, server)| (*number, server.weight)).collect()
}

/// Whether connections may be at `number`.
fn keeps(servers: &Servers, number: u8) -> bool {
    servers.get(&number).is_some_and(|server| !server.is_down)
}

/// What an event did.
#[derive(Debug)]
pub(super) struct Change<'a> {
    pub(super) before: &'a Servers,
    pub(super) after: &'a Servers,
    /// Who was not there, for a while or from then on.
    pub(super) gone: &'a BTreeSet<u8>,
    /// Whether what was recorded is lost.
    pub(super) is_forgotten: bool,
    pub(super) takes_turns: bool,
}

/// When it happened, and from when on its effect is complete.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) struck: Nanos,
    pub(super) settled: Nanos,
}

/// Where a flow is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct At {
    server: u8,
    /// The ring that put it there, if it is known which one did.
    ring: Option<Ring>,
}

/// Where all flows are, by stream and number.
#[derive(Debug, Default)]
pub(super) struct Flows(BTreeMap<(u8, u16), At>);

/// What was found in an epoch.
#[derive(Debug, Default)]
pub(super) struct Judged {
    pub(super) moved: usize,
    pub(super) broken: Vec<String>,
}

impl Flows {
    /// The flows of `stream` are others from now on.
    pub(super) fn forget(&mut self, stream: u8) {
        self.0.retain(|(of, _), _| *of != stream);
    }

    /// Follows what came back in an epoch with one change.
    pub(super) fn judge(
        &mut self,
        received: &[Received],
        change: &Change<'_>,
        times: Times,
    ) -> Judged {
        let mut judged = Judged::default();
        let mut moved = BTreeSet::new();
        for one in received {
            let flow = (one.stream, one.sent.flow);
            let server = one.hop;
            let at = self.0.get(&flow);
            if at.is_some_and(|at| at.server == server) {
                if one.at > times.settled && !keeps(change.after, server) {
                    judged.broken.push(format!("flow {flow:?} is at {server}, which is gone"));
                }
                continue;
            }
            if let Err(why) = may_go(at, server, one.at, change, times) {
                judged.broken.push(format!("flow {flow:?} goes to {server}: {why}"));
            }
            if at.is_some() && !moved.insert(flow) {
                judged.broken.push(format!("flow {flow:?} moves a second time, to {server}"));
            }
            let ring = match () {
                () if one.at < times.struck => Some(ring(change.before)),
                () if change.is_forgotten || one.at > times.settled => Some(ring(change.after)),
                () => None,
            };
            self.0.insert(flow, At { server, ring });
        }
        judged.moved = moved.len();
        judged.broken.truncate(10);
        judged
    }
}

/// Whether a flow may go to `server` from where it is `at`, if it was anywhere.
fn may_go(
    at: Option<&At>,
    server: u8,
    when: Nanos,
    change: &Change<'_>,
    times: Times,
) -> Result<(), String> {
    let takes = |servers: &Servers| ring(servers).contains_key(&server);
    let is_early = when < times.struck;
    let is_taker = match is_early {
        true => takes(change.before),
        false => takes(change.after) || takes(change.before) && when < times.settled,
    };
    if !is_taker {
        return Err("it takes no new connections".to_owned());
    }
    let Some(at) = at else { return Ok(()) };
    if is_early {
        return Err(format!("it was at {}, and nothing has happened", at.server));
    }
    if change.gone.contains(&at.server) {
        return Ok(());
    }
    if !change.is_forgotten {
        return Err(format!("it was at {}, which stays", at.server));
    }
    if !change.takes_turns && at.ring.as_ref() == Some(&ring(change.after)) {
        return Err(format!("it was at {}, by the same ring", at.server));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::sender::Sent;

    const TIMES: Times =
        Times { struck: Nanos::from_millis(100), settled: Nanos::from_millis(200) };

    fn servers(weights: &[(u8, u32)]) -> Servers {
        let one = |(number, weight)| (number, Server { weight, is_down: false });
        weights.iter().copied().map(one).collect()
    }

    fn seen(ms: u64, server: u8) -> Received {
        let at = Nanos::from_millis(ms);
        Received { at, stream: 0, sent: Sent { at, flow: 7, bytes: 100 }, hop: server }
    }

    /// What is broken in an epoch of one flow that was seen at these servers at these times.
    fn broken(
        before: &Servers,
        after: &Servers,
        is_forgotten: bool,
        seen_at: &[(u64, u8)],
    ) -> Vec<String> {
        let gone = before.keys().filter(|number| !keeps(after, **number)).copied().collect();
        let change = Change { before, after, gone: &gone, is_forgotten, takes_turns: false };
        let received: Vec<Received> = seen_at.iter().map(|(ms, hop)| seen(*ms, *hop)).collect();
        Flows::default().judge(&received, &change, TIMES).broken
    }

    #[test]
    fn a_flow_stays_at_a_server_that_drains_and_new_ones_avoid_it() {
        let (before, after) = (servers(&[(1, 1), (2, 1)]), servers(&[(1, 0), (2, 1)]));
        assert!(broken(&before, &after, false, &[(50, 1), (150, 1), (250, 1)]).is_empty());
        assert_eq!(broken(&before, &after, false, &[(250, 1)]).len(), 1);
        assert_eq!(broken(&before, &after, false, &[(50, 1), (250, 2)]).len(), 1);
    }

    #[test]
    fn a_flow_leaves_a_server_that_goes_and_stays_at_the_next() {
        let (before, after) = (servers(&[(1, 1), (2, 1), (3, 1)]), servers(&[(2, 1), (3, 1)]));
        assert!(broken(&before, &after, false, &[(50, 1), (150, 2), (250, 2)]).is_empty());
        assert_eq!(broken(&before, &after, false, &[(50, 1), (150, 2), (250, 3)]).len(), 2);
        assert_eq!(broken(&before, &after, false, &[(50, 1), (250, 1)]).len(), 1);
        assert_eq!(broken(&before, &after, false, &[(50, 2), (150, 3)]).len(), 1);
        assert_eq!(broken(&before, &after, false, &[(50, 1), (60, 2)]).len(), 1);
    }

    #[test]
    fn who_forgets_goes_by_the_ring() {
        let (two, three) = (servers(&[(1, 1), (2, 1)]), servers(&[(1, 1), (2, 1), (3, 1)]));
        assert_eq!(broken(&two, &two, true, &[(50, 1), (250, 2)]).len(), 1);
        assert!(broken(&two, &three, true, &[(50, 1), (250, 2)]).is_empty());
    }
}
