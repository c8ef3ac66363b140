//! Which queued ACK a newer one makes redundant.
//!
//! *Idea.* TCP's ACKs are cumulative: the last one of a run covers all those before it. On a slow
//! return path they only delay it. When a packet of a connection joins the queue, one pure ACK of
//! the same connection that waits there may be dropped, if the sender of the data loses no
//! information:
//!
//! * It carries nothing else: no data, no other flags, no unknown option.
//! * The newest says strictly more: a higher number, or the same and more ranges; all ranges that
//!   were selectively acknowledged (RFC 2018) still are, or are cumulatively acknowledged by now;
//!   time stamps (RFC 7323) are no older. So duplicate ACKs (three of which call for a
//!   retransmission), window updates and answers to probes, which have the same number and nothing
//!   else, all stay. So do duplicate SACKs (RFC 2883), which are never repeated.
//! * Another packet of the connection repeats its congestion signals (RFC 3168) right behind it: of
//!   each stretch with the same signals at least one stays, and every change is seen.
//!
//! *Two stay.* An ACK may be lost further on. So the first of a run is dropped only if a second one
//! could be dropped, too: then both it and the newest cover the first. The aggressive filter also
//! drops a single one directly in front of the newest.
//!
//! Stricter than Linux: signals are compared with all packets of the connection in between and not
//! only with ACKs, a reset makes nothing redundant (its acknowledgement number is ignored, RFC
//! 9293), duplicate SACKs stay.
//!
//! Source: the published description of cake's `ack-filter` (`tc-cake(8)`; Høiland-Jørgensen, Täht
//! and Morton, "Piece of CAKE", 2018).
//!
//! Cost: the packets in the queue, from the head up to the second that could be dropped; one
//! comparison for each packet of another connection. Nothing is allocated.
//!
//! Non-goals: parsing headers (`packet` does), thinning out ACKs that a fast link could carry,
//! deciding which flows are worth filtering.

use narrows_packet::Acknowledgement;

#[cfg(test)]
mod model;
#[cfg(test)]
mod table;

const SYN: u16 = 0x02;
const RST: u16 = 0x04;
const ACK: u16 = 0x10;
const ECE: u16 = 0x40;
const CWR: u16 = 0x80;
/// The bits that may signal congestion: ECE, CWR, and the bits beside the header length, one of
/// which is used for it (RFC 9768).
const SIGNALS: u16 = 0xf00 | ECE | CWR;

/// A candidate, which can be dropped if another one follows.
struct Candidate {
    position: usize,
    signals: u16,
}

/// The position, from the head, of the packet in `queued` that `newest` behind them makes
/// superfluous.
pub(super) fn superfluous(
    queued: impl IntoIterator<Item = Acknowledgement>,
    newest: &Acknowledgement,
    aggressive: bool,
) -> Option<usize> {
    // The first acknowledgement of a connection has no predecessor, and a reset none that counts.
    if newest.connection == 0 || newest.flags & (ACK | SYN | RST) != ACK {
        return None;
    }
    let mut candidate: Option<Candidate> = None;
    let mut length = 0;
    for (position, packet) in queued.into_iter().enumerate() {
        length = position + 1;
        if packet.connection != newest.connection {
            continue;
        }
        let signals = packet.flags & SIGNALS;
        let could_go = is_superseded(&packet, newest);
        match &candidate {
            Some(first) if first.signals == signals => {
                if could_go {
                    return Some(first.position);
                }
            }
            // The signals change here, so the previous packet was the last with the old ones.
            _ => candidate = could_go.then_some(Candidate { position, signals }),
        }
    }
    let single = candidate.filter(|_| aggressive)?;
    let is_next = single.position + 1 == length && single.signals == newest.flags & SIGNALS;
    is_next.then_some(single.position)
}

/// Whether `old` is a pure acknowledgement that `new` covers completely. Congestion signals are
/// checked separately.
fn is_superseded(old: &Acknowledgement, new: &Acknowledgement) -> bool {
    let is_pure = old.is_empty && old.has_plain_options && old.flags & !(ECE | CWR) == ACK;
    if !is_pure || !is_no_younger(old.time_stamp, new.time_stamp) || !has_ordinary_blocks(old) {
        return false;
    }
    let says_all =
        |new, old: &Acknowledgement| old.blocks().iter().all(|&block| acknowledges(new, block));
    let says_more =
        is_before(old.number, new.number) || (old.number == new.number && !says_all(old, new));
    says_more && says_all(new, old)
}

/// Serial comparison (RFC 1982): numbers half the circle apart are not before each other.
fn is_before(a: u32, b: u32) -> bool {
    b.wrapping_sub(a).cast_signed() > 0
}

/// Whether neither value nor echo of the newer time stamp are older. Either both packets have one
/// or none has: the receiver may discard a packet without the option (RFC 7323, 3.2), so it
/// replaces nothing.
fn is_no_younger(old: Option<(u32, u32)>, new: Option<(u32, u32)>) -> bool {
    match (old, new) {
        (None, None) => true,
        (Some((old_value, old_echo)), Some((new_value, new_echo))) => {
            !is_before(new_value, old_value) && !is_before(new_echo, old_echo)
        }
        _ => false,
    }
}

/// Whether all ranges are of what has arrived beyond the number. Others report duplicates
/// (RFC 2883: below the number, or within another range) or are malformed.
fn has_ordinary_blocks(packet: &Acknowledgement) -> bool {
    let blocks = packet.blocks();
    let is_beyond =
        |&(from, to): &(u32, u32)| is_before(packet.number, from) && is_before(from, to);
    let is_within = |a: (u32, u32), b: (u32, u32)| !is_before(a.0, b.0) && !is_before(b.1, a.1);
    let repeats = match blocks {
        [first, others @ ..] => others.iter().any(|&other| is_within(*first, other)),
        [] => false,
    };
    blocks.iter().all(is_beyond) && !repeats
}

/// Whether `by` says that all of a range has arrived.
fn acknowledges(by: &Acknowledgement, (from, to): (u32, u32)) -> bool {
    let mut from = if is_before(from, by.number) { by.number } else { from };
    // The rest shrinks with each range that is found, so none is found twice.
    while is_before(from, to) {
        let holds = |&&(begin, end): &&(u32, u32)| !is_before(from, begin) && is_before(from, end);
        let Some(&(_, end)) = by.blocks().iter().find(holds) else { return false };
        from = end;
    }
    true
}
