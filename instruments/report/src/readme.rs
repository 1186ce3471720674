//! The plot of the repository's README: a shared counter against one with a word per processor.

use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::lab::Loop;
use crate::plot::{Page, fixed};
use crate::{Axis, Lab, Means, Missing, Plot, Series};

/// Name in the legend, and subject of the case `counter`.
const SUBJECTS: [(&str, &str); 3] =
    [("Mutex<u64>", "mutex"), ("AtomicU64", "atomic"), ("counter::distributed", "squall-distributed")];
const THREADS: [usize; 5] = [1, 2, 4, 8, 16];

/// Counts the additions of each counter.
///
/// # Errors
/// No emulator is installed, or a run failed.
pub fn count(lab: &mut Lab<'_>) -> Result<Plot, Missing> {
    let mut series = Vec::new();
    for (name, subject) in SUBJECTS {
        let mut points = Vec::new();
        for threads in THREADS {
            let counts = lab.count(Loop { case: "counter", subject, variant: "", threads, ops: 1000 })?;
            points.push((threads as f64, counts.write_shared * threads as f64));
        }
        series.push(Series { name: name.to_owned(), points });
    }
    Ok(Plot {
        name: "counter",
        title: "Accesses to shared lines if each processor adds one",
        x: Axis::linear("processors, each adds one"),
        y: Axis::linear("accesses to lines that several processors write"),
        means: Means::Counted,
        series,
    })
}

/// Writes the plot for light pages into `file`, and the one for dark pages beside it, with `-dark` added to
/// the name. Returns both paths.
///
/// # Errors
/// A file could not be written; the error names it.
pub fn write(plot: &Plot, file: &Path) -> io::Result<[PathBuf; 2]> {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let files = [file.to_owned(), file.with_file_name(format!("{stem}-dark.svg"))];
    for (path, page) in files.iter().zip([Page::Light, Page::Dark]) {
        fs::write(path, fixed(plot, page))
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    }
    Ok(files)
}
