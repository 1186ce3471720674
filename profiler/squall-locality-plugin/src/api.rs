//! QEMU's plugin interface, declared by hand and looked up by name.
//!
//! Problem: if a plugin is linked against a function that the emulator lacks, the emulator rejects it with an
//! obscure message. Idea: each function is looked up when the plugin is installed, so an error can name the
//! missing function. One library serves versions 1 to 7 of the interface, because it uses only functions that
//! all of them have with the same arguments. Version 7 calls some callbacks differently; the module
//! `callbacks` handles that.
//!
//! - I1. A looked-up function pointer has the type given in the emulator's documentation.
//!
//! Source: QEMU's documentation of TCG plugins, `docs/devel/tcg-plugins`, and the list of versions in its
//! header.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

/// Id that the emulator gives to the plugin.
pub(crate) type Id = u64;

/// A block of translated instructions, and an instruction; opaque to the plugin.
#[repr(C)]
pub(crate) struct Block([u8; 0]);
#[repr(C)]
pub(crate) struct Insn([u8; 0]);

/// Facts about the emulator. Only the first fields are declared; later versions have more.
#[repr(C)]
pub(crate) struct Info {
    pub(crate) target: *const c_char,
    pub(crate) version_min: c_int,
    pub(crate) version_now: c_int,
    pub(crate) whole_system: bool,
}

/// The callback reads no registers.
pub(crate) const NO_REGISTERS: c_int = 0;
/// Report writes only.
pub(crate) const WRITES: c_int = 2;
/// Report reads and writes.
pub(crate) const READS_AND_WRITES: c_int = 3;

pub(crate) type OnAccess = unsafe extern "C" fn(c_uint, u32, u64, *mut c_void);
pub(crate) type OnInsn = unsafe extern "C" fn(c_uint, *mut c_void);

macro_rules! functions {
    ($table:ident $($field:ident: $name:literal => fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// Functions of the emulator that the plugin uses.
        #[derive(Clone, Copy)]
        pub(crate) struct $table {
            $(pub(crate) $field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl $table {
            /// Looks up all functions. Fails with the name of one that this emulator lacks.
            pub(crate) fn find() -> Result<$table, &'static str> {
                Ok($table {
                    $($field: {
                        let address = $crate::api::find(concat!($name, "\0"));
                        if address.is_null() {
                            return Err($name);
                        }
                        // SAFETY: `address` is the function with this name, and its type is as documented
                        // (I1). On every Linux, a function pointer has the size of a data pointer.
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

/// The linker's description of an address (`Dl_info`); only the first field is used.
#[repr(C)]
struct Place {
    file: *const c_char,
    rest: [usize; 3],
}

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dladdr(address: *const c_void, place: *mut Place) -> c_int;
}

/// Looks up a function in all loaded libraries. `name` ends with a zero. Returns null if it is absent.
pub(crate) fn find(name: &'static str) -> *mut c_void {
    let name = CStr::from_bytes_with_nul(name.as_bytes()).unwrap_or_default();
    // SAFETY: a null handle selects the default search order; `name` ends with a zero.
    unsafe { dlsym(std::ptr::null_mut(), name.as_ptr()) }
}

/// Version that the plugin declares; the emulator reads it after loading the library.
///
/// It is 1, or 2 if the emulator has the functions added in 2: emulators since then reject 1, and earlier
/// ones reject 2. Emulators with version 7 reject all earlier versions and have no function to recognise them
/// by. For them the starter of the emulator gives the library another file name,
/// [`NAME_7`](crate::plugin::NAME_7).
pub(crate) fn version() -> c_int {
    let mut place = Place { file: std::ptr::null(), rest: [0; 3] };
    let here = (&raw const HERE).cast();
    // SAFETY: `place` has the linker's layout. The path it receives ends with a zero and stays valid.
    let file = unsafe {
        if dladdr(here, &raw mut place) == 0 || place.file.is_null() {
            c""
        } else {
            CStr::from_ptr(place.file)
        }
    };
    version_of(file.to_bytes(), !find("qemu_plugin_scoreboard_new\0").is_null())
}

/// Marks an address in this library.
static HERE: u8 = 0;

/// Version for a library with this file name, given whether the emulator has the functions added in 2.
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
    fn the_version_depends_on_file_name_and_emulator() {
        assert_eq!(version_of(b"/dev/shm/squall-1/plugin.so", false), 1);
        assert_eq!(version_of(b"/dev/shm/squall-1/plugin.so", true), 2);
        assert_eq!(version_of(b"/dev/shm/squall-1/plugin-7.so", true), 7);
        assert_eq!(version_of(b"", false), 1);
        // The test program has neither the name nor the functions.
        assert_eq!(version(), 1);
    }
}
