//! A plot of the rates over time: the sum of all boxes beside the limit above, each box with its
//! due share below.

use super::report::Report;
use super::{BOXES, LIMIT};
use crate::plot::{self, INK};
use anyhow::Result;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::RGBColor;

/// The size of the whole, in pixels, and the heights of the title and of the upper panel.
const SIZE: (u32, u32) = (1080, 640);
const HEADER: u32 = 64;
const SUM: u32 = 230;
/// Mid tones, one for each box, and the sum's.
const COLOURS: [RGBColor; BOXES] =
    [RGBColor(214, 95, 14), RGBColor(30, 140, 90), RGBColor(80, 120, 220), RGBColor(170, 60, 140)];
const OF_SUM: RGBColor = RGBColor(60, 150, 170);
/// The addition to the colour of a line of due rates.
const DUE: f64 = 0.45;

/// The plot as SVG.
pub fn svg(report: &Report) -> Result<String> {
    plot::svg(|svg| draw(svg, report))
}

type Drawn = Result<(), Box<dyn std::error::Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// What a panel shows: lines, each with its colour, and what is due to each, pale.
struct Panel<'a> {
    title: &'a str,
    lines: Vec<(Vec<(f64, f64)>, RGBColor)>,
    due: Vec<Vec<(f64, f64)>>,
    names_phases: bool,
}

fn draw(svg: &mut String, report: &Report) -> Drawn {
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    let (header, rest) = root.split_vertically(HEADER);
    let title = "What four boxes with one limit delivered, in Mbit/s; wide and pale: what is due";
    header.draw(&Text::new(title, (12, 10), ("sans-serif", 16).into_font().color(&INK)))?;
    let names = (1..=BOXES).map(|number| format!("box {number}")).zip(COLOURS);
    for (place, (name, colour)) in names.chain([("all boxes".to_owned(), OF_SUM)]).enumerate() {
        let x = 12 + 120 * place as i32;
        header.draw(&PathElement::new([(x, 46), (x + 24, 46)], colour.stroke_width(2)))?;
        let text = ("sans-serif", 13).into_font().color(&INK);
        header.draw(&Text::new(name, (x + 32, 40), text))?;
    }
    let due = |of: &dyn Fn(&[f64; BOXES]) -> f64| -> Vec<(f64, f64)> {
        let ends = |row: &super::Row| {
            let mbit = of(&row.due_bps) / 1e6;
            row.span_s.map(|at| (at, mbit))
        };
        report.rows.iter().flat_map(ends).collect()
    };
    let rates = |of: &dyn Fn(&[f64]) -> f64| -> Vec<(f64, f64)> {
        report.series.iter().map(|(at, rates)| (*at, of(rates) / 1e6)).collect()
    };
    let (upper, lower) = rest.split_vertically(SUM);
    let sum = Panel {
        title: "all boxes together, and the limit",
        lines: vec![(rates(&|rates| rates.iter().sum()), OF_SUM)],
        due: vec![due(&|_| LIMIT)],
        names_phases: true,
    };
    panel(&upper, report, &sum)?;
    let each = Panel {
        title: "each box",
        lines: (0..BOXES)
            .map(|number| {
                (rates(&|rates| rates.get(number).copied().unwrap_or_default()), COLOURS[number])
            })
            .collect(),
        due: (0..BOXES).map(|number| due(&|due| due[number])).collect(),
        names_phases: false,
    };
    panel(&lower, report, &each)?;
    root.present()?;
    Ok(())
}

fn panel(area: &Area<'_>, report: &Report, panel: &Panel<'_>) -> Drawn {
    let end = report.rows.last().map_or(1.0, |row| row.span_s[1]);
    let most = LIMIT / 1e6 * 1.2;
    let mut chart = ChartBuilder::on(area)
        .caption(panel.title, ("sans-serif", 14).into_font().color(&INK))
        .margin(8)
        .x_label_area_size(28)
        .y_label_area_size(40)
        .build_cartesian_2d(0.0..end, 0.0..most)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(INK.mix(0.12))
        .axis_style(INK.mix(0.5))
        .label_style(("sans-serif", 12).into_font().color(&INK))
        .x_labels(12)
        .y_labels(5)
        .x_label_formatter(&|x| format!("{x:.0} s"))
        .y_label_formatter(&|y| format!("{y:.0}"))
        .draw()?;
    for row in &report.rows {
        let line = [(row.span_s[0], 0.0), (row.span_s[0], most)];
        chart.draw_series(LineSeries::new(line, INK.mix(0.35).stroke_width(1)))?;
        if panel.names_phases {
            let text = ("sans-serif", 11).into_font().color(&INK.mix(0.8));
            let place = (row.span_s[0] + end * 0.004, most * 0.12);
            chart.draw_series([Text::new(row.name, place, text)])?;
        }
    }
    let colours = panel.lines.iter().map(|(_, colour)| *colour);
    for (due, colour) in panel.due.iter().zip(colours) {
        let line = due.iter().copied();
        chart.draw_series(LineSeries::new(line, colour.mix(DUE).stroke_width(5)))?;
    }
    for (line, colour) in &panel.lines {
        let line = line.iter().map(|(at, rate)| (*at, rate.min(most)));
        chart.draw_series(LineSeries::new(line, colour.stroke_width(1)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::report;
    use super::*;

    #[test]
    fn a_plot_names_every_box_and_phase() {
        let svg = svg(&report()).unwrap();
        for shown in ["box 4", "all boxes", "box 1 alone", "mended", "currentColor"] {
            assert!(svg.contains(shown), "{shown} in\n{svg}");
        }
        assert!(!svg.contains("#000000"));
        assert!(svg.matches("<polyline").count() >= 2 * (1 + BOXES));
    }
}
