//! Observes the program's system calls: mappings, stacks, futexes, thread names, and the end of the process.
//! The preloaded library reports heap blocks by system call numbers that Linux does not have; they also
//! arrive here.
//!
//! - I1. Memory that a call points to is read through the kernel, so a wrong pointer causes only an error.

use std::ffi::c_uint;
use std::path::PathBuf;

use crate::format::{call, record};
use crate::log::Payload;
use crate::plugin::{Shared, with};
use crate::run;
use crate::threads::{Thread, current_thread, epoch, follow_pause, tick};

/// Maximum number of recorded allocation sites, and of recorded futex words.
const SITES_MAX: usize = 100_000;
const FUTEXES_MAX: usize = 1_000_000;
const MAP_ANONYMOUS: u64 = 0x20;
const PR_SET_NAME: u64 = 15;
const PAGE: u64 = 4096;

/// Whether the number belongs to the preloaded library and not to Linux.
fn is_message(number: i64) -> bool {
    (call::FIRST..call::FIRST + 16).contains(&number)
}

/// Handles the start of a system call.
pub(crate) fn begin(vcpu: c_uint, number: i64, arguments: [u64; 6]) {
    let Some(thread) = current_thread(vcpu) else { return };
    thread.arguments = arguments;
    if is_message(number) {
        thread.handle_message(number);
        return;
    }
    // Threads synchronise by system calls, so the clock advances between the two halves of a hand-over.
    tick();
    follow_pause();
    let _ = with(|shared| shared.begin_call(thread, number));
    thread.park();
}

/// Handles the return of a system call.
pub(crate) fn end(vcpu: c_uint, number: i64, result: i64) {
    if is_message(number) {
        return;
    }
    let Some(thread) = current_thread(vcpu) else { return };
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
            // Recorded before the call, because afterwards another thread may get the memory.
            self.log.write(record::MUNMAP, Payload::default().u32(epoch()).u32(0).u64(a).u64(b));
            // If the call fails, the mapping is looked up again later.
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
            // Above the stack pointer lies the block of the thread's locals.
            self.note_stack(u32::try_from(result).unwrap_or(0), b);
        } else if number == calls.execve || number == calls.execveat {
            // Only a failed `exec` returns.
            self.log.write(record::EXEC_FAILED, Payload::default().u32(epoch()).u32(thread.number));
        }
    }

    fn note_mmap(&mut self, thread: &Thread, start: u64) {
        let [_, length, protection, flags, file, offset] = thread.arguments;
        let path = if flags & MAP_ANONYMOUS == 0 {
            // Resolves the descriptor without opening one. Uses this thread's table, because the main thread
            // may have ended.
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
    /// Handles a message of the preloaded library.
    fn handle_message(&mut self, number: i64) {
        let [a, b, c, ..] = self.arguments;
        match number {
            call::HELLO => {
                let _ = with(|shared| {
                    // The library receives the answer only through this store; without it, it reports no
                    // blocks.
                    if shared.store(a, &[1]) {
                        shared.log.write(record::PRELOADED, Payload::default().u32(0).u32(0));
                    }
                });
            }
            call::BEGIN_UNCOUNTED => self.quiet = self.quiet.saturating_add(1),
            call::END_UNCOUNTED => self.quiet = self.quiet.saturating_sub(1),
            call::SITE => {
                let count = (b as usize).min(call::FRAMES_MAX);
                let _ = with(|shared| {
                    let place = shared.site_number(a, count);
                    // If the store fails, the library keeps `NO_SITE`.
                    shared.store(c, &place.to_le_bytes())
                });
            }
            call::ALLOC => {
                let _ = with(|shared| shared.note_block(self.number, a, b, c as u32));
                self.quiet = self.quiet.saturating_sub(1);
            }
            call::FREE | call::FREE_FAILED => {
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
    /// Whether there is room for records of blocks.
    fn block_counts(&mut self) -> bool {
        if !self.blocks_cut && !run::current().has_room_for_blocks() {
            self.blocks_cut = true;
            self.log.write(record::BLOCKS_CUT, Payload::default().u32(0).u32(0));
        }
        !self.blocks_cut
    }

    /// Returns the number of the allocation site with the `count` return addresses at `frames`.
    fn site_number(&mut self, frames: u64, count: usize) -> u32 {
        if !self.block_counts() {
            return call::NO_SITE;
        }
        let mut bytes = [0; 8 * call::FRAMES_MAX];
        let got = self.read(frames, &mut bytes[..8 * count]);
        let frames: Vec<u64> =
            bytes[..got].as_chunks().0.iter().map(|word: &[u8; 8]| u64::from_le_bytes(*word)).collect();
        let next = self.sites.len() as u32;
        match self.sites.get(&frames) {
            Some(site) => *site,
            None if self.sites.len() >= SITES_MAX => call::NO_SITE,
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
