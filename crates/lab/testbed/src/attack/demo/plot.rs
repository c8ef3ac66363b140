//! Transactions over time, as a plot; floods are shaded.

use super::{PHASES, Report, STEP};
use crate::plot::{self, INK};
use anyhow::Result;
use plotters::prelude::*;
use plotters::style::RGBColor;

/// The size of the whole, in pixels.
const SIZE: (u32, u32) = (960, 420);
/// The height of the title and the names of the lines.
const HEADER: u32 = 64;
/// Without filters, and with them.
const COLOURS: [RGBColor; 2] = [RGBColor(214, 95, 14), RGBColor(30, 140, 90)];

/// The plot as SVG.
pub fn svg(report: &Report) -> Result<String> {
    plot::svg(|svg| draw(svg, report))
}

fn draw(svg: &mut String, report: &Report) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    let (header, rest) = root.split_vertically(HEADER);
    let font = |size: i32| ("sans-serif", size).into_font().color(&INK);
    let title = "Transactions a second while a flood comes and goes (shaded)";
    header.draw(&Text::new(title, (12, 10), font(16)))?;
    for (place, (name, colour)) in
        ["without filters", "with filters"].into_iter().zip(COLOURS).enumerate()
    {
        let x = 12 + 160 * place as i32;
        header.draw(&PathElement::new([(x, 46), (x + 24, 46)], colour.stroke_width(2)))?;
        header.draw(&Text::new(name, (x + 32, 40), font(13)))?;
    }
    let seconds = report.phase_seconds * PHASES.len() as f64;
    let all = report.runs.iter().flat_map(|run| run.transactions.iter().copied());
    let most = all.fold(1.0, f64::max) * 1.1;
    let mut chart = ChartBuilder::on(&rest)
        .margin(8)
        .x_label_area_size(28)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..seconds, 0.0..most)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(INK.mix(0.12))
        .axis_style(INK.mix(0.5))
        .label_style(font(12))
        .x_label_formatter(&|x| format!("{x:.0} s"))
        .y_label_formatter(&|y| format!("{y:.0}"))
        .draw()?;
    for (phase, (name, flood)) in PHASES.into_iter().enumerate() {
        let (from, to) = (phase as f64, (phase + 1) as f64);
        let (from, to) = (from * report.phase_seconds, to * report.phase_seconds);
        if flood.is_some() {
            let shade = Rectangle::new([(from, 0.0), (to, most)], INK.mix(0.08).filled());
            chart.draw_series([shade])?;
            chart.draw_series([Text::new(name, (from + 0.1, most * 0.99), font(12))])?;
        }
    }
    for (run, colour) in report.runs.iter().zip(COLOURS) {
        let points = run.transactions.iter().enumerate();
        let points = points.map(|(step, rate)| (step as f64 * STEP.as_secs_f64(), *rate));
        chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
    }
    root.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;

    #[test]
    fn both_runs_and_both_floods_are_drawn() {
        let svg = svg(&report()).unwrap();
        for shown in ["without filters", "listed sources", "invented sources", "currentColor"] {
            assert!(svg.contains(shown), "{shown}");
        }
    }
}
