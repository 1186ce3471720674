//! EX-K3 to EX-K8, EX-T2-pager, EX-H5-pager and EX-H6-pager: faults through the objects of virtual memory,
//! counted.
//!
//! The papers time faults on machines of 16 to 24 processors. Here the library's own faults are counted under
//! emulation, with a thread on each virtual processor. A *shared access* is an access to a line that other
//! threads write. It takes turns with theirs, so its cost grows with the processors.
//!
//! The experiments of Hurricane run programs in clusters. One thread steps the workers, and a model of the
//! paper's machine gives the times.

mod clusters;
mod ex_h5;
mod ex_h6;
mod ex_k3;
mod ex_k4;
mod ex_k5;
mod ex_k6;
mod ex_k7;
mod ex_k8;
mod ex_t2;
mod programs;

pub(super) use ex_h5::EX_H5;
pub(super) use ex_h6::EX_H6;
pub(super) use ex_k3::EX_K3;
pub(super) use ex_k4::EX_K4;
pub(super) use ex_k5::EX_K5;
pub(super) use ex_k6::EX_K6;
pub(super) use ex_k7::EX_K7;
pub(super) use ex_k8::EX_K8;
pub(super) use ex_t2::EX_T2;

use crate::count::Counts;
use crate::lab::Loop;
use crate::{Axis, Found, Lab, Means, Missing, Plot, Series};

/// The numbers of processors.
const PROCESSORS: [usize; 5] = [2, 4, 8, 16, 24];
/// The numbers of a quick run, and of planted data.
const FEW: [usize; 2] = [2, 24];

/// The loops of an experiment.
struct Loops<'a> {
    case: &'static str,
    variant: &'static str,
    /// The name of each subject in the report, and in the case.
    subjects: &'a [(&'static str, &'static str)],
    /// Operations of each thread, in a quick run and in a full one.
    ops: (u64, u64),
}

impl Loops<'_> {
    /// Counts each subject at each number of processors. Returns a series of each figure for each subject.
    fn count<const N: usize>(
        &self,
        lab: &mut Lab<'_>,
        figures: [fn(&Counts) -> f64; N],
    ) -> Result<[Vec<Series>; N], Missing> {
        let mut series = [const { Vec::new() }; N];
        let processors: &[usize] = if lab.quick { &FEW } else { &PROCESSORS };
        for (name, subject) in self.subjects {
            let mut points = [const { Vec::new() }; N];
            for &threads in processors {
                let ops = if lab.quick { self.ops.0 } else { self.ops.1 };
                let Loops { case, variant, .. } = *self;
                let counts = lab.count_allocating(Loop { case, subject, variant, threads, ops })?;
                for (points, figure) in points.iter_mut().zip(figures) {
                    points.push((threads as f64, figure(&counts)));
                }
            }
            for (series, points) in series.iter_mut().zip(points) {
                series.push(Series { name: (*name).to_owned(), points });
            }
        }
        Ok(series)
    }
}

fn shared(counts: &Counts) -> f64 {
    counts.write_shared
}

fn modelled(counts: &Counts) -> f64 {
    counts.modelled_ns
}

/// A plot over the processors.
fn plot(name: &'static str, title: &'static str, y: &'static str, means: Means, series: Vec<Series>) -> Plot {
    Plot {
        name,
        title,
        x: Axis::linear("processors, each with one thread"),
        y: Axis::linear(y),
        means,
        series,
    }
}

/// The figures of an experiment about shared accesses.
fn shared_found(name: &'static str, title: &'static str, series: Vec<Series>) -> Found {
    let plot = plot(name, title, "shared accesses per operation", Means::Counted, series);
    Found { plots: vec![plot], ..Found::default() }
}

/// Planted data: a series for each subject, with a value at 2 and at 24 processors.
fn planted<const N: usize>(subjects: &[(&'static str, &'static str)], values: [[f64; 2]; N]) -> Vec<Series> {
    let series = subjects.iter().zip(values).map(|((name, _), values)| Series {
        name: (*name).to_owned(),
        points: FEW.map(|at| at as f64).into_iter().zip(values).collect(),
    });
    series.collect()
}

/// Times a case at 1 and more threads, and adds the plot.
fn add_times(
    lab: &mut Lab<'_>,
    found: &mut Found,
    name: &'static str,
    loops: &Loops<'_>,
    rival: Option<&'static str>,
) -> Result<(), Missing> {
    let threads = lab.threads();
    let times = lab.bench(loops.case, loops.variant, &threads)?;
    let all = loops.subjects.iter().copied().chain(rival.map(|rival| (rival, rival)));
    let series = all.map(|(name, subject)| Series {
        name: name.to_owned(),
        points: threads.iter().map(|&n| (n as f64, times.ns(subject, n))).collect(),
    });
    found.plots.push(Plot {
        name,
        title: "An operation on this machine",
        x: Axis::linear("threads"),
        y: Axis::linear("ns per operation"),
        means: Means::Timed,
        series: series.collect(),
    });
    Ok(())
}
