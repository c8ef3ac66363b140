//! The rate of a limit in front of a line whose rate changes.
//!
//! *Idea.* A limit keeps the queue in front of a line here, where it is short and fair, as long as
//! its rate is slightly below the line's. LTE, 5G, satellites, cable and radio change their rate
//! and do not say so. A [`Controller`] finds the rate of one direction from what a forwarder sees
//! anyway: round trips of other people's packets, bytes, losses.
//!
//! *Rules*, once a turn (50 ms):
//!
//! 1. *Delay.* The base of a path is the shortest round trip of the last half minute. What a trip
//!    took more than that is its *excess* ([`Baselines`]). LEDBAT (RFC 6817, section 3.4.2) and
//!    cake-autorate have such bases, too. The excess of a turn is the median over its paths.
//! 2. *Cut.* An excess above [`DELAY`], or above the line's usual jitter, while this direction is
//!    loaded, is a queue in front of the line: the rate is above the line's. What a line with a
//!    queue delivers *is* its rate, as BBR uses it. Behind the line (download) that is the rate of
//!    arrivals. Before it (upload) only what was sent is known; a queue that grows by `g` seconds
//!    a second says that the line has `sent / (1 + g)`. The new rate is slightly below that.
//! 3. *Drain.* The queue that stands there leaves only while less comes than the line carries. So
//!    the rate stays below the line's for as long as the queue needs to leave, and is then the new
//!    rate. Trips that were under way at the cut say nothing new; until then nothing is decided.
//! 4. *Rise.* While the limit binds and there is no excess, the rate rises: slowly near the rate at
//!    which the line was full last, and faster and faster beyond, as CUBIC (RFC 9438) does. It
//!    stops rising at half of the excess that cuts.
//! 5. *Loss.* A line with a short buffer, or a policer, loses instead of delaying. If more than
//!    [`LOSS`] of the segments of half a second are lost beyond, the line delivered the others:
//!    that is its rate.
//! 6. *Another path.* If two cuts in a row do not shorten the excess, it is not a queue of this
//!    limit: a satellite or a route has changed. The bases move up by the excess and the rate
//!    returns to the one before the cuts.
//! 7. *Idle.* A limit that does not bind says nothing about the line. The rate holds for
//!    [`IDLE_AFTER`]; then it returns slowly to the configured one, as that of cake-autorate.
//!
//! *Two directions.* A round trip has both in it. The excess is charged to a direction that is
//! loaded. If both are, then to the one that the line holds back: behind the line, arrivals are
//! below the limit without a backlog here; then the other one waits for a few turns.
//!
//! *Principles.* No clock, no I/O: a turn is an argument. Any numbers are taken; the rate is always
//! within its [`Bounds`].
//!
//! *Probes.* Where nothing that passes makes round trips, hosts that the operator names are asked
//! for echoes ([`Probes`]).
//!
//! *Non-goals.* Finding the rate of a line that nobody loads; sending; delays that the
//! line has whether it is loaded or not.

mod baselines;
mod controller;
mod history;
mod probes;

pub use baselines::{Baselines, PATHS, Trip};
pub use controller::{
    Bounds, Controller, DELAY, Decision, Found, GLANCE, IDLE_AFTER, LOSS, Reason, Side, TURN, Turn,
};
pub use probes::{Answer, Probes, Question};
