//! Stress of the pager: each pin shows legal contents of its page, and no write is lost.
//!
//! Promised (`squall::pager`): a pinned page stays, and no thread changes the bytes of a frame. A page that
//! was changed reaches its source, or stays in memory if the source fails. Bytes that were cut off are zero
//! when the file grows again. A copy is taken at one moment, and does not change afterwards. A region that
//! was unmapped refuses faults. All this holds while caches, regions and lists of regions are swapped,
//! while pages are evicted, and while sources fail. An error of a source names the page. No page of memory
//! is leaked.
//!
//! Tried: each round has a small pool, two processes with page managers of their own, some files, and regions
//! that map them. Each thread pins pages by address, by region and by cache, reads or writes them, and keeps
//! some frames. In between it evicts, syncs, changes lengths, truncates, unmaps, maps and copies regions,
//! lets go of caches, swaps forms, and moves to another processor. At the end all files are synced and
//! compared with their sources. Then processes, caches and pools end while threads still have frames.
//!
//! - I1. A thread waits only for something greater than all pages that it has pinned. The order is first the
//!   family of the file, then the number of the page. A whole family, or a region of one, comes before the
//!   pages of the family. So no threads wait for each other in a circle.
//! - I2. A thread writes a page only if its pin is exact (`books/I2`).
//! - I3. Each planned break must end the run with a violation.

mod books;
mod breaks;
mod control;
mod counts;
mod pattern;
mod round;
mod store;
mod worker;

use crate::run::{Report, Run, Stress, Violation, exclusive, threads_beyond_processors};
use crate::skeleton::breaks::{Breaks, asked};
use crate::skeleton::placement::AllowedCpus;
use breaks::Break;
use counts::Counts;

pub(super) const STRESS: Stress = Stress {
    name: "pager",
    about: "each pin of a page shows its latest contents, and no changed page is lost",
    run,
    threads: threads_beyond_processors,
};

fn run(run: &Run) -> Result<Report, Violation> {
    let broken = asked(Break::ALL)?;
    let _exclusive = exclusive();
    let home = AllowedCpus::find()?;
    let counts = Counts::default();
    let mut rounds = 0;
    while !run.is_over() {
        round::run(run, rounds, broken, &home, &counts)?;
        rounds += 1;
    }
    let mut lines = vec![("rounds", rounds)];
    lines.extend(counts.lines());
    Ok(Report(lines))
}
