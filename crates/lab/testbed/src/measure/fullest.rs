//! The fullest window of what arrived.

use narrows_units::Nanos;

/// The most bytes within `window` of frames, each with the time at which it arrived, in order.
pub(crate) fn most_within(frames: &[(Nanos, u64)], window: Nanos) -> u64 {
    let (mut first, mut within, mut most) = (0, 0, 0);
    for (at, bytes) in frames {
        within += bytes;
        while at.since(frames[first].0) >= window {
            within -= frames[first].1;
            first += 1;
        }
        most = most.max(within);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fullest_window_is_found_wherever_it_begins() {
        let frames = [(0, 5), (4, 5), (9, 5), (12, 5), (30, 9)].map(|(at, len)| (Nanos(at), len));
        assert_eq!(most_within(&frames, Nanos(10)), 15);
        assert_eq!(most_within(&frames, Nanos(1)), 9);
        assert_eq!(most_within(&frames, Nanos(100)), 29);
        assert_eq!(most_within(&[], Nanos(10)), 0);
    }
}
