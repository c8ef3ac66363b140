//! Frames of descriptors that the kernel refused to send.
//!
//! It counts such a descriptor (`tx_invalid_descs`) and forgets it: the frame never comes back
//! through the completion ring. What is sent here is checked, so that this takes a fault or a
//! device with limits of its own (fewer frames a packet, for one); but an instance that runs for
//! months must not lose a frame each time.
//!
//! Which frames they are the kernel does not say. So all frames that are being sent are suspected,
//! and some seconds later, when a device has long sent what it has, those that are left and are
//! exactly as many as were refused are taken back. Where the numbers differ, nothing is, and the
//! next look begins anew.

use crate::frames::Frames;
use narrows_shaper::Side;
use narrows_units::Nanos;

/// How long a device may take to send what it was given, at the very most.
const SENT_BY: Nanos = Nanos::from_secs(5);

/// What was refused at one port.
#[derive(Clone, Copy, Default)]
pub(crate) struct Refused {
    taken_back: u64,
    /// Since when frames are suspected, and how many had been refused until then.
    suspicion: Option<(Nanos, u64)>,
}

impl Refused {
    /// Looks, at `now`, after frames that were to leave at `egress`, where the kernel has refused
    /// `refused` in all. Cheap where it has refused none.
    pub(crate) fn look(&mut self, egress: Side, refused: u64, frames: &mut Frames, now: Nanos) {
        if refused <= self.taken_back {
            return;
        }
        match self.suspicion {
            None => {
                frames.suspect(egress);
                self.suspicion = Some((now, refused));
            }
            Some((since, by_then)) if now - since >= SENT_BY => {
                if frames.take_back_suspects(egress, by_then - self.taken_back) {
                    self.taken_back = by_then;
                }
                self.suspicion = None;
            }
            Some(_) => {}
        }
    }
}
