//! Plots as SVG that takes its text colour from the page, so that it reads in light and dark.

use plotters::prelude::*;
use plotters::style::RGBColor;

/// The size of a plot, in pixels.
const SIZE: (u32, u32) = (720, 340);

/// The part of its width that holds the names of the lines, free of lines.
const LEGEND: u32 = 132;

/// Drawn in black, which is replaced by `currentColor`.
const INK: RGBColor = RGBColor(0, 0, 0);

/// Strategies, in the order of the scenario: mid tones that are visible on white and on black.
const COLOURS: [RGBColor; 6] = [
    RGBColor(214, 95, 14),
    RGBColor(30, 140, 90),
    RGBColor(80, 120, 220),
    RGBColor(180, 80, 180),
    RGBColor(150, 130, 30),
    RGBColor(110, 110, 110),
];

/// How a line is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mark {
    /// Points joined by a line.
    Line,
    /// Points alone: what a paper has.
    Points,
}

/// A line of a plot.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) name: String,
    /// Which strategy's colour.
    pub(super) colour: usize,
    pub(super) mark: Mark,
    pub(super) points: Vec<(f64, f64)>,
}

/// The horizontal axis.
pub(super) enum Axis<'a> {
    /// Points of a sweep, as far apart as each other: 0, 1, 2 …
    Labels(&'a [String]),
    /// Numbers, with their unit.
    Numbers(&'a str),
}

/// A plot of `lines`; `None` if there is nothing to see.
pub(super) fn svg(title: &str, axis: &Axis<'_>, lines: &[Line]) -> Option<String> {
    let finite = |(x, y): &&(f64, f64)| x.is_finite() && y.is_finite();
    let points: Vec<(f64, f64)> =
        lines.iter().flat_map(|line| line.points.iter().filter(finite)).copied().collect();
    let (left, right) = range(points.iter().map(|(x, _)| *x))?;
    let (bottom, top) = range(points.iter().map(|(_, y)| *y))?;
    let (left, right) = match axis {
        Axis::Labels(labels) => (-0.3, labels.len() as f64 - 0.7),
        Axis::Numbers(_) if left == right => (left - 0.5, right + 0.5),
        Axis::Numbers(_) => (left, right),
    };
    // From zero, unless all that is of interest is far from it.
    let bottom = if bottom > 0.0 && bottom < 0.8 * top { 0.0 } else { bottom };
    let margin = if bottom == top { bottom.abs().max(1e-3) * 0.01 } else { (top - bottom) * 0.06 };
    let bottom = if bottom == 0.0 { 0.0 } else { bottom - margin };
    let mut svg = String::new();
    draw(&mut svg, title, axis, lines, (left, right), (bottom, top + margin)).ok()?;
    Some(svg.replace("#000000", "currentColor"))
}

fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |range, value| match range {
        None => Some((value, value)),
        Some((least, most)) => Some((f64::min(least, value), f64::max(most, value))),
    })
}

fn draw(
    svg: &mut String,
    title: &str,
    axis: &Axis<'_>,
    lines: &[Line],
    (left, right): (f64, f64),
    (bottom, top): (f64, f64),
) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    let text = ("sans-serif", 13).into_font().color(&INK);
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 15).into_font().color(&INK))
        .margin(8)
        .margin_right(LEGEND)
        .x_label_area_size(36)
        .y_label_area_size(72)
        .build_cartesian_2d(left..right, bottom..top)?;
    let label = |x: &f64| match axis {
        Axis::Labels(labels) => {
            let near = (x - x.round()).abs() < 0.05 && x.round() >= 0.0;
            let found = if near { labels.get(x.round() as usize) } else { None };
            found.cloned().unwrap_or_default()
        }
        Axis::Numbers(_) => short(*x),
    };
    let mut mesh = chart.configure_mesh();
    mesh.disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(INK.mix(0.15))
        .axis_style(INK.mix(0.5))
        .label_style(text.clone())
        .x_label_formatter(&label)
        .y_label_formatter(&|y| short(*y));
    match axis {
        // Twice as many as there are, so that the whole numbers are among them.
        Axis::Labels(labels) => mesh.x_labels(labels.len() * 2 + 1),
        Axis::Numbers(name) => mesh.x_labels(8).x_desc(*name),
    };
    mesh.draw()?;
    for (number, line) in lines.iter().enumerate() {
        let colour = COLOURS[line.colour % COLOURS.len()];
        let finite = line.points.iter().filter(|(x, y)| x.is_finite() && y.is_finite());
        let points: Vec<(f64, f64)> = finite.copied().collect();
        // Its line of the legend: a sample, and the name behind it.
        let (x, y) = ((SIZE.0 - LEGEND + 12) as i32, 40 + 20 * number as i32);
        root.draw(&Text::new(line.name.as_str(), (x + 22, y - 5), text.clone()))?;
        match line.mark {
            Mark::Line => {
                let stroke = colour.stroke_width(2);
                root.draw(&PathElement::new([(x, y), (x + 16, y)], stroke))?;
                chart.draw_series(LineSeries::new(points.iter().copied(), stroke))?;
                if matches!(axis, Axis::Labels(_)) {
                    let dots = points.iter().map(|point| Circle::new(*point, 3, colour.filled()));
                    chart.draw_series(dots)?;
                }
            }
            Mark::Points => {
                let stroke = INK.stroke_width(2);
                root.draw(&Cross::new((x + 8, y), 5, stroke))?;
                chart.draw_series(points.iter().map(|point| Cross::new(*point, 5, stroke)))?;
            }
        }
    }
    root.present()?;
    Ok(())
}

/// A number on an axis.
fn short(value: f64) -> String {
    let (scaled, suffix) = match value.abs() {
        size if size >= 1e9 => (value / 1e9, "G"),
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = format!("{scaled:.4}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{}{suffix}", if text == "-0" { "0" } else { text })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(points: &[(f64, f64)]) -> Line {
        Line { name: "a<b".into(), colour: 0, mark: Mark::Line, points: points.to_vec() }
    }

    #[test]
    fn a_plot_takes_its_ink_from_the_page() {
        let labels = ["1gbit".to_owned(), "2gbit".to_owned()];
        let svg = svg("x", &Axis::Labels(&labels), &[line(&[(0.0, 1.0), (1.0, 2.0)])]).unwrap();
        assert!(svg.contains("currentColor") && !svg.contains("#000000"));
        assert!(svg.contains("1gbit") && svg.contains("2gbit"), "{svg}");
        assert!(svg.contains("a&lt;b"));
    }

    #[test]
    fn nothing_to_see_is_no_plot() {
        assert_eq!(svg("x", &Axis::Numbers("ms"), &[line(&[(0.0, f64::NAN)])]), None);
        assert!(svg("x", &Axis::Numbers("ms"), &[line(&[(3.0, 7.0)])]).is_some());
    }
}
