//! Reads files of TSPLIB with problems of the types `TSP` and `ATSP`.
//!
//! Weights are given by coordinates (`EUC_2D`, `CEIL_2D`, `ATT`, `GEO`, `MAN_2D`, `MAX_2D`) or explicitly, in
//! any of the formats of a matrix or a triangle. Each error names the file, the line and the reason.
//!
//! A comment with the word `optimum` and a number, such as `COMMENT : optimum 2085`, states the optimum.
//! A file may end without `EOF`, but then its last line is complete. So a file that was cut is refused, or
//! has lost no data.
//!
//! Source: G. Reinelt, TSPLIB 95.

mod distance;
mod header;
mod numbers;

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use crate::{Instance, WEIGHT_MAX};
use distance::Rule;
use header::{Format, Header, Weights};
use numbers::Numbers;

/// Largest file in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// A file that is no problem this crate can solve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// Name of the file.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// The reason, and a remedy.
    pub reason: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.reason)
    }
}

impl std::error::Error for ParseError {}

/// A file that could not be read, or is wrong.
#[derive(Debug)]
pub enum ReadError {
    /// The system could not read the file.
    Io {
        /// Name of the file.
        file: String,
        /// The reason.
        reason: io::Error,
    },
    /// The content is wrong.
    Parse(ParseError),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Io { file, reason } => write!(f, "cannot read {file}: {reason}"),
            ReadError::Parse(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ReadError {}

/// Reads a file.
///
/// # Errors
/// [`ReadError`] if the file cannot be read, has more than 16 MiB, is no text in UTF-8, or is no problem that
/// [`parse`] accepts.
pub fn read(path: &Path) -> Result<Instance, ReadError> {
    let file = path.display().to_string();
    let failed = |reason| ReadError::Io { file: file.clone(), reason };
    let bytes = fs::metadata(path).map_err(failed)?.len();
    if bytes > FILE_BYTES_MAX {
        let reason = format!("it has {bytes} bytes, and at most {FILE_BYTES_MAX} are read");
        return Err(failed(io::Error::new(io::ErrorKind::FileTooLarge, reason)));
    }
    let text = fs::read_to_string(path).map_err(failed)?;
    parse(&file, &text).map_err(ReadError::Parse)
}

/// Reads a problem from the text of a file. `file` is its name in errors.
///
/// ```
/// use squall_tsp::tsplib::parse;
///
/// let text = "NAME : three\nTYPE : TSP\nDIMENSION : 3\nEDGE_WEIGHT_TYPE : EUC_2D\n\
///             NODE_COORD_SECTION\n1 0 0\n2 3 0\n3 3 4\nEOF\n";
/// assert_eq!(parse("three.tsp", text).unwrap().weight(0, 2), 5);
/// let error = parse("three.tsp", &text.replace("3 3 4\n", "")).unwrap_err();
/// assert_eq!((error.line, error.file.as_str()), (7, "three.tsp"));
/// ```
///
/// # Errors
/// [`ParseError`] if the text has a wrong or unknown line, too few or too many numbers, or weights outside
/// the limits of an [`Instance`].
pub fn parse(file: &str, text: &str) -> Result<Instance, ParseError> {
    let wrong = |(line, reason)| ParseError { file: file.to_owned(), line, reason };
    parse_lines(text).map_err(wrong)
}

/// A line and the reason why it is wrong.
type Wrong = (usize, String);

fn wrong<T>(line: usize, reason: impl Into<String>) -> Result<T, Wrong> {
    Err((line, reason.into()))
}

/// The sections with data.
#[derive(Default)]
struct Data {
    coordinates: Option<Vec<[f64; 2]>>,
    weights: Option<Vec<u32>>,
    display: Option<Vec<[f64; 2]>>,
}

fn parse_lines(text: &str) -> Result<Instance, Wrong> {
    let lines: Vec<&str> = text.lines().collect();
    let (mut header, mut data, mut at) = (Header::default(), Data::default(), 0);
    let mut has_end = false;
    while let Some(line) = lines.get(at) {
        at += 1;
        let (keyword, value) = match line.split_once(':') {
            Some((keyword, value)) => (keyword.trim(), value.trim()),
            None => (line.trim(), ""),
        };
        match keyword {
            "" => {}
            "EOF" => {
                has_end = true;
                break;
            }
            "NODE_COORD_SECTION" => {
                let numbers = Numbers::new(&lines, &mut at);
                fill(&mut data.coordinates, keyword, numbers.line(), || places(&header, numbers))?;
            }
            "DISPLAY_DATA_SECTION" => {
                let numbers = Numbers::new(&lines, &mut at);
                fill(&mut data.display, keyword, numbers.line(), || places(&header, numbers))?;
            }
            "EDGE_WEIGHT_SECTION" => {
                let numbers = Numbers::new(&lines, &mut at);
                fill(&mut data.weights, keyword, numbers.line(), || matrix(&header, numbers))?;
            }
            _ => header.set(at, keyword, value)?,
        }
    }
    let end = lines.len().max(1);
    if let Some(more) = lines[at..].iter().position(|line| !line.trim().is_empty()) {
        return wrong(at + more + 1, "there is text behind EOF; delete it");
    }
    if !has_end && !text.ends_with('\n') {
        return wrong(end, "the file ends inside of a line; it was probably cut");
    }
    finish(header, data, end)
}

fn fill<T>(
    section: &mut Option<T>,
    keyword: &str,
    line: usize,
    read: impl FnOnce() -> Result<T, Wrong>,
) -> Result<(), Wrong> {
    if section.is_some() {
        return wrong(line, format!("the section {keyword} comes twice; delete one"));
    }
    *section = Some(read()?);
    Ok(())
}

/// Reads a line per city: its number and two coordinates.
fn places(header: &Header, mut numbers: Numbers<'_>) -> Result<Vec<[f64; 2]>, Wrong> {
    let cities = header.cities(numbers.line())?;
    let mut places = vec![None; cities];
    for read in 0..cities {
        let what = || format!("{read} of {cities} cities have coordinates; DIMENSION promises more");
        let city: usize = numbers.next(what)?;
        let line = numbers.line();
        let place = [numbers.coordinate(what)?, numbers.coordinate(what)?];
        match city.checked_sub(1).and_then(|index| places.get_mut(index)) {
            Some(free @ None) => *free = Some(place),
            Some(Some(_)) => return wrong(line, format!("city {city} comes twice; number each city once")),
            None => return wrong(line, format!("there is no city {city}; number the cities 1 to {cities}")),
        }
    }
    numbers.end(|| format!("there are more than {cities} cities; correct DIMENSION"))?;
    Ok(places.into_iter().flatten().collect())
}

/// Reads a matrix or a triangle of weights.
fn matrix(header: &Header, mut numbers: Numbers<'_>) -> Result<Vec<u32>, Wrong> {
    let cities = header.cities(numbers.line())?;
    let format = header.matrix_format(numbers.line())?;
    let count = format.count(cities);
    let mut weights = vec![0; cities * cities];
    for (read, (from, to)) in format.entries(cities).enumerate() {
        let what = || format!("{read} of {count} weights are there; DIMENSION and the format promise more");
        let weight = numbers.weight(what)?;
        if from == to {
            continue;
        }
        let (entry, back) = (from * cities + to, to * cities + from);
        if format != Format::Full {
            weights[back] = weight;
        } else if header.is_symmetric && to < from && weights[back] != weight {
            return wrong(
                numbers.line(),
                format!(
                    "the weights between cities {} and {} differ by direction; use TYPE : ATSP",
                    to + 1,
                    from + 1
                ),
            );
        }
        weights[entry] = weight;
    }
    numbers.end(|| format!("there are more than {count} weights; correct DIMENSION or the format"))?;
    Ok(weights)
}

/// Makes the instance from a complete file. `end` is the last line.
fn finish(header: Header, data: Data, end: usize) -> Result<Instance, Wrong> {
    let cities = header.cities(end)?;
    let Some(kind) = header.weights else {
        return wrong(end, "there is no EDGE_WEIGHT_TYPE; add one, such as EUC_2D");
    };
    if header.shows_places && data.display.is_none() {
        return wrong(end, "DISPLAY_DATA_TYPE promises a DISPLAY_DATA_SECTION, and there is none");
    }
    let (weights, places) = match (kind, data.coordinates, data.weights) {
        (Weights::Explicit, coordinates, Some(weights)) => (weights, data.display.or(coordinates)),
        (Weights::Explicit, _, None) => return wrong(end, "there is no EDGE_WEIGHT_SECTION"),
        (Weights::By(_), _, Some(_)) => {
            return wrong(end, "weights are given by coordinates and by a section; delete one");
        }
        (Weights::By(_), None, None) => return wrong(end, "there is no NODE_COORD_SECTION"),
        (Weights::By(rule), Some(coordinates), None) => {
            let weights = weights_by(rule, &coordinates).map_err(|reason| (end, reason))?;
            let places = coordinates.into_iter().map(|at| rule.place(at)).collect();
            (weights, Some(data.display.unwrap_or(places)))
        }
    };
    debug_assert_eq!(weights.len(), cities * cities);
    let made = Instance::new(header.name, weights).map_err(|error| (end, error.to_string()))?;
    let made = places.into_iter().fold(made, Instance::with_places);
    Ok(header.optimum.into_iter().fold(made, Instance::with_stated_optimum))
}

fn weights_by(rule: Rule, places: &[[f64; 2]]) -> Result<Vec<u32>, String> {
    let mut weights = Vec::with_capacity(places.len() * places.len());
    for (from, &one) in places.iter().enumerate() {
        for (to, &other) in places.iter().enumerate() {
            let weight = rule.weight(one, other);
            if !(0.0..=f64::from(WEIGHT_MAX)).contains(&weight) {
                return Err(format!(
                    "the distance {weight} of cities {} and {} is above {WEIGHT_MAX}; scale the coordinates down",
                    from + 1,
                    to + 1
                ));
            }
            weights.push(weight as u32);
        }
    }
    Ok(weights)
}

#[cfg(test)]
mod tests;
