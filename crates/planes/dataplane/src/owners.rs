//! The owner of each frame of a worker.
//!
//! *The idea.* A frame has exactly one owner at any moment, which is recorded beside it. Each
//! device has frames of its own, for good, into which its driver receives. So load at one device
//! cannot take frames from another, and a returning frame needs no search for where it belongs.
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
//! *The record decides.* An operation on a frame that another has changes nothing, whatever asks
//! for it. `frames` relies on this where it borrows bytes.
//!
//! *Ports that compete.* In a router and a switch the packets of a port leave through several. So
//! that one whose queue is long does not take the frames of all, each may have as many more as are
//! left to all together: the *dynamic thresholds* of switches with shared memory. Source: A. K.
//! Choudhury, E. L. Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches",
//! IEEE/ACM ToN 6(2), 1998, with a factor of 1.
//!
//! Cost: a record of four bytes and one counter written at each change of owner, and in a router
//! one more counter.

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
    /// Where the packet in it arrived, while it waits or is sent,
    ingress: PortId,
    /// and where it leaves.
    egress: PortId,
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
    /// The port through which all its packets leave; in a router and a switch, itself until each is
    /// known.
    leaves: PortId,
    /// The most that wait or are sent.
    most: u32,
    waiting: u32,
    sending: u32,
    /// In a router and a switch: how many of them leave through each port.
    used_by: PerPort<u32>,
}

impl Arrived {
    /// One more is used by packets that leave through `egress`.
    #[inline]
    fn use_for(&mut self, egress: PortId) {
        if let Some(used) = self.used_by.get_mut(egress) {
            *used += 1;
        }
    }

    /// One less is.
    #[inline]
    fn forget(&mut self, egress: PortId) {
        if let Some(used) = self.used_by.get_mut(egress) {
            *used -= 1;
        }
    }
}

/// The owner of each frame of a worker. Never reallocated.
pub(crate) struct Owners {
    records: Box<[Record]>,
    devices: PerDevice<Reception>,
    ports: PerPort<Arrived>,
    device_of: PerPort<DeviceId>,
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
            let egress = forwarding.across(ingress).unwrap_or(ingress);
            let free = Record { owner: Owner::Free, device, ingress, egress };
            records.extend((0..frames).map(|_| free));
            let free = (first..first + frames).rev().collect();
            devices.push(Reception { most, free, receiving: 0 });
        }
        let used_by = |_| match forwarding.is_paired() {
            true => PerPort::new(),
            false => forwarding.ids().map(|_| 0).collect(),
        };
        let port = |(port, &most): (PortId, &u32)| Arrived {
            device: forwarding.device_of(port),
            leaves: forwarding.across(port).unwrap_or(port),
            most,
            waiting: 0,
            sending: 0,
            used_by: used_by(port),
        };
        let ports = shares.wait.iter_enumerated().map(port).collect();
        let device_of = forwarding.ids().map(|port| forwarding.device_of(port)).collect();
        Self { records: records.into_boxed_slice(), devices, ports, device_of }
    }

    /// Continues where another process stopped, with these frames `free`, and these handed to the
    /// kernel to send, by the port where their packets arrived. The kernel counts as having all
    /// others, to receive into, until the queued ones are [received](Owners::received). A frame
    /// that is named twice, or is none of these, counts once or not at all.
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
            port.used_by.iter_mut().for_each(|used| *used = 0);
        }
        for &frame in free {
            if let Some(record) = self.take_from_kernel(frame, Owner::Free) {
                let device = record.device;
                self.devices[device].free.push(frame);
            }
        }
        for (port, frames) in sending.iter_enumerated() {
            for &frame in frames {
                let leaves = self.ports[port].leaves;
                if let Some(record) = self.take_from_kernel(frame, Owner::Sending) {
                    (record.ingress, record.egress) = (port, leaves);
                    self.ports[port].sending += 1;
                    self.ports[port].use_for(leaves);
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

    /// Whose driver receives into `frame`; `None` if there is no such frame.
    pub(crate) fn device_of(&self, frame: u32) -> Option<DeviceId> {
        self.records.get(frame as usize).map(|record| record.device)
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

    /// The number of further frames that packets arriving at `ingress` may fill that leave through
    /// `egress`. On a wire and a stick, all of the [spare](Owners::spare) ones.
    #[inline]
    pub(crate) fn spare_for(&self, ingress: PortId, egress: PortId) -> Option<u32> {
        let spare = self.spare(ingress)?;
        match self.ports[ingress].used_by.get(egress) {
            Some(&used) => spare.checked_sub(used),
            None => Some(spare),
        }
    }

    /// The packet in `frame`, which waits, leaves through `egress`.
    #[inline]
    pub(crate) fn leaves(&mut self, egress: PortId, frame: u32) {
        let Some(record) = self.records.get_mut(frame as usize) else { return };
        if record.owner == Owner::Waiting {
            let port = &mut self.ports[record.ingress];
            port.forget(record.egress);
            port.use_for(egress);
            record.egress = egress;
        }
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
        port.use_for(port.leaves);
        let record = &mut self.records[frame as usize];
        *record = Record { owner: Owner::Waiting, ingress, egress: port.leaves, ..*record };
        Some(frame)
    }

    /// `frame` has arrived at `ingress`, a port of its device. False if the kernel did not have it
    /// to receive into there, an error of the kernel; then nothing has changed.
    #[inline]
    pub(crate) fn received(&mut self, ingress: PortId, frame: u32) -> bool {
        let port = &mut self.ports[ingress];
        let Some(record) = self.records.get_mut(frame as usize) else { return false };
        let is_lent = record.owner == Owner::Receiving && record.device == port.device;
        if is_lent {
            *record = Record { owner: Owner::Waiting, ingress, egress: port.leaves, ..*record };
            port.waiting += 1;
            port.use_for(port.leaves);
            self.devices[port.device].receiving -= 1;
        }
        is_lent
    }

    /// The packet in `frame`, which waits, arrived at another port of the same device: at
    /// `ingress`.
    #[inline]
    pub(crate) fn arrived_at(&mut self, ingress: PortId, frame: u32) {
        let Some(record) = self.records.get_mut(frame as usize) else { return };
        if record.owner == Owner::Waiting && self.ports[ingress].device == record.device {
            let before = &mut self.ports[record.ingress];
            before.waiting -= 1;
            before.forget(record.egress);
            let port = &mut self.ports[ingress];
            port.waiting += 1;
            port.use_for(port.leaves);
            (record.ingress, record.egress) = (ingress, port.leaves);
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
            let port = &mut self.ports[record.ingress];
            port.waiting -= 1;
            port.forget(record.egress);
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
            let port = &mut self.ports[record.ingress];
            port.sending -= 1;
            port.forget(record.egress);
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
        record.owner == owner && self.device_of[record.egress] == device
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

    fn router() -> (Forwarding, Shares) {
        let devices = ["a", "b", "c"].map(str::to_owned);
        let receive = [2, 2, 1].into_iter().collect();
        let wait = [4, 3, 2].into_iter().collect();
        (Forwarding::router(&devices).unwrap(), Shares { receive, wait })
    }

    /// Any operation on a frame, valid or not. Numbers of ports and devices are taken modulo what
    /// there is.
    #[derive(Clone, Debug)]
    enum Step {
        Lend(usize),
        Take(usize),
        Received(usize, u32),
        ArrivedAt(usize, u32),
        Leaves(usize, u32),
        Released(u32),
        HandedOver(u32),
        Completed(u32),
        Suspect(usize),
        TakeBack(usize, u64),
        /// Another process continues.
        Restore,
    }

    fn step() -> impl Strategy<Value = Step> {
        let number = 0..3_usize;
        // Two more than there are.
        let frame = 0..16_u32;
        prop_oneof![
            4 => number.clone().prop_map(Step::Lend),
            2 => number.clone().prop_map(Step::Take),
            4 => (number.clone(), frame.clone()).prop_map(|(port, frame)| Step::Received(port, frame)),
            2 => (number.clone(), frame.clone()).prop_map(|(port, frame)| Step::ArrivedAt(port, frame)),
            3 => (number.clone(), frame.clone()).prop_map(|(port, frame)| Step::Leaves(port, frame)),
            2 => frame.clone().prop_map(Step::Released),
            3 => frame.clone().prop_map(Step::HandedOver),
            3 => frame.prop_map(Step::Completed),
            1 => number.clone().prop_map(Step::Suspect),
            1 => (number, 0..4_u64).prop_map(|(device, refused)| Step::TakeBack(device, refused)),
            1 => Just(Step::Restore),
        ]
    }

    /// A map from frame to owner, and where its packet arrived; and where it leaves, if not across.
    struct Model {
        forwarding: Forwarding,
        shares: Shares,
        frames: BTreeMap<u32, (Owner, PortId)>,
        leaves: BTreeMap<u32, PortId>,
    }

    impl Model {
        fn new(forwarding: Forwarding, shares: Shares) -> Self {
            let frames = (0..shares.frames()).map(|frame| (frame, (Owner::Free, PortId::FIRST)));
            Self { frames: frames.collect(), forwarding, shares, leaves: BTreeMap::new() }
        }

        fn home(&self, frame: u32) -> DeviceId {
            let mut end = 0;
            let home = self.shares.receive.iter_enumerated().find(|(device, receive)| {
                let wait = self.forwarding.ports_on(*device).map(|port| self.shares.wait[port]);
                end += **receive + wait.sum::<u32>();
                frame < end
            });
            home.map_or(DeviceId::from(63), |(device, _)| device)
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

        /// How many that arrived at `port` are to leave through `egress`.
        fn count_for(&self, port: PortId, egress: PortId) -> u32 {
            let is_used = |owner| !matches!(owner, Owner::Free | Owner::Receiving);
            self.count(|frame, owner, at| {
                is_used(owner) && at == port && self.leaves_at(frame) == egress
            })
        }

        fn leaves_at(&self, frame: u32) -> PortId {
            let at = self.frames[&frame].1;
            self.leaves.get(&frame).copied().or(self.forwarding.across(at)).unwrap_or(at)
        }

        fn leaves_through(&self, frame: u32) -> DeviceId {
            self.forwarding.device_of(self.leaves_at(frame))
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
                        model.leaves.remove(&frame);
                    }
                }
                Step::Leaves(number, frame) => {
                    let port = a_port(number);
                    let waits = model.frames.get(&frame).is_some_and(|of| of.0 == Owner::Waiting);
                    if waits && !forwarding.is_paired() {
                        owners.leaves(port, frame);
                        model.leaves.insert(frame, port);
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
                        if owner == Owner::Sending && model.leaves_through(frame) == device {
                            model.frames.insert(frame, (Owner::Suspect, at));
                        }
                    }
                }
                Step::TakeBack(number, refused) => {
                    let device = a_device(number);
                    let suspects: Vec<u32> = (0..shares.frames())
                        .filter(|frame| {
                            let owner = model.frames[frame].0;
                            owner == Owner::Suspect && model.leaves_through(*frame) == device
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
                            Owner::Waiting => {
                                prop_assert!(owners.received(at, frame));
                                if let Some(egress) = model.leaves.get(&frame) {
                                    owners.leaves(*egress, frame);
                                }
                            }
                            Owner::Sending => drop(model.leaves.remove(&frame)),
                            Owner::Suspect => {
                                model.leaves.remove(&frame);
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
            let of_nobody = |owner| matches!(owner, Owner::Free | Owner::Receiving);
            model.leaves.retain(|frame, _| !of_nobody(model.frames[frame].0));
            for port in forwarding.ids() {
                let spare = shares.wait[port].checked_sub(model.used(port));
                prop_assert_eq!(owners.spare(port), spare);
                for egress in forwarding.ids().filter(|_| !forwarding.is_paired()) {
                    let used = model.count_for(port, egress);
                    let expected = spare.and_then(|spare| spare.checked_sub(used));
                    prop_assert_eq!(owners.spare_for(port, egress), expected);
                }
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
            follows_the_model(stick(), steps.clone())?;
            follows_the_model(router(), steps)?;
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
    fn in_a_router_a_long_queue_leaves_half_of_a_ports_frames_to_others() {
        let devices = ["a", "b", "c"].map(str::to_owned);
        let forwarding = Forwarding::router(&devices).unwrap();
        let receive = [10, 10, 10].into_iter().collect();
        let wait = [100, 100, 100].into_iter().collect();
        let mut owners = Owners::new(&forwarding, &Shares { receive, wait });
        let [at, congested, other] = [0, 1, 2].map(PortId::from);
        let mut take = |egress: PortId| -> u32 {
            (0..)
                .find(|_| {
                    let frame = owners.lend(DeviceId::FIRST).expect("reception has its share");
                    assert!(owners.received(at, frame));
                    owners.leaves(egress, frame);
                    let fits = owners.spare_for(at, egress).is_some();
                    if !fits {
                        owners.released(frame);
                    }
                    !fits
                })
                .expect("its frames end")
        };
        assert_eq!(take(congested), 50);
        assert_eq!(take(other), 25);
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
