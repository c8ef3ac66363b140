//! The guarantees for every epoch, and which of them were broken.

use super::epoch::OneWay;
use super::fault::Kind;
use std::time::Duration;

/// Reasons for which a qdisc drops packets by its configuration.
const BY_POLICY: [&str; 5] = ["limit", "aqm", "horizon", "too_long", "acknowledged"];
/// The reason of a queue that has used up all frames.
const NO_FRAME: &str = "no_frame";

/// The broken guarantees, in words.
pub(super) fn broken(kind: Kind, outage: Option<Duration>, ways: &[OneWay; 2]) -> Vec<String> {
    let mut broken = Vec::new();
    for one in ways {
        let mut say = |what: String| broken.push(format!("{:?}: {what}", one.way).to_lowercase());
        if one.books.unaccounted > 0 {
            say(format!("{} packets unaccounted", one.books.unaccounted));
        }
        if one.doubled > 0 {
            say(format!("{} packets arrived more than once", one.doubled));
        }
        if one.misled > 0 {
            say(format!("{} packets by a route that was not in force", one.misled));
        }
        if one.normal_reordered > 0 {
            let n = one.normal_reordered;
            say(format!("{n} packets out of their flow's order in normal operation"));
        }
        for fullest in one.fullest.iter().filter(|fullest| fullest.exceeded) {
            say(format!(
                "{:.1} % of what the limit passes in {} ms",
                fullest.percent, fullest.window_ms
            ));
        }
        if kind.is_seamless() && one.reordered > one.normal_reordered {
            let n = one.reordered - one.normal_reordered;
            say(format!("{n} packets out of their flow's order around the fault"));
        }
        if let Some(bound) = outage.filter(|bound| one.outage_ms > bound.as_secs_f64() * 1e3) {
            say(format!("an outage of {:.0} ms, above {}", one.outage_ms, bound.as_millis()));
        }
        let dropped = |reason: &str| {
            one.books.lost.get(&format!("narrows: {reason}")).copied().unwrap_or_default()
        };
        let by_policy: u64 = BY_POLICY.into_iter().map(dropped).sum();
        if one.normal_missing > by_policy {
            say(format!(
                "{} packets missing in normal operation, {by_policy} dropped by policy",
                one.normal_missing
            ));
        }
        if dropped(NO_FRAME) > 0 && !one.is_flooded {
            say(format!("{} packets dropped for want of a frame, unflooded", dropped(NO_FRAME)));
        }
        let all: u64 = one.books.lost.values().sum();
        let of_narrows =
            one.books.lost.iter().filter(|(reason, _)| reason.starts_with("narrows: "));
        let by_narrows: u64 = of_narrows.map(|(_, n)| n).sum();
        if kind.is_seamless() && by_narrows > by_policy {
            say(format!("{} packets dropped, and not by policy", by_narrows - by_policy));
        }
        if kind == Kind::Calm && all > by_narrows {
            say(format!("{} packets lost in calm outside of narrows", all - by_narrows));
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::books::Books;
    use crate::chaos::frame::Way;
    use crate::chaos::limit::Fullest;

    fn good(way: Way) -> OneWay {
        OneWay {
            way,
            is_flooded: false,
            books: Books::default(),
            outage_ms: 4.0,
            fullest: [Fullest::default(); 3],
            normal: 1000,
            normal_missing: 0,
            normal_reordered: 0,
            reordered: 0,
            doubled: 0,
            misled: 0,
        }
    }

    /// The broken guarantees after `spoilt` has changed the way back.
    fn with(kind: Kind, spoilt: impl FnOnce(&mut OneWay)) -> Vec<String> {
        let mut ways = Way::BOTH.map(good);
        spoilt(&mut ways[1]);
        broken(kind, Some(Duration::from_millis(100)), &ways)
    }

    fn lost(one: &mut OneWay, reason: &str, n: u64) {
        one.books.lost.insert(reason.to_owned(), n);
    }

    #[test]
    fn a_good_epoch_breaks_nothing() {
        assert!(with(Kind::Calm, |_| ()).is_empty());
        assert!(with(Kind::Calm, |one| lost(one, "narrows: limit", 7)).is_empty());
        assert!(with(Kind::Kill, |one| lost(one, "sender's device", 7)).is_empty());
        assert!(with(Kind::Kill, |one| lost(one, "narrows: port_gone", 7)).is_empty());
        assert!(with(Kind::Kill, |one| one.reordered = 7).is_empty());
    }

    #[test]
    fn every_promise_can_be_broken() {
        type Spoil = fn(&mut OneWay);
        let spoilt: [(Kind, Spoil, &str); 11] = [
            (Kind::Kill, |one| one.books.unaccounted = 1, "back: 1 packets unaccounted"),
            (Kind::Kill, |one| one.doubled = 2, "more than once"),
            (Kind::Kill, |one| one.misled = 2, "2 packets by a route that was not in force"),
            (Kind::Kill, |one| one.normal_reordered = 3, "order"),
            (Kind::Kill, |one| one.fullest[1].exceeded = true, "the limit passes"),
            (Kind::Upgrade, |one| one.reordered = 3, "order around the fault"),
            (Kind::Upgrade, |one| lost(one, "narrows: port_gone", 5), "5 packets dropped, and not"),
            (Kind::Kill, |one| one.outage_ms = 101.0, "an outage of 101 ms"),
            (Kind::Kill, |one| one.normal_missing = 4, "4 packets missing in normal operation"),
            (Kind::Kill, |one| lost(one, "narrows: no_frame", 5), "want of a frame"),
            (Kind::Calm, |one| lost(one, "sender's device", 6), "6 packets lost in calm"),
        ];
        for (kind, spoil, said) in spoilt {
            let broken = with(kind, spoil);
            assert_eq!(broken.len(), 1, "{broken:?}");
            assert!(broken[0].contains(said), "{broken:?} does not say {said}");
        }
    }

    #[test]
    fn a_flooded_way_may_run_out_of_frames() {
        let broken = with(Kind::AddressFlood, |one| {
            one.is_flooded = true;
            lost(one, "narrows: no_frame", 5);
        });
        assert!(broken.is_empty(), "{broken:?}");
    }
}
