//! The departure times of what this host sends, compiled for the host and asked at any time.
//!
//! The C of the program `stamp` (`programs/depart.h` and what it uses) over memory instead of maps.
//!
//! Non-goals: filters, frames, what holds packets until then, and CPUs that are at it at the same
//! time: they take turns.
#![allow(unsafe_code)]

use super::Answer;
use crate::tree::layout::{CLASS_WORDS, CLASSES_MAX, Class};
use narrows_units::Nanos;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::ptr::NonNull;

#[cfg(test)]
mod tests;

/// `struct departures` of `stepped/departures.c`.
#[repr(C)]
struct Raw {
    _private: [u8; 0],
}

unsafe extern "C" {
    fn departures_new() -> *mut Raw;
    fn departures_free(of: *mut Raw);
    fn departures_class(of: *mut Raw, number: u32, class: *const [u64; CLASS_WORDS]);
    fn departures_ask(
        of: *mut Raw,
        now: u64,
        leaf: u32,
        cost: u64,
        hash: u32,
        host: u32,
        asked: u64,
        is_ecn: c_int,
        at: *mut u64,
    ) -> c_int;
}

/// A packet that wants to leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet {
    /// The number of its class.
    pub leaf: u32,
    /// What it is charged, in bytes.
    pub cost: u64,
    /// The hash of its flow.
    pub hash: u32,
    /// That of its host, for a class that shares among hosts.
    pub host: u32,
    /// The departure that its sender asked for; 0 for none.
    pub asked: Nanos,
    /// Whether the AQM may mark it.
    pub is_ecn: bool,
}

/// A tree of classes.
pub struct Departures {
    raw: NonNull<Raw>,
}

// SAFETY: the memory is this tree's own, and each call sets the current tree of its thread.
unsafe impl Send for Departures {}

impl Departures {
    /// With these classes by their numbers, which are below [`CLASSES_MAX`].
    ///
    /// # Panics
    /// If there is no memory, or a number is too large.
    pub fn new(classes: &BTreeMap<u32, Class>) -> Self {
        // SAFETY: allocates, and nothing else.
        let raw = NonNull::new(unsafe { departures_new() });
        let raw = raw.expect("there is memory for a tree");
        for (number, class) in classes {
            assert!(*number < CLASSES_MAX, "there is no class {number}");
            // SAFETY: `raw` is a tree, the number is one of its classes, and the words are as many
            // as `struct class` has.
            unsafe { departures_class(raw.as_ptr(), *number, &class.words()) };
        }
        Self { raw }
    }

    /// When `packet` departs that comes at `now`, and the AQM's answer; `None` if it is dropped.
    ///
    /// # Panics
    /// If there is no such class.
    pub fn ask(&mut self, now: Nanos, packet: &Packet) -> (Answer, Option<Nanos>) {
        let Packet { leaf, cost, hash, host, asked, is_ecn } = *packet;
        assert!(leaf < CLASSES_MAX, "there is no class {leaf}");
        let (mut at, is_ecn) = (0, c_int::from(is_ecn));
        let raw = self.raw.as_ptr();
        // SAFETY: `raw` is a tree, which `&mut` keeps from others, and the class is among its.
        let answer =
            unsafe { departures_ask(raw, now.0, leaf, cost, hash, host, asked.0, is_ecn, &mut at) };
        // No time is 0.
        (Answer::of(answer), (at != 0).then_some(Nanos(at)))
    }
}

impl Drop for Departures {
    fn drop(&mut self) {
        // SAFETY: it was made by `departures_new`, and has no other owner.
        unsafe { departures_free(self.raw.as_ptr()) };
    }
}
