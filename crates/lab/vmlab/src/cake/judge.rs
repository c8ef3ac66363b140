//! Whether Narrows is no worse than the kernel's single `cake`: compares each figure's median over
//! the rounds.
//!
//! The tolerance of a figure covers the noise of three rounds. It also covers the time that a frame
//! takes through another process instead of the bridge, which only the light flow shows.

use super::{Figure, Load, Medians, Sample, System, shown};
use crate::verdict::{Check, Outcome};

/// A figure of a load that is judged, and how much worse than the kernel's it may be.
struct Rule {
    load: Load,
    figure: Figure,
    better: Better,
    /// As a fraction of the kernel's.
    part: f64,
    /// Plus this, in its own unit.
    more: f64,
}

/// What is better.
#[derive(Clone, Copy)]
enum Better {
    Lower,
    Higher,
    /// Nearer to half of the total, in percent.
    Half,
}

const fn delay(load: Load, figure: Figure) -> Rule {
    Rule { load, figure, better: Better::Lower, part: 0.1, more: 0.3 }
}

const fn share(load: Load) -> Rule {
    Rule { load, figure: Figure::Share, better: Better::Half, part: 0.0, more: 1.0 }
}

const fn delivered(load: Load) -> Rule {
    Rule { load, figure: Figure::Delivered, better: Better::Higher, part: 0.02, more: 0.0 }
}

const RULES: [Rule; 14] = [
    delay(Load::Light, Figure::LightP99),
    delivered(Load::Light),
    delay(Load::Tcp, Figure::QueueMedian),
    delay(Load::Tcp, Figure::QueueP99),
    delivered(Load::Tcp),
    delay(Load::Tcp, Figure::LightP99),
    delay(Load::TcpEcn, Figure::QueueMedian),
    delay(Load::TcpEcn, Figure::QueueP99),
    delivered(Load::TcpEcn),
    delay(Load::TcpEcn, Figure::LightP99),
    share(Load::HostsTcp),
    delivered(Load::HostsTcp),
    share(Load::HostsUdp),
    delivered(Load::HostsUdp),
];

impl Rule {
    fn is_worse(&self, ours: f64, theirs: f64) -> bool {
        let badness = |value: f64| match self.better {
            Better::Lower => value,
            Better::Higher => -value,
            Better::Half => (value - 50.0).abs(),
        };
        badness(ours) > badness(theirs) + theirs * self.part + self.more
    }
}

/// A figure of Narrows beside the kernel's.
pub struct Verdict {
    figure: Figure,
    ours: f64,
    theirs: f64,
    /// Whether Narrows is worse by more than the tolerance.
    pub is_worse: bool,
}

/// The judged figures of a system under a load at a limit. The kernel's own systems have none.
pub fn verdicts(
    samples: &[Sample],
    load: Load,
    limit: Option<u64>,
    system: System,
) -> Vec<Verdict> {
    let medians = Medians(samples);
    let judged = RULES.iter().filter(|rule| rule.load == load && System::OURS.contains(&system));
    let verdict = |rule: &Rule| {
        let of = |system| Some(medians.of(load, limit, system, rule.figure)?.median);
        let (ours, theirs) = (of(system)?, of(System::REFERENCE)?);
        let is_worse = rule.is_worse(ours, theirs);
        Some(Verdict { figure: rule.figure, ours, theirs, is_worse })
    };
    judged.filter_map(verdict).collect()
}

/// A check for each load, limit and system of Narrows.
pub fn checks(samples: &[Sample]) -> Vec<Check> {
    let mut checks = Vec::new();
    for load in Load::ALL {
        for limit in load.limits() {
            for system in System::OURS {
                let verdicts = verdicts(samples, load, *limit, system);
                if !verdicts.is_empty() {
                    checks.push(check(load, *limit, system, &verdicts));
                }
            }
        }
    }
    checks
}

fn check(load: Load, limit: Option<u64>, system: System, verdicts: &[Verdict]) -> Check {
    let beside = |verdict: &Verdict| {
        let Verdict { figure, ours, theirs, is_worse } = verdict;
        let mark = if *is_worse { " (worse)" } else { "" };
        format!("{} {ours:.2} beside {theirs:.2}{mark}", figure.name())
    };
    let failed = verdicts.iter().any(|verdict| verdict.is_worse);
    Check {
        name: format!("{}, {}, {}", load.name(), shown(limit), system.name()),
        outcome: if failed { Outcome::Failed } else { Outcome::Passed },
        note: verdicts.iter().map(beside).collect::<Vec<_>>().join("; "),
        seconds: 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(system: System, load: Load, figure: Figure, value: f64) -> Sample {
        Sample { load, limit: Some(20), system, round: 0, figures: [(figure, value)].into() }
    }

    /// Whether the figure `ours` is worse than the kernel's `theirs`.
    fn is_worse(load: Load, figure: Figure, ours: f64, theirs: f64) -> bool {
        let samples = [
            sample(System::NarrowsFour, load, figure, ours),
            sample(System::LinuxCake, load, figure, theirs),
        ];
        let verdicts = verdicts(&samples, load, Some(20), System::NarrowsFour);
        assert_eq!(verdicts.len(), 1);
        verdicts[0].is_worse
    }

    #[test]
    fn a_longer_delay_is_worse_and_a_little_longer_is_noise() {
        let queue = |ours| is_worse(Load::Tcp, Figure::QueueMedian, ours, 7.0);
        assert!(queue(11.9));
        assert!(!queue(7.9) && !queue(3.0));
    }

    #[test]
    fn a_share_is_the_worse_the_further_from_half() {
        let share = |ours| is_worse(Load::HostsUdp, Figure::Share, ours, 48.0);
        assert!(share(41.0) && share(59.0));
        assert!(!share(47.5) && !share(50.0) && !share(52.5));
    }

    #[test]
    fn less_delivered_is_worse() {
        let delivered = |ours| is_worse(Load::Tcp, Figure::Delivered, ours, 19.0);
        assert!(delivered(18.0));
        assert!(!delivered(18.9) && !delivered(19.2));
    }

    #[test]
    fn each_narrows_row_has_a_check_that_names_regressions() {
        let samples = [
            sample(System::LinuxCake, Load::Tcp, Figure::QueueP99, 10.0),
            sample(System::LinuxCakeMq, Load::Tcp, Figure::QueueP99, 90.0),
            sample(System::NarrowsOne, Load::Tcp, Figure::QueueP99, 10.0),
            sample(System::NarrowsFour, Load::Tcp, Figure::QueueP99, 30.0),
        ];
        let checks = checks(&samples);
        let outcomes: Vec<Outcome> = checks.iter().map(|check| check.outcome).collect();
        assert_eq!(outcomes, [Outcome::Passed, Outcome::Failed]);
        assert!(checks[1].note.contains("30.00 beside 10.00 (worse)"), "{}", checks[1].note);
    }
}
