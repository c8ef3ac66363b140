//! DPDK's scheduler between the ports, as far as it runs on a `veth`.
//!
//! No DPDK driver drives a `veth`: there is a packet socket (DPDK's `af_packet` is one, too), and
//! what polls it. Debian packages the library `rte_sched` and no program that forwards by it. So
//! this is a forwarder round the library: one thread that receives, schedules and sends, and never
//! sleeps. Its pipes are the applications, and its subport has the limit.
//!
//! Non-goals: the other direction; frames of other lengths than the load's.

use super::{APPLICATIONS, FRAME, LIMIT, SOURCE_ADDRESS};
use crate::background::Background;
use crate::bed::{CLIENT_IP, End, PORT_A, PORT_B, Testbed};
use crate::cpu;
use crate::listen::Listener;
use crate::raw::RawSocket;
use anyhow::Result;
use narrows_peers::rte_sched::RteSched;
use std::sync::atomic::{AtomicBool, Ordering};

/// Frames that move at once, as in DPDK's own forwarders.
const BURST: usize = 32;
/// All frames: more than the library's queues hold.
const FRAMES: u32 = 1024;
/// The port's rate in multiples of the limit.
const LINE: u64 = 10;

/// The forwarder. Ends when dropped.
pub(super) struct Poller(#[expect(dead_code, reason = "it runs")] Background<()>);

impl Poller {
    /// Starts it between the ports of `bed`.
    pub(super) fn start(bed: &Testbed) -> Result<Self> {
        let port = End { namespace: bed.shaper(), device: PORT_A, ip: CLIENT_IP };
        let (listener, socket) = (Listener::open(port)?, RawSocket::open(bed.shaper(), PORT_B)?);
        let forward = move |end: &AtomicBool| {
            cpu::prefer_this_thread()?;
            forward(&listener, &socket, end)
        };
        Background::start("rte_sched", forward).map(Self)
    }
}

fn forward(listener: &Listener, socket: &RawSocket, end: &AtomicBool) -> Result<()> {
    let limit = LIMIT.bytes_per_sec();
    let rates = [LINE * limit, limit];
    let mut port = RteSched::limited(APPLICATIONS.into(), rates, FRAMES, BURST)?;
    let mut frames = vec![[0; FRAME]; FRAMES as usize];
    let mut free: Vec<u32> = (0..FRAMES).collect();
    let (mut arrived, mut leaving) = (Vec::with_capacity(BURST), Vec::with_capacity(BURST));
    while !end.load(Ordering::Relaxed) {
        arrived.clear();
        while arrived.len() < BURST
            && let Some(&number) = free.last()
        {
            let mut pipe = None;
            let is_there = listener.read_one::<FRAME>(|frame, _| {
                if let Ok(frame) = frame.try_into() {
                    frames[number as usize] = frame;
                    pipe = self::pipe(&frame);
                }
            })?;
            if let Some(pipe) = pipe {
                free.pop();
                arrived.push((number, pipe));
            }
            if !is_there {
                break;
            }
        }
        port.enqueue(arrived.iter().copied(), FRAME as u16, |dropped| free.push(dropped));
        leaving.clear();
        port.dequeue(BURST, |number| leaving.push(number));
        if !leaving.is_empty() {
            let bytes: Vec<&[u8]> =
                leaving.iter().map(|number| &frames[*number as usize][..]).collect();
            // What the device has no room for is lost, as behind any scheduler.
            socket.send(&bytes)?;
            free.extend(&leaving);
        }
    }
    Ok(())
}

/// The pipe of a frame: its application.
fn pipe(frame: &[u8; FRAME]) -> Option<u32> {
    let [10, 0, app, 1] = frame[SOURCE_ADDRESS..SOURCE_ADDRESS + 4] else { return None };
    (u16::from(app) < APPLICATIONS).then_some(app.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_in_the_pipe_of_its_application() {
        for app in 0..APPLICATIONS {
            let frame: [u8; FRAME] = super::super::frame(app).unwrap().try_into().unwrap();
            assert_eq!(pipe(&frame), Some(app.into()));
        }
        assert_eq!(pipe(&[0; FRAME]), None);
    }
}
