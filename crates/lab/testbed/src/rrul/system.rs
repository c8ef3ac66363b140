//! The compared systems, in the words that configure them.

use crate::bed::{PORT_A, PORT_B};
use narrows_units::{Nanos, Rate};

/// The bucket of the plain limit holds this much time at the limit: a tick of most kernels, the
/// recommended size.
const BURST: Nanos = Nanos::from_millis(4);
/// And as much at least, in bytes.
const BURST_MIN: u64 = 32_000;
/// Packets in the plain limit's queue: as many as a Linux device has had for decades.
const QUEUE: u32 = 1000;

/// A system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum System {
    /// Forwards and limits nothing.
    Unlimited,
    /// A token bucket over a first-in, first-out queue.
    Plain,
    /// CAKE with tins by mark.
    Cake,
    /// CAKE with a single tin.
    CakeBestEffort,
}

impl System {
    /// Those with a limit.
    pub(super) const LIMITED: [Self; 3] = [Self::Plain, Self::Cake, Self::CakeBestEffort];

    /// Its name in tables and JSON.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Unlimited => "no shaper",
            Self::Plain => "tbf + pfifo",
            Self::Cake => "cake diffserv4",
            Self::CakeBestEffort => "cake besteffort",
        }
    }

    /// Whether the targets apply to it.
    pub(super) const fn is_cake(self) -> bool {
        matches!(self, Self::Cake | Self::CakeBestEffort)
    }

    /// Whether it should treat all flows alike, regardless of their marks.
    pub(super) const fn heeds_no_marks(self) -> bool {
        !matches!(self, Self::Cake)
    }

    /// The words of `narrows tc` that put it at `limit` in place of any other, in both directions.
    pub(super) fn words(self, limit: Option<Rate>) -> Vec<String> {
        let mut words = Vec::new();
        for port in [PORT_B, PORT_A] {
            let root = format!("qdisc replace dev {port} root");
            // From nothing, so that no state of the previous one is kept.
            words.push(format!("{root} noqueue"));
            let Some(limit) = limit else { continue };
            let rate = format!("{}mbit", limit.bits_per_sec() / 1_000_000);
            match self {
                Self::Unlimited => {}
                Self::Plain => {
                    let burst = limit.bytes_in(BURST).0.max(BURST_MIN);
                    words.push(format!(
                        "{root} handle 1: tbf rate {rate} burst {burst} latency 400ms"
                    ));
                    words.push(format!(
                        "qdisc replace dev {port} parent 1:1 handle 2: pfifo limit {QUEUE}"
                    ));
                }
                Self::Cake => words.push(format!("{root} cake bandwidth {rate} diffserv4")),
                Self::CakeBestEffort => {
                    words.push(format!("{root} cake bandwidth {rate} besteffort"));
                }
            }
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_are_limited_alike() {
        let limit = Some(Rate::from_bits_per_sec(20_000_000));
        let words = System::Plain.words(limit);
        assert_eq!(words.len(), 6);
        for port in [PORT_A, PORT_B] {
            let tbf = format!("dev {port} root handle 1: tbf rate 20mbit burst 32000 latency");
            assert!(words.iter().any(|line| line.contains(&tbf)), "{words:?}");
        }
        let cake = System::Cake.words(limit).concat();
        assert_eq!(cake.matches("cake bandwidth 20mbit diffserv4").count(), 2, "{cake}");
        assert!(System::Unlimited.words(None).iter().all(|line| line.ends_with("noqueue")));
    }
}
