//! The program's system calls, as far as they tell something: mappings, stacks, sleepers, names, the end; and those that do not
//! exist, by which the preloaded library tells of blocks.
//!
//! - I1. What a call points to is read through the kernel, so that a wrong pointer is an error to nobody.

use std::ffi::c_uint;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::api::Id;
use crate::format::{call, record};
use crate::log::Payload;
use crate::plugin::{Shared, Thread, epoch, this, tick, with};

/// Steps of `alloc` and `free` that are written down.
const BLOCKS_MAX: u64 = 4_000_000;
/// A thread's stack, in the flags of a mapping.
const MAP_STACK: u64 = 0x2_0000;
const MAP_ANONYMOUS: u64 = 0x20;
const PROT_EXEC: u64 = 4;
const PR_SET_NAME: u64 = 15;

#[allow(clippy::too_many_arguments, reason = "the emulator's type")]
pub(crate) unsafe extern "C" fn on_call(
    _: Id,
    vcpu: c_uint,
    number: i64,
    a: u64,
    b: u64,
    c: u64,
    d: u64,
    e: u64,
    f: u64,
    _: u64,
    _: u64,
) {
    let Some(thread) = this(vcpu) else { return };
    thread.arguments = [a, b, c, d, e, f];
    if (call::FIRST..call::FIRST + 16).contains(&number) {
        thread.told(number);
        return;
    }
    // What threads agree by is between the two halves of a hand-over.
    tick();
    let _ = with(|shared| {
        let calls = shared.arch.calls();
        if number == calls.futex {
            if shared.futexes.insert(a, ()).is_none() {
                shared.log.write(record::FUTEX, Payload::default().u64(a));
            }
        } else if number == calls.execve || number == calls.execveat {
            let path = shared.read_text(if number == calls.execve { a } else { b });
            let payload = Payload::default().u32(epoch()).u32(thread.number).bytes(&path);
            shared.log.write(record::EXEC, payload);
        } else if number == calls.exit_group {
            shared.log.write(record::EXIT, Payload::default().u32(a as u32).u32(0));
        } else if number == calls.prctl && a == PR_SET_NAME {
            let name = shared.read_text(b);
            if let Some(table) = &thread.table {
                table.set_name(&name[..name.len().min(15)]);
            }
        }
    });
}

pub(crate) unsafe extern "C" fn on_return(_: Id, vcpu: c_uint, number: i64, result: i64) {
    let Some(thread) = this(vcpu) else { return };
    let [a, b, c, d, e, f] = thread.arguments;
    let _ = with(|shared| {
        let calls = shared.arch.calls();
        if number == calls.mmap && !(-4095..0).contains(&result) {
            let path = if d & MAP_ANONYMOUS == 0 {
                std::fs::read_link(format!("/proc/self/fd/{}", e as u32)).unwrap_or_default()
            } else {
                PathBuf::new()
            };
            let payload = Payload::default()
                .u32(epoch())
                .u32(c as u32)
                .u32((d & u64::from(u32::MAX)) as u32)
                .u32(thread.number)
                .u64(result as u64)
                .u64(b)
                .u64(f)
                .bytes(path.as_os_str().as_encoded_bytes());
            shared.log.write(record::MMAP, payload);
            if c & PROT_EXEC != 0 || d & MAP_STACK != 0 {
                // Symbols' places, and what is new.
                shared.code.clear();
            }
        } else if number == calls.clone && result > 0 && b != 0 {
            // What lies above the pointer is the block of the thread's locals.
            let tid = u32::try_from(result).unwrap_or(0);
            shared.log.write(record::STACK, Payload::default().u32(tid).u32(0).u64(b));
        } else if number == calls.munmap && result == 0 {
            shared.log.write(record::MUNMAP, Payload::default().u32(epoch()).u32(0).u64(a).u64(b));
        }
    });
}

impl Thread {
    /// What the preloaded library has to say.
    fn told(&mut self, number: i64) {
        let [a, b, c, d, ..] = self.arguments;
        match number {
            call::HELLO => {
                let _ = with(|shared| {
                    shared.log.write(record::PRELOADED, Payload::default().u32(0).u32(0));
                    let at = a.wrapping_add(shared.guest_base.unwrap_or(0));
                    if let Ok(memory) = std::fs::OpenOptions::new().write(true).open("/proc/self/mem") {
                        let _ = memory.write_at(&[1], at);
                    }
                });
            }
            call::QUIET => self.quiet = true,
            call::ALLOC => {
                self.quiet = false;
                let count = (d as usize).min(call::FRAMES_MAX);
                let _ = with(|shared| shared.note_block(self.number, a, b, c, count));
            }
            call::FREE => {
                let _ = with(|shared| {
                    if shared.block_counts() {
                        let payload = Payload::default().u32(epoch()).u32(self.number).u64(a);
                        shared.log.write(record::FREE, payload);
                    }
                });
            }
            _ => {}
        }
    }
}

impl Shared {
    fn block_counts(&mut self) -> bool {
        self.blocks += 1;
        if self.blocks == BLOCKS_MAX {
            self.log.write(record::BLOCKS_CUT, Payload::default().u32(0).u32(0));
        }
        self.blocks < BLOCKS_MAX
    }

    fn note_block(&mut self, thread: u32, block: u64, size: u64, frames: u64, count: usize) {
        if !self.block_counts() {
            return;
        }
        let mut bytes = [0; 8 * call::FRAMES_MAX];
        let got = self.read(frames, &mut bytes[..8 * count]);
        let frames: Vec<u64> =
            bytes[..got].as_chunks().0.iter().map(|word: &[u8; 8]| u64::from_le_bytes(*word)).collect();
        let next = self.sites.len() as u32;
        let site = match self.sites.get(&frames) {
            Some(site) => *site,
            None => {
                let mut payload = Payload::default().u32(next).u32(0);
                for frame in &frames {
                    payload = payload.u64(*frame);
                }
                self.log.write(record::SITE, payload);
                self.sites.insert(frames, next);
                next
            }
        };
        let payload = Payload::default().u32(epoch()).u32(thread).u32(site).u32(0).u64(block).u64(size);
        self.log.write(record::ALLOC, payload);
    }
}
