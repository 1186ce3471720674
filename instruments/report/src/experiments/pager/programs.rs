//! The programs of EX-H5 and EX-H6: SOR, and the multiplication of matrices.
//!
//! Both divide their matrices into strips of rows, one for each worker. A row has a page. Each worker writes
//! the first values of its strips.

use std::array;

use super::clusters::{Machine, NUMBERS, Row, Run, Tally};

/// Cycles of a multiplication and addition, with its loads. An assumption.
const MULTIPLY_CYCLES: f64 = 12.0;
/// Cycles of a new value of SOR. An assumption.
const RELAX_CYCLES: f64 = 36.0;
/// Weight of the correction in SOR.
const OMEGA: f64 = 1.5;

/// A program of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    /// Successive over-relaxation of the points of a grid, red ones and black ones in turn.
    Sor {
        /// Rows of the grid.
        rows: usize,
        /// Rounds over all points.
        rounds: usize,
    },
    /// The product of two matrices with this number of rows, and of columns.
    Multiply {
        /// Rows.
        rows: usize,
    },
}

impl Program {
    /// Runs the program, and compares its result with one that was computed without pages.
    pub(super) fn run(self, machine: Machine) -> Result<Tally, String> {
        let (tally, result, expected) = match self {
            Program::Sor { rows, rounds } => {
                let (tally, result) = relax(machine, rows, rounds);
                (tally, result, relax_plainly(rows, rounds))
            }
            Program::Multiply { rows } => {
                let (tally, result) = multiply(machine, rows);
                (tally, result, multiply_plainly(rows))
            }
        };
        if result == expected {
            Ok(tally)
        } else {
            Err(format!("{self:?} on {machine:?} has a wrong result"))
        }
    }
}

/// The first value of a point of the grid.
fn grid(row: usize, column: usize) -> f64 {
    ((row * 31 + column * 17) % 100) as f64
}

/// Relaxes the points of a row that have this colour. The first and the last column stay.
fn relax_row(row: usize, colour: usize, above: &Row, here: &mut Row, below: &Row) {
    for column in (1..NUMBERS - 1).filter(|column| (row + column) % 2 == colour) {
        let mean = (above[column] + below[column] + here[column - 1] + here[column + 1]) / 4.0;
        here[column] += OMEGA * (mean - here[column]);
    }
}

fn relax(machine: Machine, rows: usize, rounds: usize) -> (Tally, Vec<Row>) {
    let strip = rows / machine.processors;
    let mut run = Run::new(machine, rows as u64);
    run.phase(strip, |run, worker, step| {
        let row = worker * strip + step;
        run.write(worker, row as u64, |here| *here = array::from_fn(|column| grid(row, column)));
    });
    for half in 0..2 * rounds {
        run.phase(strip, |run, worker, step| {
            let row = worker * strip + step;
            // The first and the last row of the grid stay.
            if row == 0 || row == rows - 1 {
                return;
            }
            // A row of another strip is read from memory, and one of the worker's own from its cache.
            let mut neighbour = |row: usize, is_own| {
                if is_own { run.read_cached(worker, row as u64) } else { run.read(worker, row as u64) }
            };
            let above = neighbour(row - 1, step > 0);
            let below = neighbour(row + 1, step + 1 < strip);
            run.write(worker, row as u64, |here| relax_row(row, half % 2, &above, here, &below));
            run.compute(worker, RELAX_CYCLES * (NUMBERS / 2) as f64);
        });
    }
    let result = (0..rows).map(|row| run.read_cached(row / strip, row as u64)).collect();
    (run.end(), result)
}

fn relax_plainly(rows: usize, rounds: usize) -> Vec<Row> {
    let mut all: Vec<Row> = (0..rows).map(|row| array::from_fn(|column| grid(row, column))).collect();
    for half in 0..2 * rounds {
        for row in 1..rows - 1 {
            let (above, below) = (all[row - 1], all[row + 1]);
            relax_row(row, half % 2, &above, &mut all[row], &below);
        }
    }
    all
}

/// A value of the left factor, by row and column.
fn left(row: usize, column: usize) -> f64 {
    ((row * 3 + column) % 7) as f64
}

/// A value of the right factor, by column and row. Its columns are rows of pages.
fn right(column: usize, row: usize) -> f64 {
    ((column * 5 + row) % 11) as f64
}

fn product(left: &Row, right: &Row) -> f64 {
    left.iter().zip(right).map(|(a, b)| a * b).sum()
}

fn multiply(machine: Machine, rows: usize) -> (Tally, Vec<Row>) {
    let strip = rows / machine.processors;
    let [a, b, c] = [0, 1, 2].map(|matrix| move |row: usize| (matrix * rows + row) as u64);
    let mut run = Run::new(machine, 3 * rows as u64);
    run.phase(3 * strip, |run, worker, step| {
        let row = worker * strip + step % strip;
        match step / strip {
            0 => run.write(worker, a(row), |here| *here = array::from_fn(|column| left(row, column))),
            1 => run.write(worker, b(row), |here| *here = array::from_fn(|at| right(row, at))),
            _ => run.write(worker, c(row), |here| *here = [0.0; NUMBERS]),
        }
    });
    run.phase(strip * rows, |run, worker, step| {
        let (row, column) = (worker * strip + step / rows, step % rows);
        let factor = if column == 0 { run.read(worker, a(row)) } else { run.read_cached(worker, a(row)) };
        let sum = product(&factor, &run.read(worker, b(column)));
        run.compute(worker, MULTIPLY_CYCLES * NUMBERS as f64);
        // The row of the result is in the processor's cache until it is complete.
        run.write_cached(worker, c(row), |here| here[column] = sum);
        if column + 1 == rows {
            run.write(worker, c(row), |_| {});
        }
    });
    let result = (0..rows).map(|row| run.read_cached(row / strip, c(row))).collect();
    (run.end(), result)
}

fn multiply_plainly(rows: usize) -> Vec<Row> {
    let factors = |value: fn(usize, usize) -> f64| -> Vec<Row> {
        (0..rows).map(|row| array::from_fn(|at| value(row, at))).collect()
    };
    let (a, b) = (factors(left), factors(right));
    let mut all = vec![[0.0; NUMBERS]; rows];
    for (row, factor) in all.iter_mut().zip(&a) {
        row.iter_mut().zip(&b).for_each(|(sum, column)| *sum = product(factor, column));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(cluster: usize) -> Machine {
        Machine::new(16, 4, cluster)
    }

    #[test]
    fn ex_h5_each_cluster_but_the_home_copies_the_right_factor() {
        let rows = 32;
        for cluster in [1, 2, 4, 8, 16] {
            let tally = Program::Multiply { rows }.run(on(cluster)).unwrap();
            let copies = (rows * (16 / cluster - 1)) as u64;
            assert_eq!((tally.copies, tally.copied_pages), (copies, copies), "clusters of {cluster}");
            assert_eq!((tally.remote, tally.invalidations), (0, 0), "clusters of {cluster}");
            // Each worker maps the pages of its strips, and the rest of the right factor.
            let faults = 16 * (2 * rows / 16 + rows);
            assert_eq!(tally.faults, faults as u64, "clusters of {cluster}");
        }
    }

    #[test]
    fn ad_06_a_bound_of_the_memory_costs_copies_and_no_result() {
        let rows = 32;
        let free = Program::Multiply { rows }.run(on(1)).unwrap();
        // Room for the pages of a strip, and half of the right factor.
        let bound = 3 * rows / 16 + rows / 2;
        let tally = Program::Multiply { rows }.run(Machine { max_pages: bound, ..on(1) }).unwrap();
        assert!(tally.copied_pages <= (16 * rows / 2) as u64, "{tally:?}");
        assert!(tally.copied_pages < free.copied_pages && tally.copies > free.copies, "{tally:?}");
    }

    #[test]
    fn ex_h5_the_edges_of_strips_are_copied_once_and_then_used_at_home() {
        let (rows, rounds) = (32, 4);
        for cluster in [1, 2, 4, 8, 16] {
            let tally = Program::Sor { rows, rounds }.run(on(cluster)).unwrap();
            // A strip has an edge above and one below; each meets a strip of another cluster at its end.
            let edges = 2 * (16 / cluster as u64 - 1);
            assert!(tally.copies <= edges, "clusters of {cluster}: {tally:?}");
            assert_eq!(tally.invalidations, tally.copies, "clusters of {cluster}");
            // Each half of a round reads each edge, the first time from the copy.
            let reads = edges * 2 * rounds as u64;
            assert!(
                tally.remote <= reads && tally.remote + 2 * edges >= reads,
                "clusters of {cluster}: {tally:?}"
            );
        }
    }
}
