//! What all plots share: one SVG file, readable in light and dark mode, alone and on a page.

use anyhow::{Context, Result, anyhow};
use plotters::style::RGBColor;

/// The colour of text and axes. `currentColor` replaces it: the colour of the surrounding text.
pub(crate) const INK: RGBColor = RGBColor(0, 0, 0);
/// The replacement in a plot that is a picture of its own, as in a README.
const STYLE: &str = "<style>:root { color: #222 } \
                     @media (prefers-color-scheme: dark) { :root { color: #ddd } }</style>";

/// The SVG that `draw` produces in the string that it is given.
pub(crate) fn svg(
    draw: impl FnOnce(&mut String) -> Result<(), Box<dyn std::error::Error>>,
) -> Result<String> {
    let mut svg = String::new();
    // Errors of plotters borrow the text that they were to draw into.
    draw(&mut svg).map_err(|error| anyhow!("cannot draw the plot: {error}"))?;
    let svg = svg.replace("#000000", "currentColor");
    let (opening, drawn) = svg.split_once('>').context("the plot is no SVG")?;
    Ok(format!("{opening}>\n{STYLE}{drawn}"))
}
