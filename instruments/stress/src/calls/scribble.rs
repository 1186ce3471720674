//! Hostile bytes: writes into every part of the segments that this process shares with another.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

use crate::run::Rng;

/// Bytes of a region of a segment, and of its page with the slots.
const REGION: u64 = 132 * 1024;
const SLOTS: u64 = 4096;

/// The shared mappings of memory files in this process: first address, and length.
pub(super) fn segments() -> io::Result<Vec<(u64, u64)>> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    Ok(maps.lines().filter_map(segment).collect())
}

fn segment(line: &str) -> Option<(u64, u64)> {
    let mut fields = line.split_whitespace();
    let (range, access) = (fields.next()?, fields.next()?);
    if !access.ends_with('s') || !line.contains("/memfd:") {
        return None;
    }
    let (from, to) = range.split_once('-')?;
    let (from, to) = (u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?);
    Some((from, to - from))
}

/// The memory of this process, as a file.
pub(super) fn memory() -> io::Result<File> {
    OpenOptions::new().write(true).open("/proc/self/mem")
}

/// Writes a hostile word somewhere into a segment.
pub(super) fn scribble(memory: &File, (from, length): (u64, u64), rng: &mut Rng) {
    let region = rng.below((length / REGION).max(1)) * REGION;
    let part = if rng.one_in(4) { length.min(REGION) } else { SLOTS };
    let at = region + rng.below(part / 4) * 4;
    let word = match rng.below(6) {
        0 => 0,
        1 => u32::MAX,
        2 => rng.below(8) as u32,
        3 => 1 << rng.below(32),
        4 => 8448 + rng.below(8) as u32 - 4,
        _ => rng.next() as u32,
    };
    // Fails once the segment is unmapped.
    let _ = memory.write_all_at(&word.to_ne_bytes(), from + at);
}

#[cfg(test)]
mod tests {
    use super::segment;

    #[test]
    fn shared_memory_files_alone_are_segments() {
        let line = |access: &str, name: &str| format!("7f00-8f00 {access} 00000000 00:01 1024 {name}");
        assert_eq!(segment(&line("rw-s", "/memfd:x (deleted)")), Some((0x7f00, 0x1000)));
        assert_eq!(segment(&line("rw-p", "/memfd:x (deleted)")), None);
        assert_eq!(segment(&line("rw-s", "/tmp/file")), None);
    }
}
