//! The subjects of a fleet, of which each box may use its own only.
//!
//! | subject | from whom, to whom |
//! | --- | --- |
//! | `narrows.FLEET.FROM.all` | from a box, to all |
//! | `narrows.FLEET.FROM.to.BOX` | from a box, to another |
//!
//! *Who sent a message is a token of its subject*, never a field of the message: the engine's
//! permissions allow a box to publish below its own name only, so no box can speak for another.

use crate::name::Name;

/// The first token of all subjects.
const ROOT: &str = "narrows";

/// The subjects that the box `me` of a fleet uses.
#[derive(Clone, Debug)]
pub struct Subjects {
    fleet: Name,
    me: Name,
}

impl Subjects {
    /// Those of the box `me` of `fleet`.
    pub fn new(fleet: Name, me: Name) -> Self {
        Self { fleet, me }
    }

    /// Where to publish what is for all others, or for the box `to`.
    pub fn to(&self, to: Option<&str>) -> String {
        let (fleet, me) = (&self.fleet, &self.me);
        match to {
            None => format!("{ROOT}.{fleet}.{me}.all"),
            Some(to) => format!("{ROOT}.{fleet}.{me}.to.{to}"),
        }
    }

    /// To which to subscribe: what is for all, and what is for this box.
    pub fn heard(&self) -> [String; 2] {
        let (fleet, me) = (&self.fleet, &self.me);
        [format!("{ROOT}.{fleet}.*.all"), format!("{ROOT}.{fleet}.*.to.{me}")]
    }

    /// All to which this box may publish.
    pub fn own(&self) -> String {
        format!("{ROOT}.{}.{}.>", self.fleet, self.me)
    }

    /// The sender of a message with `subject`; none if it is no subject of this fleet.
    pub fn sender<'a>(&self, subject: &'a str) -> Option<&'a str> {
        let mut tokens = subject.split('.');
        let is_ours = tokens.next() == Some(ROOT) && tokens.next() == Some(self.fleet.as_str());
        tokens.next().filter(|_| is_ours)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(me: &str) -> Subjects {
        Subjects::new("edge".parse().unwrap(), me.parse().unwrap())
    }

    #[test]
    fn the_sender_is_who_may_publish_there() {
        let [to_all, to_one] = [of("a").to(None), of("a").to(Some("b"))];
        assert_eq!(of("b").sender(&to_all), Some("a"));
        assert_eq!(of("b").sender(&to_one), Some("a"));
        let own = of("a").own();
        let below = own.strip_suffix('>').unwrap();
        assert!(to_all.starts_with(below) && to_one.starts_with(below), "{own}");
    }

    #[test]
    fn other_fleets_have_no_senders() {
        for subject in ["", "narrows", "narrows.core.a.all", "other.edge.a.all"] {
            assert_eq!(of("b").sender(subject), None, "{subject}");
        }
    }
}
