//! What comes at a time, as a number of the calendar.

/// Something that comes at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Event {
    /// The leaf at this place asks again.
    Leaf(u32),
    /// The class of this wait queue lends again.
    Lends(u32),
    /// The ceiling of the class of this wait queue lets those in it pass again.
    Opens(u32),
    /// The ceiling of the class at this place lets those with credit of their own pass again.
    Releases(u32),
}

impl Event {
    const PLACE_BITS: u32 = 30;

    pub(super) const fn to_number(self) -> u32 {
        let (kind, place) = match self {
            Self::Leaf(place) => (0, place),
            Self::Lends(queue) => (1, queue),
            Self::Opens(queue) => (2, queue),
            Self::Releases(inner) => (3, inner),
        };
        kind << Self::PLACE_BITS | place
    }

    pub(super) const fn of_number(number: u32) -> Self {
        let place = number & ((1 << Self::PLACE_BITS) - 1);
        match number >> Self::PLACE_BITS {
            0 => Self::Leaf(place),
            1 => Self::Lends(place),
            2 => Self::Opens(place),
            _ => Self::Releases(place),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_what_its_number_says() {
        for place in [0, 7, (1 << 30) - 1] {
            let all = [Event::Leaf, Event::Lends, Event::Opens, Event::Releases];
            for event in all.map(|event| event(place)) {
                assert_eq!(Event::of_number(event.to_number()), event);
            }
        }
    }
}
