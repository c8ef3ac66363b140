//! The active children of a class on one queue, in the order of link sharing.
//!
//! Of those that their upper limits let pass, the one with the least virtual time is next. The
//! others come at their fit times. A child that becomes active starts between the least and the
//! greatest virtual time of all, so that is kept, too.
//!
//! Cost: up to three tournaments of the children for each change.

use super::curve::is_before;
use super::winners::Winners;

/// The active children of one class, numbered by place.
#[derive(Default, Debug)]
pub(super) struct Children {
    /// By virtual time: those that may be served.
    fit: Winners,
    /// By fit time: the others.
    unfit: Winners,
    /// All, the greatest virtual time first.
    last: Winners,
    /// How many there are.
    count: u32,
}

impl Children {
    pub(super) fn make_room(&mut self, places: usize) {
        for winners in [&mut self.fit, &mut self.unfit, &mut self.last] {
            winners.make_room(places);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn has(&self, place: u32) -> bool {
        self.last.key(place).is_some()
    }

    /// The child at `place` is active, at this virtual time, and may be served from `fit_from` on.
    #[inline]
    pub(super) fn set(&mut self, place: u32, virtual_time: u64, fit_from: u64, now: u64) {
        self.count += u32::from(!self.has(place));
        self.last.set(place, !virtual_time);
        if fit_from <= now {
            self.unfit.remove(place);
            self.fit.set(place, virtual_time);
        } else {
            self.fit.remove(place);
            self.unfit.set(place, fit_from);
        }
    }

    /// The child at `place` is active no longer.
    #[inline]
    pub(super) fn remove(&mut self, place: u32) {
        self.count -= u32::from(self.has(place));
        for winners in [&mut self.fit, &mut self.unfit, &mut self.last] {
            winners.remove(place);
        }
    }

    /// The child that is next at `now`, and its virtual time.
    #[inline]
    pub(super) fn next(&mut self, now: u64) -> Option<(u32, u64)> {
        while let Some((place, fit_from)) = self.unfit.first()
            && fit_from <= now
        {
            self.unfit.remove(place);
            let time = self.virtual_time(place);
            self.fit.set(place, time);
        }
        self.fit.first()
    }

    /// The virtual time of the active child at `place`.
    #[inline]
    pub(super) fn virtual_time(&self, place: u32) -> u64 {
        self.last.key(place).map_or(0, |time| !time)
    }

    /// From when on any may be served; 0 for now, [`u64::MAX`] for never.
    #[inline]
    pub(super) fn fit_from(&self) -> u64 {
        match self.fit.first() {
            Some(_) => 0,
            None => self.unfit.first().map_or(u64::MAX, |(_, fit_from)| fit_from),
        }
    }

    /// The greatest virtual time.
    #[inline]
    pub(super) fn greatest(&self) -> Option<u64> {
        self.last.first().map(|(_, time)| !time)
    }

    /// The child that will be served first when the class `opens`, its virtual time, and from when
    /// on it may be served; 0 for now. Of those that their limits hold up until then, only the one
    /// that comes first counts.
    pub(super) fn first(&mut self, opens: u64, now: u64) -> Option<(u32, u64, u64)> {
        let fit = self.next(now).map(|(place, time)| (place, time, 0));
        let unfit = self.unfit.first();
        let unfit = unfit.map(|(place, fit_from)| (place, self.virtual_time(place), fit_from));
        match (fit, unfit) {
            (Some(fit), Some(unfit)) if unfit.2 <= opens && is_before(unfit.1, fit.1) => {
                Some(unfit)
            }
            (fit, unfit) => fit.or(unfit),
        }
    }
}
