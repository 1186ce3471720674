//! The shared memory of pages, and that of their ledger.
//!
//! - I1. The memory of the pages and the ledger are two files. Clients get the first one alone, so a client
//!   that writes wild harms pages, and never the ledger.

use super::ledger::{CLIENTS_MAX, Ledger, Words, words};
use squall_sys::shared::SharedMemory;
use squall_sys::sync::atomic::AtomicU32;
use std::fmt;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The bytes of a page.
pub const PAGE_BYTES: usize = 4096;
/// The most pages of a fleet: 128 GiB.
pub const PAGES_MAX: u32 = 1 << 25;

/// The number of a page in its [`PageMemory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageNumber(pub u32);

impl fmt::Display for PageNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page {}", self.0)
    }
}

/// Checks a number of pages.
fn check(pages: u32) -> io::Result<()> {
    match pages {
        1..=PAGES_MAX => Ok(()),
        _ => {
            let why = format!("a fleet has 1 to {PAGES_MAX} pages, and not {pages}; choose another number");
            Err(io::Error::new(io::ErrorKind::InvalidInput, why))
        }
    }
}

/// Pages of shared memory, 4 KiB each, which processes of a machine map.
///
/// The memory is a file without a name (memfd), sealed against every change of its size. A page that was
/// never written takes no memory, and reads as zeros. Otherwise it has the bytes of its last holder.
///
/// Use only pages that a [`PageClient`](super::PageClient) has. Other accesses are possible.
///
/// # Examples
/// ```
/// use squall::fleet::pool::pages::{PageMemory, PageNumber};
///
/// let (memory, file) = PageMemory::create(16)?;
/// // Usually in another process, which got the file.
/// let other = PageMemory::open(&file, 16)?;
/// memory.write(PageNumber(3), 0, b"hello");
/// let mut bytes = [0; 5];
/// other.read(PageNumber(3), 0, &mut bytes);
/// assert_eq!(&bytes, b"hello");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct PageMemory {
    memory: SharedMemory,
    pages: u32,
}

impl PageMemory {
    /// Creates so many pages. Returns them with their file, for other processes to [`open`](Self::open).
    ///
    /// # Errors
    /// `InvalidInput` for 0 or more than [`PAGES_MAX`] pages. Errors of the system.
    pub fn create(pages: u32) -> io::Result<(PageMemory, OwnedFd)> {
        check(pages)?;
        let (memory, file) = SharedMemory::create(pages as usize * PAGE_BYTES)?;
        Ok((PageMemory { memory, pages }, file))
    }

    /// Maps the pages of a file. The file may be closed afterwards.
    ///
    /// # Errors
    /// `InvalidInput` like [`create`](Self::create). `InvalidData`, if the file has not exactly so many
    /// pages, or could be cut short. Errors of the system.
    pub fn open(file: &impl AsFd, pages: u32) -> io::Result<PageMemory> {
        check(pages)?;
        let memory = SharedMemory::open(file.as_fd(), pages as usize * PAGE_BYTES)?;
        Ok(PageMemory { memory, pages })
    }

    /// Returns the number of pages.
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// Copies bytes into a page, beginning at this offset.
    ///
    /// # Panics
    /// If the page does not exist, or the bytes do not fit into it.
    pub fn write(&self, page: PageNumber, offset: usize, bytes: &[u8]) {
        self.memory.copy_in(self.place(page, offset, bytes.len()), bytes);
    }

    /// Copies bytes out of a page, beginning at this offset.
    ///
    /// # Panics
    /// If the page does not exist, or has fewer bytes.
    pub fn read(&self, page: PageNumber, offset: usize, bytes: &mut [u8]) {
        self.memory.copy_out(self.place(page, offset, bytes.len()), bytes);
    }

    /// Fills a page with zeros.
    ///
    /// # Panics
    /// If the page does not exist.
    pub fn zero(&self, page: PageNumber) {
        self.write(page, 0, &[0; PAGE_BYTES]);
    }

    fn place(&self, page: PageNumber, offset: usize, bytes: usize) -> usize {
        assert!(page.0 < self.pages, "{page} does not exist: the memory has {} pages", self.pages);
        let fits = offset.checked_add(bytes).is_some_and(|end| end <= PAGE_BYTES);
        assert!(fits, "{bytes} bytes at {offset} do not fit into the {PAGE_BYTES} bytes of {page}");
        page.0 as usize * PAGE_BYTES + offset
    }
}

#[derive(Debug)]
pub(super) struct Mapped(SharedMemory);

impl Words for Mapped {
    fn word(&self, at: usize) -> &AtomicU32 {
        self.0.word(at * 4)
    }
}

/// The ledger of a fleet's pages: shared memory of its servers, which names the holder of each page.
///
/// It outlives each server as long as a process has it or its file. Clients do not need it: keep its file
/// from them.
#[derive(Debug)]
pub struct PageLedger(pub(super) Ledger<Mapped>);

impl PageLedger {
    /// Creates the ledger of so many free pages. Returns it with its file, for other servers to
    /// [`open`](Self::open).
    ///
    /// # Errors
    /// `InvalidInput` for 0 or more than [`PAGES_MAX`] pages. Errors of the system.
    /// # Cost
    /// 4 bytes for each page, and 32 KiB.
    pub fn create(pages: u32) -> io::Result<(PageLedger, OwnedFd)> {
        check(pages)?;
        let (memory, file) = SharedMemory::create(words(pages, CLIENTS_MAX) * 4)?;
        let identity = RandomState::new().build_hasher().finish() as u32;
        Ok((PageLedger(Ledger::begin(Mapped(memory), pages, CLIENTS_MAX, identity)), file))
    }

    /// Maps the ledger of a file. The file may be closed afterwards.
    ///
    /// # Errors
    /// Like [`create`](Self::create). `InvalidData`, if the file is no ledger of so many pages.
    pub fn open(file: &impl AsFd, pages: u32) -> io::Result<PageLedger> {
        check(pages)?;
        let file: BorrowedFd<'_> = file.as_fd();
        let memory = SharedMemory::open(file, words(pages, CLIENTS_MAX) * 4)?;
        Ledger::open(Mapped(memory), pages, CLIENTS_MAX).map(PageLedger).ok_or_else(|| {
            let why = format!("the file is no ledger of {pages} pages; pass the one of PageLedger::create");
            io::Error::new(io::ErrorKind::InvalidData, why)
        })
    }

    /// Returns the number of pages.
    pub fn pages(&self) -> u32 {
        self.0.pages()
    }

    /// Returns the account of all pages.
    ///
    /// Each page is counted once. A page that changes its holder meanwhile is counted at one of both.
    ///
    /// # Cost
    /// A read of each word.
    pub fn books(&self) -> PageBooks {
        let clients = self.0.clients();
        let held: u32 = clients.iter().map(|client| client.2).sum();
        let clients = clients.into_iter().map(|(place, key, pages)| PageHolder { place, key, pages });
        let clients: Vec<PageHolder> = clients.collect();
        PageBooks { pages: self.pages(), free: self.pages() - held, clients }
    }
}

/// A client in the books of a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageHolder {
    /// Its place in the ledger.
    pub place: u32,
    /// Its random key. 0 while the client ends.
    pub key: u32,
    /// The pages that it has.
    pub pages: u32,
}

/// The account of all pages: each one is free, or a client has it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageBooks {
    /// All pages.
    pub pages: u32,
    /// The free ones.
    pub free: u32,
    /// The clients.
    pub clients: Vec<PageHolder>,
}
