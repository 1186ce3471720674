//! Shares one line of each kind of object between two threads: `whose OBJECT SHARING FILE OPS`. The tests
//! check the object's name in the report.
//!
//! OBJECT is `heap`, `static`, `stack`, `local` or `file`. With SHARING `true` both threads add to one word,
//! with `false` each adds to its own. FILE is the file to map for `file`. The threads are named `owner` and
//! `other`; the stack and the thread-local are the owner's.

use std::ffi::{c_int, c_long, c_void};
use std::os::fd::AsRawFd;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::Builder;

use squall_locality_plugin::mark;

unsafe extern "C" {
    fn mmap(
        at: *mut c_void,
        bytes: usize,
        rights: c_int,
        flags: c_int,
        file: c_int,
        offset: c_long,
    ) -> *mut c_void;
}

/// Words of a line; the adjacent line stays unused.
#[repr(align(128))]
#[derive(Default)]
struct Words([AtomicU64; 8]);

static WORDS: Words = Words([const { AtomicU64::new(0) }; 8]);

thread_local! {
    static LOCAL: Words = const { Words([const { AtomicU64::new(0) }; 8]) };
}

/// Offset of the mapping in the file, and of the line in the mapping.
const MAPPED_AT: usize = 4096;
const LINE_AT: usize = 256;

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let [_, object, sharing, file, ops] = &words[..] else {
        eprintln!("usage: whose OBJECT SHARING FILE OPS");
        std::process::exit(2);
    };
    let ops: u64 = ops.parse().expect("a number");
    let is_true = sharing == "true";
    let own = || match object.as_str() {
        "heap" => share(&boxed(), is_true, ops),
        "static" => share(&WORDS, is_true, ops),
        "stack" => share(&Words::default(), is_true, ops),
        "local" => LOCAL.with(|words| share(words, is_true, ops)),
        "file" => share(mapped(file), is_true, ops),
        other => panic!("no object {other}"),
    };
    std::thread::scope(|scope| {
        Builder::new().name("owner".into()).spawn_scoped(scope, own).expect("a thread");
    });
}

#[inline(never)]
fn boxed() -> Box<Words> {
    std::hint::black_box(Box::default())
}

/// Creates the file and returns a line of it.
fn mapped(path: &str) -> &'static Words {
    let file = std::fs::OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path);
    let file = file.expect("a file that can be made");
    file.set_len(3 * 4096).expect("it can be longer");
    // Read and write, shared.
    // SAFETY: a new mapping at any address, of bytes that the file has.
    let start = unsafe { mmap(std::ptr::null_mut(), 2 * 4096, 3, 1, file.as_raw_fd(), MAPPED_AT as c_long) };
    assert_ne!(start as isize, -1, "the file can be mapped");
    // SAFETY: mapped permanently and aligned, and zeros are valid words.
    unsafe { &*start.cast::<u8>().add(LINE_AT).cast::<Words>() }
}

/// This thread and another add to the words, between marks.
fn share(words: &Words, is_true: bool, ops: u64) {
    let barrier = Barrier::new(2);
    let work = |place: usize| {
        let word = &words.0[if is_true { 0 } else { place }];
        barrier.wait();
        mark::begin();
        for _ in 0..ops {
            word.fetch_add(1, Relaxed);
        }
        mark::end();
        barrier.wait();
    };
    std::thread::scope(|scope| {
        Builder::new().name("other".into()).spawn_scoped(scope, || work(5)).expect("a thread");
        work(2);
    });
}
