//! What every calendar promises, with a list of what waits as the oracle.

mod bed;
mod promises;

use bed::Kind;
use narrows_qdisc::pacing::{Carousel, Eiffel, Mltw};
use narrows_units::Nanos;

/// Has each of them keep all promises.
macro_rules! calendars {
    ($($name:ident: $kind:expr;)*) => {
        $(mod $name {
            use super::*;
            promises::kept_by!($kind);
        })*
    };
}

fn carousel(granularity: u64, horizon: Nanos) -> Kind {
    let granularity = Nanos(granularity);
    Kind::even(granularity, move || Box::new(Carousel::new(granularity, horizon)))
}

fn eiffel(granularity: u64, horizon: Nanos) -> Kind {
    let granularity = Nanos(granularity);
    Kind::even(granularity, move || Box::new(Eiffel::new(granularity, horizon)))
}

fn mltw(slots: u32) -> Kind {
    Kind::spaced(move || Box::new(Mltw::new(slots)))
}

calendars! {
    carousel_of_nanoseconds: carousel(1, Nanos::from_micros(3));
    carousel_of_100_ns: carousel(100, Nanos::from_millis(1));
    carousel_of_long_slots: carousel(1 << 14, Nanos::from_secs(1));
    carousel_without_a_horizon: carousel(100, Nanos::ZERO);
    eiffel_of_nanoseconds: eiffel(1, Nanos::from_micros(3));
    eiffel_of_100_ns: eiffel(100, Nanos::from_millis(1));
    eiffel_of_long_slots: eiffel(1 << 14, Nanos::from_secs(1));
    eiffel_without_a_horizon: eiffel(100, Nanos::ZERO);
    mltw_of_64_slots: mltw(64);
    mltw_of_1024_slots: mltw(1024);
}
