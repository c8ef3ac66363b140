//! A plot of the delivered rates over time: the sites above, the applications of each subscriber
//! below, with their due rates.

use super::super::provider::{self, APPLICATIONS, SUBSCRIBERS};
use super::report::{Class, Report, STEP};
use crate::plot::{self, INK};
use anyhow::Result;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::RGBColor;

/// The size of the whole, in pixels.
const SIZE: (u32, u32) = (1080, 860);
/// The heights of the title with the names of the lines, and of the sites' panel.
const HEADER: u32 = 64;
const SITES: u32 = 250;
/// Mid tones, one for each application.
const COLOURS: [RGBColor; APPLICATIONS] =
    [RGBColor(214, 95, 14), RGBColor(30, 140, 90), RGBColor(80, 120, 220)];
/// The link's and the sites'.
const UPPER: [RGBColor; 3] =
    [RGBColor(110, 110, 110), RGBColor(170, 60, 140), RGBColor(60, 150, 170)];
/// The addition to the colour of a line of due rates.
const DUE: f64 = 0.45;

/// The plot as SVG.
pub fn svg(report: &Report) -> Result<String> {
    plot::svg(|svg| draw(svg, report))
}

type Drawn = Result<(), Box<dyn std::error::Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

fn draw(svg: &mut String, report: &Report) -> Drawn {
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    let (header, rest) = root.split_vertically(HEADER);
    let title = "What each class of a tree on four queues was delivered, in Mbit/s; wide and pale: \
                 what HTB's rules give it";
    header.draw(&Text::new(title, (12, 10), ("sans-serif", 16).into_font().color(&INK)))?;
    let inner = report.classes.iter().filter(|class| class.depth < 2);
    let names = inner.map(|class| class.name.clone()).zip(UPPER);
    let applications = (0..APPLICATIONS).map(|number| provider::application(number).to_owned());
    for (place, (name, colour)) in names.chain(applications.zip(COLOURS)).enumerate() {
        let x = 12 + 120 * place as i32;
        header.draw(&PathElement::new([(x, 46), (x + 24, 46)], colour.stroke_width(2)))?;
        let text = ("sans-serif", 13).into_font().color(&INK);
        header.draw(&Text::new(name, (x + 32, 40), text))?;
    }
    let (sites, subscribers) = rest.split_vertically(SITES);
    let inner: Vec<&Class> = report.classes.iter().filter(|class| class.depth < 2).collect();
    panel(&sites, "the link and its sites", report, &inner, &UPPER)?;
    let of_site = SUBSCRIBERS / 2;
    let panels = subscribers.split_evenly((2, of_site));
    let each = report.classes.iter().filter(|class| class.depth == 2);
    for (area, subscriber) in panels.iter().zip(each) {
        let below = |class: &&Class| class.leaf.is_some() && class.is_below(subscriber);
        let leaves: Vec<&Class> = report.classes.iter().filter(below).collect();
        panel(area, &subscriber.name, report, &leaves, &COLOURS)?;
    }
    root.present()?;
    Ok(())
}

impl Class {
    /// Whether it is `other` or below it: a class's number here begins with that of its parent.
    fn is_below(&self, other: &Self) -> bool {
        let is_root = other.depth == 0;
        let is_deeper = self.depth >= other.depth;
        is_root || is_deeper && self.classid.starts_with(other.classid.trim_end_matches('0'))
    }
}

fn panel(
    area: &Area<'_>,
    title: &str,
    report: &Report,
    classes: &[&Class],
    colours: &[RGBColor],
) -> Drawn {
    let seconds = report.series.steps.len() as f64 * STEP.as_secs_f64();
    let phase = seconds / report.phases.len() as f64;
    let due = classes.iter().flat_map(|class| class.phases.iter().map(|share| share.due_bps));
    let most = due.fold(0.0, f64::max) / 1e6 * 1.15;
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 14).into_font().color(&INK))
        .margin(8)
        .x_label_area_size(28)
        .y_label_area_size(40)
        .build_cartesian_2d(0.0..seconds, 0.0..most.max(1.0))?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(INK.mix(0.12))
        .axis_style(INK.mix(0.5))
        .label_style(("sans-serif", 12).into_font().color(&INK))
        .x_labels(report.phases.len() + 1)
        .y_labels(5)
        .x_label_formatter(&|x| format!("{x:.0} s"))
        .y_label_formatter(&|y| format!("{y:.0}"))
        .draw()?;
    for number in 1..report.phases.len() {
        let x = phase * number as f64;
        let line = [(x, 0.0), (x, most)];
        chart.draw_series(LineSeries::new(line, INK.mix(0.35).stroke_width(1)))?;
    }
    for (class, colour) in classes.iter().zip(colours) {
        let due = class.phases.iter().enumerate().flat_map(|(number, share)| {
            let (from, y) = (phase * number as f64, share.due_bps / 1e6);
            [(from, y), (from + phase, y)]
        });
        chart.draw_series(LineSeries::new(due, colour.mix(DUE).stroke_width(5)))?;
        let below = |other: &&Class| other.is_below(class);
        let leaves: Vec<usize> =
            report.classes.iter().filter(below).filter_map(|leaf| leaf.leaf).collect();
        let delivered = (0..).zip(&report.series.steps).map(|(number, step)| {
            let bits: f64 = leaves.iter().map(|leaf| step[*leaf]).sum();
            let middle = (f64::from(number) + 0.5) * STEP.as_secs_f64();
            (middle, (bits / 1e6).min(most.max(1.0)))
        });
        chart.draw_series(LineSeries::new(delivered, colour.stroke_width(1)))?;
    }
    if classes.iter().any(|class| class.depth == 0) {
        for (number, name) in report.phases.iter().enumerate() {
            let text = ("sans-serif", 12).into_font().color(&INK.mix(0.8));
            let place = (phase * (number as f64 + 0.04), most * 0.12);
            chart.draw_series([Text::new(*name, place, text)])?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::report;
    use super::*;

    #[test]
    fn a_plot_names_every_subscriber_phase_and_application() {
        let report = report();
        let svg = svg(&report).unwrap();
        for shown in
            ["north-2", "south-3", "evening again", "bulk", "link", "currentColor", ">\n<style>"]
        {
            assert!(svg.contains(shown), "{shown} in\n{svg}");
        }
        assert!(!svg.contains("#000000"));
        assert!(svg.matches("<polyline").count() >= 2 * (3 + SUBSCRIBERS * APPLICATIONS));
    }

    #[test]
    fn numbers_of_classes_say_which_is_below_which() {
        let report = report();
        let class = |name: &str| report.classes.iter().find(|class| class.name == name).unwrap();
        assert!(class("south-3 bulk").is_below(class("link")));
        assert!(class("south-3 bulk").is_below(class("south")));
        assert!(class("south-3 bulk").is_below(class("south-3")));
        assert!(!class("south-3 bulk").is_below(class("south-1")));
        assert!(!class("south-3 bulk").is_below(class("north")));
        assert!(!class("link").is_below(class("north")));
    }
}
