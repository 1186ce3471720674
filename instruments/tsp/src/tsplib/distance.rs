//! Weights from coordinates, as TSPLIB defines them.

/// A rule that gives the weight between two places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// Distance on a plane, rounded.
    Euclidean,
    /// Distance on a plane, rounded up.
    Ceiling,
    /// Pseudo-Euclidean distance: that on a plane divided by the root of ten, rounded up.
    Att,
    /// Distance on a sphere of the Earth's size, from latitudes and longitudes in degrees and minutes.
    Geographical,
    /// Sum of the differences of the coordinates.
    Manhattan,
    /// Larger difference of the coordinates.
    Maximum,
}

/// Value of π in the definition of geographical distances.
#[allow(clippy::approx_constant)]
const PI: f64 = 3.141592;
/// Radius of the Earth in kilometres in that definition.
const RADIUS_KM: f64 = 6378.388;

impl Rule {
    /// The rule of this name.
    pub(super) fn named(name: &str) -> Option<Rule> {
        Some(match name {
            "EUC_2D" => Rule::Euclidean,
            "CEIL_2D" => Rule::Ceiling,
            "ATT" => Rule::Att,
            "GEO" => Rule::Geographical,
            "MAN_2D" => Rule::Manhattan,
            "MAX_2D" => Rule::Maximum,
            _ => return None,
        })
    }

    /// The weight between two places. It may be no number, or above any limit.
    pub(super) fn weight(self, one: [f64; 2], other: [f64; 2]) -> f64 {
        let (dx, dy) = ((one[0] - other[0]).abs(), (one[1] - other[1]).abs());
        let squares = dx * dx + dy * dy;
        match self {
            Rule::Euclidean => nearest(squares.sqrt()),
            Rule::Ceiling => squares.sqrt().ceil(),
            Rule::Att => {
                let exact = (squares / 10.0).sqrt();
                let near = nearest(exact);
                if near < exact { near + 1.0 } else { near }
            }
            Rule::Manhattan => nearest(dx + dy),
            Rule::Maximum => nearest(dx).max(nearest(dy)),
            Rule::Geographical => {
                let ([lat, long], [lat2, long2]) = (one.map(radians), other.map(radians));
                let (q1, q2, q3) = ((long - long2).cos(), (lat - lat2).cos(), (lat + lat2).cos());
                let cosine = 0.5 * ((1.0 + q1) * q2 - (1.0 - q1) * q3);
                (RADIUS_KM * cosine.clamp(-1.0, 1.0).acos() + 1.0).trunc()
            }
        }
    }

    /// Converts coordinates for a drawing: to the right, and upwards.
    pub(super) fn place(self, at: [f64; 2]) -> [f64; 2] {
        if self == Rule::Geographical { [radians(at[1]), radians(at[0])] } else { at }
    }
}

/// Rounds like TSPLIB: half a unit goes up.
fn nearest(value: f64) -> f64 {
    (value + 0.5).floor()
}

/// Radians of an angle with two digits of minutes behind the point.
fn radians(angle: f64) -> f64 {
    let degrees = angle.trunc();
    PI * (degrees + 5.0 * (angle - degrees) / 3.0) / 180.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_rounds_as_tsplib_defines() {
        let weight = |name, one, other| Rule::named(name).expect("a rule").weight(one, other);
        assert_eq!(weight("EUC_2D", [0.0, 0.0], [3.0, 4.0]), 5.0);
        assert_eq!(weight("EUC_2D", [0.0, 0.0], [0.0, 2.5]), 3.0);
        assert_eq!(weight("CEIL_2D", [0.0, 0.0], [0.0, 2.1]), 3.0);
        // The root of 1.6 is 1.26: the nearest number is below it.
        assert_eq!(weight("ATT", [0.0, 0.0], [0.0, 4.0]), 2.0);
        assert_eq!(weight("MAN_2D", [1.0, 1.0], [3.0, -2.0]), 5.0);
        assert_eq!(weight("MAX_2D", [1.0, 1.0], [3.0, -2.0]), 3.0);
        // The first two cities of `burma14` are 153 km apart.
        assert_eq!(weight("GEO", [16.47, 96.10], [16.47, 94.44]), 153.0);
        assert_eq!(Rule::named("XRAY1"), None);
    }
}
