//! The owner of each frame of a worker.
//!
//! *The idea.* A frame has exactly one owner at any moment, which is recorded beside it. Each
//! direction has frames of its own, by number: those below the border carry what arrives at port A,
//! the others what arrives at port B, for good. So load in one direction cannot take frames from
//! the other, and a returning frame needs no search for its direction.
//!
//! *Two shares.* The kernel gets a fixed number of a direction's frames to receive into, however
//! many its driver asks for; the rest is for queued packets. Packets beyond that are dropped at
//! once and their frames go back to reception, which therefore never starves.
//!
//! *Frames that do not come back.* The kernel forgets a descriptor that it refuses to send: the
//! frame never reaches the completion ring. The kernel counts them; [`Owners::suspect`] and
//! [`Owners::take_back_suspects`] find them as the remainder when all others have come back.
//!
//! *The record decides.* An operation on a frame that another has changes nothing, whoever asks for
//! it. `frames` relies on this where it borrows bytes.
//!
//! Cost: one byte and one counter written at each change of owner; a byte per frame.

use narrows_shaper::Side;

/// The owner of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Owner {
    /// None.
    Free,
    /// The kernel, to receive into.
    Receiving,
    /// The worker: its packet is being read, waits, or has arrived only in part.
    Waiting,
    /// The kernel, to send.
    Sending,
    /// The kernel, to send, for longer than it should take.
    Suspect,
}

/// The shares of a direction's frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Share {
    /// The most that the kernel receives into.
    pub(crate) receive: u32,
    /// Those for queued packets, including packets handed to a device.
    pub(crate) wait: u32,
}

impl Share {
    /// All of its frames.
    pub(crate) const fn frames(self) -> u32 {
        self.receive + self.wait
    }
}

/// The numbers of frames by owner; together they are all frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct FrameCounts {
    /// Without an owner.
    pub(crate) free: u32,
    /// With the kernel, to receive into.
    pub(crate) receiving: u32,
    /// With queued packets.
    pub(crate) waiting: u32,
    /// With the kernel, to send.
    pub(crate) sending: u32,
}

impl FrameCounts {
    /// All of them.
    #[cfg(test)]
    pub(crate) const fn total(&self) -> u32 {
        self.free + self.receiving + self.waiting + self.sending
    }

    /// Adds those of `other`.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.free += other.free;
        self.receiving += other.receiving;
        self.waiting += other.waiting;
        self.sending += other.sending;
    }
}

struct Direction {
    share: Share,
    free: Vec<u32>,
    receiving: u32,
    waiting: u32,
    sending: u32,
}

/// The owner of each frame of a worker. Never reallocated.
pub(crate) struct Owners {
    owners: Box<[Owner]>,
    /// The first frame for packets that arrive at port B.
    border: u32,
    /// By the port at which packets arrive.
    directions: [Direction; 2],
}

impl Owners {
    /// All frames free; `shares` by the port at which packets arrive.
    pub(crate) fn new(shares: [Share; 2]) -> Self {
        let border = shares[0].frames();
        let all = border + shares[1].frames();
        let direction = |share, frames: std::ops::Range<u32>| Direction {
            share,
            free: frames.rev().collect(),
            receiving: 0,
            waiting: 0,
            sending: 0,
        };
        Self {
            owners: vec![Owner::Free; all as usize].into_boxed_slice(),
            border,
            directions: [direction(shares[0], 0..border), direction(shares[1], border..all)],
        }
    }

    /// Continues where another process stopped, with these frames `free`, and these handed to the
    /// kernel to send. The kernel counts as having all others, to receive into, until the queued
    /// ones are [received](Owners::received).
    pub(crate) fn restore(&mut self, free: &[u32], sending: &[u32]) {
        self.owners.fill(Owner::Receiving);
        for side in Side::BOTH {
            let own = self.frames_towards(side.other());
            let direction = &mut self.directions[side.index()];
            let of_it = |frames: &[u32]| {
                frames.iter().copied().filter(|frame| own.contains(frame)).collect::<Vec<u32>>()
            };
            direction.free.clear();
            direction.free.extend(of_it(free));
            let sent = of_it(sending);
            direction.sending = sent.len() as u32;
            direction.waiting = 0;
            direction.receiving = own.len() as u32 - (direction.free.len() + sent.len()) as u32;
            direction.free.iter().for_each(|&frame| self.owners[frame as usize] = Owner::Free);
            sent.iter().for_each(|&frame| self.owners[frame as usize] = Owner::Sending);
        }
    }

    /// The free frames, and those handed to the kernel to send.
    pub(crate) fn free_and_sending(&self) -> (Vec<u32>, Vec<u32>) {
        let free = self.directions.iter().flat_map(|direction| &direction.free).copied();
        let is_sent =
            |frame: &u32| self.has(*frame, Owner::Sending) || self.has(*frame, Owner::Suspect);
        (free.collect(), (0..self.count()).filter(is_sent).collect())
    }

    /// How many frames there are.
    pub(crate) fn count(&self) -> u32 {
        self.owners.len() as u32
    }

    /// The number of frames for queued packets of both directions together.
    pub(crate) fn places(&self) -> u32 {
        self.directions.iter().map(|direction| direction.share.wait).sum()
    }

    /// The owners of the frames for packets that arrive at `ingress`.
    pub(crate) fn counts(&self, ingress: Side) -> FrameCounts {
        let Direction { free, receiving, waiting, sending, .. } = &self.directions[ingress.index()];
        FrameCounts {
            free: free.len() as u32,
            receiving: *receiving,
            waiting: *waiting,
            sending: *sending,
        }
    }

    /// The number of further frames that packets arriving at `ingress` may fill without taking any
    /// from reception; `None` if the queued ones already do.
    #[inline]
    pub(crate) fn spare(&self, ingress: Side) -> Option<u32> {
        let direction = &self.directions[ingress.index()];
        direction.share.wait.checked_sub(direction.waiting + direction.sending)
    }

    /// Takes a free frame for the kernel to receive into at `ingress`.
    #[inline]
    pub(crate) fn lend(&mut self, ingress: Side) -> Option<u32> {
        let direction = &mut self.directions[ingress.index()];
        if direction.receiving >= direction.share.receive {
            return None;
        }
        let frame = direction.free.pop()?;
        direction.receiving += 1;
        self.owners[frame as usize] = Owner::Receiving;
        Some(frame)
    }

    /// Takes a free frame for a copy of a packet that arrived at `ingress`, if one more may wait.
    pub(crate) fn take(&mut self, ingress: Side) -> Option<u32> {
        self.spare(ingress).filter(|spare| *spare > 0)?;
        let direction = &mut self.directions[ingress.index()];
        let frame = direction.free.pop()?;
        direction.waiting += 1;
        self.owners[frame as usize] = Owner::Waiting;
        Some(frame)
    }

    /// `frame` has arrived at `ingress`. False if the kernel did not have it to receive into there,
    /// an error of the kernel; then nothing has changed.
    #[inline]
    pub(crate) fn received(&mut self, ingress: Side, frame: u32) -> bool {
        let is_lent = self.has(frame, Owner::Receiving) && self.ingress(frame) == ingress;
        if is_lent {
            let direction = &mut self.directions[ingress.index()];
            direction.receiving -= 1;
            direction.waiting += 1;
            self.owners[frame as usize] = Owner::Waiting;
        }
        is_lent
    }

    /// Whether `frame` is the worker's, with a packet in it or as room for one.
    #[inline]
    pub(crate) fn waits(&self, frame: u32) -> bool {
        self.has(frame, Owner::Waiting)
    }

    /// The worker releases `frame` of a queued packet. False if it does not wait; then nothing has
    /// changed.
    #[inline]
    pub(crate) fn released(&mut self, frame: u32) -> bool {
        let waits = self.waits(frame);
        if waits {
            self.owners[frame as usize] = Owner::Free;
            let direction = &mut self.directions[self.ingress(frame).index()];
            direction.waiting -= 1;
            direction.free.push(frame);
        }
        waits
    }

    /// The worker passes `frame` of a queued packet to the kernel, to send. False if it does not
    /// wait; then nothing has changed.
    #[inline]
    pub(crate) fn handed_over(&mut self, frame: u32) -> bool {
        let waits = self.waits(frame);
        if waits {
            self.owners[frame as usize] = Owner::Sending;
            let direction = &mut self.directions[self.ingress(frame).index()];
            direction.waiting -= 1;
            direction.sending += 1;
        }
        waits
    }

    /// The kernel has sent `frame`. False if it did not have it to send; then nothing has changed.
    #[inline]
    pub(crate) fn completed(&mut self, frame: u32) -> bool {
        let is_sent = self.has(frame, Owner::Sending) || self.has(frame, Owner::Suspect);
        if is_sent {
            self.take_back(frame);
        }
        is_sent
    }

    /// Marks all frames that are being sent at `egress` as suspects.
    pub(crate) fn suspect(&mut self, egress: Side) {
        for frame in self.frames_towards(egress) {
            if self.has(frame, Owner::Sending) {
                self.owners[frame as usize] = Owner::Suspect;
            }
        }
    }

    /// Takes back the suspects that were to leave at `egress`, if they are as many as the kernel
    /// says it has `refused`; otherwise none. Afterwards there are no suspects.
    pub(crate) fn take_back_suspects(&mut self, egress: Side, refused: u64) -> bool {
        let frames = self.frames_towards(egress);
        let suspects = frames.clone().filter(|&frame| self.has(frame, Owner::Suspect)).count();
        let are_all = suspects as u64 == refused;
        for frame in frames {
            if self.has(frame, Owner::Suspect) {
                if are_all {
                    self.take_back(frame);
                } else {
                    self.owners[frame as usize] = Owner::Sending;
                }
            }
        }
        are_all
    }

    fn take_back(&mut self, frame: u32) {
        self.owners[frame as usize] = Owner::Free;
        let direction = &mut self.directions[self.ingress(frame).index()];
        direction.sending -= 1;
        direction.free.push(frame);
    }

    /// The port of arrival for packets in `frame`.
    #[inline]
    fn ingress(&self, frame: u32) -> Side {
        if frame < self.border { Side::A } else { Side::B }
    }

    fn frames_towards(&self, egress: Side) -> std::ops::Range<u32> {
        match egress.other() {
            Side::A => 0..self.border,
            Side::B => self.border..self.count(),
        }
    }

    #[inline]
    fn has(&self, frame: u32, owner: Owner) -> bool {
        self.owners.get(frame as usize) == Some(&owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const SHARES: [Share; 2] = [Share { receive: 3, wait: 5 }, Share { receive: 4, wait: 2 }];

    /// Any operation on a frame, valid or not.
    #[derive(Clone, Debug)]
    enum Step {
        Lend(Side),
        Take(Side),
        Received(Side, u32),
        Released(u32),
        HandedOver(u32),
        Completed(u32),
        Suspect(Side),
        TakeBack(Side, u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let side = prop::sample::select(Side::BOTH.to_vec());
        // Two more than there are.
        let frame = 0..16_u32;
        prop_oneof![
            4 => side.clone().prop_map(Step::Lend),
            2 => side.clone().prop_map(Step::Take),
            4 => (side.clone(), frame.clone()).prop_map(|(side, frame)| Step::Received(side, frame)),
            2 => frame.clone().prop_map(Step::Released),
            3 => frame.clone().prop_map(Step::HandedOver),
            3 => frame.prop_map(Step::Completed),
            1 => side.clone().prop_map(Step::Suspect),
            1 => (side, 0..4_u64).prop_map(|(side, refused)| Step::TakeBack(side, refused)),
        ]
    }

    fn home(frame: u32) -> Side {
        if frame < 8 { Side::A } else { Side::B }
    }

    proptest! {
        /// A map from frame to owner is the oracle.
        #[test]
        fn every_frame_is_with_its_owner_and_the_counts_say_so(
            steps in prop::collection::vec(step(), 1..200)
        ) {
            let mut owners = Owners::new(SHARES);
            let mut model: BTreeMap<u32, Owner> = (0..14).map(|f| (f, Owner::Free)).collect();
            let sent = |owner: Option<&Owner>| {
                matches!(owner, Some(Owner::Sending | Owner::Suspect))
            };
            for step in steps {
                match step {
                    Step::Lend(side) => {
                        let of = |owner| move |(f, o): (&u32, &Owner)| home(*f) == side && *o == owner;
                        let lent = model.iter().filter(|&(f, o)| of(Owner::Receiving)((f, o))).count();
                        let free = model.iter().filter(|&(f, o)| of(Owner::Free)((f, o))).count();
                        let may = lent < SHARES[side.index()].receive as usize && free > 0;
                        let frame = owners.lend(side);
                        prop_assert_eq!(frame.is_some(), may);
                        if let Some(frame) = frame {
                            prop_assert_eq!(home(frame), side);
                            prop_assert_eq!(model.insert(frame, Owner::Receiving), Some(Owner::Free));
                        }
                    }
                    Step::Take(side) => {
                        let of = |owners: &[Owner]| {
                            let own = model.iter().filter(|(f, o)| home(**f) == side && owners.contains(o));
                            own.count()
                        };
                        let used = of(&[Owner::Waiting, Owner::Sending, Owner::Suspect]);
                        let wait = SHARES[side.index()].wait as usize;
                        let may = used < wait && of(&[Owner::Free]) > 0;
                        let frame = owners.take(side);
                        prop_assert_eq!(frame.is_some(), may);
                        if let Some(frame) = frame {
                            prop_assert_eq!(home(frame), side);
                            prop_assert_eq!(model.insert(frame, Owner::Waiting), Some(Owner::Free));
                        }
                    }
                    Step::Received(side, frame) => {
                        let may = home(frame) == side && model.get(&frame) == Some(&Owner::Receiving);
                        prop_assert_eq!(owners.received(side, frame), may);
                        if may {
                            model.insert(frame, Owner::Waiting);
                        }
                    }
                    Step::Released(frame) => {
                        let may = model.get(&frame) == Some(&Owner::Waiting);
                        prop_assert_eq!(owners.released(frame), may);
                        if may {
                            model.insert(frame, Owner::Free);
                        }
                    }
                    Step::HandedOver(frame) => {
                        let may = model.get(&frame) == Some(&Owner::Waiting);
                        prop_assert_eq!(owners.handed_over(frame), may);
                        if may {
                            model.insert(frame, Owner::Sending);
                        }
                    }
                    Step::Completed(frame) => {
                        let may = sent(model.get(&frame));
                        prop_assert_eq!(owners.completed(frame), may);
                        if may {
                            model.insert(frame, Owner::Free);
                        }
                    }
                    Step::Suspect(egress) => {
                        owners.suspect(egress);
                        for (frame, owner) in &mut model {
                            if home(*frame) == egress.other() && *owner == Owner::Sending {
                                *owner = Owner::Suspect;
                            }
                        }
                    }
                    Step::TakeBack(egress, refused) => {
                        let mut suspects: Vec<&mut Owner> = model
                            .iter_mut()
                            .filter(|(f, o)| home(**f) == egress.other() && **o == Owner::Suspect)
                            .map(|(_, owner)| owner)
                            .collect();
                        let are_all = suspects.len() as u64 == refused;
                        let then = if are_all { Owner::Free } else { Owner::Sending };
                        suspects.iter_mut().for_each(|owner| **owner = then);
                        prop_assert_eq!(owners.take_back_suspects(egress, refused), are_all);
                    }
                }
                for side in Side::BOTH {
                    let count = |wanted: &[Owner]| {
                        let own = model.iter().filter(|(f, o)| home(**f) == side && wanted.contains(o));
                        own.count() as u32
                    };
                    let counts = owners.counts(side);
                    prop_assert_eq!(counts.free, count(&[Owner::Free]));
                    prop_assert_eq!(counts.receiving, count(&[Owner::Receiving]));
                    prop_assert_eq!(counts.waiting, count(&[Owner::Waiting]));
                    prop_assert_eq!(counts.sending, count(&[Owner::Sending, Owner::Suspect]));
                    prop_assert_eq!(counts.total(), SHARES[side.index()].frames());
                    let used = counts.waiting + counts.sending;
                    prop_assert_eq!(owners.spare(side), SHARES[side.index()].wait.checked_sub(used));
                }
            }
        }
    }

    #[test]
    fn while_packets_wait_in_their_share_reception_can_have_all_of_its_own() {
        let mut owners = Owners::new(SHARES);
        let mut waiting = 0;
        while owners.spare(Side::A).is_some() {
            let frame = owners.lend(Side::A).expect("reception has its share");
            assert!(owners.received(Side::A, frame));
            waiting += 1;
        }
        // One too many was received; it is dropped, and then there is room as before.
        assert_eq!(waiting, SHARES[0].wait + 1);
        assert!(owners.released(0));
        assert_eq!(std::iter::from_fn(|| owners.lend(Side::A)).count(), 3);
        assert_eq!(std::iter::from_fn(|| owners.lend(Side::B)).count(), 4);
    }
}
