//! Counts of the locality profiler.

use serde::Deserialize;

use crate::Missing;

/// Counts of one loop, per operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Counts {
    /// Accesses.
    pub accesses: f64,
    /// Accesses to lines that several threads touch and one of them writes, again and again.
    pub write_shared: f64,
    /// Range of the accesses over the threads: most less fewest, divided by the mean.
    pub thread_range: f64,
    /// Time of an operation by the model of a server, with one processor per thread, in nanoseconds.
    pub modelled_ns: f64,
    /// Transfers and upgrades of lines that the model expects within a node of the topology.
    pub near_misses: f64,
    /// Transfers and upgrades of lines that the model expects between nodes. Lines that are shared rarely
    /// count too.
    pub far_misses: f64,
}

#[derive(Deserialize)]
struct Report {
    accesses_per_op: Option<f64>,
    write_shared_accesses_per_op: Option<f64>,
    near_misses_per_op_by_model: Option<f64>,
    far_misses_per_op_by_model: Option<f64>,
    thread_list: Vec<Thread>,
    curve: Vec<Point>,
    incomplete: Vec<String>,
}

#[derive(Deserialize)]
struct Thread {
    works: bool,
    accesses: u64,
}

#[derive(Deserialize)]
struct Point {
    processors: usize,
    ns_per_op: f64,
}

impl Counts {
    /// Reads the JSON object of `squall locality`. Incomplete counts are an error.
    pub(crate) fn parse(json: &str, threads: usize) -> Result<Counts, Missing> {
        let report: Report = serde_json::from_str(json)
            .map_err(|error| Missing(format!("the report of squall locality: {error}")))?;
        if !report.incomplete.is_empty() {
            return Err(Missing(report.incomplete.join("; ")));
        }
        let modelled = report.curve.iter().find(|point| point.processors == threads);
        Ok(Counts {
            accesses: report.accesses_per_op.unwrap_or(f64::NAN),
            write_shared: report.write_shared_accesses_per_op.unwrap_or(f64::NAN),
            thread_range: range(report.thread_list.iter().filter(|it| it.works).map(|it| it.accesses as f64)),
            modelled_ns: modelled.map_or(f64::NAN, |point| point.ns_per_op),
            near_misses: report.near_misses_per_op_by_model.unwrap_or(f64::NAN),
            far_misses: report.far_misses_per_op_by_model.unwrap_or(f64::NAN),
        })
    }
}

/// Largest less smallest value, divided by the mean.
fn range(values: impl Iterator<Item = f64>) -> f64 {
    let (mut least, mut most, mut sum, mut count) = (f64::INFINITY, f64::NEG_INFINITY, 0.0, 0.0);
    for value in values {
        (least, most, sum, count) = (value.min(least), value.max(most), sum + value, count + 1.0);
    }
    (most - least) * count / sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_and_incomplete_ones_refused() {
        let json = |incomplete: &str| {
            format!(
                "{{\"accesses_per_op\":7.5,\"write_shared_accesses_per_op\":1.0,\"incomplete\":[{incomplete}],\
                 \"near_misses_per_op_by_model\":2.0,\"far_misses_per_op_by_model\":3.0,\
                 \"thread_list\":[{{\"works\":true,\"accesses\":90}},{{\"works\":true,\"accesses\":110}},\
                 {{\"works\":false,\"accesses\":5}}],\
                 \"curve\":[{{\"processors\":8,\"ns_per_op\":90.0}}]}}"
            )
        };
        let counts = Counts {
            accesses: 7.5,
            write_shared: 1.0,
            thread_range: 0.2,
            modelled_ns: 90.0,
            near_misses: 2.0,
            far_misses: 3.0,
        };
        assert_eq!(Counts::parse(&json(""), 8), Ok(counts));
        assert_eq!(Counts::parse(&json("\"killed\""), 8), Err(Missing("killed".to_owned())));
        assert!(Counts::parse(&json(""), 4).is_ok_and(|counts| counts.modelled_ns.is_nan()));
        assert!(Counts::parse("{}", 4).is_err());
    }
}
