//! The emulator's interface for plugins, declared by hand and looked up by name.
//!
//! Idea: a library that is linked against names that an emulator lacks is refused with a message that helps nobody. Here
//! each function is looked up when the plugin is installed, so that what is missing is named, and one library serves the
//! versions 1 to 6 of the interface: only functions are used that all of them have, with the same arguments.
//!
//! - I1. A function pointer in [`Api`] has the type that the emulator's documentation gives it.
//!
//! Source: QEMU's documentation of TCG plugins, `docs/devel/tcg-plugins`.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

/// An identity that the emulator gives to the plugin.
pub(crate) type Id = u64;

/// A block of translated instructions, and an instruction; only the emulator looks inside.
#[repr(C)]
pub(crate) struct Block([u8; 0]);
#[repr(C)]
pub(crate) struct Insn([u8; 0]);

/// What the emulator says of itself. Only the first fields: later versions have more.
#[repr(C)]
pub(crate) struct Info {
    pub(crate) target: *const c_char,
    pub(crate) version_min: c_int,
    pub(crate) version_now: c_int,
    pub(crate) whole_system: bool,
}

/// No registers are read by a callback.
pub(crate) const NO_REGISTERS: c_int = 0;
/// Writes alone.
pub(crate) const WRITES: c_int = 2;
/// Reads and writes.
pub(crate) const READS_AND_WRITES: c_int = 3;

pub(crate) type OnVcpu = unsafe extern "C" fn(Id, c_uint);
pub(crate) type OnBlock = unsafe extern "C" fn(Id, *mut Block);
pub(crate) type OnAccess = unsafe extern "C" fn(c_uint, u32, u64, *mut c_void);
pub(crate) type OnInsn = unsafe extern "C" fn(c_uint, *mut c_void);
pub(crate) type OnCall = unsafe extern "C" fn(Id, c_uint, i64, u64, u64, u64, u64, u64, u64, u64, u64);
pub(crate) type OnReturn = unsafe extern "C" fn(Id, c_uint, i64, i64);

macro_rules! functions {
    ($($field:ident: $name:literal => fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions that are used.
        #[derive(Clone, Copy)]
        pub(crate) struct Api {
            $(pub(crate) $field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Api {
            /// All of them, or the name of one that this emulator lacks.
            pub(crate) fn find() -> Result<Api, &'static str> {
                Ok(Api {
                    $($field: {
                        let address = find(concat!($name, "\0"));
                        if address.is_null() {
                            return Err($name);
                        }
                        // SAFETY: `address` is the function of this name, whose type is as documented (I1). A pointer to
                        // a function has the size of one to data on every Linux.
                        unsafe {
                            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(
                                address,
                            )
                        }
                    },)*
                })
            }
        }
    };
}

functions! {
    on_block: "qemu_plugin_register_vcpu_tb_trans_cb" => fn(Id, OnBlock);
    on_block_run: "qemu_plugin_register_vcpu_tb_exec_cb" => fn(*mut Block, OnInsn, c_int, *mut c_void);
    on_access: "qemu_plugin_register_vcpu_mem_cb" => fn(*mut Insn, OnAccess, c_int, c_int, *mut c_void);
    on_insn: "qemu_plugin_register_vcpu_insn_exec_cb" => fn(*mut Insn, OnInsn, c_int, *mut c_void);
    on_call: "qemu_plugin_register_vcpu_syscall_cb" => fn(Id, OnCall);
    on_return: "qemu_plugin_register_vcpu_syscall_ret_cb" => fn(Id, OnReturn);
    on_start: "qemu_plugin_register_vcpu_init_cb" => fn(Id, OnVcpu);
    on_end: "qemu_plugin_register_vcpu_exit_cb" => fn(Id, OnVcpu);
    insns_count: "qemu_plugin_tb_n_insns" => fn(*const Block) -> usize;
    insn: "qemu_plugin_tb_get_insn" => fn(*const Block, usize) -> *mut Insn;
    address: "qemu_plugin_insn_vaddr" => fn(*const Insn) -> u64;
    bytes: "qemu_plugin_insn_haddr" => fn(*const Insn) -> *const u8;
    size: "qemu_plugin_insn_size" => fn(*const Insn) -> usize;
    is_store: "qemu_plugin_mem_is_store" => fn(u32) -> bool;
    size_shift: "qemu_plugin_mem_size_shift" => fn(u32) -> c_uint;
}

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// The function of this name, which ends with a zero, in any library that is loaded; null where there is none.
fn find(name: &'static str) -> *mut c_void {
    let name = CStr::from_bytes_with_nul(name.as_bytes()).unwrap_or_default();
    // SAFETY: a null handle is the default search order; `name` ends with a zero.
    unsafe { dlsym(std::ptr::null_mut(), name.as_ptr()) }
}

/// The version that the emulator reads when it has loaded the library: 1, or where it has what came with 2, 2. Later
/// emulators refuse 1, earlier ones refuse 2, and none of those since refuses 2.
pub(crate) fn version() -> c_int {
    if find("qemu_plugin_scoreboard_new\0").is_null() { 1 } else { 2 }
}
