//! Settings: the configuration that the environment, the machine and the limits of the process ask for.
//!
//! - I1. The code here does not allocate: the settings are read before the address space exists.
//!
//! Not promised: a report of an invalid variable. An invalid variable is ignored.
//! Cost: a few system calls, once.

use crate::bound;
use crate::page_pool::SEGMENT_BYTES;
use crate::sequence::SEQUENCES;
use squall_sys::{area, membarrier, pages, rseq};

/// The way in which blocks are cached.
///
/// # Example
/// ```
/// if squall::alloc::mode() == Some(squall::alloc::Mode::Locked) {
///     eprintln!("no restartable sequences: each allocation takes a lock");
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Free blocks are cached in magazines of each VP, by restartable sequences.
    Restartable,
    /// Free blocks are not cached. Each call takes the lock of its VP's heap.
    Locked,
}

/// The settings of the allocator.
pub(crate) struct Settings {
    pub(crate) mode: Mode,
    pub(crate) can_restart: bool,
    pub(crate) area_offset: isize,
    pub(crate) debug: bool,
    pub(crate) parts: usize,
    pub(crate) vps_of_node: Option<usize>,
    pub(crate) range_bytes: usize,
}

/// The most VPs of a virtual topology: the limit of `squall-machine`.
const VIRTUAL_MAX: usize = 1 << 12;

/// The counts in `SQUALL_TOPOLOGY`: nodes, and all VPs. `squall-machine` reports errors in the variable.
fn virtual_vps(text: &[u8]) -> (usize, usize) {
    let (mut nodes, mut all) = (1, 1);
    for part in text.split(|byte| *byte == b',') {
        let Some(colon) = part.iter().position(|byte| *byte == b':') else { continue };
        let digits = std::str::from_utf8(&part[colon + 1..]).unwrap_or("");
        let count: usize = digits.trim().parse().unwrap_or(1).clamp(1, VIRTUAL_MAX);
        all = (all * count).min(VIRTUAL_MAX);
        if part[..colon].trim_ascii() == b"nodes" {
            nodes = count;
        }
    }
    (nodes, all)
}

/// The number of VPs if the machine does not tell its number of processors. Each call then takes a lock.
const PARTS_GUESS: usize = 64;

/// Reads the settings. `pretended`: restartable sequences are pretended
/// ([`pretend_restartable`](crate::pretend_restartable)). `is_global`: the address space is for all
/// blocks of the program.
pub(crate) fn settings(pretended: bool, is_global: bool) -> Settings {
    let is = |name, value: &[u8]| pages::variable(name).is_some_and(|v| v == value);
    let topology = pages::variable(c"SQUALL_TOPOLOGY").filter(|text| !text.is_empty());
    let debug = pages::variable(c"SQUALL_ALLOC_DEBUG").is_some_and(|v| v != b"0" && !v.is_empty());
    // Sequences need the exact limit: with a guess, a processor number might lie beyond the last part.
    let limit = pages::processors_limit();
    let real = SEQUENCES && limit.is_some() && topology.is_none() && !debug && !is(c"SQUALL_RSEQ", b"off");
    let found = match (pretended, real) {
        (true, _) => Some(area::own_offset()),
        (false, true) => rseq::registered_area().ok(),
        (false, false) => None,
    };
    let can_restart = found.is_some()
        && !pretended
        && !is(c"SQUALL_MEMBARRIER", b"off")
        && membarrier::register_restart().is_ok();
    let mut parts = limit.unwrap_or(PARTS_GUESS);
    let vps_of_node = topology.map(|text| {
        let (nodes, all) = virtual_vps(text);
        parts = parts.max(all);
        all.div_ceil(nodes)
    });
    Settings {
        mode: if found.is_some() { Mode::Restartable } else { Mode::Locked },
        can_restart,
        area_offset: found.unwrap_or_else(area::own_offset),
        debug,
        parts,
        vps_of_node,
        range_bytes: range_bytes(found.is_none() || pretended, is_global).max(SEGMENT_BYTES),
    }
}

/// Divisor of the remaining addresses of a limited process, for an allocator that is not the program's own.
const LEFT_SHARE: usize = 16;
/// The most bytes of such a reservation.
const LEFT_MAX: usize = 1 << 30;

/// Bytes of the block range, a power of two. `is_slow`: there are no restartable sequences.
fn range_bytes(is_slow: bool, is_global: bool) -> usize {
    let bytes = match bound::of_environment().or_else(bound::chosen) {
        Some(bytes) => return bytes.min(1 << 46).next_power_of_two(),
        // Miri backs the whole reservation with memory.
        None if cfg!(miri) => 2 * SEGMENT_BYTES,
        // Emulators keep tables of the address space.
        None if is_slow => (pages::memory_bytes() * 2).min(16 << 30),
        None => pages::memory_bytes() * 2,
    };
    let bytes = bytes.next_power_of_two();
    // Reserved addresses count towards the limit. The rest is for stacks, large blocks and the program.
    let Some(limit) = pages::address_limit() else { return bytes };
    let most = if is_global {
        limit / 2
    } else {
        // The program has another allocator, which needs addresses, too.
        let left = limit.saturating_sub(pages::mapped_bytes().unwrap_or(limit / 2));
        (left / LEFT_SHARE).min(LEFT_MAX)
    };
    bytes.min(1 << most.max(1).ilog2())
}
