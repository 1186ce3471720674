//! Draws a plot as SVG, for light and dark pages.
//!
//! The drawing library writes fixed colours. Each colour below stands for a variable of the page's style and
//! is replaced by it afterwards.

use std::ops::Range;

use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::{Axis, Plot};

const WIDTH: u32 = 760;
const HEIGHT: u32 = 400;
/// Width of the legend, right of the curves.
const LEGEND: u32 = 200;

const INK: RGBColor = RGBColor(1, 2, 3);
const RULE: RGBColor = RGBColor(4, 5, 6);
/// Stands for the colour of the series with this number.
const fn series_colour(index: usize) -> RGBColor {
    RGBColor(7, 8, (index % COLOURS) as u8)
}

/// Colours of text and of rules on a light and on a dark page.
const LIGHT_LINES: [&str; 2] = ["#222", "#ddd"];
const DARK_LINES: [&str; 2] = ["#ddd", "#3a3e44"];

/// Number of colours; further series begin again with the first.
const COLOURS: usize = 8;

/// Colours of the series on a light and on a dark page. Neighbours differ for colour-blind readers, too
/// (after Okabe and Ito).
const LIGHT: [&str; COLOURS] =
    ["#0072b2", "#d55e00", "#009e73", "#b6498d", "#a07800", "#4c4c4c", "#1f8fd0", "#7a3e9d"];
const DARK: [&str; COLOURS] =
    ["#56b4e9", "#ff8a4c", "#2fd0a0", "#e58bc1", "#e6c229", "#c0c0c0", "#8fd0ff", "#c59bea"];

/// The variables, as a style for a page or a file.
pub(crate) fn style() -> String {
    let list = |colours: &[&str]| {
        let each = colours.iter().enumerate().map(|(index, colour)| format!("--s{index}:{colour}"));
        each.collect::<Vec<_>>().join(";")
    };
    let ([ink, rule], [dark_ink, dark_rule]) = (LIGHT_LINES, DARK_LINES);
    format!(
        ":root{{--ink:{ink};--rule:{rule};{}}}\
         @media(prefers-color-scheme:dark){{:root{{--ink:{dark_ink};--rule:{dark_rule};{}}}}}",
        list(&LIGHT),
        list(&DARK)
    )
}

/// The plot as an SVG file of its own.
#[must_use]
pub fn svg(plot: &Plot) -> String {
    let inner = inline(plot);
    match inner.find('>') {
        // The drawing library ends the opening tag with the first `>`.
        Some(at) => format!("{}<style>{}</style>{}", &inner[..=at], style(), &inner[at + 1..]),
        None => inner,
    }
}

/// The page around a plot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Page {
    Light,
    Dark,
}

/// The plot as an SVG file with the colours of one kind of page. A page with a theme of its own chooses the
/// file.
pub(crate) fn fixed(plot: &Plot, page: Page) -> String {
    let ([ink, rule], colours) = match page {
        Page::Light => (LIGHT_LINES, LIGHT),
        Page::Dark => (DARK_LINES, DARK),
    };
    let mut text = inline(plot).replace("var(--ink)", ink).replace("var(--rule)", rule);
    for (index, colour) in colours.into_iter().enumerate() {
        text = text.replace(&format!("var(--s{index})"), colour);
    }
    text
}

/// The plot as SVG in a page that has the style.
pub(crate) fn inline(plot: &Plot) -> String {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (WIDTH, HEIGHT)).into_drawing_area();
        let (xs, ys) = (range(plot, |point| point.0, plot.x), range(plot, |point| point.1, plot.y));
        // Drawing into a string fails only on a wrong range, and `range` gives right ones.
        let drawn = match (plot.x.log, plot.y.log) {
            (false, false) => draw(&area, plot, xs, ys),
            (false, true) => draw(&area, plot, xs, ys.log_scale()),
            (true, false) => draw(&area, plot, xs.log_scale(), ys),
            (true, true) => draw(&area, plot, xs.log_scale(), ys.log_scale()),
        };
        debug_assert!(drawn.is_ok(), "{}: {drawn:?}", plot.name);
    }
    text = text.replace(&hex(INK), "var(--ink)").replace(&hex(RULE), "var(--rule)");
    for index in 0..COLOURS {
        text = text.replace(&hex(series_colour(index)), &format!("var(--s{index})"));
    }
    text.replacen("<svg ", &format!("<svg role=\"img\" aria-label=\"{}\" ", plot.title), 1)
}

fn hex(colour: RGBColor) -> String {
    format!("#{:02X}{:02X}{:02X}", colour.0, colour.1, colour.2)
}

/// The range of an axis: from zero, or on a logarithmic scale around all points.
fn range(plot: &Plot, of: impl Fn(&(f64, f64)) -> f64, axis: Axis) -> Range<f64> {
    let points = plot.series.iter().flat_map(|series| &series.points);
    let values: Vec<f64> =
        points.map(of).filter(|value| value.is_finite() && (!axis.log || *value > 0.0)).collect();
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if !least.is_finite() {
        return if axis.log { 1.0..10.0 } else { 0.0..1.0 };
    }
    if axis.log { least / 1.3..most * 1.3 } else { 0.0..(most * 1.05).max(1e-9) }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn draw<'a, X, Y>(
    area: &Area<'a>,
    plot: &Plot,
    xs: impl AsRangedCoord<CoordDescType = X, Value = f64>,
    ys: impl AsRangedCoord<CoordDescType = Y, Value = f64>,
) -> Result<(), Box<dyn std::error::Error + 'a>>
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let font = |size: u32| ("system-ui, sans-serif", size).into_font().color(&INK);
    let whole = |x: f64| !plot.x.log && x.fract() == 0.0 && x <= 12.0;
    let xs_are_few = plot.series.iter().flat_map(|series| &series.points).all(|point| whole(point.0));
    let most = plot.series.iter().map(|series| series.last_x()).fold(0.0, f64::max);
    let (left, legend) = area.split_horizontally(WIDTH - LEGEND);
    let mut chart = ChartBuilder::on(&left)
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(xs, ys)?;
    chart
        .configure_mesh()
        // Without fractions between a few processors.
        .x_labels(if xs_are_few { most as usize + 1 } else { 11 })
        .light_line_style(TRANSPARENT)
        .bold_line_style(RULE)
        .axis_style(INK)
        .label_style(font(16))
        .axis_desc_style(font(17))
        .x_desc(plot.x.label)
        .y_desc(plot.y.label)
        .x_label_formatter(&number)
        .y_label_formatter(&number)
        .draw()?;
    for (index, series) in plot.series.iter().enumerate() {
        let colour = series_colour(index);
        let points = series.points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite());
        let points: Vec<(f64, f64)> = points.collect();
        chart.draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)))?;
        chart.draw_series(points.into_iter().map(|point| Circle::new(point, 3, colour.filled())))?;
        let y = 24 + 22 * index as i32;
        legend.draw(&PathElement::new([(4, y), (24, y)], colour.stroke_width(3)))?;
        let beside = font(16).pos(Pos::new(HPos::Left, VPos::Center));
        legend.draw(&Text::new(series.name.clone(), (30, y), beside))?;
    }
    area.present()?;
    Ok(())
}

/// A number on an axis: whole if it is large, else with few digits.
fn number(value: &f64) -> String {
    let text = match value.abs() {
        1000.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    };
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Means, Series};

    fn plot(log: bool, points: Vec<(f64, f64)>) -> Plot {
        let axis = |label| Axis { label, log };
        let series = vec![Series { name: "a <b>".to_owned(), points }];
        let (x, y) = (axis("threads"), axis("ns"));
        Plot { name: "p", title: "A plot", x, y, means: Means::Timed, series }
    }

    #[test]
    fn a_plot_has_variables_for_colours_and_escapes_names() {
        for log in [false, true] {
            let text = svg(&plot(log, vec![(1.0, 2.0), (2.0, 900.0), (3.0, f64::NAN)]));
            assert!(text.contains("var(--s0)") && text.contains("var(--ink)"), "{text}");
            assert!(!text.contains("#010203") && !text.contains("#0708"), "a fixed colour is left: {text}");
            assert!(text.contains("a &lt;b&gt;") && text.contains("\nthreads\n"), "{text}");
            assert!(text.contains("prefers-color-scheme:dark"));
        }
    }

    #[test]
    fn a_plot_without_points_is_drawn() {
        for log in [false, true] {
            assert!(svg(&plot(log, Vec::new())).starts_with("<svg "));
        }
    }

    #[test]
    fn a_plot_for_one_kind_of_page_has_its_colours() {
        let plot = plot(false, vec![(1.0, 2.0), (2.0, 9.0)]);
        let [light, dark] = [Page::Light, Page::Dark].map(|page| fixed(&plot, page));
        assert!(light.contains(LIGHT[0]) && dark.contains(DARK[0]) && light != dark);
        assert!(!light.contains("var(") && !dark.contains("var("));
    }

    #[test]
    fn a_plot_asks_for_nothing_else() {
        for it in crate::ALL.iter().flat_map(|it| (it.alike)().plots) {
            let text = svg(&it);
            for outside in ["<script", "<image", "<use", "href", "url(", "@import", "@font-face"] {
                assert!(!text.contains(outside), "{} has {outside}", it.name);
            }
            assert_eq!(text.matches("http").count(), text.matches("http://www.w3.org/2000/svg").count());
        }
    }

    #[test]
    fn numbers_are_short() {
        let texts = [0.0, 0.25, 1.0, 12.5, 20.0, 1500.0].map(|value| number(&value));
        assert_eq!(texts, ["0", "0.25", "1", "12.5", "20", "1500"]);
    }
}
