//! gperftools' tcmalloc, if its library is installed: loaded beside the C library's allocator, which stays in
//! place.

use super::Allocator;
use std::alloc::Layout;
use std::ffi::{CStr, c_void};
use std::mem;
use std::sync::OnceLock;

type Malloc = unsafe extern "C" fn(usize) -> *mut c_void;
type FreeSized = unsafe extern "C" fn(*mut c_void, usize);

/// Its functions.
struct Functions {
    malloc: Malloc,
    free_sized: FreeSized,
}

static FUNCTIONS: OnceLock<Option<Functions>> = OnceLock::new();

const NAMES: [&CStr; 2] = [c"libtcmalloc_minimal.so.4", c"libtcmalloc.so.4"];

fn functions() -> Option<&'static Functions> {
    let load = || {
        let open = |name: &&CStr| {
            // SAFETY: dlopen(3) with a C string. The library's constructors are its own; its symbols stay
            // local. It is never closed.
            unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) }
        };
        let library = NAMES.iter().map(open).find(|library| !library.is_null())?;
        let find = |name: &CStr| {
            // SAFETY: dlsym(3) with the handle of a library that is open, and a C string.
            let at = unsafe { libc::dlsym(library, name.as_ptr()) };
            (!at.is_null()).then_some(at)
        };
        let (malloc, free_sized) = (find(c"tc_malloc")?, find(c"tc_free_sized")?);
        // SAFETY: these two functions have had these types since 2.6 (gperftools/tcmalloc.h).
        unsafe {
            Some(Functions {
                malloc: mem::transmute::<*mut c_void, Malloc>(malloc),
                free_sized: mem::transmute::<*mut c_void, FreeSized>(free_sized),
            })
        }
    };
    FUNCTIONS.get_or_init(load).as_ref()
}

/// gperftools' tcmalloc.
pub(crate) struct Tcmalloc;

impl Allocator for Tcmalloc {
    fn missing() -> Option<String> {
        functions().is_none().then(|| format!("{} is not installed", NAMES[0].to_string_lossy()))
    }

    #[inline(always)]
    unsafe fn take(layout: Layout) -> *mut u8 {
        let functions = functions().expect("the library is gone, although `missing` found it");
        // SAFETY: passed on; blocks are aligned to 8 at least.
        unsafe { (functions.malloc)(layout.size()).cast() }
    }

    #[inline(always)]
    unsafe fn put(block: *mut u8, layout: Layout) {
        let functions = functions().expect("the library is gone, although `missing` found it");
        // SAFETY: passed on.
        unsafe { (functions.free_sized)(block.cast(), layout.size()) };
    }
}
