//! The emulator's interface for plugins, declared by hand and looked up by name.
//!
//! Idea: a library that is linked against names that an emulator lacks is refused with a message that helps nobody. Here
//! each function is looked up when the plugin is installed, so that what is missing is named, and one library serves the
//! versions 1 to 7 of the interface: only functions are used that all of them have, with the same arguments; what version 7
//! calls otherwise than those before it is in `callbacks`.
//!
//! - I1. A function pointer that was looked up has the type that the emulator's documentation gives it.
//!
//! Source: QEMU's documentation of TCG plugins, `docs/devel/tcg-plugins`, and the list of versions in its header.

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

pub(crate) type OnAccess = unsafe extern "C" fn(c_uint, u32, u64, *mut c_void);
pub(crate) type OnInsn = unsafe extern "C" fn(c_uint, *mut c_void);

macro_rules! functions {
    ($table:ident $($field:ident: $name:literal => fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// Functions of the emulator's that are used.
        #[derive(Clone, Copy)]
        pub(crate) struct $table {
            $(pub(crate) $field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl $table {
            /// All of them, or the name of one that this emulator lacks.
            pub(crate) fn find() -> Result<$table, &'static str> {
                Ok($table {
                    $($field: {
                        let address = $crate::api::find(concat!($name, "\0"));
                        if address.is_null() {
                            return Err($name);
                        }
                        // SAFETY: `address` is the function of this name, whose type is as documented (I1). A pointer to
                        // a function has the size of one to data on every Linux.
                        unsafe {
                            std::mem::transmute::<*mut std::ffi::c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(
                                address,
                            )
                        }
                    },)*
                })
            }
        }
    };
}
pub(crate) use functions;

functions! {
    Api
    on_block_run: "qemu_plugin_register_vcpu_tb_exec_cb" => fn(*mut Block, OnInsn, c_int, *mut c_void);
    on_access: "qemu_plugin_register_vcpu_mem_cb" => fn(*mut Insn, OnAccess, c_int, c_int, *mut c_void);
    on_insn: "qemu_plugin_register_vcpu_insn_exec_cb" => fn(*mut Insn, OnInsn, c_int, *mut c_void);
    insns_count: "qemu_plugin_tb_n_insns" => fn(*const Block) -> usize;
    insn: "qemu_plugin_tb_get_insn" => fn(*const Block, usize) -> *mut Insn;
    address: "qemu_plugin_insn_vaddr" => fn(*const Insn) -> u64;
    bytes: "qemu_plugin_insn_haddr" => fn(*const Insn) -> *const u8;
    size: "qemu_plugin_insn_size" => fn(*const Insn) -> usize;
    is_store: "qemu_plugin_mem_is_store" => fn(u32) -> bool;
    size_shift: "qemu_plugin_mem_size_shift" => fn(u32) -> c_uint;
}

/// What the linker says of an address; only the first field is looked at.
#[repr(C)]
struct Place {
    file: *const c_char,
    rest: [usize; 3],
}

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dladdr(address: *const c_void, place: *mut Place) -> c_int;
}

/// The function of this name, which ends with a zero, in any library that is loaded; null where there is none.
pub(crate) fn find(name: &'static str) -> *mut c_void {
    let name = CStr::from_bytes_with_nul(name.as_bytes()).unwrap_or_default();
    // SAFETY: a null handle is the default search order; `name` ends with a zero.
    unsafe { dlsym(std::ptr::null_mut(), name.as_ptr()) }
}

/// The version that the emulator reads when it has loaded the library: 1, or where it has what came with 2, 2; emulators since refuse
/// 1, those before refuse 2. Those of 7 refuse what is below, and have no function by which they could be known: for them the
/// library has another name ([`NAME_7`](crate::plugin::NAME_7)), which whoever starts the emulator gives it.
pub(crate) fn version() -> c_int {
    let mut place = Place { file: std::ptr::null(), rest: [0; 3] };
    let here = (&raw const HERE).cast();
    // SAFETY: `place` has the linker's form, and what it is given ends with a zero and stays.
    let file = unsafe {
        if dladdr(here, &raw mut place) == 0 || place.file.is_null() {
            c""
        } else {
            CStr::from_ptr(place.file)
        }
    };
    version_of(file.to_bytes(), !find("qemu_plugin_scoreboard_new\0").is_null())
}

/// An address in this library.
static HERE: u8 = 0;

/// The version that a library of this name declares to an emulator that has, or lacks, what came with 2.
fn version_of(file: &[u8], has_what_came_with_2: bool) -> c_int {
    match (file.ends_with(crate::plugin::NAME_7.as_bytes()), has_what_came_with_2) {
        (true, _) => 7,
        (false, true) => 2,
        (false, false) => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_goes_by_the_name_and_by_what_the_emulator_has() {
        assert_eq!(version_of(b"/dev/shm/squall-1/plugin.so", false), 1);
        assert_eq!(version_of(b"/dev/shm/squall-1/plugin.so", true), 2);
        assert_eq!(version_of(b"/dev/shm/squall-1/plugin-7.so", true), 7);
        assert_eq!(version_of(b"", false), 1);
        // A program of tests: neither.
        assert_eq!(version(), 1);
    }
}
