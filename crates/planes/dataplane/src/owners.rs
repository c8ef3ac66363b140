//! The owner of each frame of a worker.
//!
//! *The idea.* A frame has exactly one owner at any moment, which is recorded beside it. Each device
//! has frames of its own, for good, into which its driver receives. So load at one device cannot
//! take frames from another, and a returning frame needs no search for where it belongs.
//!
//! *Two shares.* The kernel gets a fixed number of a device's frames to receive into, however many
//! its driver asks for; the rest is for queued packets, and each port of the device has a part of
//! that. Packets beyond it are dropped at once and their frames go back to reception, which
//! therefore never starves, and neither does a port whose neighbour on the same device is flooded.
//!
//! *Frames that do not come back.* The kernel forgets a descriptor that it refuses to send: the
//! frame never reaches the completion ring. The kernel counts them; [`Owners::suspect`] and
//! [`Owners::take_back_suspects`] find them as the remainder when all others have come back.
//!
//! *The record decides.* An operation on a frame that another has changes nothing, whoever asks for
//! it. `frames` relies on this where it borrows bytes.
//!
//! Cost: a record of three bytes and one counter written at each change of owner.

use narrows_forwarding::{DeviceId, Forwarding, PerDevice, PerPort, PortId};
use std::ops::Range;

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

/// What is recorded of a frame.
#[derive(Clone, Copy)]
struct Record {
    owner: Owner,
    /// Whose driver receives into it.
    device: DeviceId,
    /// Where the packet in it arrived, while it waits or is sent.
    ingress: PortId,
}

/// How the frames of a worker are divided.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Shares {
    /// By device: the most that the kernel receives into.
    pub(crate) receive: PerDevice<u32>,
    /// By port: those for queued packets that arrived there, including packets handed to a device.
    pub(crate) wait: PerPort<u32>,
}

impl Shares {
    /// All frames.
    pub(crate) fn frames(&self) -> u32 {
        self.receive.iter().chain(&self.wait).sum()
    }

    /// All frames; `None` if they are more than can be.
    pub(crate) fn checked_frames(&self) -> Option<u32> {
        self.receive.iter().chain(&self.wait).try_fold(0u32, |sum, share| sum.checked_add(*share))
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

#[cfg(test)]
impl FrameCounts {
    /// All of them.
    pub(crate) const fn total(&self) -> u32 {
        self.free + self.receiving + self.waiting + self.sending
    }
}

/// The frames into which a device receives.
struct Reception {
    /// The most that the kernel gets.
    most: u32,
    free: Vec<u32>,
    receiving: u32,
}

/// The frames of packets that arrived at a port.
struct Arrived {
    device: DeviceId,
    /// The device through which its packets leave.
    leaves: DeviceId,
    /// The most that wait or are sent.
    most: u32,
    waiting: u32,
    sending: u32,
}

/// The owner of each frame of a worker. Never reallocated.
pub(crate) struct Owners {
    records: Box<[Record]>,
    devices: PerDevice<Reception>,
    ports: PerPort<Arrived>,
}

impl Owners {
    /// All frames free, divided into `shares` among the devices and ports of `forwarding`.
    pub(crate) fn new(forwarding: &Forwarding, shares: &Shares) -> Self {
        let mut records = Vec::with_capacity(shares.frames() as usize);
        let mut devices = PerDevice::new();
        for (device, &most) in shares.receive.iter_enumerated() {
            let ports = forwarding.ports_on(device);
            let frames = most + ports.map(|port| shares.wait[port]).sum::<u32>();
            let first = records.len() as u32;
            let ingress = forwarding.ports_on(device).next().unwrap_or(PortId::FIRST);
            let free = Record { owner: Owner::Free, device, ingress };
            records.extend((0..frames).map(|_| free));
            let free = (first..first + frames).rev().collect();
            devices.push(Reception { most, free, receiving: 0 });
        }
        let port = |(port, &most): (PortId, &u32)| Arrived {
            device: forwarding.device_of(port),
            leaves: forwarding.device_of(forwarding.across(port)),
            most,
            waiting: 0,
            sending: 0,
        };
        let ports = shares.wait.iter_enumerated().map(port).collect();
        Self { records: records.into_boxed_slice(), devices, ports }
    }

    /// Continues where another process stopped, with these frames `free`, and these handed to the
    /// kernel to send, by the port where their packets arrived. The kernel counts as having all
    /// others, to receive into, until the queued ones are [received](Owners::received). A frame that
    /// is named twice, or is none of these, counts once or not at all.
    pub(crate) fn restore(&mut self, free: &[u32], sending: &PerPort<Vec<u32>>) {
        for record in &mut self.records {
            record.owner = Owner::Receiving;
            self.devices[record.device].receiving += 1;
        }
        for device in &mut self.devices {
            device.free.clear();
        }
        for port in &mut self.ports {
            (port.waiting, port.sending) = (0, 0);
        }
        for &frame in free {
            if let Some(record) = self.take_from_kernel(frame, Owner::Free) {
                let device = record.device;
                self.devices[device].free.push(frame);
            }
        }
        for (port, frames) in sending.iter_enumerated() {
            for &frame in frames {
                if let Some(record) = self.take_from_kernel(frame, Owner::Sending) {
                    record.ingress = port;
                    self.ports[port].sending += 1;
                }
            }
        }
    }

    /// Gives a frame into which the kernel would receive to `owner`.
    fn take_from_kernel(&mut self, frame: u32, owner: Owner) -> Option<&mut Record> {
        let record = self.records.get_mut(frame as usize)?;
        if record.owner != Owner::Receiving {
            return None;
        }
        record.owner = owner;
        self.devices[record.device].receiving -= 1;
        Some(record)
    }

    /// The free frames.
    pub(crate) fn free(&self) -> Vec<u32> {
        self.devices.iter().flat_map(|device| &device.free).copied().collect()
    }

    /// The frames handed to the kernel to send, by the port where their packets arrived.
    pub(crate) fn sending(&self) -> PerPort<Vec<u32>> {
        let mut sending: PerPort<Vec<u32>> = self.ports.iter().map(|_| Vec::new()).collect();
        for (frame, record) in (0..).zip(&self.records) {
            if matches!(record.owner, Owner::Sending | Owner::Suspect) {
                sending[record.ingress].push(frame);
            }
        }
        sending
    }

    /// How many frames there are.
    pub(crate) fn count(&self) -> u32 {
        self.records.len() as u32
    }

    /// The number of frames for queued packets of all ports together.
    pub(crate) fn places(&self) -> u32 {
        self.ports.iter().map(|port| port.most).sum()
    }

    /// The owners of all frames.
    pub(crate) fn counts(&self) -> FrameCounts {
        let mut counts = FrameCounts::default();
        for device in &self.devices {
            counts.free += device.free.len() as u32;
            counts.receiving += device.receiving;
        }
        for port in &self.ports {
            counts.waiting += port.waiting;
            counts.sending += port.sending;
        }
        counts
    }

    /// The number of further frames that packets arriving at `ingress` may fill without taking any
    /// from reception; `None` if the queued ones already do.
    #[inline]
    pub(crate) fn spare(&self, ingress: PortId) -> Option<u32> {
        let port = &self.ports[ingress];
        port.most.checked_sub(port.waiting + port.sending)
    }

    /// Takes a free frame for the kernel to receive into at `device`.
    #[inline]
    pub(crate) fn lend(&mut self, device: DeviceId) -> Option<u32> {
        let reception = &mut self.devices[device];
        if reception.receiving >= reception.most {
            return None;
        }
        let frame = reception.free.pop()?;
        reception.receiving += 1;
        self.records[frame as usize].owner = Owner::Receiving;
        Some(frame)
    }

    /// Takes a free frame for a copy of a packet that arrived at `ingress`, if one more may wait.
    pub(crate) fn take(&mut self, ingress: PortId) -> Option<u32> {
        self.spare(ingress).filter(|spare| *spare > 0)?;
        let port = &mut self.ports[ingress];
        let frame = self.devices[port.device].free.pop()?;
        port.waiting += 1;
        let record = &mut self.records[frame as usize];
        (record.owner, record.ingress) = (Owner::Waiting, ingress);
        Some(frame)
    }

    /// `frame` has arrived at `ingress`, a port of its device. False if the kernel did not have it to
    /// receive into there, an error of the kernel; then nothing has changed.
    #[inline]
    pub(crate) fn received(&mut self, ingress: PortId, frame: u32) -> bool {
        let port = &mut self.ports[ingress];
        let Some(record) = self.records.get_mut(frame as usize) else { return false };
        let is_lent = record.owner == Owner::Receiving && record.device == port.device;
        if is_lent {
            (record.owner, record.ingress) = (Owner::Waiting, ingress);
            port.waiting += 1;
            self.devices[port.device].receiving -= 1;
        }
        is_lent
    }

    /// The packet in `frame`, which waits, arrived at another port of the same device: at `ingress`.
    #[inline]
    pub(crate) fn arrived_at(&mut self, ingress: PortId, frame: u32) {
        let Some(record) = self.records.get_mut(frame as usize) else { return };
        if record.owner == Owner::Waiting && self.ports[ingress].device == record.device {
            self.ports[record.ingress].waiting -= 1;
            self.ports[ingress].waiting += 1;
            record.ingress = ingress;
        }
    }

    /// Whether `frame` is the worker's, with a packet in it or as room for one.
    #[inline]
    pub(crate) fn waits(&self, frame: u32) -> bool {
        self.records.get(frame as usize).is_some_and(|record| record.owner == Owner::Waiting)
    }

    /// The worker releases `frame` of a queued packet. False if it does not wait; then nothing has
    /// changed.
    #[inline]
    pub(crate) fn released(&mut self, frame: u32) -> bool {
        let Some(record) = self.records.get_mut(frame as usize) else { return false };
        let waits = record.owner == Owner::Waiting;
        if waits {
            record.owner = Owner::Free;
            self.ports[record.ingress].waiting -= 1;
            self.devices[record.device].free.push(frame);
        }
        waits
    }

    /// The worker passes `frame` of a queued packet to the kernel, to send. False if it does not
    /// wait; then nothing has changed.
    #[inline]
    pub(crate) fn handed_over(&mut self, frame: u32) -> bool {
        let Some(record) = self.records.get_mut(frame as usize) else { return false };
        let waits = record.owner == Owner::Waiting;
        if waits {
            record.owner = Owner::Sending;
            let port = &mut self.ports[record.ingress];
            port.waiting -= 1;
            port.sending += 1;
        }
        waits
    }

    /// The kernel has sent `frame`. False if it did not have it to send; then nothing has changed.
    #[inline]
    pub(crate) fn completed(&mut self, frame: u32) -> bool {
        let Some(record) = self.records.get_mut(frame as usize) else { return false };
        let is_sent = matches!(record.owner, Owner::Sending | Owner::Suspect);
        if is_sent {
            record.owner = Owner::Free;
            self.ports[record.ingress].sending -= 1;
            self.devices[record.device].free.push(frame);
        }
        is_sent
    }

    /// Marks all frames that are being sent through `device` as suspects.
    pub(crate) fn suspect(&mut self, device: DeviceId) {
        for frame in self.all() {
            if self.is_sent_through(device, frame, Owner::Sending) {
                self.records[frame as usize].owner = Owner::Suspect;
            }
        }
    }

    /// Takes back the suspects that were to leave through `device`, if they are as many as the
    /// kernel says it has `refused`; otherwise none. Afterwards there are no suspects.
    pub(crate) fn take_back_suspects(&mut self, device: DeviceId, refused: u64) -> bool {
        let is_suspect =
            |owners: &Self, frame| owners.is_sent_through(device, frame, Owner::Suspect);
        let suspects = self.all().filter(|frame| is_suspect(self, *frame)).count();
        let are_all = suspects as u64 == refused;
        for frame in self.all() {
            if !is_suspect(self, frame) {
                continue;
            }
            if are_all {
                self.completed(frame);
            } else {
                self.records[frame as usize].owner = Owner::Sending;
            }
        }
        are_all
    }

    fn all(&self) -> Range<u32> {
        0..self.count()
    }

    /// Whether `frame` is `owner`'s and to leave through `device`.
    fn is_sent_through(&self, device: DeviceId, frame: u32, owner: Owner) -> bool {
        let record = &self.records[frame as usize];
        record.owner == owner && self.ports[record.ingress].leaves == device
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_forwarding::{Tag, TagProtocol};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn wire() -> (Forwarding, Shares) {
        let receive = [3, 4].into_iter().collect();
        let wait = [5, 2].into_iter().collect();
        (Forwarding::wire("a", "b").unwrap(), Shares { receive, wait })
    }

    fn stick() -> (Forwarding, Shares) {
        let tag = |vid| Tag::new(TagProtocol::Customer, vid).unwrap();
        let forwarding = Forwarding::stick("a", &[(tag(1), tag(2))]).unwrap();
        let receive = [5].into_iter().collect();
        (forwarding, Shares { receive, wait: [6, 3].into_iter().collect() })
    }

    /// Any operation on a frame, valid or not. Numbers of ports and devices are taken modulo what
    /// there is.
    #[derive(Clone, Debug)]
    enum Step {
        Lend(usize),
        Take(usize),
        Received(usize, u32),
        ArrivedAt(usize, u32),
        Released(u32),
        HandedOver(u32),
        Completed(u32),
        Suspect(usize),
        TakeBack(usize, u64),
        /// Another process continues.
        Restore,
    }

    fn step() -> impl Strategy<Value = Step> {
        let number = 0..2_usize;
        // Two more than there are.
        let frame = 0..16_u32;
        prop_oneof![
            4 => number.clone().prop_map(Step::Lend),
            2 => number.clone().prop_map(Step::Take),
            4 => (number.clone(), frame.clone()).prop_map(|(port, frame)| Step::Received(port, frame)),
            2 => (number.clone(), frame.clone()).prop_map(|(port, frame)| Step::ArrivedAt(port, frame)),
            2 => frame.clone().prop_map(Step::Released),
            3 => frame.clone().prop_map(Step::HandedOver),
            3 => frame.prop_map(Step::Completed),
            1 => number.clone().prop_map(Step::Suspect),
            1 => (number, 0..4_u64).prop_map(|(device, refused)| Step::TakeBack(device, refused)),
            1 => Just(Step::Restore),
        ]
    }

    /// A map from frame to owner, and where its packet arrived.
    struct Model {
        forwarding: Forwarding,
        shares: Shares,
        frames: BTreeMap<u32, (Owner, PortId)>,
    }

    impl Model {
        fn new(forwarding: Forwarding, shares: Shares) -> Self {
            let frames = (0..shares.frames()).map(|frame| (frame, (Owner::Free, PortId::FIRST)));
            Self { frames: frames.collect(), forwarding, shares }
        }

        fn home(&self, frame: u32) -> DeviceId {
            let first =
                self.forwarding.ports_on(DeviceId::FIRST).map(|port| self.shares.wait[port]);
            let own = self.shares.receive[DeviceId::FIRST] + first.sum::<u32>();
            DeviceId::from(usize::from(frame >= own))
        }

        fn count(&self, is_it: impl Fn(u32, Owner, PortId) -> bool) -> u32 {
            let own = self.frames.iter().filter(|(frame, (owner, at))| is_it(**frame, *owner, *at));
            own.count() as u32
        }

        fn is_free_at(&self, device: DeviceId) -> bool {
            self.count(|frame, owner, _| owner == Owner::Free && self.home(frame) == device) > 0
        }

        /// Waiting or being sent.
        fn used(&self, port: PortId) -> u32 {
            let is_used = |owner| !matches!(owner, Owner::Free | Owner::Receiving);
            self.count(|_, owner, at| is_used(owner) && at == port)
        }

        fn leaves_through(&self, at: PortId) -> DeviceId {
            self.forwarding.device_of(self.forwarding.across(at))
        }
    }

    /// Whether each answer is that of the model, for any steps.
    fn follows_the_model(
        (forwarding, shares): (Forwarding, Shares),
        steps: Vec<Step>,
    ) -> Result<(), TestCaseError> {
        let mut owners = Owners::new(&forwarding, &shares);
        let mut model = Model::new(forwarding.clone(), shares.clone());
        let a_port = |number: usize| PortId::from(number % shares.wait.len());
        let a_device = |number: usize| DeviceId::from(number % shares.receive.len());
        for step in steps {
            match step {
                Step::Lend(number) => {
                    let device = a_device(number);
                    let lent = model.count(|frame, owner, _| {
                        owner == Owner::Receiving && model.home(frame) == device
                    });
                    let may = lent < shares.receive[device] && model.is_free_at(device);
                    let frame = owners.lend(device);
                    prop_assert_eq!(frame.is_some(), may);
                    if let Some(frame) = frame {
                        prop_assert_eq!(model.home(frame), device);
                        prop_assert_eq!(model.frames[&frame].0, Owner::Free);
                        model.frames.insert(frame, (Owner::Receiving, PortId::FIRST));
                    }
                }
                Step::Take(number) => {
                    let port = a_port(number);
                    let device = forwarding.device_of(port);
                    let may = model.used(port) < shares.wait[port] && model.is_free_at(device);
                    let frame = owners.take(port);
                    prop_assert_eq!(frame.is_some(), may);
                    if let Some(frame) = frame {
                        model.frames.insert(frame, (Owner::Waiting, port));
                    }
                }
                Step::Received(number, frame) => {
                    let port = a_port(number);
                    let is_lent =
                        model.frames.get(&frame).is_some_and(|of| of.0 == Owner::Receiving);
                    let may = is_lent && model.home(frame) == forwarding.device_of(port);
                    prop_assert_eq!(owners.received(port, frame), may);
                    if may {
                        model.frames.insert(frame, (Owner::Waiting, port));
                    }
                }
                Step::ArrivedAt(number, frame) => {
                    let port = a_port(number);
                    owners.arrived_at(port, frame);
                    let waits = model.frames.get(&frame).is_some_and(|of| of.0 == Owner::Waiting);
                    if waits && model.home(frame) == forwarding.device_of(port) {
                        model.frames.insert(frame, (Owner::Waiting, port));
                    }
                }
                Step::Released(frame) | Step::HandedOver(frame) => {
                    let may = model.frames.get(&frame).is_some_and(|of| of.0 == Owner::Waiting);
                    let (done, then) = match step {
                        Step::Released(_) => (owners.released(frame), Owner::Free),
                        _ => (owners.handed_over(frame), Owner::Sending),
                    };
                    prop_assert_eq!(done, may);
                    if may {
                        let at = model.frames[&frame].1;
                        model.frames.insert(frame, (then, at));
                    }
                }
                Step::Completed(frame) => {
                    let is_sent = |owner| matches!(owner, Owner::Sending | Owner::Suspect);
                    let may = model.frames.get(&frame).is_some_and(|of| is_sent(of.0));
                    prop_assert_eq!(owners.completed(frame), may);
                    if may {
                        model.frames.insert(frame, (Owner::Free, PortId::FIRST));
                    }
                }
                Step::Suspect(number) => {
                    let device = a_device(number);
                    owners.suspect(device);
                    for frame in 0..shares.frames() {
                        let (owner, at) = model.frames[&frame];
                        if owner == Owner::Sending && model.leaves_through(at) == device {
                            model.frames.insert(frame, (Owner::Suspect, at));
                        }
                    }
                }
                Step::TakeBack(number, refused) => {
                    let device = a_device(number);
                    let suspects: Vec<u32> = (0..shares.frames())
                        .filter(|frame| {
                            let (owner, at) = model.frames[frame];
                            owner == Owner::Suspect && model.leaves_through(at) == device
                        })
                        .collect();
                    let are_all = suspects.len() as u64 == refused;
                    let then = if are_all { Owner::Free } else { Owner::Sending };
                    for frame in suspects {
                        let at = model.frames[&frame].1;
                        model.frames.insert(frame, (then, at));
                    }
                    prop_assert_eq!(owners.take_back_suspects(device, refused), are_all);
                }
                Step::Restore => {
                    let (free, sending) = (owners.free(), owners.sending());
                    owners = Owners::new(&forwarding, &shares);
                    owners.restore(&free, &sending);
                    for frame in 0..shares.frames() {
                        let (owner, at) = model.frames[&frame];
                        match owner {
                            Owner::Waiting => prop_assert!(owners.received(at, frame)),
                            Owner::Suspect => {
                                model.frames.insert(frame, (Owner::Sending, at));
                            }
                            _ => {}
                        }
                    }
                }
            }
            let is_sent = |owner| matches!(owner, Owner::Sending | Owner::Suspect);
            let expected = FrameCounts {
                free: model.count(|_, owner, _| owner == Owner::Free),
                receiving: model.count(|_, owner, _| owner == Owner::Receiving),
                waiting: model.count(|_, owner, _| owner == Owner::Waiting),
                sending: model.count(|_, owner, _| is_sent(owner)),
            };
            prop_assert_eq!(owners.counts(), expected);
            for port in forwarding.ids() {
                let spare = shares.wait[port].checked_sub(model.used(port));
                prop_assert_eq!(owners.spare(port), spare);
            }
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn every_frame_is_with_its_owner_and_the_counts_say_so(
            steps in prop::collection::vec(step(), 1..200)
        ) {
            follows_the_model(wire(), steps.clone())?;
            follows_the_model(stick(), steps)?;
        }
    }

    #[test]
    fn while_packets_wait_in_their_share_reception_can_have_all_of_its_own() {
        let (forwarding, shares) = wire();
        let mut owners = Owners::new(&forwarding, &shares);
        let [a, b] = [DeviceId::FIRST, DeviceId::from(1)];
        let mut waiting = 0;
        while owners.spare(PortId::FIRST).is_some() {
            let frame = owners.lend(a).expect("reception has its share");
            assert!(owners.received(PortId::FIRST, frame));
            waiting += 1;
        }
        // One too many was received; it is dropped, and then there is room as before.
        assert_eq!(waiting, shares.wait[PortId::FIRST] + 1);
        assert!(owners.released(0));
        assert_eq!(std::iter::from_fn(|| owners.lend(a)).count(), 3);
        assert_eq!(std::iter::from_fn(|| owners.lend(b)).count(), 4);
    }

    #[test]
    fn a_flooded_port_takes_no_frames_from_another_on_the_same_device() {
        let (forwarding, shares) = stick();
        let mut owners = Owners::new(&forwarding, &shares);
        let [flooded, quiet] = [PortId::FIRST, PortId::SECOND];
        while owners.spare(flooded).is_some() {
            let frame = owners.lend(DeviceId::FIRST).expect("reception has its share");
            assert!(owners.received(flooded, frame));
        }
        for _ in 0..shares.wait[quiet] {
            let frame = owners.lend(DeviceId::FIRST).expect("reception has its share");
            assert!(owners.received(flooded, frame), "its tag is not read yet");
            owners.arrived_at(quiet, frame);
        }
        assert_eq!((owners.spare(quiet), owners.spare(flooded)), (Some(0), None));
    }
}
