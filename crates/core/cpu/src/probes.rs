//! Probe points where packets are queued, sent and dropped, for `bpftrace`, `perf` and `gdb`.
//!
//! Each is a static probe as of SystemTap (USDT): a `nop` in the code, and a note in the binary
//! that says where it is and in which registers its arguments are. A tracer that attaches replaces
//! the `nop`.
//!
//! Cost: while nobody traces, the `nop`, and what brings an argument into a register. While
//! somebody does, about a microsecond for each packet: the kernel handles a breakpoint.
//!
//! A packet's number is its own from its arrival until its frame is free again, within its worker
//! (a thread). Then another packet has it. Ports and reasons are numbered in the order in which
//! `narrows show` and the metrics list them, from 0 on.
//!
//! The macro's assembly is a `nop` that reads its operands; whatever they are, it is sound.
//!
//! Non-goals: the programs in the driver, which `bpftool` and `perf` see without probes.
//!
//! Source: SystemTap, "User-space probe implementation".

/// `narrows:enqueue`: a packet of `bytes` is handed to the root qdisc of `port`, through which it
/// is to leave. A filter that drops it has done so before.
#[inline(always)]
pub fn enqueue(port: usize, packet: u32, bytes: u64) {
    #[cfg(not(miri))]
    probe::probe!(narrows, enqueue, port, packet, bytes);
    #[cfg(miri)]
    let _ = (port, packet, bytes);
}

/// `narrows:dequeue`: the root qdisc of `port` sends a packet of `bytes`, `delay_ns` after its
/// arrival.
#[inline(always)]
pub fn dequeue(port: usize, packet: u32, bytes: u32, delay_ns: u64) {
    #[cfg(not(miri))]
    probe::probe!(narrows, dequeue, port, packet, bytes, delay_ns);
    #[cfg(miri)]
    let _ = (port, packet, bytes, delay_ns);
}

/// `narrows:drop`: a packet of `bytes` is dropped for this reason.
#[inline(always)]
pub fn dropped(packet: u32, bytes: u64, reason: usize) {
    #[cfg(not(miri))]
    probe::probe!(narrows, drop, packet, bytes, reason);
    #[cfg(miri)]
    let _ = (packet, bytes, reason);
}
