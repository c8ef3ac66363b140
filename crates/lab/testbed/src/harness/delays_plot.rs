//! The added delay as a plot: for each limit, the distribution of the probes' delays under each
//! system.

use crate::plot::{self, INK};
use anyhow::Result;
use narrows_units::Rate;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::RGBColor;

/// The size of the whole, in pixels.
const SIZE: (u32, u32) = (1080, 400);
/// The height of the title and the names of the lines.
const HEADER: u32 = 64;
/// The shortest delay drawn, and the longest, in milliseconds.
const DELAYS: (f64, f64) = (0.01, 3000.0);
/// Mid tones, one for each system.
const COLOURS: [RGBColor; 5] = [
    RGBColor(110, 110, 110),
    RGBColor(214, 95, 14),
    RGBColor(30, 140, 90),
    RGBColor(80, 120, 220),
    RGBColor(170, 80, 170),
];

/// The delays of one system at one limit.
pub(crate) struct Line<'a> {
    pub(crate) system: &'static str,
    /// In bits per second; a system without a limit is beside every one.
    pub(crate) limit_bps: Option<u64>,
    /// Every percentile from the 0th to the 100th, in microseconds above the median at rest.
    pub(crate) added_percentiles_us: &'a [f64],
}

/// The plot of `lines` with a `title`, as SVG.
pub(crate) fn svg(title: &str, lines: &[Line<'_>]) -> Result<String> {
    plot::svg(|svg| draw(svg, title, lines))
}

type Drawn = Result<(), Box<dyn std::error::Error>>;

fn draw(svg: &mut String, title: &str, lines: &[Line<'_>]) -> Drawn {
    let mut limits: Vec<u64> = lines.iter().filter_map(|line| line.limit_bps).collect();
    limits.sort_unstable();
    limits.dedup();
    let mut systems: Vec<&str> = Vec::new();
    for row in lines {
        if !systems.contains(&row.system) {
            systems.push(row.system);
        }
    }
    let colour = |system: &str| {
        let place = systems.iter().position(|name| *name == system).unwrap_or(0);
        COLOURS[place % COLOURS.len()]
    };
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    let (header, panels) = root.split_vertically(HEADER);
    header.draw(&Text::new(title, (12, 10), ("sans-serif", 16).into_font().color(&INK)))?;
    let width = SIZE.0 as i32 / systems.len().max(1) as i32;
    for (place, system) in systems.iter().enumerate() {
        let x = 12 + width * place as i32;
        let stroke = colour(system).stroke_width(2);
        header.draw(&PathElement::new([(x, 46), (x + 24, 46)], stroke))?;
        let text = ("sans-serif", 13).into_font().color(&INK);
        header.draw(&Text::new(*system, (x + 32, 40), text))?;
    }
    for (panel, limit) in panels.split_evenly((1, limits.len().max(1))).iter().zip(limits) {
        // The system without a limit is beside every one.
        let at_limit = |row: &&Line<'_>| row.limit_bps.is_none_or(|of_row| of_row == limit);
        let rows: Vec<&Line<'_>> = lines.iter().filter(at_limit).collect();
        distribution(panel, &Rate::from_bits_per_sec(limit).to_string(), &rows, &colour)?;
    }
    root.present()?;
    Ok(())
}

fn distribution(
    panel: &DrawingArea<SVGBackend<'_>, Shift>,
    title: &str,
    rows: &[&Line<'_>],
    colour: &impl Fn(&str) -> RGBColor,
) -> Drawn {
    let (shortest, longest) = DELAYS;
    let mut chart = ChartBuilder::on(panel)
        .caption(title, ("sans-serif", 14).into_font().color(&INK))
        .margin(8)
        .x_label_area_size(40)
        .y_label_area_size(48)
        .build_cartesian_2d((shortest..longest).log_scale(), 0.0..100.0)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(INK.mix(0.15))
        .axis_style(INK.mix(0.5))
        .label_style(("sans-serif", 12).into_font().color(&INK))
        .x_desc("added delay in ms")
        .y_desc("per cent of probes")
        .x_labels(7)
        .y_labels(6)
        .x_label_formatter(&|x| format!("{x}"))
        .y_label_formatter(&|y| format!("{y:.0}"))
        .draw()?;
    for row in rows {
        let points = row.added_percentiles_us.iter().enumerate();
        let points =
            points.map(|(percent, us)| ((us / 1e3).clamp(shortest, longest), percent as f64));
        chart.draw_series(LineSeries::new(points, colour(row.system).stroke_width(2)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_has_a_panel_for_each_limit_and_names_each_system() {
        let delays: Vec<f64> = (0..=100).map(f64::from).collect();
        let line = |system, limit_bps| Line { system, limit_bps, added_percentiles_us: &delays };
        let svg = svg(
            "Round trips",
            &[
                line("no shaper", None),
                line("tbf + pfifo", Some(20_000_000)),
                line("cake diffserv4", Some(20_000_000)),
                line("tbf + pfifo", Some(100_000_000)),
            ],
        )
        .unwrap();
        let systems = ["no shaper", "tbf + pfifo", "cake diffserv4"];
        let others = ["Round trips", "20 Mbit/s", "100 Mbit/s", "currentColor"];
        for shown in systems.into_iter().chain(others) {
            assert!(svg.contains(shown), "{shown} in\n{svg}");
        }
        assert!(!svg.contains("#000000"));
        // The one without a limit is in both panels.
        assert!(svg.matches("<polyline").count() >= 5, "{svg}");
    }
}
