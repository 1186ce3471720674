//! Restartable sequences: the macro that frames a few instructions, and the operations made with it.
//!
//! The frame, in both architectures' forms:
//!
//! ```text
//!     descriptor (read-only data): start = 2, length = 3 - 2, abort = 4
//!  4: signature; jump to 1                       the kernel jumps here if the thread was disturbed between 2 and 3
//!  1: rseq_cs of our area = descriptor           arm
//!  2: read AREA_OFFSET again, inside             lets the process give the mode up (pervp/I4)
//!     part = cpu_id << SHIFT; negative: leave    no registration: the atomic path
//!       (with `on`: leave if cpu_id is another VP; with `gate`: leave if cpu_id differs from the gate's word)
//!     the caller's loads and compares
//!     one store                                  the commit, the last instruction
//!  3:
//! ```
//!
//! The frame does not disarm after 3. The kernel clears `rseq_cs` itself when it next finds the thread
//! outside [2, 3). It reads the descriptor then, so a library that holds sequences must not be unloaded while
//! threads that ran them live.
//!
//! A signal handler that runs sequences overwrites `rseq_cs`. Its arrival has already sent the interrupted
//! sequence to its abort handler, which arms again.

use super::{CasError, ListNode, atomic};
use crate::vp::Vp;
use std::ptr::NonNull;

/// Frames a short instruction sequence so that it runs undisturbed on one VP, or restarts.
///
/// In the templates `{part}` is the distance from an object's home address to its words on the VP where the
/// sequence runs. So `home + part` is an address on that VP. A jump to `33f` leaves without a commit. The
/// last instruction is the commit: one aligned store of at most eight bytes. `{tmp}` is a scratch register.
/// Labels 31 to 37 belong to the frame. No operand may be named `part`, `tmp`, `on`, `fallback`, `thread`,
/// `word`, `area_offset`, `shift` or `signature`; with `gate`, also neither `gate` nor `home`.
///
/// With `out` and `done` the sequence has results. `done` is evaluated after the commit or after a jump to
/// `33f` (the outputs tell which), and gets the VP. Without them the macro is a statement that costs one
/// instruction less. `fallback` is evaluated instead if there are no restartable sequences. It must call
/// [`settle`](crate::pervp::settle) first. Builds without sequences evaluate and drop the operands of `in`,
/// then evaluate `fallback`.
///
/// With `gate: [base, offset]` before `in`, a statement runs only on one VP: the index of that VP is the
/// `u32` at `base + offset`. On any other VP, `fallback` is evaluated. The word is read and compared *inside*
/// the sequence, by an acquiring load (on x86-64 every load acquires). So a thread can close the gate: it
/// stores another number into that word and then restarts all sequences of the process. From then on no such
/// sequence commits. There is no `{part}`; `base` is `{gate}` in the templates, and `offset` a constant.
///
/// In the forms without `out` a template may also jump to `{fallback}`, to leave without a commit. A jump to
/// `33f` would look like a commit there.
///
/// With `on: vp` before `in`, a statement runs on that VP only. On any other VP, `fallback` is evaluated.
/// There is no `{part}`: the words that the sequence uses may be anywhere. The fallback need not call
/// `settle` if it never writes the word that the sequence stores to. It must not call `settle` if threads
/// with restartable sequences use it, because `settle` takes the sequences from the whole process.
///
/// # Safety
/// The macro must be used in an `unsafe` block with an argument that
/// 1. only the last instruction stores to memory that another thread may read; or, after any earlier such
///    store, the sequence may be cut short and begin again;
/// 2. the templates change no register but `{tmp}`, the `out` operands and the flags, do not use the stack,
///    and make no call;
/// 3. addresses formed with `{part}` are in an extent of per-VP memory; every other thread that writes there
///    does so by such sequences or, after [`settle`](crate::pervp::settle), atomically;
/// 4. with `on`, all other writers of the words use sequences on the same VP; and the process has called
///    [`restart_mode`](crate::pervp::restart_mode) or created a per-VP object before;
/// 5. with `gate`, condition 4 holds for one VP, except for stores made while no sequence would commit. The
///    fallback need not call `settle`. The gate's word holds the index of that VP, or a positive
///    `i32` that is the index of no VP. The word is aligned, and readable while the sequence runs.
///
/// # Example
/// ```
/// # use squall::{pervp, restartable};
/// let word = pervp::PerVpWord::new();
/// let (home, limit): (*mut u64, u64) = (word.home().as_ptr(), 10);
/// // SAFETY: 1. only the last instruction stores. 2. Only `count` is changed. 3. `home` is the word's home, and
/// // all its other operations are such sequences or atomic after `settle`.
/// unsafe {
///     restartable! {
///         in: [home = home, limit = limit],
///         out: [count: u64],
///         x86_64: [
///             "mov {count}, qword ptr [{home} + {part}]",
///             "cmp {count}, {limit}",
///             "jae 33f",
///             "add qword ptr [{home} + {part}], 1",
///         ],
///         aarch64: [
///             "ldr {count}, [{home}, {part}]",
///             "cmp {count}, {limit}",
///             "b.hs 33f",
///             "add {count}, {count}, #1",
///             "str {count}, [{home}, {part}]",
///         ],
///         done: |_vp| { let _ = count; },
///         fallback: { word.update(|count| (count < limit).then_some(count + 1)); },
///     }
/// }
/// assert_eq!(word.sum(), 1);
/// ```
#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_pointer_width = "64",
    not(miri),
    not(squall_tsan)
))]
#[macro_export]
macro_rules! restartable {
    (
        in: [$($in:ident = $value:expr),* $(,)?],
        out: [$($out:ident : $type:ty),* $(,)?],
        x86_64: [$($x86_64:literal),* $(,)?],
        aarch64: [$($aarch64:literal),* $(,)?],
        done: |$vp:ident| $done:expr,
        fallback: $fallback:expr $(,)?
    ) => {{
        let __part: i64;
        $(let $out: $type;)*
        $crate::__restartable_frame! {
            x86_64: [
                "movsxd {part}, dword ptr fs:[{tmp} + 4]",
                "shl {part}, {shift}",
                "js 33f",
                $($x86_64),*
            ],
            aarch64: [
                "ldrsw {part}, [{tmp}, #4]",
                "lsl {part}, {part}, #{shift}",
                "tbnz {part}, #63, 33f",
                $($aarch64),*
            ],
            part = out(reg) __part,
            shift = const $crate::pervp::SHIFT,
            $($in = in(reg) $value,)*
            $($out = out(reg) $out,)*
        }
        if __part >= 0 {
            let $vp = $crate::Vp::new((__part >> $crate::pervp::SHIFT) as u32);
            $done
        } else {
            $fallback
        }
    }};
    (
        in: [$($in:ident = $value:expr),* $(,)?],
        x86_64: [$($x86_64:literal),* $(,)?],
        aarch64: [$($aarch64:literal),* $(,)?],
        fallback: $fallback:expr $(,)?
    ) => {
        $crate::__restartable_frame! {
            x86_64: [
                "movsxd {part}, dword ptr fs:[{tmp} + 4]",
                "shl {part}, {shift}",
                "js {fallback}",
                $($x86_64),*
            ],
            aarch64: [
                "ldrsw {part}, [{tmp}, #4]",
                "lsl {part}, {part}, #{shift}",
                "tbnz {part}, #63, {fallback}",
                $($aarch64),*
            ],
            part = out(reg) _,
            shift = const $crate::pervp::SHIFT,
            $($in = in(reg) $value,)*
            fallback = label {
                // SAFETY: the label's block is outside the caller's `unsafe` block, but the caller's argument
                // covers it. A safe fallback needs no block, hence the `allow`.
                #[allow(unused_unsafe, clippy::macro_metavars_in_unsafe)]
                unsafe { $fallback; }
            },
        }
    };
    (
        gate: [$base:expr, $offset:expr],
        in: [$($in:ident = $value:expr),* $(,)?],
        x86_64: [$($x86_64:literal),* $(,)?],
        aarch64: [$($aarch64:literal),* $(,)?],
        fallback: $fallback:expr $(,)?
    ) => {
        // A negative `cpu_id` (pervp/I4) equals no number that the gate's word may hold.
        $crate::__restartable_frame! {
            x86_64: [
                "mov {part:e}, dword ptr fs:[{tmp} + 4]",
                "cmp {part:e}, dword ptr [{gate} + {home}]",
                "jne {fallback}",
                $($x86_64),*
            ],
            aarch64: [
                "ldr {part:w}, [{tmp}, #4]",
                "add {tmp}, {gate}, #{home}",
                "ldar {tmp:w}, [{tmp}]",
                "cmp {part:w}, {tmp:w}",
                "b.ne {fallback}",
                $($aarch64),*
            ],
            part = out(reg) _,
            gate = in(reg) $base,
            home = const $offset,
            $($in = in(reg) $value,)*
            fallback = label {
                // SAFETY: the label's block is outside the caller's `unsafe` block, but the caller's argument
                // covers it. A safe fallback needs no block, hence the `allow`.
                #[allow(unused_unsafe, clippy::macro_metavars_in_unsafe)]
                unsafe { $fallback; }
            },
        }
    };
    (
        on: $vp:expr,
        in: [$($in:ident = $value:expr),* $(,)?],
        x86_64: [$($x86_64:literal),* $(,)?],
        aarch64: [$($aarch64:literal),* $(,)?],
        fallback: $fallback:expr $(,)?
    ) => {{
        // A negative `cpu_id` (pervp/I4) equals no VP below the limit, so one comparison suffices.
        let __on: $crate::Vp = $vp;
        $crate::__restartable_frame! {
            x86_64: [
                "cmp {on:e}, dword ptr fs:[{tmp} + 4]",
                "jne {fallback}",
                $($x86_64),*
            ],
            aarch64: [
                "ldr {part:w}, [{tmp}, #4]",
                "cmp {part:w}, {on:w}",
                "b.ne {fallback}",
                $($aarch64),*
            ],
            part = out(reg) _,
            on = in(reg) __on.index() as u32,
            $($in = in(reg) $value,)*
            fallback = label {
                // SAFETY: the label's block is outside the caller's `unsafe` block, but the caller's argument
                // covers it. A safe fallback needs no block, hence the `allow`.
                #[allow(unused_unsafe, clippy::macro_metavars_in_unsafe)]
                unsafe { $fallback; }
            },
        }
    }};
}

/// Evaluates `fallback`: this build has no restartable sequences.
#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_pointer_width = "64",
    not(miri),
    not(squall_tsan)
)))]
#[macro_export]
macro_rules! restartable {
    (
        $(on: $on:expr,)?
        $(gate: [$base:expr, $offset:expr],)?
        in: [$($in:ident = $value:expr),* $(,)?],
        $(out: [$($out:tt)*],)?
        x86_64: [$($x86_64:tt)*],
        aarch64: [$($aarch64:tt)*],
        $(done: |$vp:ident| $done:expr,)?
        fallback: $fallback:expr $(,)?
    ) => {{
        $crate::pervp::no_sequence();
        $(let _: $crate::Vp = $on;)?
        $(let _ = ($base, $offset);)?
        $(let _ = $value;)*
        $fallback
    }};
}

/// Not public: the frame itself. The body begins by reading the VP, and leaves if the thread may not run
/// sequences.
#[cfg(target_arch = "x86_64")]
#[doc(hidden)]
#[macro_export]
macro_rules! __restartable_frame {
    (
        x86_64: [$($body:literal),*],
        aarch64: [$($other:tt)*],
        $($operands:tt)*
    ) => {
        ::core::arch::asm!(
            ".pushsection .data.rel.ro.squall_rseq,\"aw?\",@progbits",
            ".p2align 5",
            "37:",
            ".long 0, 0",
            ".quad 32f, 33f - 32f, 34f",
            ".popsection",
            ".pushsection .text.unlikely.squall_rseq,\"ax?\",@progbits",
            ".byte 0x0f, 0xb9, 0x3d",
            ".long {signature}",
            "34:",
            "jmp 31f",
            ".popsection",
            "31:",
            "mov {tmp}, qword ptr [rip + {area_offset}]",
            "lea {part}, [rip + 37b]",
            "mov qword ptr fs:[{tmp} + 8], {part}",
            "32:",
            "mov {tmp}, qword ptr [rip + {area_offset}]",
            $($body,)*
            "33:",
            tmp = out(reg) _,
            $($operands)*
            area_offset = sym $crate::pervp::AREA_OFFSET,
            signature = const $crate::pervp::SIGNATURE,
            options(nostack),
        )
    };
}

/// Not public: the frame itself. The body begins by reading the VP, and leaves if the thread may not run
/// sequences.
#[cfg(target_arch = "aarch64")]
#[doc(hidden)]
#[macro_export]
macro_rules! __restartable_frame {
    (
        x86_64: [$($other:tt)*],
        aarch64: [$($body:literal),*],
        $($operands:tt)*
    ) => {
        ::core::arch::asm!(
            ".pushsection .data.rel.ro.squall_rseq,\"aw?\",%progbits",
            ".p2align 5",
            "37:",
            ".long 0, 0",
            ".quad 32f, 33f - 32f, 34f",
            ".popsection",
            ".pushsection .text.unlikely.squall_rseq,\"ax?\",%progbits",
            ".inst {signature}",
            "34:",
            "b 31f",
            ".popsection",
            "31:",
            "mrs {thread}, tpidr_el0",
            "adrp {word}, {area_offset}",
            "ldr {tmp}, [{word}, #:lo12:{area_offset}]",
            "adrp {part}, 37b",
            "add {part}, {part}, #:lo12:37b",
            "add {tmp}, {tmp}, {thread}",
            "str {part}, [{tmp}, #8]",
            "32:",
            "ldr {tmp}, [{word}, #:lo12:{area_offset}]",
            "add {tmp}, {tmp}, {thread}",
            $($body,)*
            "33:",
            thread = out(reg) _,
            word = out(reg) _,
            tmp = out(reg) _,
            $($operands)*
            area_offset = sym $crate::pervp::AREA_OFFSET,
            signature = const $crate::pervp::SIGNATURE,
            options(nostack),
        )
    };
}

/// An empty function. A build without sequences calls it in their place, so that the macro requires `unsafe`
/// in such builds, too.
///
/// # Safety
/// Always safe to call.
#[doc(hidden)]
#[inline(always)]
pub unsafe fn no_sequence() {}

/// Adds `n` to the word on the VP where the calling thread is.
///
/// # Safety
/// `home` is the home of an extent of per-VP memory of at least eight bytes, aligned to eight. The extent is
/// used only through this module's word operations.
#[inline(always)]
pub(super) unsafe fn add(home: NonNull<u64>, n: u64) {
    // SAFETY: of `restartable!`: 1. one store. 2. Only `{tmp}` changes. 3. By this function's contract.
    unsafe {
        restartable! {
            in: [home = home.as_ptr(), n = n],
            x86_64: ["add qword ptr [{home} + {part}], {n}"],
            aarch64: ["ldr {tmp}, [{home}, {part}]", "add {tmp}, {tmp}, {n}", "str {tmp}, [{home}, {part}]"],
            fallback: atomic::add(home, n),
        }
    }
}

/// Stores `new` into the word on the VP where the calling thread is. Returns that VP and the word's old
/// value.
///
/// # Safety
/// The contract of [`add`].
#[inline(always)]
pub(super) unsafe fn swap(home: NonNull<u64>, new: u64) -> (Vp, u64) {
    // SAFETY: of `restartable!`: 1. only the last instruction stores. 2. Only `old` changes. 3. By this
    // function's contract.
    unsafe {
        restartable! {
            in: [home = home.as_ptr(), new = new],
            out: [old: u64],
            x86_64: ["mov {old}, qword ptr [{home} + {part}]", "mov qword ptr [{home} + {part}], {new}"],
            aarch64: ["ldr {old}, [{home}, {part}]", "str {new}, [{home}, {part}]"],
            done: |vp| (vp, old),
            fallback: atomic::swap(home, new),
        }
    }
}

/// Stores `new` into the word on `vp` if the calling thread is there and the word is `expected`. The store
/// releases (on x86-64 every store does): pairs with the Acquire load of `PerVpWords::load`.
///
/// # Safety
/// The contract of [`add`].
#[inline(always)]
pub(super) unsafe fn compare_and_store(
    home: NonNull<u64>,
    vp: Vp,
    expected: u64,
    new: u64,
) -> Result<(), CasError> {
    let wanted = (vp.index() as u64) << super::SHIFT;
    // SAFETY: of `restartable!`: 1. only the last instruction stores. 2. Only `old` changes. 3. By this
    // function's contract.
    unsafe {
        restartable! {
            in: [home = home.as_ptr(), wanted = wanted, expected = expected, new = new],
            out: [old: u64],
            x86_64: [
                "cmp {part}, {wanted}",
                "jne 33f",
                "mov {old}, qword ptr [{home} + {part}]",
                "cmp {old}, {expected}",
                "jne 33f",
                "mov qword ptr [{home} + {part}], {new}",
            ],
            aarch64: [
                "cmp {part}, {wanted}",
                "b.ne 33f",
                "ldr {old}, [{home}, {part}]",
                "cmp {old}, {expected}",
                "b.ne 33f",
                "add {tmp}, {home}, {part}",
                "stlr {new}, [{tmp}]",
            ],
            // If the thread was elsewhere, `old` is an undefined register value and is not used.
            done: |here| if here != vp {
                Err(CasError::Elsewhere(here))
            } else if old != expected {
                Err(CasError::Changed(old))
            } else {
                Ok(())
            },
            fallback: atomic::compare_and_store(home, vp, expected, new),
        }
    }
}

/// Arguments of [`compare_store_and_store`]: two words and three values.
#[derive(Clone, Copy)]
pub(super) struct Pair {
    /// The word that is compared, and stored last.
    pub(super) key: NonNull<u64>,
    pub(super) expected: u64,
    pub(super) new: u64,
    /// The word that is stored first.
    pub(super) side: NonNull<u64>,
    pub(super) value: u64,
}

/// If the calling thread is on `vp` and the key there is `expected`, stores the side word, then the key. The
/// store of the key releases: pairs with the Acquire load of `PerVpWords::load`. A thread that sees the new
/// key sees the side word's value.
///
/// # Safety
/// The contract of [`add`], for `key`, `side` and `lock`, which are in one object. Only this operation uses
/// `lock`.
#[inline(always)]
pub(super) unsafe fn compare_store_and_store(pair: Pair, lock: NonNull<u64>, vp: Vp) -> Result<(), CasError> {
    let Pair { key, expected, new, side, value } = pair;
    let wanted = (vp.index() as u64) << super::SHIFT;
    // SAFETY: of `restartable!`: 1. the store before the last is the side word's. If the sequence is cut
    // short after it, it begins again with the comparison, and the callers' contract allows a written side
    // word. 2. Only `old` changes. 3. By this function's contract.
    unsafe {
        restartable! {
            in: [key = key.as_ptr(), side = side.as_ptr(), wanted = wanted, expected = expected, value = value, new = new],
            out: [old: u64],
            x86_64: [
                "cmp {part}, {wanted}",
                "jne 33f",
                "mov {old}, qword ptr [{key} + {part}]",
                "cmp {old}, {expected}",
                "jne 33f",
                "mov qword ptr [{side} + {part}], {value}",
                "mov qword ptr [{key} + {part}], {new}",
            ],
            aarch64: [
                "cmp {part}, {wanted}",
                "b.ne 33f",
                "ldr {old}, [{key}, {part}]",
                "cmp {old}, {expected}",
                "b.ne 33f",
                "add {tmp}, {key}, {part}",
                "str {value}, [{side}, {part}]",
                "stlr {new}, [{tmp}]",
            ],
            done: |here| if here != vp {
                Err(CasError::Elsewhere(here))
            } else if old != expected {
                Err(CasError::Changed(old))
            } else {
                Ok(())
            },
            fallback: atomic::compare_store_and_store(pair, lock, vp),
        }
    }
}

/// Pushes `node` on the list of the VP where the calling thread is.
///
/// # Safety
/// `home` is the home of a list's head (see `atomic`). `node` is in no list, and no other thread writes it.
#[inline(always)]
pub(super) unsafe fn push(home: NonNull<u64>, node: NonNull<ListNode>) {
    // SAFETY: of `restartable!`: 1. the store before the last is to the node. No other thread writes it, and
    // it is linked again if the sequence begins again. 2. Only `{tmp}` changes. 3. By this function's
    // contract.
    unsafe {
        restartable! {
            in: [home = home.as_ptr(), node = node.as_ptr()],
            x86_64: [
                "mov {tmp}, qword ptr [{home} + {part}]",
                "mov qword ptr [{node}], {tmp}",
                "mov qword ptr [{home} + {part}], {node}",
            ],
            aarch64: [
                "ldr {tmp}, [{home}, {part}]",
                "str {tmp}, [{node}]",
                "str {node}, [{home}, {part}]",
            ],
            fallback: atomic::push(home, node),
        }
    }
}

/// Pops the first node of the list on the VP where the calling thread is. Returns null if that list is empty.
///
/// # Safety
/// `home` is the home of a list's head; popped nodes stay readable while the list lives.
#[inline(always)]
pub(super) unsafe fn pop(home: NonNull<u64>) -> *mut ListNode {
    // SAFETY: of `restartable!`: 1. only the last instruction stores. 2. Only the outputs change. 3. By this
    // function's contract. The node that is read is in the list at that instant: only this VP's sequences
    // take nodes from it, and the reading sequence is undisturbed.
    unsafe {
        restartable! {
            in: [home = home.as_ptr()],
            out: [node: *mut ListNode],
            x86_64: [
                "mov {node}, qword ptr [{home} + {part}]",
                "test {node}, {node}",
                "jz 33f",
                "mov {tmp}, qword ptr [{node}]",
                "mov qword ptr [{home} + {part}], {tmp}",
            ],
            aarch64: [
                "ldr {node}, [{home}, {part}]",
                "cbz {node}, 33f",
                "ldr {tmp}, [{node}]",
                "str {tmp}, [{home}, {part}]",
            ],
            done: |_vp| node,
            fallback: atomic::pop(home),
        }
    }
}

/// Pushes `pointer` on the magazine of `vp`, which has room for `capacity` pointers. Returns false, without
/// pushing, if the magazine is full or the calling thread is elsewhere.
///
/// # Safety
/// `home` is the home of a magazine with `capacity` pointers: one word for the count, and one for each
/// pointer.
#[inline(always)]
pub(super) unsafe fn put(home: NonNull<u64>, vp: Vp, capacity: usize, pointer: NonNull<()>) -> bool {
    let wanted = (vp.index() as u64) << super::SHIFT;
    // SAFETY: of `restartable!`: 1. the store before the last is to a word above the count. No other thread
    // reads or writes that word, and it is stored again if the sequence begins again. 2. Only `{tmp}` and
    // `count` change. 3. By this function's contract: the word is below `capacity`.
    unsafe {
        restartable! {
            in: [home = home.as_ptr(), wanted = wanted, capacity = capacity, pointer = pointer.as_ptr()],
            out: [count: usize],
            x86_64: [
                "cmp {part}, {wanted}",
                "jne 33f",
                "mov {count}, qword ptr [{home} + {part}]",
                "cmp {count}, {capacity}",
                "jae 33f",
                "lea {tmp}, [{home} + {part}]",
                "mov qword ptr [{tmp} + {count} * 8 + 8], {pointer}",
                "add qword ptr [{tmp}], 1",
            ],
            aarch64: [
                "cmp {part}, {wanted}",
                "b.ne 33f",
                "ldr {count}, [{home}, {part}]",
                "cmp {count}, {capacity}",
                "b.hs 33f",
                "add {tmp}, {home}, {part}",
                "add {tmp}, {tmp}, {count}, lsl #3",
                "str {pointer}, [{tmp}, #8]",
                "add {tmp}, {count}, #1",
                "str {tmp}, [{home}, {part}]",
            ],
            // If the thread was elsewhere, `count` is an undefined register value and is not used.
            done: |here| here == vp && count < capacity,
            fallback: atomic::put(home, vp, capacity, pointer),
        }
    }
}

/// Pops the top of the magazine on the VP where the calling thread is. Returns null if that magazine is
/// empty.
///
/// # Safety
/// `home` is the home of a magazine.
#[inline(always)]
pub(super) unsafe fn take(home: NonNull<u64>) -> *mut () {
    // SAFETY: of `restartable!`: 1. only the last instruction stores. 2. Only `{tmp}` and the outputs change.
    // 3. By this function's contract: the word that is read is below the count, so within the magazine.
    unsafe {
        restartable! {
            in: [home = home.as_ptr()],
            out: [count: usize, top: *mut ()],
            x86_64: [
                "mov {count}, qword ptr [{home} + {part}]",
                "test {count}, {count}",
                "jz 33f",
                "lea {tmp}, [{home} + {part}]",
                "mov {top}, qword ptr [{tmp} + {count} * 8]",
                "sub qword ptr [{tmp}], 1",
            ],
            aarch64: [
                "ldr {count}, [{home}, {part}]",
                "cbz {count}, 33f",
                "add {tmp}, {home}, {part}",
                "add {tmp}, {tmp}, {count}, lsl #3",
                "ldr {top}, [{tmp}]",
                "sub {tmp}, {count}, #1",
                "str {tmp}, [{home}, {part}]",
            ],
            // If the magazine is empty, `top` is an undefined register value.
            done: |_vp| if count == 0 { std::ptr::null_mut() } else { top },
            fallback: atomic::take(home),
        }
    }
}
