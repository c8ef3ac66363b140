//! The overhead of a frame, in the words of `tbf`, `htb`, `stab` and `police`.

use crate::render::{Json, Line};
use crate::words::abbreviates;
use narrows_units::wire::{Framing, Overhead};
use std::fmt::Display;

/// The hint after a word that is not a link layer.
pub(crate) const FRAMING_HINT: &str = "the link layers are ethernet, atm, adsl and ptm";

/// The link layer that `word` names.
pub(crate) fn framing(word: &str) -> Option<Framing> {
    if abbreviates(word, "ethernet") {
        Some(Framing::Whole)
    } else if abbreviates(word, "atm") || abbreviates(word, "adsl") {
        Some(Framing::Atm)
    } else if abbreviates(word, "ptm") {
        Some(Framing::Ptm)
    } else {
        None
    }
}

/// The word for a link layer, as `linklayer` takes it.
pub fn framing_name(framing: Framing) -> &'static str {
    match framing {
        Framing::Whole => "ethernet",
        Framing::Atm => "atm",
        Framing::Ptm => "ptm",
    }
}

/// Prints the overhead of a frame, if any.
pub(crate) fn show_per_frame(overhead: &Overhead, line: &mut Line) {
    if overhead.per_frame != 0 {
        let bytes = u64::try_from(overhead.per_frame).unwrap_or(0);
        line.add("overhead", Json::Number(bytes), &format!("overhead {bytes} "));
    }
}

/// Prints the link layer, if it changes the length or `details` are wanted.
pub(crate) fn show_framing(overhead: &Overhead, details: bool, line: &mut Line) {
    if overhead.framing != Framing::Whole || details {
        let name = framing_name(overhead.framing);
        line.add("linklayer", Json::Text(name.to_owned()), &format!("linklayer {name} "));
    }
}

/// Adds the words that create it, as names and values.
pub(crate) fn save(overhead: &Overhead, add: &mut dyn FnMut(&str, &dyn Display)) {
    if overhead.per_frame != 0 {
        add("overhead", &overhead.per_frame);
    }
    if overhead.minimum != 0 {
        add("mpu", &overhead.minimum);
    }
    if overhead.framing != Framing::Whole {
        add("linklayer", &framing_name(overhead.framing));
    }
}
