//! A limit in front of a line whose rate changes: TCP through a `cake` whose rate somebody sets.
//!
//! *Idea.* The line is a queue and a rate that follows a schedule. Before it, or behind it for the
//! direction of a download, is a real `cake` of `tc` words; whenever the rules want another rate it
//! gets the words again. The rules see what a data plane sees: bytes, the backlog, round trips that
//! TCP's packets make, losses. Beside TCP a small packet goes the same way every 10 ms, as a call
//! does. What it waits, in the limit and in the line, is the added delay.
//!
//! *The rules* are [`narrows_autorate`]'s, those of [cake-autorate](peers), and the two rates that
//! need no rules: the least and the highest.
//!
//! *Non-goals.* Both directions at once; more than one bottleneck; a line that reorders.

mod engine;
mod line;
mod outcome;
mod peers;
mod receiver;
mod shaper;
mod traces;

pub use line::{Line, Step};
pub use outcome::Row;
pub use traces::trace;

use narrows_autorate::Side;
use narrows_units::{Bytes, Nanos, Rate};

/// Who sets the rate of the limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rules {
    /// [`narrows_autorate`].
    Narrows,
    /// Those of cake-autorate, see [`peers`].
    CakeAutorate,
    /// The least rate, always.
    Least,
    /// The highest rate, always.
    Most,
}

impl Rules {
    /// All of them, in the order of tables.
    pub const ALL: [Self; 4] = [Self::Narrows, Self::CakeAutorate, Self::Least, Self::Most];

    /// As tables have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Narrows => "autorate",
            Self::CakeAutorate => "as cake-autorate",
            Self::Least => "the least, fixed",
            Self::Most => "the most, fixed",
        }
    }
}

/// A scenario's parameters.
#[derive(Clone, PartialEq, Debug)]
pub struct Setup {
    /// The least rate that the rules may set.
    pub least: Rate,
    /// The rate to begin with.
    pub usual: Rate,
    /// The highest.
    pub most: Rate,
    /// TCP connections that always have data, with CUBIC.
    pub flows: u32,
    /// Their round trip on empty queues.
    pub rtt: Nanos,
    /// What the line's own queue holds.
    pub buffer: Bytes,
    /// How often rules are asked: those of `narrows_autorate`.
    pub turn: Nanos,
    /// Passes before counts.
    pub settle: Nanos,
    /// The length of a run.
    pub length: Nanos,
    /// The seed.
    pub seed: u64,
    /// The lines.
    pub lines: Vec<Line>,
}

/// A run: which line, on which side of it the limit is, and who sets the rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Case {
    /// The number of the line.
    pub line: usize,
    /// Where the limit is.
    pub side: Side,
    /// Who sets the rate.
    pub rules: Rules,
}

impl Setup {
    /// All runs.
    pub fn cases(&self) -> Vec<Case> {
        let lines = 0..self.lines.len();
        let sides = [Side::Before, Side::Behind];
        lines
            .flat_map(|line| sides.map(|side| (line, side)))
            .flat_map(|(line, side)| Rules::ALL.map(|rules| Case { line, side, rules }))
            .collect()
    }
}

/// Runs a case. Reports the finished part to `tell`.
///
/// # Errors
/// The message of `tc` if it refuses a rate.
pub fn run(setup: &Setup, case: &Case, tell: &mut dyn FnMut(f64)) -> Result<Row, String> {
    engine::Engine::new(setup, case)?.run(tell)
}

/// The same, and calls `each` every turn with the time, the rate of the line, the rate in force and
/// the added delay of the newest small packet: for charts.
///
/// # Errors
/// As [`run`].
pub fn observe(
    setup: &Setup,
    case: &Case,
    each: &mut dyn FnMut(Nanos, Rate, Rate, Nanos),
) -> Result<Row, String> {
    let mut engine = engine::Engine::new(setup, case)?;
    engine.observe(each);
    engine.run(&mut |_| ())
}
