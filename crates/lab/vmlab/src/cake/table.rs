//! The tables of docs/cake.md: each system under each load.

use super::{Figure, Load, Medians, Sample, judge, shown};
use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};

/// Loads with the same figures share a table.
const TABLES: [(&[Load], &[Figure]); 3] = [
    (
        &[Load::Tcp, Load::TcpEcn],
        &[
            Figure::QueueMedian,
            Figure::QueueP99,
            Figure::Delivered,
            Figure::LightMedian,
            Figure::LightP99,
        ],
    ),
    (&[Load::HostsTcp, Load::HostsUdp], &[Figure::Share, Figure::Delivered]),
    (
        &[Load::Light, Load::Alone, Load::Unlimited],
        &[Figure::LightMedian, Figure::LightP99, Figure::Delivered],
    ),
];
/// Text columns, before the figures.
const WORDS: [&str; 3] = ["load", "limit", "system"];

/// All tables.
pub fn render(samples: &[Sample]) -> String {
    let tables = TABLES.map(|(loads, figures)| table(samples, loads, figures));
    tables.join("\n\n")
}

fn table(samples: &[Sample], loads: &[Load], figures: &[Figure]) -> String {
    let medians = Medians(samples);
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    let names = figures.iter().map(|figure| figure.name());
    table.set_header(WORDS.into_iter().chain(names).chain(["no worse"]));
    for column in table.column_iter_mut().skip(WORDS.len()).take(figures.len()) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for load in loads {
        for limit in load.limits() {
            for system in load.systems() {
                let figure = |figure: &Figure| {
                    let spread = medians.of(*load, *limit, *system, *figure);
                    spread.map_or(String::new(), |spread| spread.shown(digits(*figure)))
                };
                let mut row = vec![load.name().to_owned(), shown(*limit), system.name().to_owned()];
                row.extend(figures.iter().map(figure));
                row.push(word(&judge::verdicts(samples, *load, *limit, *system)).to_owned());
                table.add_row(row);
            }
        }
    }
    table.to_string()
}

const fn digits(figure: Figure) -> usize {
    match figure {
        Figure::LightMedian | Figure::LightP99 => 2,
        Figure::QueueMedian | Figure::QueueP99 | Figure::Share | Figure::Delivered => 1,
    }
}

fn word(verdicts: &[judge::Verdict]) -> &'static str {
    match verdicts {
        [] => "",
        some if some.iter().any(|verdict| verdict.is_worse) => "**no**",
        _ => "yes",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cake::System;

    #[test]
    fn a_row_has_medians_over_the_rounds_and_ours_a_verdict() {
        let sample = |system, round, share| Sample {
            load: Load::HostsTcp,
            limit: Some(20),
            system,
            round,
            figures: [(Figure::Share, share)].into(),
        };
        let samples = [
            sample(System::LinuxCake, 0, 47.0),
            sample(System::LinuxCake, 1, 48.0),
            sample(System::LinuxCake, 2, 46.0),
            sample(System::NarrowsFour, 0, 40.0),
        ];
        let text = render(&samples);
        let row = |name: &str| {
            let of = ["1 beside 8, TCP", "20 Mbit/s", name];
            let mut rows = text.lines().filter(|line| of.iter().all(|word| line.contains(word)));
            rows.next().unwrap().to_owned()
        };
        assert!(row("Linux cake ").contains("47.0 (46.0-48.0)"), "{text}");
        assert!(row("Narrows, 4").contains("**no**"), "{text}");
        assert!(!row("Narrows, 1").contains("yes"), "{text}");
    }
}
