//! A kernel's routes as a program in the driver looks them up: an image, and numbered next hops.
//!
//! ```text
//!  notifications ─▶ Mirror ─┬─ tables: routes by prefix, a number each ─▶ image: address ─▶ number
//!                           └─ next hops by number ───────────────▶ array: number ─▶ MACs, port,
//!                           MTU
//! ```
//!
//! *Only what is plain.* Whatever the kernel decides by more than the longest prefix has the number
//! [`Number::ASK`], and a program asks the kernel then. So the image is never wrong where it
//! is silent, and whatever it does not know costs time, not packets.
//!
//! *Two steps.* Routes by the hundred thousand lead to a few next hops. A neighbour's new MAC
//! address, or a device that goes down, changes next hops and no image.
//!
//! *Attributes.* A route's realms and metric, by which filters choose classes, are its number's. So
//! a number is of a next hop with attributes. Realms are known also where the kernel is asked.
//!
//! Principles: no I/O, no clock. No message causes a panic.
//!
//! Non-goals: rules, VRFs, several next hops for a route (a program asks the kernel); choosing
//! routes among protocols (the kernel's routing daemons).

mod hops;
pub mod image;
mod mirror;
mod number;
mod route;
mod table;

pub use image::Family;
pub use mirror::{Changed, Mirror};
pub use number::Number;
pub use route::{Attributes, Device, Hop, Object, Route, Target, address_of, bits_of};
