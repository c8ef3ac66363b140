//! The rates of classes: what their qdiscs say, and what the classes above leave of that.

use narrows_qdisc::{htb, tbf};
use narrows_units::wire::{Framing, Overhead};
use narrows_units::{Nanos, Rate};

/// The assured rate of a class that has none: negligible.
const NOTHING: Rate = Rate::from_bits_per_sec(8);

/// The rates of a class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rates {
    /// Assured.
    pub(crate) rate: Rate,
    /// Never exceeded.
    pub(crate) ceil: Rate,
    /// Credit after a pause.
    pub(crate) burst: Nanos,
    /// The charge of a frame.
    pub(crate) overhead: Overhead,
}

impl Rates {
    /// Those that a `tbf` says, with the charge of a frame there.
    pub(crate) fn of_tbf(tbf: &tbf::Config, overhead: Overhead) -> Self {
        let tbf::Config { rate, burst, .. } = *tbf;
        Self { rate, ceil: rate, burst: rate.time_for(burst), overhead }
    }

    /// Those that a class of an `htb` says, with the charge of a frame there.
    pub(crate) fn of_class(class: &htb::Class, overhead: Overhead) -> Self {
        let htb::Class { parent, rate, ceil, burst, cburst, .. } = *class;
        let rate = rate.min(ceil);
        match parent {
            Some(_) => Self { rate, ceil, burst: ceil.time_for(cburst), overhead },
            // It has no class of its qdisc to borrow from.
            None => Self { rate, ceil: rate, burst: rate.time_for(burst), overhead },
        }
    }
}

/// Where the rates of a class come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Own {
    /// It has these, as far as classes of other qdiscs above it let them pass.
    Says(Rates),
    /// It has those of the class above it, which lends them: next to nothing is assured.
    Lent,
    /// It has those of the class above it, and all of them are assured.
    Assured,
}

impl Own {
    /// The rates of a class below one with the rates `above`; `is_outermost` if that is of another
    /// qdisc. `None` if there is nothing to have.
    pub(crate) fn below(self, above: Option<Rates>, is_outermost: bool) -> Option<Rates> {
        match (self, above) {
            (Self::Says(rates), Some(above)) if is_outermost => Some(bounded(rates, &above)),
            (Self::Says(rates), _) => Some(rates),
            (Self::Lent, above) => above.map(|it| Rates { rate: NOTHING.min(it.ceil), ..it }),
            (Self::Assured, above) => above.map(|it| Rates { rate: it.ceil, ..it }),
        }
    }
}

/// `rates` below a class with the rates `above`.
fn bounded(mut rates: Rates, above: &Rates) -> Rates {
    rates.ceil = rates.ceil.min(above.ceil);
    rates.rate = rates.rate.min(rates.ceil);
    // A frame is charged once for all qdiscs on its way.
    let Overhead { per_frame, minimum, framing } = above.overhead;
    rates.overhead.per_frame = rates.overhead.per_frame.max(per_frame);
    rates.overhead.minimum = rates.overhead.minimum.max(minimum);
    if rates.overhead.framing == Framing::Whole {
        rates.overhead.framing = framing;
    }
    rates
}
