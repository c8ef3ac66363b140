//! `route`: the route that a packet takes.
//!
//! A router knows it, and only a router. A packet of which no route is known matches no such
//! filter, as in the kernel one without a `dst` does not.
//!
//! *The order* of filters by realms in one `pref` is the kernel's: those that name both realms come
//! before those that name the destination's, and these before those that name the source's or none.
//! Their number says so. The kernel calls it by other words: [`handle`] and [`number`] convert it.
//! Filters by metric are not the kernel's, and come first, in the order in which they were added.
//!
//! Source: `net/sched/cls_route.c`.

use narrows_packet::RouteTaken;

/// The first number of filters by realms alone. Those by metric have lower ones.
const FIRST: u32 = 0x4000_0000;
/// In the lower half of a handle, in the place of the realm of the destination: any.
const ANY_TO: u32 = 0x8000;
/// In the upper half, in the place of that of the source.
const ANY_FROM: u32 = 0xffff;

/// A condition on the route that a packet takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Route {
    /// The realm of the destination; 0 is none.
    pub to: Option<u8>,
    /// The realm of the source; 0 is none.
    pub from: Option<u8>,
    /// The metric of the route to the destination.
    pub metric: Option<u32>,
}

impl Route {
    pub(crate) fn matches(self, taken: Option<RouteTaken>) -> bool {
        let realm = |wanted: Option<u8>, is: u16| wanted.is_none_or(|of| u16::from(of) == is);
        taken.is_some_and(|taken| {
            realm(self.to, taken.to())
                && realm(self.from, taken.from())
                && self.metric.is_none_or(|metric| metric == taken.metric)
        })
    }

    /// The only number that it may have within its `pref`; `None` if it asks for the metric, and so
    /// has a free one below those.
    pub fn own_number(self) -> Option<u32> {
        let to = self.to.map_or(ANY_TO, u32::from);
        let from = self.from.map_or(ANY_FROM, u32::from);
        self.metric.is_none().then_some(FIRST + (to << 16 | from))
    }

    /// Whether `number` is one that a filter by metric may have.
    pub fn is_free_number(number: u32) -> bool {
        (1..FIRST).contains(&number)
    }
}

/// The handle of the filter with this number, as the kernel has it; of a filter by metric one that
/// no filter of the kernel has.
pub fn handle(number: u32) -> u32 {
    match number.checked_sub(FIRST) {
        Some(realms) => realms.rotate_left(16),
        None => FIRST | number,
    }
}

/// The inverse of [`handle`]; `None` if no filter has that handle.
pub fn number(handle: u32) -> Option<u32> {
    if handle >> 30 == 1 {
        return Some(handle & (FIRST - 1));
    }
    let to = handle & 0xffff;
    (to <= 0xff || to == ANY_TO).then(|| FIRST + handle.rotate_left(16))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: Route = Route { to: Some(10), from: Some(2), metric: None };
    const TO: Route = Route { from: None, ..BOTH };
    const FROM: Route = Route { to: None, ..BOTH };
    const ANY: Route = Route { to: None, from: None, metric: None };

    #[test]
    fn handles_are_the_kernel_s_and_numbers_are_in_its_order() {
        let all = [BOTH, TO, FROM, ANY].map(|route| route.own_number().unwrap());
        assert!(all.is_sorted(), "{all:x?}");
        assert_eq!(all.map(handle), [0x2_000a, 0xffff_000a, 0x2_8000, 0xffff_8000]);
        assert!(Route::is_free_number(all[0] - 0xa_0003));
        for own in all.into_iter().chain([1, 7, FIRST - 1]) {
            assert_eq!(number(handle(own)), Some(own), "{own:x}");
        }
        // With an order, and with realms that no filter has.
        assert_eq!([0x2_010a, 0x2_ffff, 0xffff_0100].map(number), [None; 3]);
    }

    #[test]
    fn what_is_not_named_does_not_matter_and_without_a_route_nothing_matches() {
        let taken = |from: u32, to: u32, metric| RouteTaken { realms: from << 16 | to, metric };
        let by_metric = Route { metric: Some(7), ..TO };
        let matching = |taken: Option<RouteTaken>| {
            [BOTH, TO, FROM, ANY, by_metric].map(|route| route.matches(taken))
        };
        assert_eq!(matching(Some(taken(2, 10, 7))), [true; 5]);
        assert_eq!(matching(Some(taken(2, 11, 7))), [false, false, true, true, false]);
        assert_eq!(matching(Some(taken(0, 10, 8))), [false, true, false, true, false]);
        assert_eq!(matching(Some(taken(0, 0x10a, 7))), [false, false, false, true, false]);
        assert_eq!(matching(None), [false; 5]);
    }
}
