//! The program's system calls, as far as they tell something: mappings, stacks, sleepers, names, the end; and those that do not
//! exist, by which the preloaded library tells of blocks.
//!
//! - I1. What a call points to is read through the kernel, so that a wrong pointer is an error to nobody.

use std::ffi::c_uint;
use std::path::PathBuf;

use crate::format::{call, record};
use crate::log::Payload;
use crate::plugin::{Shared, with};
use crate::run;
use crate::threads::{Thread, epoch, this, tick};

/// Places that allocate which are told apart, and words that are slept upon which are written down.
const SITES_MAX: usize = 100_000;
const FUTEXES_MAX: usize = 1_000_000;
const MAP_ANONYMOUS: u64 = 0x20;
const PR_SET_NAME: u64 = 15;
const PAGE: u64 = 4096;

/// Whether this call is none, but what the preloaded library says.
fn is_told(number: i64) -> bool {
    (call::FIRST..call::FIRST + 16).contains(&number)
}

/// A thread makes a system call.
pub(crate) fn begin(vcpu: c_uint, number: i64, arguments: [u64; 6]) {
    let Some(thread) = this(vcpu) else { return };
    thread.arguments = arguments;
    if is_told(number) {
        thread.told(number);
        return;
    }
    // What threads agree by is between the two halves of a hand-over.
    tick();
    let _ = with(|shared| shared.begin_call(thread, number));
    thread.park();
}

/// It is back from it.
pub(crate) fn end(vcpu: c_uint, number: i64, result: i64) {
    if is_told(number) {
        return;
    }
    let Some(thread) = this(vcpu) else { return };
    let _ = with(|shared| shared.end_call(thread, number, result));
}

impl Shared {
    fn begin_call(&mut self, thread: &mut Thread, number: i64) {
        let [a, b, ..] = thread.arguments;
        let calls = self.arch.calls();
        if number == calls.futex {
            if self.futexes.len() < FUTEXES_MAX && self.futexes.insert(a) {
                self.log.write(record::FUTEX, Payload::default().u64(a));
            }
        } else if number == calls.munmap && a.is_multiple_of(PAGE) && b > 0 {
            // Before the memory is gone, and another thread may have it.
            self.log.write(record::MUNMAP, Payload::default().u32(epoch()).u32(0).u64(a).u64(b));
            // Where that fails, what is there is asked for again.
            self.forget_mapping(a, b.checked_next_multiple_of(PAGE).unwrap_or(b));
        } else if number == calls.execve || number == calls.execveat {
            let path = self.read_text(if number == calls.execve { a } else { b });
            let payload = Payload::default().u32(epoch()).u32(thread.number).bytes(&path);
            self.log.write(record::EXEC, payload);
        } else if number == calls.exit_group {
            self.log.write(record::EXIT, Payload::default().u32(a as u32).u32(0));
        } else if number == calls.prctl && a == PR_SET_NAME {
            let name = self.read_text(b);
            if let Some(table) = &thread.table {
                table.set_name(&name[..name.len().min(15)]);
            }
        }
    }

    fn end_call(&mut self, thread: &Thread, number: i64, result: i64) {
        let [a, b, c, ..] = thread.arguments;
        let calls = self.arch.calls();
        let done = !(-4095..0).contains(&result);
        if number == calls.mmap && done {
            self.note_mmap(thread, result as u64);
        } else if number == calls.mremap && done {
            let payload = Payload::default().u32(epoch()).u32(0).u64(a).u64(b).u64(result as u64).u64(c);
            self.log.write(record::MREMAP, payload);
            let whole = |length: u64| length.checked_next_multiple_of(PAGE).unwrap_or(length);
            self.move_mapping(a, whole(b), result as u64, whole(c));
        } else if number == calls.clone && result > 0 && b != 0 {
            // What lies above the pointer is the block of the thread's locals.
            self.note_stack(u32::try_from(result).unwrap_or(0), b);
        } else if number == calls.execve || number == calls.execveat {
            // Whoever becomes another program does not return.
            self.log.write(record::EXEC_FAILED, Payload::default().u32(epoch()).u32(thread.number));
        }
    }

    fn note_mmap(&mut self, thread: &Thread, start: u64) {
        let [_, length, protection, flags, file, offset] = thread.arguments;
        let path = if flags & MAP_ANONYMOUS == 0 {
            // A name of the descriptor's, not a descriptor; of this thread's, since the first may have ended.
            std::fs::read_link(format!("/proc/thread-self/fd/{}", file as u32)).unwrap_or_default()
        } else {
            PathBuf::new()
        };
        let path = path.as_os_str().as_encoded_bytes();
        let payload = Payload::default()
            .u32(epoch())
            .u32(protection as u32)
            .u32((flags & u64::from(u32::MAX)) as u32)
            .u32(thread.number)
            .u64(start)
            .u64(length)
            .u64(offset)
            .bytes(path);
        self.log.write(record::MMAP, payload);
        let length = length.checked_next_multiple_of(PAGE).unwrap_or(length);
        self.note_mapping(start, start.saturating_add(length), offset, path);
    }
}

impl Thread {
    /// What the preloaded library has to say.
    fn told(&mut self, number: i64) {
        let [a, b, c, ..] = self.arguments;
        match number {
            call::HELLO => {
                let _ = with(|shared| {
                    // Whoever cannot hear the answer tells of no blocks.
                    if shared.store(a, &[1]) {
                        shared.log.write(record::PRELOADED, Payload::default().u32(0).u32(0));
                    }
                });
            }
            call::QUIET => self.quiet = self.quiet.saturating_add(1),
            call::LOUD => self.quiet = self.quiet.saturating_sub(1),
            call::PLACE => {
                let count = (b as usize).min(call::FRAMES_MAX);
                let _ = with(|shared| {
                    let place = shared.place(a, count);
                    // Where it cannot be stored, the library keeps that the place is not known.
                    shared.store(c, &place.to_le_bytes())
                });
            }
            call::ALLOC => {
                let _ = with(|shared| shared.note_block(self.number, a, b, c as u32));
                self.quiet = self.quiet.saturating_sub(1);
            }
            call::FREE | call::KEPT => {
                let kind = if number == call::FREE { record::FREE } else { record::KEPT };
                let _ = with(|shared| {
                    if shared.block_counts() {
                        let payload = Payload::default().u32(epoch()).u32(self.number).u64(a);
                        shared.log.write(kind, payload);
                    }
                });
            }
            _ => {}
        }
    }
}

impl Shared {
    /// Whether there is room for what is said of blocks.
    fn block_counts(&mut self) -> bool {
        if !self.blocks_cut && !run::here().has_room_for_blocks() {
            self.blocks_cut = true;
            self.log.write(record::BLOCKS_CUT, Payload::default().u32(0).u32(0));
        }
        !self.blocks_cut
    }

    /// The number of the place that has so many return addresses, which are there.
    fn place(&mut self, frames: u64, count: usize) -> u32 {
        if !self.block_counts() {
            return call::NO_PLACE;
        }
        let mut bytes = [0; 8 * call::FRAMES_MAX];
        let got = self.read(frames, &mut bytes[..8 * count]);
        let frames: Vec<u64> =
            bytes[..got].as_chunks().0.iter().map(|word: &[u8; 8]| u64::from_le_bytes(*word)).collect();
        let next = self.sites.len() as u32;
        match self.sites.get(&frames) {
            Some(site) => *site,
            None if self.sites.len() >= SITES_MAX => call::NO_PLACE,
            None => {
                let mut payload = Payload::default().u32(next).u32(0);
                for frame in &frames {
                    payload = payload.u64(*frame);
                }
                self.log.write(record::SITE, payload);
                self.sites.insert(frames, next);
                next
            }
        }
    }

    fn note_block(&mut self, thread: u32, block: u64, size: u64, place: u32) {
        if self.block_counts() {
            let payload = Payload::default().u32(epoch()).u32(thread).u32(place).u32(0).u64(block).u64(size);
            self.log.write(record::ALLOC, payload);
        }
    }
}
