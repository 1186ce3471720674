//! Describes a line for the report: its object, the roles of its words, and the accesses by thread and
//! instruction.

use std::path::PathBuf;

use squall_locality_plugin::format::insn;

use super::{CodeReport, LineReport, Request, TouchReport, WordReport};
use crate::lines::{Bytes, Line, Lines, Place, Touch};
use crate::objects::{Object, Objects};
use crate::symbols::{Frame, Symbols, is_lock_function};

/// Maximum number of instructions listed per line.
const PLACES_MAX: usize = 12;

pub(super) fn describe(
    line: &Line,
    lines: &Lines,
    objects: &Objects,
    symbols: &mut Symbols,
    request: &Request,
) -> LineReport {
    let number = |thread: &usize| lines.threads[*thread].head.number;
    let code: Vec<CodeReport> = line
        .places
        .iter()
        .take(PLACES_MAX)
        .map(|place| CodeReport {
            address: format!("{:#x}", place.pc),
            instruction: match place.kind {
                insn::ATOMIC => "atomic",
                insn::EXCHANGE => "exchange",
                _ => "plain",
            },
            reads: place.reads,
            writes: place.writes,
            threads: place.threads.iter().map(number).collect(),
            frames: objects.frames(place.pc, symbols),
        })
        .collect();
    let span = line
        .touches
        .iter()
        .fold((u32::MAX, 0), |span, touch| (span.0.min(touch.span.0), span.1.max(touch.span.1)));
    let ops = request.rules.ops;
    let locks = locks(line, objects, symbols);
    let words = words(line, lines, locks, request.rules.line_bytes);
    let mut content: Vec<&str> = words.iter().map(|word| word.role).collect();
    content.sort_unstable_by_key(|role| ["lock", "atomic", "data"].iter().position(|known| known == role));
    content.dedup();
    LineReport {
        address: format!("{:#x}", line.address),
        phase: line.phase,
        sharing: line.sharing,
        content: if content.is_empty() { "unknown".to_owned() } else { content.join(" and ") },
        object: {
            let (first, bytes) = touched(line);
            match objects.at(line.address.saturating_add(first), bytes, span, symbols) {
                // `offset` is that of the first touched byte; the report gives the offset of the line.
                Object::File { path, offset } => Object::File { path, offset: offset.saturating_sub(first) },
                object => object,
            }
        },
        words,
        reads: line.touches.iter().fold(0, |sum: u64, touch| sum.saturating_add(touch.reads)),
        writes: line.touches.iter().fold(0, |sum: u64, touch| sum.saturating_add(touch.writes)),
        write_shared: line.write_shared_accesses,
        falsely_shared: line.false_accesses,
        transfers_at_most: line.transfers_at_most,
        transfers_by_model: request.model.transfers(line, ops),
        upgrades_by_model: request.model.upgrades(line, ops),
        cost_ms_by_model: request.model.cost_ns(line, ops) / 1e6,
        threads: line
            .touches
            .iter()
            .map(|touch| TouchReport {
                thread: number(&touch.thread),
                reads: touch.reads,
                writes: touch.writes,
            })
            .collect(),
        code_not_listed: line.places.len() - code.len(),
        code,
    }
}

/// Returns the first touched byte and the length up to the last one.
fn touched(line: &Line) -> (u64, u64) {
    let all = line.touches.iter().fold(0, |all, touch| all | touch.read_bytes | touch.written_bytes);
    if all == 0 {
        return (0, 1);
    }
    let first = u64::from(all.trailing_zeros());
    (first, 128 - u64::from(all.leading_zeros()) - first)
}

/// Returns the lock bytes of a line. A byte belongs to a lock in three cases:
///
/// - Threads exchange it and release it by a plain store (see `Line::lock_bytes`).
/// - A known lock function exchanges it, or adds to bytes that are exchanged elsewhere (a reader count). The
///   exchange may lie in another function if it is not inlined.
/// - Threads slept on it.
fn locks(line: &Line, objects: &Objects, symbols: &mut Symbols) -> Bytes {
    let mut locks = line.lock_bytes;
    let exchanges = |place: &&Place| {
        place.kind == insn::EXCHANGE || place.kind == insn::ATOMIC && place.bytes & !line.exchanged_bytes == 0
    };
    for place in line.places.iter().filter(exchanges) {
        if place.bytes & !locks != 0 && is_lock_function(&objects.frames(place.pc, symbols)) {
            locks |= place.bytes;
        }
    }
    for offset in (0..Bytes::BITS).step_by(4) {
        let word = 0xf << offset;
        if line.atomic_bytes & word != 0
            && objects.has_sleepers(line.address.saturating_add(u64::from(offset)), 4)
        {
            locks |= line.atomic_bytes & word;
        }
    }
    locks
}

/// Lists the touched words of a line with their roles.
fn words(line: &Line, lines: &Lines, locks: Bytes, line_bytes: u32) -> Vec<WordReport> {
    const WORD: u32 = 8;
    let mut words = Vec::new();
    for offset in (0..line_bytes).step_by(WORD as usize) {
        let mask = 0xffu128 << offset;
        let who = |bytes: fn(&Touch) -> u128| -> Vec<u32> {
            let touches = line.touches.iter().filter(|touch| bytes(touch) & mask != 0);
            touches.map(|touch| lines.threads[touch.thread].head.number).collect()
        };
        let touched_by = who(|touch| touch.read_bytes | touch.written_bytes);
        if touched_by.is_empty() {
            continue;
        }
        let role = if locks & mask != 0 {
            "lock"
        } else if line.atomic_bytes & mask != 0 {
            "atomic"
        } else {
            "data"
        };
        words.push(WordReport { offset, role, touched_by, written_by: who(|touch| touch.written_bytes) });
    }
    words
}

/// Source location of a frame, for display.
pub(super) fn place(frame: &Frame) -> String {
    match (&frame.file, frame.line) {
        (Some(file), Some(line)) => format!("{}:{line}", Objects::shown(file)),
        (Some(file), None) => Objects::shown(file),
        _ => String::new(),
    }
}

/// Describes an object in one phrase. `address` is that of the line.
pub(super) fn object_text(object: &Object, address: &str) -> String {
    let line = u64::from_str_radix(address.trim_start_matches("0x"), 16).unwrap_or(0);
    let file =
        |path: &PathBuf| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    match object {
        Object::Heap { blocks } => {
            let each = blocks.iter().map(|block| {
                let at = block.address.saturating_sub(line);
                let place_in = if block.address >= line {
                    format!("from byte {at} of the line")
                } else {
                    format!("the line is at byte {} of the block", line - block.address)
                };
                let of = block.process.map(|pid| format!(" of process {pid}")).unwrap_or_default();
                let at = block.allocated_at().map(|frame| format!(" at {} {}", place(frame), frame.function));
                let (thread, at) = (block.thread, at.unwrap_or_default());
                format!(
                    "heap block of {} bytes ({place_in}), allocated by thread {thread}{of}{at}",
                    block.bytes
                )
            });
            each.collect::<Vec<_>>().join("; ")
        }
        Object::Static { file: path, names } if names.is_empty() => format!("static data of {}", file(path)),
        Object::Static { file: path, names } => format!("static {} in {}", names.join(", "), file(path)),
        Object::Stack { tid } => format!("stack of thread {tid}"),
        Object::ThreadLocal { tid } => format!("thread-local data of thread {tid}"),
        Object::File { path, offset } => format!("mapped file {} at {offset:#x}", path.display()),
        Object::Anonymous { start, bytes } => format!("anonymous mapping of {bytes} bytes at {start:#x}"),
        Object::Unknown => "unknown memory".to_owned(),
    }
}
