//! Address translation: the pages of a cache at addresses of this process, where plain loads and stores reach
//! them. Linux only.
//!
//! A page is brought in when a thread first touches it. The thread itself does it, in a signal handler:
//! userfaultfd makes the touch of an absent page a signal.
//!
//! ```
//! # #[cfg(all(target_os = "linux", not(miri)))] {
//! use std::sync::Arc;
//! use squall::objects::pages::{self, Supply};
//! use squall::pager::region::{self, Mapping};
//! use squall::pager::{cache, hat, source};
//!
//! // 1 GiB of memory, of which 4 MiB is resident. The rest is compressed.
//! let memory = pages::distributed(Supply::system(1024));
//! let heap = cache::mappable(cache::Form::Shared, source::compressed(1 << 30, 1 << 24), memory.handle())?;
//! let region = region::with_form(region::Form::Distributed, 0, Mapping::new(Arc::new(heap)));
//! // SAFETY: this thread holds no lock while it touches the memory, and no other one does.
//! match unsafe { hat::map(region.handle()) } {
//!     Ok(mapped) => unsafe {
//!         let byte = mapped.as_ptr().add(500_000_000);
//!         assert_eq!(byte.read(), 0);
//!         byte.write(7);
//!         assert_eq!(byte.read(), 7);
//!     },
//!     Err(error) => println!("{error}"), // the system may refuse userfaultfd
//! }
//! # }
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # When not
//! - Plain memory, or a file that fits into memory: the kernel's own paging is faster.
//!
//! # Limits
//! - A system call on an absent page returns `EFAULT`, since the kernel does not run the handler: touch the
//!   bytes before.
//! - A mapped region has no copies: see [`Region::copy`].
//! - A thread that touches a page inside an operation waits for a service thread. A region in the form
//!   [`Quiescent`](crate::region::Form::Quiescent) must not be truncated or unmapped meanwhile: the two would
//!   wait for each other.
//! - A thread that pins a page, and stores to its address, waits for itself.
//!
//! # Source
//! Appavoo 2005, §4.1 (CO-42): K42's HAT object. The page tables are those of the kernel.
#![cfg(all(target_os = "linux", not(miri)))]

mod handler;
mod maps;
mod service;

use squall_core::Handle;
use std::sync::Arc;

use crate::region::Region;
pub use maps::{MapError, Mapped};

/// Maps a region at addresses of this process. Its loads and stores bring pages in.
///
/// The first call installs a handler of SIGBUS for the process, which passes other faults to the handler from
/// before. It also starts a thread, `squall-pager`.
///
/// # Errors
/// [`MapError`]
///
/// # Safety
/// 1. A touch of the addresses may run the code of the region, its cache and its source on the touching
///    thread: it may allocate, lock and wait. So no thread touches them while it holds a lock that this code
///    takes. The program's allocator does not touch them.
/// 2. Another thread may change the bytes at any time, and so may a program that gets the file.
pub unsafe fn map(region: Handle<dyn Region>) -> Result<Mapped, MapError> {
    let armed = handler::install().and_then(|()| service::start());
    armed.map_err(|error| MapError::System(Arc::new(error)))?;
    maps::map(region)
}
