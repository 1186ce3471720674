//! The host: it starts children and calls them.

use squall::call::{ImportOptions, socket_pair};
use squall::{CallError, Owned};
use std::error::Error;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::redo::{BadRecord, PAGE, Redo, record};

/// A child, and its decoder.
struct Decoding {
    child: Child,
    redo: Owned<dyn Redo>,
}

impl Decoding {
    fn start(hostile: bool) -> Result<Decoding, Box<dyn Error>> {
        let (here, there) = socket_pair()?;
        let child = Command::new(std::env::current_exe()?)
            .arg(if hostile { "--hostile-child" } else { "--child" })
            .stdin(Stdio::from(there))
            .spawn()?;
        // A hostile child may never answer. An honest one is late only if the machine stands still.
        let limit = if hostile { Duration::from_millis(200) } else { Duration::from_secs(60) };
        let redo = ImportOptions::new().limit(limit).import_from::<dyn Redo>(here)?;
        Ok(Decoding { child, redo })
    }

    fn apply(&self, page: &[u8], records: &[u8]) -> Result<Result<Vec<u8>, BadRecord>, CallError> {
        self.redo.try_apply(page, records)
    }
}

impl Drop for Decoding {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The outcomes of the calls, counted.
#[derive(Debug, Default)]
struct Counts {
    good: u64,
    wrong: u64,
    refused: u64,
    failed: u64,
}

/// Applies records until `calls` were made, with a new child after each failure. Then an honest child must
/// still serve.
pub(crate) fn run(hostile: bool, calls: u64) -> Result<(), Box<dyn Error>> {
    let page = vec![1; PAGE];
    let mut counts = Counts::default();
    let mut children = 1;
    let mut decoding = start_one(hostile)?;
    for n in 0..calls {
        let bytes = n.to_le_bytes();
        let records = record((n % 4000) as u16, &bytes);
        match decoding.apply(&page, &records) {
            Ok(Ok(changed)) => {
                let mut expected = page.clone();
                let at = (n % 4000) as usize;
                expected[at..at + 8].copy_from_slice(&bytes);
                // A host cannot know this; the example can. It must be sure only of its own memory.
                if changed == expected { counts.good += 1 } else { counts.wrong += 1 }
            }
            Ok(Err(_)) => counts.refused += 1,
            Err(_) => {
                counts.failed += 1;
                if children < 50 {
                    children += 1;
                    drop(decoding);
                    decoding = start_one(hostile)?;
                }
            }
        }
    }
    drop(decoding);
    let honest = Decoding::start(false)?;
    let bad = honest.apply(&page, &record(4095, b"ab"))?;
    println!("{calls} calls, {children} children: {counts:?}; a bad record: {bad:?}");
    if !hostile && (counts.good, children) != (calls, 1) {
        return Err("an honest child failed".into());
    }
    if bad != Err(BadRecord::Outside) {
        return Err("the host was harmed".into());
    }
    Ok(())
}

/// A hostile child may spoil its own welcome, the first one too. Then the next one gets its chance.
fn start_one(hostile: bool) -> Result<Decoding, Box<dyn Error>> {
    (0..10).find_map(|_| Decoding::start(hostile).ok()).ok_or_else(|| "no child starts".into())
}
