//! Controls which TX queue a sender's frames take, and so on which queue the shaper receives them.
//!
//! A `veth` delivers to the RX queue with the number of the TX queue. The kernel selects the TX
//! queue by the hash of the flow, with a key that it draws at boot. So which flow takes which queue
//! is found by trying ([`flows`]). Transmit packet steering (XPS) overrides the hash: with every
//! core mapped to one queue, everything takes that queue ([`pin`]). A filter can override it, too,
//! by port ([`by_port`]). [`QueueCounters`] count what each queue has sent.

use crate::bed::{CLIENT, End, SERVER, SINK_MAC, Testbed, tc};
use crate::namespace::Namespace;
use crate::raw::RawSocket;
use crate::{cpu, frames};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// Flows tried at once. Flow number `i` sends 2^i frames, so that the number of frames
/// that a queue counted says in binary which flows took it.
const TRIED_AT_ONCE: u16 = 10;

/// Flows tried in all before giving up: far more than enough for a hash that spreads.
const TRIED_IN_ALL: u16 = 4000;

/// Source ports that take each queue of the client's device, `per_queue` for each: the first list
/// is for queue 0, and so on.
///
/// Call it before the counters matter: it sends frames.
pub fn flows(bed: &Testbed, per_queue: usize) -> Result<Vec<Vec<u16>>> {
    if bed.queues() == 1 {
        return Ok(vec![(0..u16::try_from(per_queue)?).map(frames::port).collect()]);
    }
    let [client, _] = bed.ends();
    let counters = QueueCounters::over(client, bed.queues())?;
    let socket = RawSocket::open(bed.client(), CLIENT)?;
    let mut flows = vec![Vec::new(); bed.queues() as usize];
    let mut before = counters.read()?;
    for first in (0..TRIED_IN_ALL).step_by(TRIED_AT_ONCE.into()) {
        for bit in 0..TRIED_AT_ONCE {
            let frame = frames::udp(frames::port(first + bit), SINK_MAC, 64)?;
            for _ in 0..1_u32 << bit {
                if socket.send(&[&frame])? == 0 {
                    bail!("{CLIENT} has no room for a frame while it should be idle");
                }
            }
        }
        let after = counters.read()?;
        for (queue, ports) in flows.iter_mut().enumerate() {
            let took = after[queue] - before[queue];
            let bits = (0..TRIED_AT_ONCE).filter(|bit| took >> bit & 1 == 1);
            ports.extend(bits.map(|bit| frames::port(first + bit)));
        }
        before = after;
        if flows.iter().all(|ports| ports.len() >= per_queue) {
            for ports in &mut flows {
                ports.truncate(per_queue);
            }
            return Ok(flows);
        }
    }
    bail!("{TRIED_IN_ALL} flows did not reach every queue of {CLIENT}; is XPS set on it?")
}

/// Counts the frames that each queue of a device has sent, as long as it lives. The kernel
/// counts only for a queue with a qdisc of its own, which it therefore has until then.
#[derive(Debug)]
pub struct QueueCounters<'a> {
    end: End<'a>,
    queues: u32,
}

impl<'a> QueueCounters<'a> {
    /// Over the first `queues` queues of the device of `end`.
    pub fn over(end: End<'a>, queues: u32) -> Result<Self> {
        tc(end.namespace, &format!("qdisc replace dev {} root handle 1: mq", end.device))?;
        Ok(Self { end, queues })
    }

    /// Frames sent by each since it has been counted for.
    pub fn read(&self) -> Result<Vec<u64>> {
        let text = tc(self.end.namespace, &format!("-s -j qdisc show dev {}", self.end.device))?;
        parse_mq(&text, self.queues).with_context(|| format!("tc does not list the queues: {text}"))
    }
}

impl Drop for QueueCounters<'_> {
    fn drop(&mut self) {
        // The device goes away with its namespace, if nothing else.
        let _ = tc(self.end.namespace, &format!("qdisc del dev {} root", self.end.device));
    }
}

/// Frames sent by each child of the `mq` qdisc with handle `1:`.
fn parse_mq(json: &str, queues: u32) -> Option<Vec<u64>> {
    let qdiscs: Vec<Value> = serde_json::from_str(json).ok()?;
    let child = |queue: u32| {
        let parent = format!("1:{:x}", queue + 1);
        qdiscs.iter().find(|qdisc| qdisc["parent"] == parent.as_str())?["packets"].as_u64()
    };
    (0..queues).map(child).collect()
}

/// Makes everything that both ends send take `queue`, from any socket.
pub fn pin(bed: &Testbed, queue: u32) -> Result<()> {
    ensure!(queue < bed.queues(), "there is no queue {queue} of {}", bed.queues());
    steer(bed, |q| q == queue)
}

/// Steers all packets that `namespace` sends by `device` to `queue`.
pub fn pin_device(namespace: &Namespace, device: &str, queue: u32) -> Result<()> {
    write_xps(namespace, device, queue, &cores_mask(cpu::last_core()? + 1))
}

/// Lets the hash of the flow decide again.
pub fn spread(bed: &Testbed) -> Result<()> {
    steer(bed, |_| false)
}

/// Steers IPv4 packets of `device` to the queue whose number is the destination port modulo
/// `queues`, a power of two.
pub fn by_port(namespace: &Namespace, device: &str, queues: u16) -> Result<()> {
    ensure!(queues.is_power_of_two(), "{queues} queues are no power of two");
    tc(namespace, &format!("qdisc replace dev {device} clsact"))?;
    for queue in 0..queues {
        let mask = queues - 1;
        let words = format!(
            "filter add dev {device} egress protocol ip u32 match ip dport {queue} {mask:#06x} \
             action skbedit queue_mapping {queue}"
        );
        tc(namespace, &words)?;
    }
    Ok(())
}

fn steer(bed: &Testbed, takes_all: impl Fn(u32) -> bool) -> Result<()> {
    // Senders run on no other.
    let every_core = cores_mask(cpu::last_core()? + 1);
    for (namespace, device) in [(bed.client(), CLIENT), (bed.server(), SERVER)] {
        for queue in 0..bed.queues() {
            let mask = if takes_all(queue) { every_core.as_str() } else { "0" };
            write_xps(namespace, device, queue, mask)?;
        }
    }
    Ok(())
}

/// The first `cores` cores as the kernel reads a set of them: hexadecimal, a comma
/// before every eight digits from the right.
fn cores_mask(cores: usize) -> String {
    let words = cores.div_ceil(32).max(1);
    let top = cores - (words - 1) * 32;
    let mut mask = format!("{:x}", (1_u64 << top) - 1);
    for _ in 1..words {
        mask.push_str(",ffffffff");
    }
    mask
}

/// Only a process in the namespace sees the namespace's devices under `/sys`.
fn write_xps(namespace: &Namespace, device: &str, queue: u32, mask: &str) -> Result<()> {
    let path = format!("/sys/class/net/{device}/queues/tx-{queue}/xps_cpus");
    namespace.run("sh", &["-c", r#"echo "$1" > "$0""#, &path, mask])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_children_of_mq_show_each_queue_s_bytes() {
        let json = r#"[
            {"kind":"mq","handle":"1:","dev":"cli0","root":true,"packets":12},
            {"kind":"pfifo_fast","handle":"0:","parent":"1:2","packets":5},
            {"kind":"pfifo_fast","handle":"0:","parent":"1:1","packets":7}]"#;
        assert_eq!(parse_mq(json, 2), Some(vec![7, 5]));
        assert_eq!(parse_mq(json, 3), None);
    }

    #[test]
    fn sets_of_cores_are_written_as_the_kernel_reads_them() {
        assert_eq!(cores_mask(2), "3");
        assert_eq!(cores_mask(32), "ffffffff");
        assert_eq!(cores_mask(33), "1,ffffffff");
        assert_eq!(cores_mask(64), "ffffffff,ffffffff");
    }
}
