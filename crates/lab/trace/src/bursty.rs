//! Bursty traffic, made from published distributions.
//!
//! *Idea.* What makes traffic bursty is that connections begin at any time, that few of them carry
//! most bytes, and that each sends a window at once and then waits for a round trip. So connections
//! arrive at random, transfer sizes that are heavy-tailed, and send trains that double from ten
//! segments on, as fast as a sender's line allows. Long transfers overlap for seconds, so the rate
//! varies on each scale of time, from a train to the whole trace.
//!
//! One connection of four is a transfer in the other direction: of it only the acknowledgements
//! pass, one for two segments.
//!
//! *Non-goals.* Congestion control beyond slow start: a trace is played, whatever is lost of it.
//!
//! Source: sizes are those of web search in M. Alizadeh et al., "Data Center TCP (DCTCP)" (SIGCOMM
//! 2010); Poisson arrivals as in V. Paxson and S. Floyd, "Wide-Area Traffic: The Failure of Poisson
//! Modeling" (ToN 1995), which finds that sessions are, and packets are not; trains of ten segments
//! at first: RFC 6928. Round trips of 5 to 100 ms, equally likely on each scale, are our choice.

use super::{Builder, Sizes, Trace};
use narrows_units::{Nanos, Rate};
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp1};
use rand_pcg::Pcg64;

/// Parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bursty {
    /// The mean rate over a long time; that of one trace is another.
    pub rate: Rate,
    /// How long it takes.
    pub length: Nanos,
    /// Everything random follows from it.
    pub seed: u64,
}

/// Why there is no such traffic.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BurstyError {
    /// It would be too many frames, with those of transfers that began before.
    #[error("too many frames: write a lower rate, or less time")]
    TooMany,
    /// Nothing comes in that time, or one frame.
    #[error("nothing comes: write a higher rate, or more time")]
    Nothing,
}

/// Segments of a transfer, and which part of all transfers has no more.
const SIZES: [(u64, f64); 12] = [
    (1, 0.0),
    (6, 0.15),
    (13, 0.2),
    (19, 0.3),
    (33, 0.4),
    (53, 0.53),
    (133, 0.6),
    (667, 0.7),
    (1_333, 0.8),
    (3_333, 0.9),
    (6_667, 0.97),
    (20_000, 1.0),
];
/// Segments of the first train, and the most of one.
const TRAINS: (u32, u32) = (10, 256);
/// How fast a train leaves its sender.
const LINE: Rate = Rate::from_bits_per_sec(1_000_000_000);
/// From the shortest round trip to the longest.
const ROUND_TRIPS: (f64, f64) = (5e6, 100e6);
/// Before the trace, so that long transfers are under way when it begins.
const BEFORE: Nanos = Nanos::from_secs(8);
/// The most frames that are made, those before the trace included.
const MADE_MAX: f64 = 2e6;
const HOSTS: u32 = 250;
const SEGMENT: u32 = 1_514;
const ACKNOWLEDGEMENT: u32 = 66;
/// One of so many connections only acknowledges.
const OTHER_WAY: u32 = 4;

impl Trace {
    /// Bursty traffic.
    ///
    /// # Errors
    /// A rate or a length at which there would be no two frames, or too many.
    pub fn bursty(Bursty { rate, length, seed }: Bursty) -> Result<Self, BurstyError> {
        let end = BEFORE.0 as f64 + length.0 as f64;
        let expected = rate.bits_per_sec() as f64 * end / 8e9 / f64::from(SEGMENT);
        if expected > MADE_MAX {
            return Err(BurstyError::TooMany);
        }
        // The points grow up to 1, as a test sees.
        let sizes = Sizes::new(&SIZES).expect("the sizes are a distribution");
        let mut chance = Pcg64::seed_from_u64(seed);
        let interval = mean_bytes(&sizes) * 8e9 / rate.bits_per_sec() as f64;
        let mut frames: Vec<(u64, u32, Connection)> = Vec::new();
        let mut at = 0.0;
        loop {
            let gap: f64 = Exp1.sample(&mut chance);
            at += gap * interval;
            // Without a rate the first one never comes.
            if at >= end || at.is_nan() {
                break;
            }
            let connection = Connection::new(&sizes, &mut chance);
            connection.send(at, &mut |at, len| {
                let inside = (BEFORE.0 as f64..end).contains(&at);
                if inside {
                    frames.push((at as u64 - BEFORE.0, len, connection));
                }
                at < end
            });
        }
        frames.sort_by_key(|(at, ..)| *at);
        let mut builder = Builder::new();
        for (at, len, connection) in frames {
            builder.add(Nanos(at), len, &connection.headers(len));
        }
        builder.finish().ok_or(BurstyError::Nothing)
    }
}

/// Bytes that a connection with `sizes` segments sends on average.
fn mean_bytes(sizes: &Sizes) -> f64 {
    let (segments, acknowledging) = (sizes.mean(), 1.0 / f64::from(OTHER_WAY));
    segments * (1.0 - acknowledging) * f64::from(SEGMENT)
        + segments / 2.0 * acknowledging * f64::from(ACKNOWLEDGEMENT)
}

/// A connection.
#[derive(Clone, Copy)]
struct Connection {
    segments: u32,
    round_trip: f64,
    acknowledges: bool,
    hosts: [u8; 2],
    port: u16,
}

impl Connection {
    fn new(sizes: &Sizes, chance: &mut Pcg64) -> Self {
        let segments = sizes.draw(chance);
        let scale: f64 = chance.random();
        let (shortest, longest) = ROUND_TRIPS;
        Self {
            segments: segments as u32,
            round_trip: shortest * (longest / shortest).powf(scale),
            acknowledges: chance.random_range(0..OTHER_WAY) == 0,
            hosts: [(); 2].map(|()| chance.random_range(1..=HOSTS) as u8),
            port: chance.random_range(1_024..=u16::MAX),
        }
    }

    /// Sends everything from `at` on, until `frame` says that it is enough.
    fn send(&self, mut at: f64, frame: &mut impl FnMut(f64, u32) -> bool) {
        let apart = f64::from(SEGMENT) * 8e9 / LINE.bits_per_sec() as f64;
        let (mut train, longest) = TRAINS;
        let mut left = self.segments;
        while left > 0 {
            let now = train.min(left);
            for number in 0..now {
                let at = at + apart * f64::from(number);
                let goes_on = match self.acknowledges {
                    false => frame(at, SEGMENT),
                    true if number % 2 == 1 || number + 1 == now => frame(at, ACKNOWLEDGEMENT),
                    true => true,
                };
                if !goes_on {
                    return;
                }
            }
            left -= now;
            at += self.round_trip.max(apart * f64::from(now));
            train = (train * 2).min(longest);
        }
    }

    /// The headers of a frame of `len` bytes: Ethernet, IPv4, TCP.
    fn headers(&self, len: u32) -> [u8; 54] {
        let mut bytes = [0; 54];
        bytes[12..14].copy_from_slice(&[0x08, 0x00]);
        let ip = &mut bytes[14..34];
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&(len as u16 - 14).to_be_bytes());
        // A time to live, and TCP.
        ip[8..10].copy_from_slice(&[64, 6]);
        ip[12..16].copy_from_slice(&[10, 1, 0, self.hosts[0]]);
        ip[16..20].copy_from_slice(&[10, 2, 0, self.hosts[1]]);
        let sum: u32 =
            ip.chunks_exact(2).map(|it| u32::from(u16::from_be_bytes([it[0], it[1]]))).sum();
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        bytes[34..36].copy_from_slice(&443_u16.to_be_bytes());
        bytes[36..38].copy_from_slice(&self.port.to_be_bytes());
        // Five words of header, and the flag that acknowledges.
        bytes[46..48].copy_from_slice(&[0x50, 0x10]);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: Bursty =
        Bursty { rate: Rate::from_bits_per_sec(200_000_000), length: Nanos::from_secs(4), seed: 1 };

    #[test]
    fn a_trace_follows_from_its_seed_and_has_about_its_rate() {
        let trace = Trace::bursty(MODEL).unwrap();
        assert_eq!(Trace::bursty(MODEL), Ok(trace));
        let rates = (1..=8).map(|seed| {
            let trace = Trace::bursty(Bursty { seed, ..MODEL }).unwrap();
            trace.rate().bits_per_sec() as f64
        });
        let mean = rates.sum::<f64>() / 8.0;
        let off = mean / MODEL.rate.bits_per_sec() as f64;
        assert!((0.75..1.25).contains(&off), "{off}");
    }

    #[test]
    fn what_would_be_nothing_or_without_end_is_refused() {
        let rate = Rate::from_bits_per_sec;
        for (rate, length, why) in [
            (rate(0), MODEL.length, BurstyError::Nothing),
            (MODEL.rate, Nanos::ZERO, BurstyError::Nothing),
            (rate(u64::MAX), MODEL.length, BurstyError::TooMany),
            (MODEL.rate, Nanos::MAX, BurstyError::TooMany),
        ] {
            assert_eq!(
                Trace::bursty(Bursty { rate, length, ..MODEL }),
                Err(why),
                "{rate} {length}"
            );
        }
    }

    /// The variance of the rate of Poisson packets falls with the length of a window; here it falls
    /// much less.
    #[test]
    fn the_rate_varies_on_every_scale() {
        let trace = Trace::bursty(MODEL).unwrap();
        let index_of_dispersion = |window: Nanos| {
            let count = (MODEL.length.0 / window.0) as usize;
            let mut packets = vec![0.0; count];
            for frame in trace.frames() {
                if let Some(place) = packets.get_mut((frame.at.0 / window.0) as usize) {
                    *place += 1.0;
                }
            }
            let mean = packets.iter().sum::<f64>() / count as f64;
            packets.iter().map(|it| (it - mean).powi(2)).sum::<f64>() / count as f64 / mean
        };
        // 1 for a Poisson process, whatever the window.
        let [short, long] = [1, 100].map(|ms| index_of_dispersion(Nanos::from_millis(ms)));
        assert!(short > 3.0 && long > 3.0 * short, "{short} {long}");
    }

    #[test]
    fn some_frames_are_long_and_some_are_acknowledgements() {
        let trace = Trace::bursty(MODEL).unwrap();
        let small = trace.frames().iter().filter(|it| it.len == ACKNOWLEDGEMENT).count() as f64;
        let part = small / trace.frames().len() as f64;
        assert!((0.03..0.4).contains(&part), "{part}");
        assert!(trace.frames().iter().all(|it| [ACKNOWLEDGEMENT, SEGMENT].contains(&it.len)));
        assert!(trace.flows().len() > 40, "{}", trace.flows().len());
    }
}
