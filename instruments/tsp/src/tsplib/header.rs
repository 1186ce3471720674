//! The lines with a keyword and a value.

use super::distance::Rule;
use super::{Wrong, wrong};
use crate::{CITIES_MAX, CITIES_MIN};

/// The source of the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weights {
    Explicit,
    By(Rule),
}

/// The order of explicit weights. A column of one triangle is a row of the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Full,
    UpperRow,
    LowerRow,
    UpperDiagRow,
    LowerDiagRow,
}

impl Format {
    fn named(name: &str) -> Option<Format> {
        Some(match name {
            "FULL_MATRIX" => Format::Full,
            "UPPER_ROW" | "LOWER_COL" => Format::UpperRow,
            "LOWER_ROW" | "UPPER_COL" => Format::LowerRow,
            "UPPER_DIAG_ROW" | "LOWER_DIAG_COL" => Format::UpperDiagRow,
            "LOWER_DIAG_ROW" | "UPPER_DIAG_COL" => Format::LowerDiagRow,
            _ => return None,
        })
    }

    /// The columns of a row.
    fn columns(self, row: usize, cities: usize) -> std::ops::Range<usize> {
        match self {
            Format::Full => 0..cities,
            Format::UpperRow => row + 1..cities,
            Format::LowerRow => 0..row,
            Format::UpperDiagRow => row..cities,
            Format::LowerDiagRow => 0..row + 1,
        }
    }

    /// The entries in the order of the file.
    pub(super) fn entries(self, cities: usize) -> impl Iterator<Item = (usize, usize)> {
        (0..cities).flat_map(move |row| self.columns(row, cities).map(move |column| (row, column)))
    }

    /// The number of entries.
    pub(super) fn count(self, cities: usize) -> usize {
        (0..cities).map(|row| self.columns(row, cities).len()).sum()
    }
}

/// The values of the keywords.
#[derive(Debug, Default)]
pub(super) struct Header {
    pub(super) name: String,
    pub(super) is_symmetric: bool,
    pub(super) optimum: Option<u64>,
    pub(super) weights: Option<Weights>,
    /// Whether a section with places for drawings is promised.
    pub(super) shows_places: bool,
    cities: Option<usize>,
    format: Option<Format>,
    seen: Vec<String>,
}

impl Header {
    /// Takes the value of a keyword.
    pub(super) fn set(&mut self, line: usize, keyword: &str, value: &str) -> Result<(), Wrong> {
        if keyword == "COMMENT" {
            self.optimum = self.optimum.or_else(|| optimum_in(value));
            return Ok(());
        }
        if self.seen.iter().any(|seen| seen == keyword) {
            return wrong(line, format!("the keyword {keyword} comes twice; delete one"));
        }
        let refused = |supported| {
            let told: String = value.chars().take(40).collect();
            wrong(line, format!("{keyword} : {told} is not supported; supported are {supported}"))
        };
        match keyword {
            "NAME" => self.name = value.to_owned(),
            "TYPE" => match value.split_whitespace().next() {
                Some("TSP") => self.is_symmetric = true,
                Some("ATSP") => {}
                _ => return refused("TSP and ATSP"),
            },
            "DIMENSION" => match value.parse() {
                Ok(cities) if (CITIES_MIN..=CITIES_MAX).contains(&cities) => self.cities = Some(cities),
                _ => {
                    let told: String = value.chars().take(40).collect();
                    let reason = format!("DIMENSION : {told} is no number from {CITIES_MIN} to {CITIES_MAX}");
                    return wrong(line, reason);
                }
            },
            "EDGE_WEIGHT_TYPE" if value == "EXPLICIT" => self.weights = Some(Weights::Explicit),
            "EDGE_WEIGHT_TYPE" => match Rule::named(value) {
                Some(rule) => self.weights = Some(Weights::By(rule)),
                None => return refused("EXPLICIT, EUC_2D, CEIL_2D, ATT, GEO, MAN_2D and MAX_2D"),
            },
            "EDGE_WEIGHT_FORMAT" if value == "FUNCTION" => {}
            "EDGE_WEIGHT_FORMAT" => match Format::named(value) {
                Some(format) => self.format = Some(format),
                None => return refused("FULL_MATRIX and the triangles, such as UPPER_ROW"),
            },
            "NODE_COORD_TYPE" if matches!(value, "TWOD_COORDS" | "NO_COORDS") => {}
            "DISPLAY_DATA_TYPE" if matches!(value, "COORD_DISPLAY" | "NO_DISPLAY") => {}
            "DISPLAY_DATA_TYPE" if value == "TWOD_DISPLAY" => self.shows_places = true,
            "NODE_COORD_TYPE" => return refused("TWOD_COORDS and NO_COORDS"),
            "DISPLAY_DATA_TYPE" => return refused("COORD_DISPLAY, TWOD_DISPLAY and NO_DISPLAY"),
            _ => {
                let told: String = keyword.chars().take(40).collect();
                return wrong(
                    line,
                    format!("the keyword {told:?} is unknown or not supported; delete its line"),
                );
            }
        }
        self.seen.push(keyword.to_owned());
        Ok(())
    }

    /// The number of cities, needed at this line.
    pub(super) fn cities(&self, line: usize) -> Result<usize, Wrong> {
        self.need_type(line)?;
        match self.cities {
            Some(cities) => Ok(cities),
            None => wrong(line, "there is no DIMENSION before; add the number of cities"),
        }
    }

    fn need_type(&self, line: usize) -> Result<(), Wrong> {
        if self.seen.iter().any(|seen| seen == "TYPE") {
            Ok(())
        } else {
            wrong(line, "there is no TYPE before; add TYPE : TSP or TYPE : ATSP")
        }
    }

    /// The format of explicit weights, needed at this line.
    pub(super) fn matrix_format(&self, line: usize) -> Result<Format, Wrong> {
        match self.format {
            Some(Format::Full) => Ok(Format::Full),
            Some(format) if self.is_symmetric => Ok(format),
            Some(_) => wrong(line, "a triangle of weights describes a symmetric problem; use FULL_MATRIX"),
            None => wrong(line, "there is no EDGE_WEIGHT_FORMAT before; add one, such as FULL_MATRIX"),
        }
    }
}

/// The number behind the word `optimum`.
fn optimum_in(comment: &str) -> Option<u64> {
    let mut words = comment.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|it| !it.is_empty());
    words.find(|word| word.eq_ignore_ascii_case("optimum"))?;
    words.next()?.parse().ok()
}
