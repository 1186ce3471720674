//! The functions of the header: pointers of C become values of Rust, and results the values of the thesis.
//!
//! - I1. A block of `unsafe` reads or writes memory that the caller has given for this call, and keeps no
//!   pointer. Null is refused first.
//! - I2. Handles are numbers, and the memory behind them is never read. The table finds wrong ones.
//!
//! `cargo run -p xtask -- header` writes the header from this file.

// The names of the thesis.
#![allow(non_snake_case, non_camel_case_types)]

use crate::calls::{self, Shutdown};
use crate::failure::{Failure, border, last_code, last_text};
use crate::options;
use crate::table::{Handle, remove_node};
use pool::Attributes;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{NonNull, null_mut, without_provenance_mut};

#[cfg(test)]
mod tests;

mod cancel;
pub(crate) use cancel::NoCancellation;

/// The bytes of a key as text, with its end.
pub const POOL_KEY_BYTES: usize = 33;

/// A node of a group: processes join a group by a node each. Opaque: the pointer is a number.
pub struct SquallNode {
    _private: [u8; 0],
}

/// A facade of a pool, at a node. Opaque: the pointer is a number.
pub struct Pool {
    _private: [u8; 0],
}

/// A number of elements.
pub type PoolSize_t = c_int;

/// The location of a facade. Opaque. Programs may copy the bytes, and send them to other processes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PoolLocation {
    /// Its bytes.
    pub data: [c_char; 64],
}

/// The way in which elements move between facades.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolStrategy {
    /// `POOL_STRATEGY_DIRECTORY`.
    Default = 0,
    /// All elements are at one facade, the master. It is the oldest one.
    Centralized = 1,
    /// A facade without elements takes one element of another facade.
    Distributed = 2,
    /// A facade without elements takes up to `bulk` elements of another facade.
    BulkTransfer = 3,
    /// Bulk transfers, and an idle facade with few elements takes some before it needs them.
    BackgroundPull = 4,
    /// Bulk transfers, and an idle facade with many elements gives some to the next facade.
    BackgroundPush = 5,
    /// Like `POOL_STRATEGY_BACKGROUND_PUSH`, but gives only to a facade with far fewer elements.
    EstimatedPush = 6,
    /// Bulk transfers. A facade without elements asks the master for another one with elements.
    Directory = 7,
}

/// Options of a pool. Zero means the default, so set all bytes to zero first. All facades of a pool have
/// equal options.
///
/// Later versions of the library have more options at the end. A version refuses a larger struct whose
/// further bytes are not zero.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PoolOptions {
    /// `sizeof(PoolOptions)`.
    pub size: c_int,
    /// A `PoolStrategy`.
    pub strategy: c_int,
    /// The most elements of one transfer. Default: 50.
    pub bulk: c_int,
    /// The number of idle events after which an idle facade acts once. Default: 100. An event comes after
    /// 10 ms without work, and later ones up to 640 ms apart.
    pub idle_events: c_int,
    /// The number of elements below which an idle facade takes some. Default: 1,024.
    pub pull_below: c_int,
    /// The number of elements above which an idle facade gives some. Default: 20,000.
    pub push_above: c_int,
    /// The change of its number of elements after which a facade tells the master. Default: 500.
    pub estimate_step: c_int,
    /// The least difference to the estimate of a facade that is given elements. Default: 2,048.
    pub push_margin: c_int,
    /// The number of its idle acts after which the master sends new estimates to all. Default: 1.
    pub broadcast_acts: c_int,
}

/// The outcome of a call.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SquallCode {
    /// The call has done its work.
    Ok = 0,
    /// The pool has no element.
    Empty = 1,
    /// An argument is null, negative, or no text of its form.
    Argument = 2,
    /// No living node or pool has this pointer. It has ended, or is of another kind.
    Handle = 3,
    /// An element or a text is larger than allowed. The call had no effect.
    TooLarge = 4,
    /// The time is over. A get has taken no element, and an add has added none. A shutdown or a leave goes
    /// on: call it again.
    TimedOut = 5,
    /// The time of an add is over, or the node was taken for dead. The element may come into the pool.
    Unknown = 6,
    /// The facade leaves its pool, or the node has left its group.
    Closed = 7,
    /// The group refuses it: the name is taken, or the key is wrong.
    Refused = 8,
    /// The system has no thread, file or name for it.
    System = 9,
    /// The process is the child of a fork, and its parent has the nodes.
    Forked = 10,
    /// A fault of the library.
    Panic = 11,
}

fn node_handle(node: *mut SquallNode) -> Handle {
    Handle(node.addr())
}

fn pool_handle(pool: *mut Pool) -> Handle {
    Handle(pool.addr())
}

/// Makes the pointer of a handle (I2).
fn pointer<T>(handle: Handle) -> *mut T {
    without_provenance_mut(handle.0)
}

fn refuse_null<T>(pointer: *const T, argument: &str) -> Result<NonNull<T>, Failure> {
    NonNull::new(pointer.cast_mut())
        .ok_or_else(|| Failure::argument(format!("the argument `{argument}` is null")))
}

fn length(size: c_int) -> Result<usize, Failure> {
    usize::try_from(size).map_err(|_| Failure::argument("the size is negative"))
}

/// Reads a text.
///
/// # Safety
/// If `pointer` is not null, it points to bytes with a zero at their end. They stay unchanged for `'a`.
unsafe fn text<'a>(pointer: *const c_char, argument: &str) -> Result<&'a str, Failure> {
    let pointer = refuse_null(pointer, argument)?;
    // SAFETY: not null, and the caller promises a zero at the end, and no writes.
    let text = unsafe { CStr::from_ptr(pointer.as_ptr()) };
    text.to_str().map_err(|_| Failure::argument(format!("the argument `{argument}` is not UTF-8")))
}

/// Reads bytes. Null is allowed for zero bytes.
///
/// # Safety
/// If `pointer` is not null, it points to `size` bytes. They stay unchanged for `'a`.
unsafe fn bytes<'a>(pointer: *const c_void, size: c_int) -> Result<&'a [u8], Failure> {
    let size = length(size)?;
    if size == 0 {
        return Ok(&[]);
    }
    let pointer = refuse_null(pointer, "value")?;
    // SAFETY: not null, and the caller promises the bytes, and no writes. A byte has any alignment, and a
    // C `int` is at most `isize::MAX`.
    Ok(unsafe { std::slice::from_raw_parts(pointer.as_ptr().cast::<u8>(), size) })
}

/// Writes bytes.
///
/// # Safety
/// `pointer` points to memory for them, which no other thread uses.
unsafe fn write(pointer: NonNull<u8>, bytes: &[u8]) {
    // SAFETY: the caller promises the memory. It is not that of `bytes`, which is memory of this library.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), pointer.as_ptr(), bytes.len()) };
}

/// Writes a text with its end.
///
/// # Safety
/// If `pointer` is not null, it points to `size` bytes, which no other thread uses.
unsafe fn write_text(size: c_int, pointer: *mut c_char, mut text: String) -> Result<c_int, Failure> {
    let size = length(size)?;
    let pointer = refuse_null(pointer, "text")?;
    text.push('\0');
    if text.len() > size {
        let failure = format!("the text takes {} bytes with its end, and the buffer has {size}", text.len());
        return Err(Failure::new(SquallCode::TooLarge, failure));
    }
    // SAFETY: not null, and the caller promises `size` bytes, which are enough.
    unsafe { write(pointer.cast(), text.as_bytes()) };
    Ok(0)
}

/// Reads a location.
///
/// # Safety
/// If `pointer` is not null, it points to a location. It stays unchanged during the call.
unsafe fn location(pointer: *const PoolLocation, argument: &str) -> Result<[u8; 64], Failure> {
    let pointer = refuse_null(pointer, argument)?.cast::<[u8; 64]>();
    // SAFETY: not null, and the caller promises 64 bytes, and no writes. Bytes have any alignment and value.
    Ok(unsafe { pointer.read() })
}

/// Reads options. Null stands for the defaults.
///
/// # Safety
/// If `pointer` is not null, it points to a `size`, and to as many bytes. They stay unchanged for the call.
unsafe fn attributes(pointer: *const PoolOptions) -> Result<Attributes, Failure> {
    let Some(pointer) = NonNull::new(pointer.cast_mut()) else { return Ok(Attributes::default()) };
    // SAFETY: not null, and the caller promises the size, the first field. Any bytes are a number.
    let size = unsafe { pointer.cast::<c_int>().read_unaligned() };
    let size = options::check_size(size)?;
    // SAFETY: not null, and the caller promises so many bytes, and no writes. A byte has any alignment, and
    // the size is at most that of a page.
    options::attributes(unsafe { std::slice::from_raw_parts(pointer.as_ptr().cast::<u8>(), size) })
}

fn minus_one<T: From<i8>>(_: &Failure) -> T {
    T::from(-1)
}

/// Writes the text of a random key for a new group. It is secret. `size` is at least `POOL_KEY_BYTES`.
/// Returns 0, or -1 on an error.
///
/// # Safety
/// If `key` is not null, it points to `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn squallGroupKey(size: c_int, key: *mut c_char) -> c_int {
    // SAFETY: the caller promises the same.
    border(|| unsafe { write_text(size, key, calls::new_group_key()) }, minus_one)
}

/// Makes a group with one node. Other processes of the machine reach it by its host name.
/// Returns NULL on an error: a process of this user has the host name, or the key is no key.
///
/// # Safety
/// The arguments that are not null are texts with a zero at their end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn squallNodeFound(
    host_name: *const c_char,
    group_key: *const c_char,
) -> *mut SquallNode {
    let call = || {
        // SAFETY: the caller promises the same.
        let (host_name, key) = unsafe { (text(host_name, "host_name")?, text(group_key, "group_key")?) };
        calls::found(host_name, key).map(pointer)
    };
    border(call, |_| null_mut())
}

/// Makes a node, and joins the group of another node of the machine, `seed_name`. `host_name` may be NULL:
/// the node then has a random one. Waits up to 30 s. Returns NULL on an error.
///
/// # Safety
/// The arguments that are not null are texts with a zero at their end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn squallNodeJoin(
    host_name: *const c_char,
    group_key: *const c_char,
    seed_name: *const c_char,
) -> *mut SquallNode {
    let call = || {
        // SAFETY: the caller promises the same.
        let own = unsafe { (!host_name.is_null()).then(|| text(host_name, "host_name")).transpose()? };
        // SAFETY: the caller promises the same.
        let (key, seed) = unsafe { (text(group_key, "group_key")?, text(seed_name, "seed_name")?) };
        calls::join(own, key, seed).map(pointer)
    };
    border(call, |_| null_mut())
}

/// Writes the text of the node's right to names. It is secret. That of the group's first node takes
/// `POOL_KEY_BYTES`; other nodes have no right at first. Returns 0, or -1 on an error.
///
/// # Safety
/// If `right` is not null, it points to `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn squallNodeRight(node: *mut SquallNode, size: c_int, right: *mut c_char) -> c_int {
    // SAFETY: the caller promises the same.
    border(|| unsafe { write_text(size, right, calls::right(node_handle(node))?) }, minus_one)
}

/// Gives a node the right to names of another node, so that it can create pools. The group looks at the right
/// once it is used. Returns 0, or -1 on an error.
///
/// # Safety
/// If `right` is not null, it is a text with a zero at its end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn squallNodeTakeRight(node: *mut SquallNode, right: *const c_char) -> c_int {
    let call = || {
        // SAFETY: the caller promises the same.
        let right = unsafe { text(right, "right")? };
        calls::take_right(node_handle(node), right).map(|()| 0)
    };
    border(call, minus_one)
}

/// Leaves the group. Facades of the node give their elements to others first. Then `node` and its pools
/// end: their pointers are unknown from then on.
/// Returns 0; or -1 if 30 s are over, and the node goes on leaving, or on another error.
///
/// Shut the pools down first to learn of their ends.
#[unsafe(no_mangle)]
pub extern "C" fn squallNodeLeave(node: *mut SquallNode) -> c_int {
    border(|| calls::leave(node_handle(node)).map(|()| 0), minus_one)
}

/// Ends a node and its pools at once, as a death would: the elements of its facades are lost. Ends after the
/// calls of other threads with the node. Returns 0, or -1 if the node is unknown.
#[unsafe(no_mangle)]
pub extern "C" fn squallNodeFree(node: *mut SquallNode) -> c_int {
    border(|| remove_node(node_handle(node)).map(|()| 0), minus_one)
}

/// Creates a pool and its first facade, at a node with a right to names. Returns NULL on an error, also if
/// the pool exists. `name` is a path as `/jobs`. The pool has the default options. In a group without a
/// leader, waits up to 2 min.
///
/// Source: Wentzlaff 2012, Listing 4.1. The thesis has one group, and takes a new mailbox as the name.
///
/// # Safety
/// If `name` is not null, it is a text with a zero at its end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poolCreate(node: *mut SquallNode, name: *const c_char) -> *mut Pool {
    let call = || {
        // SAFETY: the caller promises the same.
        let name = unsafe { text(name, "name")? };
        calls::create(node_handle(node), name, Attributes::default()).map(pointer)
    };
    border(call, |_| null_mut())
}

/// Creates a pool with options. Else like `poolCreate`. If `options` is NULL, they are the default ones.
///
/// # Safety
/// If `name` is not null, it is a text with a zero at its end. If `options` is not null, it points to as many
/// bytes as its first field says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poolCreateWith(
    node: *mut SquallNode,
    name: *const c_char,
    options: *const PoolOptions,
) -> *mut Pool {
    let call = || {
        // SAFETY: the caller promises the same.
        let (name, attributes) = unsafe { (text(name, "name")?, attributes(options)?) };
        calls::create(node_handle(node), name, attributes).map(pointer)
    };
    border(call, |_| null_mut())
}

/// Makes a further facade of a pool, at a node. `key` is from `poolKey` of another facade. Returns NULL on an
/// error: no such pool exists, the key is wrong, or the pool has other options than the default ones. In a
/// group without a leader, waits up to 1 min.
///
/// Source: Wentzlaff 2012, Listing 4.1. The name stands for the master's mailbox, and the key for the
/// object number.
///
/// # Safety
/// The arguments that are not null are texts with a zero at their end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poolInitFacade(
    node: *mut SquallNode,
    name: *const c_char,
    key: *const c_char,
) -> *mut Pool {
    let call = || {
        // SAFETY: the caller promises the same.
        let (name, key) = unsafe { (text(name, "name")?, text(key, "key")?) };
        calls::init_facade(node_handle(node), name, key, Attributes::default()).map(pointer)
    };
    border(call, |_| null_mut())
}

/// Makes a further facade of a pool with options, which are those of its other facades. Else like
/// `poolInitFacade`. If `options` is NULL, they are the default ones.
///
/// # Safety
/// The texts that are not null have a zero at their end. If `options` is not null, it points to as many bytes
/// as its first field says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poolInitFacadeWith(
    node: *mut SquallNode,
    name: *const c_char,
    key: *const c_char,
    options: *const PoolOptions,
) -> *mut Pool {
    let call = || {
        // SAFETY: the caller promises the same.
        let (name, key) = unsafe { (text(name, "name")?, text(key, "key")?) };
        // SAFETY: the caller promises the same.
        let attributes = unsafe { attributes(options)? };
        calls::init_facade(node_handle(node), name, key, attributes).map(pointer)
    };
    border(call, |_| null_mut())
}

/// Writes the text of the pool's key, for `poolInitFacade`. It is secret. `size` is at least
/// `POOL_KEY_BYTES`. Returns 0, or -1 on an error.
///
/// # Safety
/// If `key` is not null, it points to `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poolKey(pool: *mut Pool, size: c_int, key: *mut c_char) -> c_int {
    // SAFETY: the caller promises the same.
    border(|| unsafe { write_text(size, key, calls::key(pool_handle(pool))?) }, minus_one)
}

/// Sets the longest time of later adds, gets, sizes and shutdowns of this facade, in milliseconds. Default:
/// 30,000. With 0, a call ends with success only if it need not wait.
/// Returns 0, or -1 on an error.
#[unsafe(no_mangle)]
pub extern "C" fn poolSetLimit(pool: *mut Pool, limit_ms: c_int) -> c_int {
    border(|| calls::set_limit(pool_handle(pool), limit_ms).map(|()| 0), minus_one)
}

/// Adds an element: a copy of `size` bytes, at most 1,044,480. Returns 0, or -1 on an error.
///
/// Source: Wentzlaff 2012, Listing 4.2.
///
/// # Safety
/// If `value` is not null, it points to `size` bytes. Null is refused, unless `size` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poolAdd(pool: *mut Pool, size: c_int, value: *const c_void) -> c_int {
    let call = || {
        // SAFETY: the caller promises the same.
        let value = unsafe { bytes(value, size)? };
        calls::add(pool_handle(pool), value).map(|()| 0)
    };
    border(call, minus_one)
}

/// Takes any element, and writes it to `found_value`. Returns its size; -1 if the pool has no element, or on
/// an error, which `squallLastCode` tells apart; or -2 if the element that was found is larger than `size`.
/// It then stays in the pool, and the buffer is unchanged.
///
/// Source: Wentzlaff 2012, Listing 4.2.
///
/// # Safety
/// If `found_value` is not null, it points to `size` bytes. Null is refused, unless `size` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poolGet(pool: *mut Pool, size: c_int, found_value: *mut c_void) -> c_int {
    let call = || {
        let size = length(size)?;
        // Refused before an element is taken.
        let buffer = if size == 0 { NonNull::dangling() } else { refuse_null(found_value, "found_value")? };
        let element = calls::get(pool_handle(pool), size)?;
        assert!(element.len() <= size, "a get of at most {size} bytes took {}", element.len());
        // SAFETY: the caller promises `size` bytes, and the element has no more. Zero bytes need only a
        // pointer that is not null.
        unsafe { write(buffer.cast(), &element) };
        // Fits: `size` was a C `int`.
        Ok(element.len() as c_int)
    };
    border(call, |failure| if failure.code == SquallCode::TooLarge { -2 } else { -1 })
}

/// Estimates the number of elements: the sum of the answers of all facades, one after the other. Returns it,
/// at most `INT_MAX`, or -1 on an error.
///
/// Source: Wentzlaff 2012, Listing 4.2.
#[unsafe(no_mangle)]
pub extern "C" fn poolSize(pool: *mut Pool) -> PoolSize_t {
    border(
        || calls::size(pool_handle(pool)).map(|size| c_int::try_from(size).unwrap_or(c_int::MAX)),
        minus_one,
    )
}

/// Finds the location of a facade. It stays valid until the handle of the facade ends. Returns NULL on an
/// error. If the group took the node for dead, the facade gets another location.
///
/// Source: Wentzlaff 2012, Listing 4.3.
#[unsafe(no_mangle)]
pub extern "C" fn poolFindLocation(pool: *mut Pool) -> *mut PoolLocation {
    border(|| calls::find_location(pool_handle(pool)), |_| null_mut())
}

/// Tells the facade at `pool_location_from` its distance to the one at `pool_location_to`, in any unit.
/// `pool` is any facade of the pool. Facades without elements ask near ones first. Each distance is 10,000
/// otherwise. A hint: it may be lost. `squallLastCode` tells of wrong arguments.
///
/// Source: Wentzlaff 2012, Listing 4.3.
///
/// # Safety
/// The arguments that are not null point to locations.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poolSetLocality(
    pool: *mut Pool,
    pool_location_from: *const PoolLocation,
    pool_location_to: *const PoolLocation,
    metric: c_int,
) {
    let call = || {
        // SAFETY: the caller promises the same.
        let from = unsafe { location(pool_location_from, "pool_location_from")? };
        // SAFETY: the caller promises the same.
        let to = unsafe { location(pool_location_to, "pool_location_to")? };
        calls::set_locality(pool_handle(pool), &from, &to, metric)
    };
    border(call, |_| ());
}

/// Shuts a facade down, and gives its elements to the others. Returns 0 if it has left; -1 if it was the last
/// one, and the remaining elements are gone; or -2 if it cannot. After 0 and -1 the pointer is unknown. After
/// -2 with `SQUALL_CODE_TIMED_OUT` the facade goes on leaving, and a further call waits for the same end.
///
/// If several facades are shut down at a time, at least one of them returns -1. In a group without a leader,
/// the last one waits up to 30 s more than its limit.
///
/// Source: Wentzlaff 2012, Listing 4.4.
#[unsafe(no_mangle)]
pub extern "C" fn poolShutdown(pool: *mut Pool) -> c_int {
    let call = || {
        calls::shutdown(pool_handle(pool)).map(|end| match end {
            Shutdown::Left => 0,
            Shutdown::Last => -1,
        })
    };
    border(call, |_| -2)
}

/// Returns the code of this thread's last call.
#[unsafe(no_mangle)]
pub extern "C" fn squallLastCode() -> SquallCode {
    last_code()
}

/// Returns a sentence about the failure of this thread's last call: its object, the reason, and a remedy.
/// Empty after a success. The text is valid until the next call of this thread.
#[unsafe(no_mangle)]
pub extern "C" fn squallLastError() -> *const c_char {
    last_text()
}
