//! Next hops by number, each once, and what is known of how to reach them.
//!
//! A route refers to its next hop by number, and a million routes refer to a few. So if a
//! neighbour, a device or a next-hop object changes, a few entries do, and no image.
//!
//! *A number's life.* It is a next hop's while a route refers to it. Then it is free, and is given
//! to another one only after all that were free before: a program may still be about to look it up.
//! If all are taken, the kernel is asked for whatever needs another.
//!
//! *Attributes* of a route are of its number, too: routes to one next hop with several of them have
//! several numbers. What the kernel is asked for has a number of its own if it has realms.

use crate::image::Family;
use crate::number::Number;
use crate::route::{Attributes, Device, Hop, Object, Target};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::IpAddr;

/// What has one number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Key {
    Gateway { ifindex: u32, gateway: IpAddr, mtu: u32, family: Family, attributes: Attributes },
    Object { id: u32, mtu: u32, family: Family, attributes: Attributes },
    Ask { attributes: Attributes },
}

impl Key {
    const fn attributes(self) -> Attributes {
        match self {
            Self::Gateway { attributes, .. }
            | Self::Object { attributes, .. }
            | Self::Ask { attributes } => attributes,
        }
    }
}

struct Used {
    key: Key,
    /// The routes that refer to it, and hosts on a link.
    references: u32,
}

/// All next hops.
#[derive(Default)]
pub(crate) struct Hops {
    numbers: BTreeMap<Key, Number>,
    /// By number, from [`Number::FIRST`] on.
    used: Vec<Option<Used>>,
    free: VecDeque<Number>,
    neighbours: HashMap<(u32, IpAddr), [u8; 6]>,
    devices: HashMap<u32, Device>,
    objects: HashMap<u32, Object>,
    /// What may be stale, and since which listing: devices, and objects.
    stale_devices: HashMap<u32, u64>,
    stale_objects: HashMap<u32, u64>,
    changed: BTreeSet<Number>,
}

impl Hops {
    /// The number of `target`'s next hop for a route with `attributes`, which is referred to once
    /// more; none if it has none.
    pub(crate) fn hold(
        &mut self,
        target: Target,
        family: Family,
        attributes: Attributes,
    ) -> Option<Number> {
        let key = key_of(target, family, attributes)?;
        if let Some(&number) = self.numbers.get(&key) {
            if let Some(used) = &mut self.used[number.index() - Number::FIRST.index()] {
                used.references += 1;
            }
            return Some(number);
        }
        let number = if self.used.len() < Number::COUNT - Number::FIRST.index() {
            self.used.push(None);
            Number((self.used.len() - 1 + Number::FIRST.index()) as u16)
        } else {
            self.free.pop_front()?
        };
        self.used[number.index() - Number::FIRST.index()] = Some(Used { key, references: 1 });
        self.numbers.insert(key, number);
        self.changed.insert(number);
        Some(number)
    }

    /// The number of `target`'s next hop for a route with `attributes`, if it has one.
    pub(crate) fn number_of(
        &self,
        target: Target,
        family: Family,
        attributes: Attributes,
    ) -> Option<Number> {
        self.numbers.get(&key_of(target, family, attributes)?).copied()
    }

    /// `number` is referred to once less.
    pub(crate) fn release(&mut self, number: Number) {
        let Some(slot) = number.index().checked_sub(Number::FIRST.index()) else { return };
        let Some(used) = &mut self.used[slot] else { return };
        used.references -= 1;
        if used.references == 0 {
            self.numbers.remove(&used.key);
            self.used[slot] = None;
            self.free.push_back(number);
            self.changed.insert(number);
        }
    }

    /// The device and the gateway of `number`, and its route's MTU and family.
    fn gateway_of(&self, number: Number) -> Option<(u32, IpAddr, u32, Family)> {
        let slot = number.index().checked_sub(Number::FIRST.index())?;
        match self.used.get(slot)?.as_ref()?.key {
            Key::Gateway { ifindex, gateway, mtu, family, .. } => {
                Some((ifindex, gateway, mtu, family))
            }
            Key::Ask { .. } => None,
            Key::Object { id, mtu, family, .. } => match self.objects.get(&id)? {
                Object::Gateway { ifindex, gateway } if !self.stale_objects.contains_key(&id) => {
                    Some((*ifindex, *gateway, mtu, family))
                }
                Object::Gateway { .. } | Object::Ask => None,
            },
        }
    }

    /// The device and the gateway of `number`, if it is a next hop's.
    pub(crate) fn gateway(&self, number: Number) -> Option<(u32, IpAddr)> {
        self.gateway_of(number).map(|(ifindex, gateway, ..)| (ifindex, gateway))
    }

    /// How many next hops there are.
    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// What filters may ask of the routes whose number is `number`.
    pub(crate) fn attributes(&self, number: Number) -> Attributes {
        let slot = number.index().checked_sub(Number::FIRST.index());
        let used = slot.and_then(|slot| self.used.get(slot)?.as_ref());
        used.map_or(Attributes::NONE, |used| used.key.attributes())
    }

    /// How a packet reaches `number`, if the kernel does not have to be asked.
    pub(crate) fn hop(&self, number: Number) -> Option<Hop> {
        let (ifindex, gateway, mtu, family) = self.gateway_of(number)?;
        let device = self.devices.get(&ifindex)?;
        if !device.is_running || self.stale_devices.contains_key(&ifindex) {
            return None;
        }
        let destination = *self.neighbours.get(&(ifindex, gateway))?;
        let mtu = if mtu == 0 { device.mtu(family) } else { mtu };
        Some(Hop { port: device.port?, tag: device.tag, destination, source: device.mac, mtu })
    }

    /// The numbers whose next hop may have changed since the last call.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<Number> {
        std::mem::take(&mut self.changed)
    }

    /// Whether a host is known on the link of a device.
    pub(crate) fn is_neighbour(&self, ifindex: u32, address: IpAddr) -> bool {
        self.neighbours.contains_key(&(ifindex, address))
    }

    /// The MAC address of a neighbour from now on; none if it is unknown. Returns whether that is
    /// another.
    pub(crate) fn set_neighbour(
        &mut self,
        ifindex: u32,
        address: IpAddr,
        mac: Option<[u8; 6]>,
    ) -> bool {
        let at = (ifindex, address);
        let before = match mac {
            Some(mac) => self.neighbours.insert(at, mac),
            None => self.neighbours.remove(&at),
        };
        if before == mac {
            return false;
        }
        let key = |mtu, family, attributes| Key::Gateway {
            ifindex,
            gateway: address,
            mtu,
            family,
            attributes,
        };
        let first = key(0, Family::V4, Attributes::NONE);
        let all = first..=key(u32::MAX, Family::V6, Attributes::MOST);
        self.changed.extend(self.numbers.range(all).map(|(_, number)| *number));
        let to_it = Object::Gateway { ifindex, gateway: address };
        self.changed_objects(|object| object == to_it);
        true
    }

    /// What the device `ifindex` is from now on; none if it is gone.
    pub(crate) fn set_device(&mut self, ifindex: u32, device: Option<Device>) {
        let before = match device {
            Some(device) => self.devices.insert(ifindex, device),
            None => self.devices.remove(&ifindex),
        };
        if before != device {
            self.changed_device(ifindex);
        }
    }

    /// What the next-hop object `id` is from now on; none if it is gone.
    pub(crate) fn set_object(&mut self, id: u32, object: Option<Object>) {
        match object {
            Some(object) => drop(self.objects.insert(id, object)),
            None => drop(self.objects.remove(&id)),
        }
        self.changed_object(id);
    }

    /// The kernel is asked for what leaves through a device, until a listing after `now` is there.
    pub(crate) fn doubt_device(&mut self, ifindex: u32, now: u64) {
        self.stale_devices.insert(ifindex, now);
        self.changed_device(ifindex);
    }

    /// The kernel is asked for what leaves by a next-hop object, until a listing after `now` is
    /// there.
    pub(crate) fn doubt_object(&mut self, id: u32, now: u64) {
        self.stale_objects.insert(id, now);
        self.changed_object(id);
    }

    /// A listing that began at `begin` is there.
    pub(crate) fn trust(&mut self, begin: u64) {
        let devices: Vec<u32> = older(&self.stale_devices, begin);
        for ifindex in devices {
            self.stale_devices.remove(&ifindex);
            self.changed_device(ifindex);
        }
        for id in older(&self.stale_objects, begin) {
            self.stale_objects.remove(&id);
            self.changed_object(id);
        }
    }

    /// Forgets neighbours and objects, before they are listed again. Returns the neighbours.
    pub(crate) fn forget(&mut self) -> Vec<(u32, IpAddr)> {
        self.changed.extend(self.numbers.values());
        self.objects.clear();
        self.neighbours.drain().map(|(at, _)| at).collect()
    }

    fn changed_device(&mut self, ifindex: u32) {
        let first = IpAddr::V4(0.into());
        let (family, attributes) = (Family::V4, Attributes::NONE);
        let from = Key::Gateway { ifindex, gateway: first, mtu: 0, family, attributes };
        let of_it = self.numbers.range(from..).take_while(
            |(key, _)| matches!(key, Key::Gateway { ifindex: of, .. } if *of == ifindex),
        );
        self.changed.extend(of_it.map(|(_, number)| *number));
        let by_it = |object| matches!(object, Object::Gateway { ifindex: by, .. } if by == ifindex);
        self.changed_objects(by_it);
    }

    fn changed_objects(&mut self, is_it: impl Fn(Object) -> bool) {
        let ids = self.objects.iter().filter(|(_, object)| is_it(**object)).map(|(id, _)| *id);
        for id in ids.collect::<Vec<_>>() {
            self.changed_object(id);
        }
    }

    fn changed_object(&mut self, id: u32) {
        let key = |mtu, family, attributes| Key::Object { id, mtu, family, attributes };
        let from = key(0, Family::V4, Attributes::NONE);
        let to = key(u32::MAX, Family::V6, Attributes::MOST);
        self.changed.extend(self.numbers.range(from..=to).map(|(_, number)| *number));
    }
}

fn key_of(target: Target, family: Family, attributes: Attributes) -> Option<Key> {
    match target {
        Target::Gateway { ifindex, gateway, mtu } => {
            Some(Key::Gateway { ifindex, gateway, mtu, family, attributes })
        }
        Target::Object { id, mtu } => Some(Key::Object { id, mtu, family, attributes }),
        // The kernel says the metric.
        Target::OnLink { .. } | Target::Ask if attributes.realms == 0 => None,
        Target::OnLink { .. } | Target::Ask => Some(Key::Ask { attributes }),
    }
}

fn older(doubts: &HashMap<u32, u64>, begin: u64) -> Vec<u32> {
    doubts.iter().filter(|(_, since)| **since <= begin).map(|(id, _)| *id).collect()
}
