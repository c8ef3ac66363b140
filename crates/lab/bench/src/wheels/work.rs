//! The work that every structure does.
//!
//! The clock moves on by a step, the structure is asked once for all that may leave, and each
//! packet that leaves is put in again, as the last one of its flow: its earliest departure time
//! (EDT) is that of the one before it and the time that 1500 bytes take at the flow's rate. So
//! there are always as many packets in it, they leave at 100 Gbit/s, and the work is the same at
//! the end as at the beginning.
//!
//! A flow has one packet in the structure; a fast one as many as pass in 15.36 us, so that the
//! clock's step and a structure's rounding do not starve it: with 16 equal flows these are 8. Flows
//! start at random times and are in memory in random order.
//!
//! *What the figure includes besides the structure:* the EDT, from a flow's state of 32 bytes that
//! is prefetched for all packets that left together. The floor shows this part.

use super::plan::{Flow, PACKET_LEN, Plan};
use super::subject::{Holder, Mode};
use super::witness::Witness;
use narrows_packet::{Batch, Headers, PacketId, Packets, Reading};
use narrows_qdisc::pacing::Slot;
use narrows_units::Nanos;

/// The time of a packet of 1500 bytes at 100 Gbit/s.
pub(super) const PACKET_TIME: Nanos = Nanos(120);
/// When it begins: late enough for the slowest flow to have sent something before.
pub(super) const START: Nanos = Nanos::from_secs(100);
/// How often it is asked in the end, when packets only leave.
const LAST_STEP: Nanos = Nanos::from_millis(1);

/// One structure, with packets in it.
pub(super) struct Load<H, W> {
    holder: H,
    pub(super) witness: W,
    packets: Packets,
    flows: Box<[Flow]>,
    left: Batch,
    now: Nanos,
    step: Nanos,
}

impl<H: Holder, W: Witness> Load<H, W> {
    /// Puts all packets in.
    pub(super) fn new(plan: &Plan, mode: Mode, holder: H, witness: W) -> Self {
        let mut load = Self {
            holder,
            witness,
            packets: Packets::new(plan.packets),
            flows: plan.flows.clone(),
            left: Batch::new(plan.packets as usize),
            now: START,
            step: mode.step(),
        };
        load.packets.prepare(Reading { headers: true, ..Reading::NOTHING });
        for &flow in &plan.order {
            for id in plan.ids(flow) {
                load.packets.arrive(id, PACKET_LEN, START);
                load.packets.set_headers(id, Headers { flow, ..Headers::default() });
                let Self { holder, witness, packets, flows, .. } = &mut load;
                insert(holder, witness, packets, flows, id, START);
            }
        }
        load
    }

    /// Lets at least `packets` packets leave and return. Returns their number.
    pub(super) fn run(&mut self, packets: u64) -> u64 {
        let mut left = 0;
        while left < packets {
            self.ask();
            left += self.left.len() as u64;
            self.insert_again();
        }
        left
    }

    /// Lets all leave, without returns, until the last one must be out.
    pub(super) fn finish(&mut self, longest: Nanos) {
        let last = self.now + longest + LAST_STEP;
        self.step = LAST_STEP;
        while self.now < last {
            self.ask();
        }
    }

    /// Its own memory in bytes.
    pub(super) fn memory(&self) -> usize {
        self.holder.memory()
    }

    #[inline]
    fn ask(&mut self) {
        self.now += self.step;
        self.left.clear();
        self.holder.release(&mut self.packets, self.now, &mut self.left);
        self.witness.asked(self.left.as_slice(), self.now);
    }

    /// Puts all that left in again. The states of their flows are fetched for all of them first.
    #[inline]
    fn insert_again(&mut self) {
        let Self { holder, witness, packets, flows, left, now, .. } = self;
        for &id in left.as_slice() {
            narrows_cpu::prefetch(&flows[packets.headers(id).flow as usize]);
        }
        for &id in left.as_slice() {
            insert(holder, witness, packets, flows, id, *now);
        }
    }
}

/// Puts `id` in as the last packet of its flow.
#[inline(always)]
fn insert<H: Holder, W: Witness>(
    holder: &mut H,
    witness: &mut W,
    packets: &mut Packets,
    flows: &mut [Flow],
    id: PacketId,
    now: Nanos,
) {
    let number = packets.headers(id).flow;
    let flow = &mut flows[number as usize];
    let at = flow.advance();
    let slot = Slot { at, behind: flow.slot, spacing: flow.spacing };
    witness.inserted(id, number, at, now);
    flow.slot = holder.insert(packets, id, slot, now);
}
