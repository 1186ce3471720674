//! Figures of a run: numbers with names, and curves for plots.

/// How a figure was obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// Timed on this machine.
    Timed,
    /// Accesses counted exactly while the code ran under emulation.
    Counted,
    /// Computed from counts by a model of a larger machine.
    Modelled,
    /// Events counted by the code itself, while one thread stepped all its users in a fixed order.
    Stepped,
}

impl Means {
    /// The word on the page.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Means::Timed => "timed",
            Means::Counted => "counted",
            Means::Modelled => "modelled",
            Means::Stepped => "stepped",
        }
    }
}

/// Figures of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// Single figures.
    pub figures: Vec<Figure>,
    /// Plots.
    pub plots: Vec<Plot>,
    /// Measurements that were not possible, with the reason. With one of them the verdict is `part`.
    pub missing: Vec<String>,
}

/// A figure with its name.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Name, as the page shows it.
    pub name: String,
    /// Value.
    pub value: f64,
    /// Unit.
    pub unit: &'static str,
    /// How it was obtained.
    pub means: Means,
}

/// A plot of several series over one axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// Name of the file, without an extension, unique among all experiments.
    pub name: &'static str,
    /// Heading.
    pub title: &'static str,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// How the points were obtained.
    pub means: Means,
    /// The curves.
    pub series: Vec<Series>,
}

/// An axis of a plot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Quantity and unit.
    pub label: &'static str,
    /// Whether the scale is logarithmic.
    pub log: bool,
}

impl Axis {
    /// An axis with a linear scale.
    #[must_use]
    pub const fn linear(label: &'static str) -> Axis {
        Axis { label, log: false }
    }

    /// An axis with a logarithmic scale.
    #[must_use]
    pub const fn log(label: &'static str) -> Axis {
        Axis { label, log: true }
    }
}

/// A curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Points by ascending x.
    pub points: Vec<(f64, f64)>,
}

impl Series {
    /// The value of the last point, or NaN without points.
    #[must_use]
    pub fn last(&self) -> f64 {
        self.points.last().map_or(f64::NAN, |point| point.1)
    }

    /// The value of the first point, or NaN without points.
    #[must_use]
    pub fn first(&self) -> f64 {
        self.points.first().map_or(f64::NAN, |point| point.1)
    }

    /// The last x, or NaN without points.
    #[must_use]
    pub fn last_x(&self) -> f64 {
        self.points.last().map_or(f64::NAN, |point| point.0)
    }

    /// The value at `x`, or NaN without such a point.
    #[must_use]
    pub fn at(&self, x: f64) -> f64 {
        self.points.iter().find(|point| point.0 == x).map_or(f64::NAN, |point| point.1)
    }

    /// The last value divided by the first.
    #[must_use]
    pub fn growth(&self) -> f64 {
        self.last() / self.first()
    }
}

impl Found {
    /// The value of the figure with this name, or NaN. A comparison with NaN is false, so a predicate does
    /// not hold without its figures.
    #[must_use]
    pub fn value(&self, name: &str) -> f64 {
        self.figures.iter().find(|figure| figure.name == name).map_or(f64::NAN, |figure| figure.value)
    }

    /// Whether a figure was obtained in this way.
    pub(crate) fn has(&self, means: Means) -> bool {
        self.figures.iter().any(|it| it.means == means) || self.plots.iter().any(|it| it.means == means)
    }

    /// The ways in which the figures were obtained, such as `timed, counted`.
    #[must_use]
    pub fn means(&self) -> String {
        let all = [Means::Timed, Means::Counted, Means::Modelled, Means::Stepped];
        let used = all.into_iter().filter(|means| self.has(*means));
        used.map(Means::word).collect::<Vec<_>>().join(", ")
    }

    /// The names of figures and points without a number, since a bench left them out.
    #[must_use]
    pub fn without_value(&self) -> Vec<String> {
        let figures = self.figures.iter().filter(|it| it.value.is_nan()).map(|it| it.name.clone());
        let curves = self.plots.iter().flat_map(|plot| plot.series.iter().map(move |series| (plot, series)));
        let points = curves.flat_map(|(plot, series)| {
            let missing = series.points.iter().filter(|(_, y)| y.is_nan());
            missing.map(move |(x, _)| format!("{}, {} at {x}", plot.name, series.name))
        });
        figures.chain(points).collect()
    }

    /// The series of a plot, or an empty one.
    #[must_use]
    pub fn series(&self, plot: &str, name: &str) -> Series {
        let of = self.plots.iter().find(|it| it.name == plot);
        let found = of.and_then(|it| it.series.iter().find(|series| series.name == name));
        found.cloned().unwrap_or_else(|| Series { name: name.to_owned(), points: Vec::new() })
    }

    /// Adds a figure.
    pub fn figure(&mut self, name: impl Into<String>, value: f64, unit: &'static str, means: Means) {
        self.figures.push(Figure { name: name.into(), value, unit, means });
    }
}
