//! The parameters of `red`, as an operator states them, and what `tc` derives from them.
//!
//! Source: `tc-red(8)`; iproute2's `tc_red.c` and `tc_core.c`.

use narrows_packet::Reading;
use narrows_units::Rate;

/// The scale of a probability: this is 1.
const ONE: f64 = 4_294_967_296.0;
/// `tc`'s unit of time in a microsecond: the kernel's clock ticks of 64 ns.
const TICKS_PER_MICRO: f64 = 15.625;
/// Entries of the table of idle time.
pub(super) const CELLS: usize = 256;
/// The most by which the table shifts.
const SHIFT_MAX: u8 = 31;

/// The parameters of an instance. Plain data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// How many bytes may be queued (`limit`): what the default inner qdisc holds.
    pub limit: u32,
    /// The average length in bytes from which packets are dropped (`min`),
    pub min: u32,
    /// and the one from which all are (`max`).
    pub max: u32,
    /// The average packet in bytes (`avpkt`): with `burst` and `bandwidth` it decides how slowly
    /// the average follows.
    pub avpkt: u32,
    /// How many packets may come at once before the average is above `min` (`burst`).
    pub burst: u32,
    /// The rate that the average assumes while the queue is empty (`bandwidth`).
    pub bandwidth: Rate,
    /// The probability at `max`, in 1/2^32 (`probability`).
    pub probability: u32,
    /// Whether packets that can be marked are, instead of dropped (`ecn`).
    pub ecn: bool,
    /// Whether they are dropped above `max` all the same (`harddrop`).
    pub harddrop: bool,
    /// Whether packets that cannot be marked are queued (`nodrop`).
    pub nodrop: bool,
    /// Whether the probability follows the load (`adaptive`).
    pub adaptive: bool,
    /// Which stream of random numbers it has: the queue.
    pub stream: u64,
}

/// Why no average can be kept with parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unfit {
    /// `max` is below `min`.
    Order,
    /// `probability` is too small for so wide a range, or too large.
    Probability,
    /// `burst` is too small: at least this many packets.
    Burst(u32),
    /// `burst` is so large that no average follows.
    Average,
    /// `bandwidth` is so low that no table covers it.
    Idle,
    /// A threshold is so large that its average does not fit 32 bits.
    Threshold,
}

impl Config {
    /// The probability of `share`, from 0 to 1.
    pub fn probability_of(share: f64) -> u32 {
        (share * ONE) as u32
    }

    /// The probability as a share of 1.
    pub fn share(&self) -> f64 {
        f64::from(self.probability) / ONE
    }

    /// How slowly the average follows: a packet counts for 1/2^this (`ewma` in `tc -d`).
    ///
    /// # Errors
    /// No such number from 1 to 31 fits `burst`.
    pub fn ewma(&self) -> Result<u8, Unfit> {
        let (min, avpkt) = (f64::from(self.min), f64::from(self.avpkt));
        let burst = f64::from(self.burst);
        let needed = burst + 1.0 - min / avpkt;
        if needed < 1.0 {
            return Err(Unfit::Burst(1 + self.min / self.avpkt.max(1)));
        }
        let reached = |log: u8| {
            let weight = 0.5f64.powi(i32::from(log));
            (1.0 - (1.0 - weight).powf(burst)) / weight
        };
        (1..32).find(|log| needed <= reached(*log)).ok_or(Unfit::Average)
    }

    /// The probability by byte above `min`, as a power of two (`Plog` in the kernel).
    ///
    /// # Errors
    /// There is none from 0 to 31, or `max` is below `min`.
    pub fn per_byte(&self) -> Result<u8, Unfit> {
        let range = self.max.checked_sub(self.min).ok_or(Unfit::Order)?;
        if range == 0 {
            return Ok(0);
        }
        let mut share = self.share() / f64::from(range);
        for log in 0..32 {
            if share > 1.0 {
                return Ok(log);
            }
            share *= 2.0;
        }
        Err(Unfit::Probability)
    }

    /// The time in which the average halves while the queue is empty, as a table: entry i is by
    /// how many bits it shifts after i cells of 2^`cell` microseconds.
    ///
    /// # Errors
    /// No cell up to 2^31 covers that time; or [`Config::ewma`]'s.
    pub fn idle(&self) -> Result<(u8, Box<[u8; CELLS]>), Unfit> {
        let log = self.ewma()?;
        let rate = self.bandwidth.bytes_per_sec() as f64;
        let ticks = (1e6 * f64::from(self.avpkt) / rate * TICKS_PER_MICRO).ceil();
        let halving = -(1.0 - 1.0 / f64::from(1u32 << log)).ln() / ticks;
        let longest = f64::from(SHIFT_MAX) / halving;
        let fits = |cell: &u8| longest / f64::from(1u32 << cell) < 512.0;
        let cell = (0..32).find(fits).ok_or(Unfit::Idle)?;
        let mut table = Box::new([0; CELLS]);
        for (at, shift) in table.iter_mut().enumerate().skip(1) {
            let cells = (at as u64) << cell;
            *shift = ((cells as f64 * halving) as u8).min(SHIFT_MAX);
        }
        table[CELLS - 1] = SHIFT_MAX;
        Ok((cell, table))
    }

    /// Checks that an average can be kept with these parameters.
    ///
    /// # Errors
    /// It cannot.
    pub fn check(&self) -> Result<(), Unfit> {
        self.per_byte()?;
        let log = u32::from(self.ewma()?);
        self.idle()?;
        let bits = |threshold: u32| u32::BITS - threshold.leading_zeros() + log;
        match bits(self.min) < u32::BITS && bits(self.max) < u32::BITS {
            true => Ok(()),
            false => Err(Unfit::Threshold),
        }
    }

    /// The packet fields that it reads.
    pub(crate) fn reading(&self) -> Reading {
        Reading { headers: self.ecn, ..Reading::NOTHING }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config {
            limit: 400_000,
            min: 30_000,
            max: 90_000,
            avpkt: 1000,
            burst: 55,
            bandwidth: Rate::from_bits_per_sec(10_000_000),
            probability: Config::probability_of(0.02),
            ecn: false,
            harddrop: false,
            nodrop: false,
            adaptive: false,
            stream: 0,
        }
    }

    #[test]
    fn the_example_of_the_manual_has_the_weight_that_tc_gives_it() {
        // As tc 6.1 sends it: tests/parity of the tc crate compares the bytes.
        let config = config();
        assert_eq!(config.ewma(), Ok(5));
        assert_eq!(config.check(), Ok(()));
        let (cell, table) = config.idle().unwrap();
        assert_eq!(table[0], 0);
        assert!(table.windows(2).all(|pair| pair[0] <= pair[1]), "{table:?}");
        assert!(cell > 0 && table[255] == 31);
    }

    #[test]
    fn what_no_average_fits_is_named() {
        let config = config();
        assert_eq!(Config { max: 20_000, ..config }.check(), Err(Unfit::Order));
        assert_eq!(Config { burst: 10, ..config }.check(), Err(Unfit::Burst(31)));
        assert_eq!(Config { probability: 0, ..config }.check(), Err(Unfit::Probability));
        let slow = Rate::from_bits_per_sec(8);
        assert_eq!(Config { bandwidth: slow, ..config }.check(), Err(Unfit::Idle));
        let probability = Config::probability_of(0.9);
        let huge = Config { min: 1 << 28, max: 1 << 29, burst: 400_000, probability, ..config };
        assert_eq!(huge.check(), Err(Unfit::Threshold));
    }
}
