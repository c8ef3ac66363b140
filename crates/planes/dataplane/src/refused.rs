//! Frames of descriptors that the kernel refused to send.
//!
//! The kernel counts such a descriptor (`tx_invalid_descs`) and forgets it: the frame never comes
//! back through the completion ring. Descriptors are checked before they are sent, so this takes a
//! bug or a device with limits of its own (fewer frames per packet, for one); but an instance that
//! runs for months must not lose a frame each time.
//!
//! The kernel does not say which frames they are. So all frames that are being sent are suspects.
//! Some seconds later, when a device has long sent what it has, the remaining suspects are
//! recovered if there are exactly as many as were refused. If the numbers differ, nothing is
//! recovered, and the next check starts over.

use crate::frames::Frames;
use narrows_forwarding::DeviceId;
use narrows_units::Nanos;

/// The longest that a device may take to send its frames.
const SENT_BY: Nanos = Nanos::from_secs(5);

/// The refused frames of one device.
#[derive(Clone, Copy, Default)]
pub(crate) struct Refused {
    taken_back: u64,
    /// Since when frames are suspected, and how many had been refused until then.
    suspicion: Option<(Nanos, u64)>,
}

impl Refused {
    /// Recovers refused frames of `device`, if possible at `now`; the kernel has refused `refused`
    /// in total. Cheap if it has refused none.
    pub(crate) fn look(&mut self, device: DeviceId, refused: u64, frames: &mut Frames, now: Nanos) {
        if refused <= self.taken_back {
            return;
        }
        match self.suspicion {
            None => {
                frames.suspect(device);
                self.suspicion = Some((now, refused));
            }
            Some((since, by_then)) if now - since >= SENT_BY => {
                if frames.take_back_suspects(device, by_then - self.taken_back) {
                    self.taken_back = by_then;
                }
                self.suspicion = None;
            }
            Some(_) => {}
        }
    }
}
