//! A kernel's routes, next hops and neighbours, as its notifications tell of them.
//!
//! *A listing first, then changes.* [`begin`](Mirror::begin) and what is added until
//! [`end`](Mirror::end) become the routes, in the place of all before. Changes that are told
//! meanwhile count from then on: one that the listing had already changes nothing.
//!
//! *Not all changes are told.* The kernel removes routes of IPv4 silently when their device goes
//! down, when their source address or their next-hop object goes. Until a listing after that is
//! there, the kernel is asked for what could have gone: what leads to
//! [that device](Mirror::doubt_device) or [object](Mirror::doubt_object), or
//! [all of IPv4](Mirror::doubt).
//!
//! Non-goals: where the kernel's messages come from; how images are stored.

use crate::hops::Hops;
use crate::image::{Family, Layout};
use crate::number::Number;
use crate::route::{Attributes, Device, Hop, Object, Route};
use crate::table::Table;
use narrows_image::{Full, Memory, Prefix};
use std::net::IpAddr;

/// Routes, next hops, neighbours and devices.
#[derive(Default)]
pub struct Mirror {
    hops: Hops,
    tables: Tables,
    /// What is being listed, and the time when that began.
    listing: Option<(Tables, u64)>,
    /// Counts listings and doubts.
    now: u64,
    /// By family: since when its routes are in doubt.
    doubts: [Option<u64>; 2],
    /// Whether a listing is there at all, and whether it is new.
    is_listed: bool,
    is_new: bool,
    is_default_changed: bool,
}

#[derive(Default)]
struct Tables {
    v4: Table<u32>,
    v6: Table<u128>,
}

/// What changed, for the writer of images.
#[derive(Default, PartialEq, Eq, Debug)]
pub struct Changed {
    /// Each number whose next hop may be another one, and that: none if the kernel has to be asked.
    /// Then the attributes of its routes.
    pub hops: Vec<(Number, Option<Hop>, Attributes)>,
    /// By family, the prefixes whose number changed; none if all may have.
    pub prefixes: [Option<Vec<Prefix>>; 2],
}

impl Mirror {
    /// Begins a listing.
    pub fn begin(&mut self) {
        self.now += 1;
        // One that failed.
        if let Some((tables, _)) = self.listing.take() {
            tables.v4.release(&mut self.hops);
            tables.v6.release(&mut self.hops);
        }
        self.listing = Some((Tables::default(), self.now));
    }

    /// Adds a route that is listed.
    pub fn list(&mut self, route: &Route) {
        if let Some((tables, _)) = &mut self.listing {
            match route.family {
                Family::V4 => tables.v4.list(route, &mut self.hops),
                Family::V6 => tables.v6.list(route, &mut self.hops),
            }
        }
    }

    /// What was listed becomes the routes.
    pub fn end(&mut self) {
        let Some((tables, begin)) = self.listing.take() else { return };
        let before = std::mem::replace(&mut self.tables, tables);
        self.tables.v4.replace(before.v4, &mut self.hops);
        self.tables.v6.replace(before.v6, &mut self.hops);
        self.hops.trust(begin);
        self.doubts = self.doubts.map(|since| since.filter(|since| *since > begin));
        (self.is_listed, self.is_new, self.is_default_changed) = (true, true, true);
    }

    /// Adds a route, in the place of those of its metric and TOS if `replace`.
    pub fn add(&mut self, route: &Route, replace: bool) {
        self.is_default_changed |= route.prefix.len == 0;
        self.tables.add(route, replace, &mut self.hops);
    }

    /// Removes a route.
    pub fn remove(&mut self, route: &Route) {
        self.is_default_changed |= route.prefix.len == 0;
        match route.family {
            Family::V4 => self.tables.v4.remove(route, &mut self.hops),
            Family::V6 => self.tables.v6.remove(route, &mut self.hops),
        }
    }

    /// The MAC address of a neighbour from now on; none if it is unknown.
    pub fn set_neighbour(&mut self, ifindex: u32, address: IpAddr, mac: Option<[u8; 6]>) {
        if self.hops.set_neighbour(ifindex, address, mac) {
            self.follow_host(ifindex, address);
        }
    }

    /// Forgets neighbours and next-hop objects, before they are listed again.
    pub fn forget(&mut self) {
        for (ifindex, address) in self.hops.forget() {
            self.follow_host(ifindex, address);
        }
    }

    /// What the device `ifindex` is from now on; none if it is gone.
    pub fn set_device(&mut self, ifindex: u32, device: Option<Device>) {
        self.hops.set_device(ifindex, device);
    }

    /// What the next-hop object `id` is from now on; none if it is gone, with its routes.
    pub fn set_object(&mut self, id: u32, object: Option<Object>) {
        if object.is_none() {
            self.doubt_object(id);
        }
        self.hops.set_object(id, object);
    }

    /// The kernel is asked for all routes of `family` until a listing that begins from now on is
    /// there.
    pub fn doubt(&mut self, family: Family) {
        self.now += 1;
        self.doubts[family as usize] = Some(self.now);
    }

    /// The kernel is asked for what leaves through the device `ifindex`, until then.
    pub fn doubt_device(&mut self, ifindex: u32) {
        self.now += 1;
        self.hops.doubt_device(ifindex, self.now);
    }

    /// The kernel is asked for what leads to the next-hop object `id`, until then.
    fn doubt_object(&mut self, id: u32) {
        self.now += 1;
        self.hops.doubt_object(id, self.now);
    }

    /// Whether an image of `family` says what the kernel would.
    pub fn is_sure(&self, family: Family) -> bool {
        let is_plain = match family {
            Family::V4 => self.tables.v4.is_plain(),
            Family::V6 => self.tables.v6.is_plain(),
        };
        self.is_listed && is_plain && self.doubts[family as usize].is_none()
    }

    /// Whether a listing is there at all.
    pub fn is_listed(&self) -> bool {
        self.is_listed
    }

    /// Whether a listing would make something clear that is not.
    pub fn is_unclear(&self) -> bool {
        self.tables.v4.is_unclear() || self.tables.v6.is_unclear()
    }

    /// How many prefixes of `family` there are.
    pub fn prefixes(&self, family: Family) -> usize {
        match family {
            Family::V4 => self.tables.v4.len(),
            Family::V6 => self.tables.v6.len(),
        }
    }

    /// How many next hops there are, each once for the realms and metric of the routes to it.
    pub fn hops(&self) -> usize {
        self.hops.len()
    }

    /// The device and the gateway of `number`, as it is in an array of next hops; none if the
    /// kernel has to be asked.
    pub fn gateway(&self, number: Number) -> Option<(u32, IpAddr)> {
        self.hops.gateway(self.own_number(number))
    }

    /// What changed since the last call.
    pub fn take_changed(&mut self) -> Changed {
        let v4 = self.tables.v4.take_changed();
        let v6 = self.tables.v6.take_changed();
        let is_new = std::mem::take(&mut self.is_new);
        let prefixes = [v4, v6].map(|prefixes| (!is_new).then_some(prefixes));
        let mut numbers = self.hops.take_changed();
        let is_default_changed = std::mem::take(&mut self.is_default_changed);
        for default in [Number::DEFAULT, Number::DEFAULT_V6] {
            if is_default_changed || numbers.contains(&self.own_number(default)) {
                numbers.insert(default);
            }
        }
        let hop = |number| {
            let own = self.own_number(number);
            (number, self.hops.hop(own), self.hops.attributes(own))
        };
        Changed { hops: numbers.into_iter().map(hop).collect(), prefixes }
    }

    /// How many words the image of `family` takes.
    pub fn size(&self, family: Family) -> usize {
        match family {
            Family::V4 => Layout::size(&self.tables.v4, family),
            Family::V6 => Layout::size(&self.tables.v6, family),
        }
    }

    /// Lays the image of `family` out in `memory`, which is at least [`size`](Self::size).
    ///
    /// # Errors
    /// It is not.
    pub fn lay_out(&self, family: Family, memory: &mut impl Memory) -> Result<Layout, Full> {
        match family {
            Family::V4 => Layout::new(&self.tables.v4, family, memory),
            Family::V6 => Layout::new(&self.tables.v6, family, memory),
        }
    }

    /// Updates `layout` after changes of `prefixes`.
    ///
    /// # Errors
    /// There is no room; some of the changes may have been made.
    pub fn update(
        &self,
        layout: &mut Layout,
        prefixes: &[Prefix],
        memory: &mut impl Memory,
    ) -> Result<(), Full> {
        match layout.family() {
            Family::V4 => layout.update(&self.tables.v4, prefixes, memory),
            Family::V6 => layout.update(&self.tables.v6, prefixes, memory),
        }
    }

    /// The next hop's own number, where that of a default route may stand.
    fn own_number(&self, number: Number) -> Number {
        match number {
            Number::DEFAULT => self.tables.v4.default_route(),
            Number::DEFAULT_V6 => self.tables.v6.default_route(),
            number => number,
        }
    }

    fn follow_host(&mut self, ifindex: u32, address: IpAddr) {
        let is_known = self.hops.is_neighbour(ifindex, address);
        match address {
            IpAddr::V4(_) => self.tables.v4.set_host(ifindex, address, is_known, &mut self.hops),
            IpAddr::V6(_) => self.tables.v6.set_host(ifindex, address, is_known, &mut self.hops),
        }
    }
}

impl Tables {
    fn add(&mut self, route: &Route, replace: bool, hops: &mut Hops) {
        match route.family {
            Family::V4 => self.v4.add(route, replace, hops),
            Family::V6 => self.v6.add(route, replace, hops),
        }
    }
}
