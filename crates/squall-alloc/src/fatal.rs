//! Fatal errors: ends the program with one line of text, without an allocation.
//!
//! The functions do not unwind, so they may be called with locks held.
//!
//! Cost: one write to the standard error.

use squall_sys::pages;
use std::fmt::Write;

/// A line of text in a fixed buffer, without allocation.
struct Line {
    bytes: [u8; 256],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let len = text.len().min(self.bytes.len() - self.len);
        self.bytes[self.len..][..len].copy_from_slice(&text.as_bytes()[..len]);
        self.len += len;
        Ok(())
    }
}

/// Writes a line to the standard error.
#[cold]
pub(crate) fn tell(what: std::fmt::Arguments<'_>) {
    let mut line = Line { bytes: [0; 256], len: 0 };
    let _ = writeln!(line, "squall-alloc: {what}");
    pages::write_stderr(&line.bytes[..line.len]);
}

#[cold]
pub(crate) fn die(what: std::fmt::Arguments<'_>) -> ! {
    tell(what);
    std::process::abort();
}

/// Ends the program: a freed address is no block of this allocator.
#[cold]
pub(crate) fn foreign_free(block: *mut u8) {
    die(format_args!("foreign free: no block of this allocator begins at {block:p}"));
}

/// Ends the program: a block was freed twice.
#[cold]
pub(crate) fn double_free(block: *mut u8) {
    die(format_args!("double free of the block at {block:p}"));
}
