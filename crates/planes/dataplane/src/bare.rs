//! The bare forwarder: AF_XDP rings and nothing between them.
//!
//! It is what a worker would be without qdiscs, counters, drops or timers, kept as
//! the floor that benchmarks compare Narrows with. It moves frames from one port's RX ring to
//! the other's TX ring with the same sockets, batches and kicks, and counts packets.

use crate::clock;
use crate::priority::Priority;
use crate::worker_thread::settle;
use crate::xdp_io::XdpIo;
use narrows_forwarding::{PortId, PortSet};
use narrows_packet::{Batch, Packets};
use narrows_shaper::{BATCH, Io};
use narrows_units::Nanos;
use narrows_xsk::PollSet;
use std::sync::atomic::{AtomicBool, Ordering};

/// How long an idle forwarder sleeps before it checks whether to stop.
const NAP: Nanos = Nanos::from_millis(50);

/// Forwards on core `cpu` until `stop` is set. Returns the packets forwarded in each
/// direction and the CPU time that this thread used.
pub(crate) fn forward(mut io: XdpIo, cpu: usize, stop: &AtomicBool) -> ([u64; 2], Nanos) {
    settle(cpu);
    let mut priority = Priority::real_time(1);
    let mut packets = Packets::new(io.frame_count());
    let mut batch = Batch::new(BATCH);
    let mut forwarded = [0; 2];
    let mut slept = Nanos::ZERO;
    while !stop.load(Ordering::Relaxed) {
        let mut busy = false;
        for port in PortId::first(forwarded.len()) {
            batch.clear();
            let room = io.room(port.partner());
            batch.limit(room.min(BATCH));
            io.receive(port, &mut packets, Nanos::ZERO, &mut batch);
            busy |= !batch.is_empty();
            forwarded[port.index()] += batch.len() as u64;
            io.transmit(port.partner(), &packets, &batch);
            // Malformed packets.
            batch.clear();
            packets.reclaim(&mut batch);
            io.release(&batch);
        }
        let now = clock::now();
        priority.look(now, slept);
        if !busy {
            // An error shows as a port that forwards nothing; there is no one to report it to.
            let mut polled = PollSet::default();
            io.arrivals(PortSet::ALL).for_each(|(socket, _)| polled.add(socket, true));
            let _ = polled.wait(Some(NAP.0));
            slept += clock::now() - now;
        }
    }
    (forwarded, clock::thread_cpu_time())
}
