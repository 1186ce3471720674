//! `object-memory`: memory of an object beyond its author's fields.
//!
//! - `bytes_shared`: all bytes of a shared object with one interface and one calling processor, by the
//!   library's account. They are its block, its global table slot and that processor's local table entry,
//!   less its own fields.
//! - `bytes_per_vp`: table bytes for each further processor that calls an object, by that account.
//! - `bytes_per_rep`: bytes of a distributed object's representative beyond its own fields, alignment
//!   included.
//!
//! These three are metrics of `lifecycle` too. Here they stand beside the kernel's account. A million objects
//! of one field (8 bytes) live at once, made and called by one thread for every value of `--threads`:
//!
//! - `rss_bytes_per_object`: growth of the resident set while they are made and called once, per object. It
//!   includes the field and the allocator's overhead, but not the eight bytes of the benchmark's own handle.
//! - `rss_bytes_per_vp`: growth while another processor calls each object once.
//! - `objects`: the number of objects.
//!
//! Not promised: that the resident set grew by Squall alone. The figure is an upper bound.

use std::hint::black_box;

use squall::{Handle, ObjectInfo, Owned};

use super::rcu_idle::resident_bytes;
use crate::case::{Case, Missing, PLAIN, Scale, Setting};
use crate::objects::{Field, Probe};
use crate::ours_core::counted_on_at_most;
use crate::ours_machine::{on_processor, processors_count};

pub(super) static CASE: Case = Case {
    name: "object-memory",
    about: "bytes of an object beyond its own fields, by the library's account and by the kernel's",
    variants: &[PLAIN],
    subjects: &[],
    scale: Scale::Latency,
    slice_ms: (0, 0),
    thread_range: false,
    metrics: Some(measure),
    default_threads: &[1],
};

/// Objects that live at once, in a full and in a quick run.
const OBJECTS: (usize, usize) = (1_000_000, 100_000);

/// Cost of an object by the library's account.
pub(super) fn accounted(_: &Setting, _: bool) -> Result<Vec<(String, f64)>, String> {
    let tables = squall::tables::stats();
    let object: Owned<dyn Probe> = squall::shared(Field::new());
    black_box(object.get(1));
    let shared = info(object.handle())?;
    let own = shared.value_bytes;
    let bytes_shared =
        shared.bytes - own + tables.slot_bytes + shared.translations.iter().count() * tables.entry_bytes;
    let (one, two) = (info(counted_on_at_most(1)?.handle())?, info(counted_on_at_most(2)?.handle())?);
    let mut metrics = vec![
        ("bytes_shared".to_owned(), bytes_shared as f64),
        ("bytes_per_vp".to_owned(), tables.entry_bytes as f64),
    ];
    if two.reps.len() == 2 {
        let beyond = (two.bytes - two.value_bytes).saturating_sub(one.bytes - one.value_bytes);
        metrics.push(("bytes_per_rep".to_owned(), beyond as f64));
    }
    Ok(metrics)
}

fn info<I: ?Sized + squall::Interface>(co: Handle<I>) -> Result<ObjectInfo, String> {
    squall::info_of(Handle::id(co)).ok_or_else(|| format!("{co} is not in the tables"))
}

fn measure(setting: &Setting, quick: bool) -> Result<Vec<(String, f64)>, String> {
    let count = if quick { OBJECTS.1 } else { OBJECTS.0 };
    let mut metrics = accounted(setting, quick)?;
    let told = |Missing(why)| why;
    let mut objects: Vec<Owned<dyn Probe>> = Vec::with_capacity(count);
    let before = resident_bytes()?;
    on_processor(0, || {
        objects.extend((0..count).map(|_| squall::shared(Field::new())));
        call_all(&objects);
    })
    .map_err(told)?;
    let called = resident_bytes()?;
    let handles = count * size_of::<Owned<dyn Probe>>();
    let grown = called.saturating_sub(before).saturating_sub(handles as u64);
    metrics.push(("rss_bytes_per_object".to_owned(), grown as f64 / count as f64));
    if processors_count() > 1 {
        on_processor(1, || call_all(&objects)).map_err(told)?;
        let grown = resident_bytes()?.saturating_sub(called);
        metrics.push(("rss_bytes_per_vp".to_owned(), grown as f64 / count as f64));
    }
    metrics.push(("objects".to_owned(), count as f64));
    drop(objects);
    squall::rcu::barrier().map_err(|error| error.to_string())?;
    Ok(metrics)
}

fn call_all(objects: &[Owned<dyn Probe>]) {
    let sum = objects.iter().fold(0u64, |sum, object| sum.wrapping_add(object.get(0)));
    black_box(sum);
}
