//! What the emulator calls, in the two shapes that its versions have, and how it is asked to.
//!
//! Problem: from version 7 of the interface on no callback is given the plugin's identity, and each has a pointer of the plugin's as its
//! last argument; functions by which they are registered take it. They have kept their names, so that a wrong shape is found by
//! nobody. Idea: what is done is in one function for each, and the shapes are here, in two modules that are otherwise the same.
//!
//! - I1. The emulator's own word on its version, which it gives when it installs the plugin, says which shape it calls.
//!
//! Whether that word is right, nothing can prove; a processor that cannot be says that it is not, and the plugin says so once.

use std::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::api::Id;
use crate::{calls, threads};

/// The first version whose callbacks have the second shape.
const WITHOUT_ID: c_int = 7;

/// Has the emulator, whose interface is of this version, call the plugin; the name of a function that it lacks.
pub(crate) fn register(id: Id, version: c_int) -> Result<(), &'static str> {
    if version >= WITHOUT_ID { since_7::register(id) } else { until_6::register(id) }
}

/// Whether a callback has a processor for an argument, as far as one can see. Where it has not, the shape is another than was taken, and
/// nothing that is counted is to be believed: that is said, once, and nothing is done.
fn is_known(vcpu: c_uint) -> bool {
    static SAID: AtomicBool = AtomicBool::new(false);
    let known = threads::can_be(vcpu);
    if !known && !SAID.swap(true, Ordering::Relaxed) {
        eprintln!(
            "squall-locality-plugin: the emulator's interface is not the one known: it calls for processor {vcpu}, which cannot be; what is \
             counted is not to be believed"
        );
    }
    known
}

/// A thread begins on this processor, or ends there.
fn thread(vcpu: c_uint) {
    if is_known(vcpu) {
        threads::end_thread(vcpu);
    }
}

/// A system call, with those of its arguments that are looked at.
fn call(vcpu: c_uint, number: i64, arguments: [u64; 6]) {
    if is_known(vcpu) {
        calls::begin(vcpu, number, arguments);
    }
}

/// And what it returned.
fn returned(vcpu: c_uint, number: i64, result: i64) {
    if is_known(vcpu) {
        calls::end(vcpu, number, result);
    }
}

mod until_6 {
    use std::ffi::c_uint;

    use super::{call, returned, thread};
    use crate::api::{Block, Id, functions};
    use crate::plugin;

    type OnVcpu = unsafe extern "C" fn(Id, c_uint);
    type OnBlock = unsafe extern "C" fn(Id, *mut Block);
    type OnCall = unsafe extern "C" fn(Id, c_uint, i64, u64, u64, u64, u64, u64, u64, u64, u64);
    type OnReturn = unsafe extern "C" fn(Id, c_uint, i64, i64);

    functions! {
        Registering
        on_block: "qemu_plugin_register_vcpu_tb_trans_cb" => fn(Id, OnBlock);
        on_call: "qemu_plugin_register_vcpu_syscall_cb" => fn(Id, OnCall);
        on_return: "qemu_plugin_register_vcpu_syscall_ret_cb" => fn(Id, OnReturn);
        on_start: "qemu_plugin_register_vcpu_init_cb" => fn(Id, OnVcpu);
        on_end: "qemu_plugin_register_vcpu_exit_cb" => fn(Id, OnVcpu);
    }

    pub(super) fn register(id: Id) -> Result<(), &'static str> {
        let registering = Registering::find()?;
        // SAFETY: the callbacks have the types that are asked for (callbacks/I1).
        unsafe {
            (registering.on_start)(id, on_vcpu);
            (registering.on_end)(id, on_vcpu);
            (registering.on_block)(id, on_block);
            (registering.on_call)(id, on_call);
            (registering.on_return)(id, on_return);
        }
        Ok(())
    }

    unsafe extern "C" fn on_vcpu(_: Id, vcpu: c_uint) {
        thread(vcpu);
    }

    unsafe extern "C" fn on_block(_: Id, block: *mut Block) {
        plugin::translate(block);
    }

    #[allow(clippy::too_many_arguments, reason = "the emulator's type")]
    unsafe extern "C" fn on_call(
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
        call(vcpu, number, [a, b, c, d, e, f]);
    }

    unsafe extern "C" fn on_return(_: Id, vcpu: c_uint, number: i64, result: i64) {
        returned(vcpu, number, result);
    }
}

mod since_7 {
    use std::ffi::{c_uint, c_void};
    use std::ptr::null_mut;

    use super::{call, returned, thread};
    use crate::api::{Block, Id, functions};
    use crate::plugin;

    /// What the plugin gives with a callback, and gets back; nothing here.
    type Ours = *mut c_void;
    type OnVcpu = unsafe extern "C" fn(c_uint, Ours);
    type OnBlock = unsafe extern "C" fn(*mut Block, Ours);
    type OnCall = unsafe extern "C" fn(c_uint, i64, u64, u64, u64, u64, u64, u64, u64, u64, Ours);
    type OnReturn = unsafe extern "C" fn(c_uint, i64, i64, Ours);

    functions! {
        Registering
        on_block: "qemu_plugin_register_vcpu_tb_trans_cb" => fn(Id, OnBlock, Ours);
        on_call: "qemu_plugin_register_vcpu_syscall_cb" => fn(Id, OnCall, Ours);
        on_return: "qemu_plugin_register_vcpu_syscall_ret_cb" => fn(Id, OnReturn, Ours);
        on_start: "qemu_plugin_register_vcpu_init_cb" => fn(Id, OnVcpu, Ours);
        on_end: "qemu_plugin_register_vcpu_exit_cb" => fn(Id, OnVcpu, Ours);
    }

    pub(super) fn register(id: Id) -> Result<(), &'static str> {
        let registering = Registering::find()?;
        // SAFETY: the callbacks have the types that are asked for (callbacks/I1), and look at no pointer of ours.
        unsafe {
            (registering.on_start)(id, on_vcpu, null_mut());
            (registering.on_end)(id, on_vcpu, null_mut());
            (registering.on_block)(id, on_block, null_mut());
            (registering.on_call)(id, on_call, null_mut());
            (registering.on_return)(id, on_return, null_mut());
        }
        Ok(())
    }

    unsafe extern "C" fn on_vcpu(vcpu: c_uint, _: Ours) {
        thread(vcpu);
    }

    unsafe extern "C" fn on_block(block: *mut Block, _: Ours) {
        plugin::translate(block);
    }

    #[allow(clippy::too_many_arguments, reason = "the emulator's type")]
    unsafe extern "C" fn on_call(
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
        _: Ours,
    ) {
        call(vcpu, number, [a, b, c, d, e, f]);
    }

    unsafe extern "C" fn on_return(vcpu: c_uint, number: i64, result: i64, _: Ours) {
        returned(vcpu, number, result);
    }
}
