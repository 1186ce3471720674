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
//! - A system call on a page that is not mapped returns `EFAULT`, since the kernel does not run the handler.
//!   Touch the bytes before: by a load if the call reads them, by a store if the call writes them. Repeat
//!   that if the call still fails: the page was evicted meanwhile.
//! - A mapped region has no copies: see [`Region::copy`]. Clones of a frozen file are mapped by
//!   [`map_private`].
//! - The child of a fork has none of the mappings. A value that it inherits may be dropped there.
//! - A thread that touches a page inside an operation waits for a service thread. A region in the form
//!   [`Quiescent`](crate::region::Form::Quiescent) must not be truncated or unmapped meanwhile: the two would
//!   wait for each other.
//! - A thread that pins a page, and stores to its address, waits for itself.
//!
//! # Allocation
//! A fault on a resident page allocates nothing, once the thread and its processor have faulted. One on an
//! absent page allocates the descriptor of the page (`slot.rs`), and its reservation and entry in the index.
//! These are an `Arc` and a `Box` in the form [`Shared`](crate::cache::Form::Shared), and an element, a node
//! and a `Box` in the others. The index and the pool of pages grow now and then, and an eviction lists its
//! candidates. In the form [`Distributed`](crate::cache::Form::Distributed) a processor's first fault on a
//! page makes a replica of its entry.
//!
//! # Source
//! Appavoo 2005, §4.1 (CO-42): K42's HAT object. The page tables are those of the kernel.
#![cfg(all(target_os = "linux", not(miri)))]

mod handler;
mod maps;
mod private;
mod remote;
mod service;

use squall_core::Handle;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use crate::memory::check_system;
use crate::region::{Mapping, Region};
pub use maps::{MapError, Mapped};
pub use private::PrivateMapped;
pub use remote::{AttachError, Attached, Served};

/// Maps a region at addresses of this process. Its loads and stores bring pages in.
///
/// The first call installs a handler of SIGBUS for the process, which passes other faults to the handler from
/// before. It also starts a thread, `squall-pager`.
///
/// A system call on bytes that are not mapped returns `EFAULT`: see the [limits](self#limits). If a page
/// cannot be brought in, the thread gets SIGBUS. Standard error names the address, the object and the reason.
/// So keep the region, its cache and its pool as long as threads touch the addresses.
///
/// # Errors
/// [`MapError`]
///
/// # Safety
/// 1. A touch of the addresses may run the code of the region, its cache and its source on the touching
///    thread: it may [allocate](self#allocation), lock and wait. So no thread touches them while it holds a
///    lock that this code takes, which includes the locks of the program's allocator. An allocator that
///    touches them outside of its locks is called again by the handler, and touches no page then.
/// 2. Another thread may change the bytes at any time, and so may a program that gets the file.
pub unsafe fn map(region: Handle<dyn Region>) -> Result<Mapped, MapError> {
    arm()?;
    maps::map(region)
}

/// Maps a part of a frozen file privately: loads show the file, and stores stay in this mapping.
///
/// So a mapping is a clone of the file. The pages of a [mappable](crate::cache::mappable) file are shared
/// until they are written; those of another file are copied when they are first touched. Changed pages are
/// ordinary memory of the process, which the pager does not evict.
///
/// # Errors
/// [`MapError`]: among them, that the file is not frozen.
///
/// # Panics
/// If the calling thread has a page of the file pinned for writing.
///
/// # Cost
/// That of a mapping, for every length. Then a fault for each page that is touched.
///
/// # Safety
/// The first rule of [`map`].
///
/// # Examples
/// ```
/// # #[cfg(all(target_os = "linux", not(miri)))] {
/// use std::sync::Arc;
/// use squall::objects::pages::{self, Supply};
/// use squall::pager::cache::{self, FileCache, FileCacheExt};
/// use squall::pager::region::Mapping;
/// use squall::pager::{hat, source};
///
/// let memory = pages::distributed(Supply::system(64));
/// let warm = cache::mappable(cache::Form::Shared, source::zero_fill(1 << 30), memory.handle())?;
/// warm.pin_mut(3)?[0] = 7;
/// warm.freeze();
/// let warm = Arc::new(warm);
/// // SAFETY: no thread holds a lock while it touches the memory.
/// match unsafe { hat::map_private(Mapping::new(warm.clone())) } {
///     Ok(worker) => unsafe {
///         let byte = worker.as_ptr().add(3 * cache::PAGE_BYTES);
///         assert_eq!(byte.read(), 7);
///         byte.write(8);
///         assert_eq!((byte.read(), warm.pin(3)?[0]), (8, 7));
///     },
///     Err(error) => println!("{error}"), // the system may refuse userfaultfd
/// }
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub unsafe fn map_private(mapping: Mapping) -> Result<PrivateMapped, MapError> {
    arm()?;
    private::map(mapping)
}

/// Lets another process map a part of a frozen file privately: the one at the other end of a socket, which
/// calls [`attach`]. Waits until it has done so, for 30 seconds at most.
///
/// A thread of this process brings its pages in, until the result is dropped or the client ends. A page that
/// cannot be brought in is SIGBUS in the client, and the reason is written to standard error here. Of the
/// failures of a client, the first one is written, and then each that doubles their number.
///
/// The client may be killed, or hostile: it harms itself alone. It may read the whole file.
///
/// # Errors
/// [`MapError`]: [`System`](MapError::System) if the client ended, was late or broke the protocol.
///
/// # Panics
/// If the calling thread has a page of the file pinned for writing.
pub fn serve(mapping: Mapping, client: UnixStream) -> Result<Served, MapError> {
    check_system().map_err(|error| MapError::System(Arc::new(error)))?;
    remote::serve(mapping, client)
}

/// Maps the file that the process at the other end of a socket [serves](serve). Stores stay in this mapping.
///
/// The first load or store of a page waits for that process. If it ends, absent pages are SIGBUS from then
/// on, and the others stay. Starts a thread that waits for the end.
///
/// # Errors
/// [`AttachError`]
///
/// # Safety
/// 1. Code that touches the addresses agrees to wait for the pager, and to SIGBUS. The thread that serves the
///    mapping, if it is in this process, does not wait for that code.
/// 2. The program reads no such address after the value is dropped.
///
/// # Examples
/// ```
/// # #[cfg(all(target_os = "linux", not(miri)))] {
/// use std::os::unix::net::UnixStream;
/// use std::sync::Arc;
/// use squall::objects::pages::{self, Supply};
/// use squall::pager::cache::{self, FileCache, FileCacheExt};
/// use squall::pager::region::Mapping;
/// use squall::pager::{hat, source};
///
/// let (pager, client) = UnixStream::pair()?; // usually one end is in another process
/// let worker = std::thread::spawn(move || {
///     // SAFETY: this thread alone touches the memory.
///     let memory = unsafe { hat::attach(client) }.map_err(|error| error.to_string())?;
///     Ok::<u8, String>(unsafe { memory.as_ptr().read() })
/// });
/// let memory = pages::distributed(Supply::system(64));
/// let warm = cache::mappable(cache::Form::Shared, source::zero_fill(1 << 30), memory.handle())?;
/// warm.pin_mut(0)?[0] = 7;
/// warm.freeze();
/// match hat::serve(Mapping::new(Arc::new(warm)), pager) {
///     Ok(served) => {
///         assert_eq!(worker.join().unwrap(), Ok(7));
///         assert_eq!(served.pages(), 1);
///     }
///     Err(error) => println!("{error}"), // the system may refuse userfaultfd
/// }
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub unsafe fn attach(pager: UnixStream) -> Result<Attached, AttachError> {
    check_system()?;
    remote::attach(pager)
}

/// Lets threads of this process bring pages in.
fn arm() -> Result<(), MapError> {
    let armed = check_system().and_then(|()| handler::install()).and_then(|()| service::start());
    armed.map_err(|error| MapError::System(Arc::new(error)))
}
