//! Registers callbacks with the emulator, in the two calling conventions of its versions.
//!
//! Problem: from interface version 7 on, callbacks receive no plugin id and have a user pointer as last
//! argument. The registering functions take that pointer but keep their names, so no lookup detects a wrong
//! convention. Idea: each event has one handler, and two modules adapt the two conventions to it.
//!
//! - I1. The version that the emulator reports at installation decides the convention.
//!
//! The report cannot be verified. An impossible processor number reveals that it was wrong; the plugin then
//! prints a message once.

use std::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::api::Id;
use crate::{calls, threads};

/// First version with the second convention.
const WITHOUT_ID: c_int = 7;

/// Registers all callbacks with an emulator of this interface version. Fails with the name of a missing
/// function.
pub(crate) fn register(id: Id, version: c_int) -> Result<(), &'static str> {
    if version >= WITHOUT_ID { since_7::register(id) } else { until_6::register(id) }
}

/// Whether `vcpu` can be a processor number. If not, the calling convention is wrong and no count can be
/// trusted: prints a message once and ignores the event.
fn is_known(vcpu: c_uint) -> bool {
    static SAID: AtomicBool = AtomicBool::new(false);
    let known = threads::is_possible(vcpu);
    if !known && !SAID.swap(true, Ordering::Relaxed) {
        eprintln!(
            "squall-locality-plugin: the emulator uses an unknown plugin interface, since it reports the impossible \
             processor {vcpu}: do not trust the counts"
        );
    }
    known
}

/// A thread starts or ends on this processor.
fn thread(vcpu: c_uint) {
    if is_known(vcpu) {
        threads::end_thread(vcpu);
    }
}

/// A thread makes a system call.
fn call(vcpu: c_uint, number: i64, arguments: [u64; 6]) {
    if is_known(vcpu) {
        calls::begin(vcpu, number, arguments);
    }
}

/// A system call returns.
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
        // SAFETY: the callbacks have the expected types (callbacks/I1).
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

    /// User pointer that a callback gets back; unused.
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
        // SAFETY: the callbacks have the expected types (callbacks/I1), and they ignore the user pointer.
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
