//! Gives the shared library its name for the loader, and keeps it loaded.
//!
//! The number of the name rises with each change of the header that breaks programs. The library has threads
//! and destructors of threads, so dlclose(3) must not unload it.

/// The number of the interface.
const INTERFACE: u32 = 0;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libsquall_pool.so.{INTERFACE},-z,nodelete");
    }
}
