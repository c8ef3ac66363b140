//! The tree: a root and a class for each subscriber, all alike, and the frames for them.

use crate::bed::{CLIENT_IP, CLIENT_MAC, SINK_MAC};
use crate::frames;
use anyhow::Result;
use etherparse::PacketBuilder;
use narrows_units::{Nanos, Rate};
use std::fmt::Write as _;

/// The most classes: the kernel's HTB numbers its classes with 16 bits, and one is the root.
pub const CLASSES_MAX: u32 = 0xfffe;

/// Frames, in bytes: the smallest, so that packets and not bytes are the load.
pub(super) const FRAME_BYTES: usize = 64;
/// Flows of each class, which take all queues.
const FLOWS: u16 = 4;
/// The size of a bucket: its rate for this long.
const BURST: Nanos = Nanos::from_millis(20);
/// The least of it, in frames.
const BURST_MIN: u64 = 4;
/// The queue limit of a class: its ceiling for this long.
const QUEUE: Nanos = Nanos::from_millis(50);
/// The fewest frames that may wait in a queue of it.
const QUEUE_MIN: u64 = 2;
/// The proportion in which classes share borrowed rate, in bytes.
const QUANTUM: u32 = 1514;
/// The number of the first subscriber's class, and of its queue.
const FIRST: u32 = 2;
/// The first hash table by the last octet of an address; [`BY_THIRD`] leads to it.
const BY_LAST: u32 = 0x100;
/// The hash table by the third octet of an address.
const BY_THIRD: u32 = 2;
/// A frame in a kernel's queue, with all that belongs to it, in bytes: no less.
const KERNEL_FRAME: u64 = 1024;

/// Subscribers, all alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Subscribers {
    pub(super) classes: u32,
    /// Of each; none if nothing is known of it yet.
    pub(super) ceil: Option<Rate>,
}

impl Subscribers {
    /// Without limits, and with senders that send what they can.
    pub(super) fn unlimited(classes: u32) -> Self {
        Self { classes, ceil: None }
    }

    /// That may send this many packets a second together.
    pub(super) fn below(classes: u32, packets_per_second: f64) -> Self {
        let bits = packets_per_second * FRAME_BYTES as f64 * 8.0 / f64::from(classes);
        // One that is even, so that the rate is half of it.
        let ceil = Rate::from_bits_per_sec(2 * (bits / 2.0).max(1.0) as u64);
        Self { classes, ceil: Some(ceil) }
    }

    /// What all of them may send, in packets per second.
    pub(super) fn ceilings_per_second(&self) -> Option<f64> {
        let bits = self.ceil?.bits_per_sec() as f64 * f64::from(self.classes);
        Some(bits / 8.0 / FRAME_BYTES as f64)
    }

    /// The queue limit of a class in each of `queues`, in packets.
    pub(super) fn limit(&self, queues: u64) -> u64 {
        let bytes = self.ceil.map_or(0, |ceil| ceil.bytes_in(QUEUE).0);
        (bytes / FRAME_BYTES as u64 / queues).max(QUEUE_MIN)
    }

    /// Frames that may wait in the tree in all, on each of `queues`.
    pub(super) fn waiting(&self, queues: u64) -> u64 {
        self.limit(queues) * u64::from(self.classes)
    }

    /// The room that a sender's socket needs so that it never waits for the kernel's queues.
    pub(super) fn room(&self) -> usize {
        (self.waiting(1) * KERNEL_FRAME).max(crate::raw::BUFFER as u64) as usize
    }

    /// The words of `tc` that make the tree on `port`, one line each. What may wait at a class
    /// waits in `queues`, of each of which the limit is a part.
    pub(super) fn tree(&self, port: &str, queues: u64) -> String {
        let Some(ceil) = self.ceil else { return String::new() };
        let rate = Rate::from_bits_per_sec(ceil.bits_per_sec() / 2);
        let root = Rate::from_bits_per_sec(2 * ceil.bits_per_sec() * u64::from(self.classes));
        let burst = |rate: Rate| rate.bytes_in(BURST).0.max(BURST_MIN * FRAME_BYTES as u64);
        let [burst, cburst, root_burst] = [rate, ceil, root].map(burst);
        let [rate, ceil, root] = [rate, ceil, root].map(Rate::bits_per_sec);
        let limit = self.limit(queues);
        let mut lines = format!(
            "qdisc add dev {port} root handle 1: htb\n\
             class add dev {port} parent 1: classid 1:1 htb rate {root}bit burst {root_burst} \
             cburst {root_burst} quantum {QUANTUM}\n"
        );
        for id in FIRST..FIRST + self.classes {
            // Writing to a string does not fail.
            let _ = writeln!(
                lines,
                "class add dev {port} parent 1:1 classid 1:{id:x} htb rate {rate}bit ceil {ceil}bit \
                 burst {burst} cburst {cburst} quantum {QUANTUM}\n\
                 qdisc add dev {port} parent 1:{id:x} handle {id:x}: pfifo limit {limit}"
            );
        }
        lines
    }

    /// A filter for each class, one after the other: Narrows finds the one that matches in a hash
    /// table of its own.
    pub(super) fn filters(&self, port: &str) -> String {
        let mut lines = String::new();
        for class in 0..self.classes {
            let [a, b, c, d] = address(class);
            let _ = writeln!(
                lines,
                "filter add dev {port} parent 1: protocol ip pref 1 u32 \
                 match ip dst {a}.{b}.{c}.{d}/32 flowid 1:{:x}",
                FIRST + class
            );
        }
        lines
    }

    /// The same filters in linked hash tables, by an address's third and last octets: the kernel
    /// has none but those that are written.
    pub(super) fn hashed_filters(&self, port: &str) -> String {
        let [a, b, ..] = address(0);
        let add = format!("filter add dev {port} parent 1: protocol ip pref 1");
        let mut lines = format!(
            "{add} handle {BY_THIRD:x}: u32 divisor 256\n\
             {add} u32 ht 800: match ip dst {a}.{b}.0.0/16 hashkey mask 0x0000ff00 at 16 \
             link {BY_THIRD:x}:\n"
        );
        for class in 0..self.classes {
            let [a, b, c, d] = address(class);
            let table = BY_LAST + u32::from(c);
            if d == 0 {
                let _ = writeln!(
                    lines,
                    "{add} handle {table:x}: u32 divisor 256\n\
                     {add} u32 ht {BY_THIRD:x}:{c:x} match ip dst {a}.{b}.{c}.0/24 \
                     hashkey mask 0x000000ff at 16 link {table:x}:"
                );
            }
            let _ = writeln!(
                lines,
                "{add} u32 ht {table:x}:{d:x} match ip dst {a}.{b}.{c}.{d}/32 flowid 1:{:x}",
                FIRST + class
            );
        }
        lines
    }

    /// The frames of each of `senders`: all classes one after the other, a flow of each. They go to
    /// a device that counts them and throws them away.
    pub(super) fn frames(&self, senders: usize) -> Result<Vec<Vec<Vec<u8>>>> {
        let mut frames = vec![Vec::new(); senders];
        for flow in 0..FLOWS {
            for class in 0..self.classes {
                let mut frame = Vec::with_capacity(FRAME_BYTES);
                PacketBuilder::ethernet2(CLIENT_MAC, SINK_MAC)
                    .ipv4(CLIENT_IP.octets(), address(class), 64)
                    .udp(frames::port(flow), frames::DISCARD)
                    .write(&mut frame, &[0; FRAME_BYTES - frames::HEADERS])?;
                frames[usize::from(flow) % senders].push(frame);
            }
        }
        Ok(frames)
    }
}

/// The address of a class, in the range of RFC 2544 where the bed is, too.
fn address(class: u32) -> [u8; 4] {
    let [.., c, d] = class.to_be_bytes();
    [198, 19, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ceilings_add_up_to_what_all_may_send() {
        let subscribers = Subscribers::below(1024, 400_000.0);
        let per_second = subscribers.ceilings_per_second().unwrap();
        assert!((per_second / 400_000.0 - 1.0).abs() < 1e-4, "{per_second}");
        assert_eq!(Subscribers::unlimited(8).ceilings_per_second(), None);
        // 390 packets a second, for 50 ms.
        assert_eq!((subscribers.limit(1), subscribers.limit(4)), (19, 4));
        assert_eq!(Subscribers::below(CLASSES_MAX, 400_000.0).limit(1), QUEUE_MIN);
    }

    #[test]
    fn the_tree_is_written_in_tc_s_words() {
        let subscribers =
            Subscribers { classes: 300, ceil: Some(Rate::from_bits_per_sec(1_024_000)) };
        let lines = subscribers.tree("port-b", 4);
        assert_eq!(lines.lines().count(), 2 + 2 * 300);
        for said in [
            "class add dev port-b parent 1: classid 1:1 htb rate 614400000bit burst 1536000 \
             cburst 1536000 quantum 1514\n",
            "class add dev port-b parent 1:1 classid 1:2 htb rate 512000bit ceil 1024000bit \
             burst 1280 cburst 2560 quantum 1514\n",
            "qdisc add dev port-b parent 1:12d handle 12d: pfifo limit 25\n",
        ] {
            assert!(lines.contains(said), "{said} in\n{lines}");
        }
    }

    #[test]
    fn filters_of_both_kinds_lead_each_address_to_its_class() {
        let subscribers = Subscribers::unlimited(300);
        let [plain, hashed] = [subscribers.filters("port-b"), subscribers.hashed_filters("port-b")];
        let leads = "match ip dst 198.19.1.43/32 flowid 1:12d";
        assert!(plain.contains(leads) && hashed.contains(&format!("u32 ht 101:2b {leads}")));
        assert_eq!(plain.lines().count(), 300);
        // A table for each of two networks, and the filters that lead there.
        assert_eq!(hashed.lines().count(), 300 + 2 + 2 * 2);
        let link = "u32 ht 2:1 match ip dst 198.19.1.0/24 hashkey mask 0x000000ff at 16 link 101:";
        assert!(hashed.contains(link), "{hashed}");
    }

    #[test]
    fn senders_share_the_flows_of_every_class() {
        let frames = Subscribers::unlimited(300).frames(2).unwrap();
        for of_sender in &frames {
            assert_eq!(of_sender.len(), 300 * usize::from(FLOWS) / 2);
            assert!(of_sender.iter().all(|frame| frame.len() == FRAME_BYTES));
        }
        assert_eq!(frames[0][299][30..34], [198, 19, 1, 43]);
        assert_ne!(frames[0][0], frames[1][0]);
    }
}
