//! The demo's results, as a table and as JSON.

use super::super::SETTLING;
use super::super::load::{Event, Sent};
use super::super::phase::PHASES;
use super::super::provider::{self, LEAVES, Node};
use super::super::share::Share;
use crate::accounting::Direction;
use crate::table;
use narrows_units::Nanos;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// How long the steps of the plotted series are.
pub(super) const STEP: Nanos = Nanos::from_millis(100);
/// A sender that offered this part of its load was not disturbed.
const UNDISTURBED: f64 = 0.98;

/// A class of the tree, and its rates.
#[derive(Clone, Debug, Serialize)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// Its number.
    pub classid: String,
    /// How many classes are above it.
    pub depth: usize,
    /// Its assured rate.
    pub rate_bps: u64,
    /// The rate that it never exceeds.
    pub ceil_bps: u64,
    /// The priority of leaves for borrowing.
    pub prio: Option<u8>,
    /// Its rates, in the order of the phases.
    pub phases: Vec<Share>,
    /// Its number among the leaves, if it is one.
    #[serde(skip)]
    pub(super) leaf: Option<usize>,
}

/// The delivered rates over time.
#[derive(Clone, Debug)]
pub(super) struct Series {
    /// For each step, what arrived of each leaf, in bits per second.
    pub(super) steps: Vec<[f64; LEAVES]>,
}

impl Series {
    /// The series of the arrivals `arrived` in the time `total` since the sender started.
    pub(super) fn of(sent: &Sent, arrived: &[Event], total: Duration) -> Self {
        let steps = total.as_nanos() as u64 / STEP.0;
        let mut series = Self { steps: vec![[0.0; LEAVES]; steps as usize] };
        for frame in arrived {
            let Some(since) = frame.at.0.checked_sub(sent.began.0) else { continue };
            let leaf = usize::from(frame.leaf);
            if let Some(step) = series.steps.get_mut((since / STEP.0) as usize) {
                let bits = provider::frame_bytes(leaf) as f64 * 8.0;
                step[leaf] += bits / STEP.as_secs_f64();
            }
        }
        series
    }
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The names of the phases.
    pub phases: Vec<&'static str>,
    /// The classes, each before those below it.
    pub classes: Vec<Class>,
    /// The largest deviation of a class in a phase from its due rate.
    pub worst_percent: f64,
    /// The class and phase of that.
    pub worst: String,
    /// The part of its load that the most disturbed sender offered, in percent.
    pub least_asked_percent: f64,
    /// The words of `narrows tc` that made the tree.
    pub commands: Vec<String>,
    /// Where the frames went, client to server and back.
    pub directions: [Direction; 2],
    /// Unaccounted frames, both directions together.
    pub unaccounted: u64,
    #[serde(skip)]
    pub(super) series: Series,
}

impl Report {
    pub(super) fn new(
        nodes: &[Node],
        phases: &[Vec<Share>],
        commands: Vec<String>,
        directions: [Direction; 2],
        series: Series,
    ) -> Self {
        let class = |(number, node): (usize, &Node)| Class {
            name: node.name.clone(),
            classid: format!("1:{:x}", node.id),
            depth: node.depth,
            rate_bps: node.class.rate.bits_per_sec(),
            ceil_bps: node.class.ceil.bits_per_sec(),
            prio: node.leaf.map(|_| node.class.prio),
            phases: phases.iter().map(|shares| shares[number]).collect(),
            leaf: node.leaf,
        };
        let classes: Vec<Class> = nodes.iter().enumerate().map(class).collect();
        let of_all = || {
            let cells = |class: &Class| class.phases.clone().into_iter().zip(PHASES).collect();
            classes.iter().flat_map(move |class| {
                let cells: Vec<_> = cells(class);
                cells.into_iter().map(move |(share, phase)| (class, phase.name, share))
            })
        };
        let off = |share: &Share| share.off_percent().map(f64::abs);
        let worst = of_all()
            .filter_map(|(class, phase, share)| Some((off(&share)?, class, phase)))
            .max_by(|a, b| a.0.total_cmp(&b.0));
        let (worst_percent, worst) = worst.map_or((0.0, String::new()), |(off, class, phase)| {
            (off, format!("{}, {phase}", class.name))
        });
        let offered = of_all()
            .filter(|(class, _, share)| class.leaf.is_some() && share.wanted_bps > 0.0)
            .map(|(_, _, share)| share.asked_bps / share.wanted_bps);
        Self {
            phases: PHASES.iter().map(|phase| phase.name).collect(),
            worst_percent,
            worst,
            least_asked_percent: offered.fold(1.0, f64::min) * 100.0,
            commands,
            unaccounted: directions.iter().map(|way| way.unaccounted().unsigned_abs()).sum(),
            directions,
            series,
            classes,
        }
    }
}

/// Mbit/s to three digits or so.
fn mbit(bps: f64) -> String {
    match bps / 1e6 {
        none if none <= 0.0 => "-".to_owned(),
        small if small < 9.995 => format!("{small:.2}"),
        large => format!("{large:.1}"),
    }
}

/// The tables, their explanation, and the summary line.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = ["class", "rate", "ceil", "prio"].map(str::to_owned);
        let phases = self.phases.iter().map(|phase| format!("{phase}: asked/due/delivered"));
        let mut table = table::of_figures(0, header.into_iter().chain(phases).collect::<Vec<_>>());
        for class in &self.classes {
            let indent = "  ".repeat(class.depth);
            let row = [
                format!("{indent}{}", class.name),
                (class.rate_bps / 1_000_000).to_string(),
                (class.ceil_bps / 1_000_000).to_string(),
                class.prio.map_or(String::new(), |prio| prio.to_string()),
            ];
            let cells = class.phases.iter().map(|share| {
                let Share { asked_bps, due_bps, delivered_bps, .. } = *share;
                format!("{} / {} / {}", mbit(asked_bps), mbit(due_bps), mbit(delivered_bps))
            });
            table.add_row(row.into_iter().chain(cells).collect::<Vec<_>>());
        }
        writeln!(f, "{table}")?;
        writeln!(
            f,
            "in Mbit/s; asked: what the class's sender offered; due: what HTB's rules give of it, by \
             a fluid model; delivered: at the receiver; whole frames, medians over windows of half \
             a second of each phase without its first {} ms",
            SETTLING.as_millis()
        )?;
        for phase in PHASES {
            writeln!(f, "{}: {}", phase.name, phase.shows)?;
        }
        if self.least_asked_percent < UNDISTURBED * 100.0 {
            writeln!(
                f,
                "the machine kept a sender from its core: it offered {:.1} % of its load",
                self.least_asked_percent
            )?;
        }
        for (direction, way) in self.directions.iter().zip(["client to server", "server to client"])
        {
            writeln!(
                f,
                "{way}: {} frames = {} received + {} dropped by narrows + {} by devices \
                 + {} queued + {} for the box, {} unaccounted",
                direction.handed_over,
                direction.received,
                direction.dropped_by_narrows,
                direction.dropped_by_devices,
                direction.queued,
                direction.to_kernel,
                direction.unaccounted()
            )?;
        }
        writeln!(f, "worst: {}", self.worst)?;
        writeln!(
            f,
            "demo-tree: worst class {:.2} % off, {} packets unaccounted",
            self.worst_percent, self.unaccounted
        )
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// All classes but one have their due rates.
    pub(in super::super) fn report() -> Report {
        let nodes = provider::nodes();
        let share = Share { wanted_bps: 2e6, asked_bps: 2e6, due_bps: 1e6, delivered_bps: 1e6 };
        let mut phases = vec![vec![share; nodes.len()]; PHASES.len()];
        phases[1][4].delivered_bps = 0.97e6;
        phases[2][5] = Share { due_bps: 0.0, ..share };
        phases[3][7].asked_bps = 1.9e6;
        let lost = Direction { handed_over: 12, received: 10, ..Direction::default() };
        let doubled = Direction { handed_over: 10, received: 11, ..Direction::default() };
        let series = Series { steps: vec![[1e6; LEAVES]; 240] };
        Report::new(&nodes, &phases, Vec::new(), [lost, doubled], series)
    }

    #[test]
    fn the_last_line_sums_it_up() {
        let text = report().to_string();
        assert_eq!(
            text.lines().last().unwrap(),
            "demo-tree: worst class 3.00 % off, 3 packets unaccounted"
        );
        assert!(text.contains("worst: north-1 web, evening\n"), "{text}");
        assert!(text.contains("offered 95.0 % of its load"), "{text}");
    }

    #[test]
    fn the_table_and_the_json_have_every_class_and_phase() {
        let report = report();
        let text = report.to_string();
        for shown in ["north-3 bulk", "download", "2.00 / 1.00 / 0.97", "2.00 / - / 1.00"] {
            assert!(text.contains(shown), "{shown} in\n{text}");
        }
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["classes"].as_array().unwrap().len(), provider::nodes().len());
        assert_eq!(json["classes"][4]["phases"][1]["delivered_bps"], 0.97e6);
        assert_eq!(json["unaccounted"], 3);
    }

    #[test]
    fn arrivals_count_in_their_step() {
        let sent = Sent { began: Nanos::from_millis(1000), frames: Vec::new() };
        let at = |millis, leaf| Event { at: Nanos::from_millis(millis), leaf };
        let arrived = [at(999, 2), at(1000, 2), at(1250, 2), at(1299, 0), at(1300, 0)];
        let series = Series::of(&sent, &arrived, Duration::from_millis(300));
        let leaf = |leaf: usize| series.steps.iter().map(|step| step[leaf]).collect::<Vec<_>>();
        assert_eq!(leaf(2), [121_120.0, 0.0, 121_120.0]);
        assert_eq!(leaf(0), [0.0, 0.0, 16_000.0]);
    }
}
