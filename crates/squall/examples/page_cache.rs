//! A distributed hash table inside an object of your own: a cache of a file's pages.
//!
//! The root has the file and the master table, with the bytes of each cached page. Each representative has a
//! local table of the pages that its processor used. A local entry has the processor's hits and a mark for
//! the clock algorithm.
//!
//! - A hit writes only lines of its own processor.
//! - If several threads miss one page, one of them reads it from the file.
//! - An evicted page leaves all tables at one moment.
//!
//! Source: K42's file cache manager, Appavoo 2005, *Clustered Objects*, §4.1.4.
//!
//! `cargo run --release -p squall --example page_cache`

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread;

use squall::lock::DistributedRwLock as RwLock;
use squall::parts::dhash::{Emptying, LocalTable, Locking, MasterTable, Verdict};
use squall::prelude::*;

const PAGE: usize = 4096;

#[interface]
trait FileCache: Send + Sync {
    /// Reads from the file through the cache. Returns the number of bytes.
    #[blocking]
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;
    /// Writes to the cache. [`sync`](FileCache::sync) or the eviction of the page writes to the file.
    #[blocking]
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Writes changed pages to the file. Returns their number.
    #[blocking]
    fn sync(&self) -> io::Result<usize>;
    /// Truncates the file. Returns the number of pages that left the cache.
    #[blocking]
    fn truncate(&self, length: u64) -> io::Result<usize>;
    /// Evicts pages by the clock algorithm until `keep` are left. Returns the number of evicted pages.
    #[blocking]
    fn evict(&self, keep: usize) -> io::Result<usize>;
    /// Adds up the statistics of all processors.
    #[blocking]
    fn statistics(&self) -> Statistics;
}

#[derive(Clone, Copy, Debug, Default)]
struct Statistics {
    hits: u64,
    misses: u64,
    pages: usize,
    /// Local entries of these pages.
    mapped: usize,
}

/// The central entry of a page.
struct Page {
    frame: RwLock<Frame>,
}

struct Frame {
    bytes: Box<[u8; PAGE]>,
    is_dirty: bool,
}

/// The local entry of a page, on one processor.
#[derive(Default)]
struct Here {
    hits: u64,
    referenced: bool,
}

/// The root.
struct Cache {
    file: File,
    length: AtomicU64,
    /// Writers of pages and of the file hold it shared; `truncate` holds it exclusively.
    writing: RwLock<()>,
    pages: MasterTable<u64, Page, Here>,
    /// Hits of evicted pages.
    past_hits: AtomicU64,
}

/// The representative.
#[repr(align(128))]
struct LocalCache {
    pages: LocalTable<u64, Page, Here>,
    misses: AtomicU64,
    context: RepContext<Cache>,
}

impl Root for Cache {
    type Interface = dyn FileCache;
    type Rep = LocalCache;

    fn make_rep(&self, context: RepContext<Cache>) -> LocalCache {
        LocalCache { pages: self.pages.local(), misses: AtomicU64::new(0), context }
    }
}

impl Cache {
    fn new(file: File) -> io::Result<Cache> {
        let length = AtomicU64::new(file.metadata()?.len());
        // A new local entry has zero hits.
        let pages = MasterTable::new(|_page: &Page| Here::default());
        Ok(Cache { file, length, writing: RwLock::new(()), pages, past_hits: AtomicU64::new(0) })
    }

    /// Reads a page from the file. Bytes beyond the end of the file are zero.
    fn fetch(&self, page: u64) -> io::Result<Page> {
        let (mut bytes, mut have) = (Box::new([0; PAGE]), 0);
        while have < PAGE {
            match self.file.read_at(&mut bytes[have..], page * PAGE as u64 + have as u64) {
                Ok(0) => break,
                Ok(more) => have += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Page { frame: RwLock::new(Frame { bytes, is_dirty: false }) })
    }

    /// Writes a changed page to the file, up to the file's length. Returns true if the page was changed.
    fn write_back(&self, number: u64, page: &Page) -> io::Result<bool> {
        let mut frame = page.frame.write();
        if !frame.is_dirty {
            return Ok(false);
        }
        let offset = number * PAGE as u64;
        let within = self.length.load(Relaxed).saturating_sub(offset).min(PAGE as u64) as usize;
        self.file.write_all_at(&frame.bytes[..within], offset)?;
        frame.is_dirty = false;
        Ok(true)
    }

    /// Evicts a page that is locked in all tables, and adds its hits to `past_hits`.
    fn evict_page<S>(&self, mut page: Emptying<'_, '_, u64, Page, Here, S>)
    where
        S: std::hash::BuildHasher + Clone + Send + Sync + 'static,
    {
        let hits: u64 = page.replicas().iter().map(|here| here.hits).sum();
        self.past_hits.fetch_add(hits, Relaxed);
        page.do_empty().finish_empty();
    }
}

impl LocalCache {
    /// Calls `act` with a page, which stays locked against eviction. Reads the page from the file on a miss.
    fn with<R>(&self, number: u64, act: impl FnOnce(&Page) -> R) -> io::Result<R> {
        let fetch = || self.context.root().fetch(number);
        self.pages.try_find_or_allocate_and_lock(&number, fetch, |verdict, page, here| {
            match verdict {
                Verdict::Found => here.hits += 1,
                Verdict::Empty => _ = self.misses.fetch_add(1, Relaxed),
            }
            here.referenced = true;
            act(page)
        })
    }
}

/// Splits `length` bytes at `offset` into pages. Yields the page, the offset in the page, and the range of
/// the bytes.
fn pieces(offset: u64, length: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let (page, within) = (at / PAGE as u64, (at % PAGE as u64) as usize);
        let piece = done..(done + PAGE - within).min(length);
        done = piece.end;
        (!piece.is_empty()).then_some((page, within, piece))
    })
}

impl FileCache for LocalCache {
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let length = self.context.root().length.load(Relaxed);
        let count = into.len().min(length.saturating_sub(offset) as usize);
        for (page, within, piece) in pieces(offset, count) {
            let into = &mut into[piece];
            self.with(page, |page| {
                into.copy_from_slice(&page.frame.read().bytes[within..within + into.len()])
            })?;
        }
        Ok(count)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let root = self.context.root();
        let _writing = root.writing.read();
        for (page, within, piece) in pieces(offset, bytes.len()) {
            let end = offset + piece.end as u64;
            let bytes = &bytes[piece];
            self.with(page, |page| {
                let mut frame = page.frame.write();
                frame.bytes[within..within + bytes.len()].copy_from_slice(bytes);
                frame.is_dirty = true;
                root.length.fetch_max(end, Relaxed);
            })?;
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<usize> {
        let root = self.context.root();
        let _writing = root.writing.read();
        let write_back = |written: &mut io::Result<usize>, number: &u64, page: &Page| {
            if let Ok(count) = written {
                match root.write_back(*number, page) {
                    Ok(was_dirty) => *count += usize::from(was_dirty),
                    Err(error) => *written = Err(error),
                }
            }
        };
        root.pages.do_op_all(Locking::Each, Ok(0), write_back, |_, _, _, _| ())
    }

    fn truncate(&self, length: u64) -> io::Result<usize> {
        let root = self.context.root();
        let _alone = root.writing.write();
        root.file.set_len(length)?;
        root.length.store(length, Relaxed);
        // A page that is being read may have old bytes. The walk waits for it and evicts it too.
        let (last, rest) = (length / PAGE as u64, (length % PAGE as u64) as usize);
        root.pages.find_and_lock(&last, |page| page.global().frame.write().bytes[rest..].fill(0));
        let (first, mut gone) = (length.div_ceil(PAGE as u64), 0);
        let mut walk = root.pages.add_reference();
        while walk
            .get_next_and_lock(|page| {
                if *page.key() >= first {
                    page.start_empty(|page| root.evict_page(page));
                    gone += 1;
                }
            })
            .is_some()
        {}
        Ok(gone)
    }

    fn evict(&self, keep: usize) -> io::Result<usize> {
        let root = self.context.root();
        let _writing = root.writing.read();
        let mut gone = 0;
        // Two rounds at most: the first clears the marks of used pages, the second evicts pages unused since.
        for _ in 0..2 {
            let mut walk = root.pages.add_reference();
            while root.pages.len() > keep {
                let next = walk.get_next_and_lock(|mut page| -> io::Result<()> {
                    let take = |was: &mut bool, _: &Page, here: &mut Here| {
                        *was |= std::mem::take(&mut here.referenced);
                    };
                    if page.do_op(Locking::Each, false, |_, _| (), take) {
                        return Ok(());
                    }
                    page.start_empty(|mut page| {
                        // Keeps a page that was used before all its entries were locked.
                        if page.replicas().iter().any(|here| here.referenced) {
                            return Ok(());
                        }
                        root.write_back(*page.key(), page.global())?;
                        root.evict_page(page);
                        gone += 1;
                        Ok(())
                    })
                });
                match next {
                    Some(done) => done?,
                    None => break,
                }
            }
        }
        Ok(gone)
    }

    fn statistics(&self) -> Statistics {
        let root = self.context.root();
        let misses = self.context.gather(|rep| rep.misses.load(Relaxed), |a, b| a + b).unwrap_or(0);
        let count = |sum: &mut Statistics, _: &u64, _: &Page| sum.pages += 1;
        let add = |sum: &mut Statistics, _: &u64, _: &Page, here: &mut Here| {
            sum.hits += here.hits;
            sum.mapped += 1;
        };
        let sum = root.pages.do_op_all(Locking::Each, Statistics::default(), count, add);
        Statistics { hits: sum.hits + root.past_hits.load(Relaxed), misses, ..sum }
    }
}

/// Returns the original value of a word of the file.
fn original(word: u64) -> u64 {
    word.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

/// Random numbers, small ones more often.
struct Skewed(u64);

impl Skewed {
    fn below(&mut self, limit: u64) -> u64 {
        let mut next = || {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 16) % limit
        };
        next() * next() / limit * next() / limit
    }
}

const PAGES: u64 = 256;
const WORDS: u64 = PAGES * (PAGE / 8) as u64;
const THREADS: u64 = 4;
const OPERATIONS: u64 = 20_000;

/// Reads and writes words of this thread's own, and checks them. Returns the number of calls.
fn work(file: Handle<dyn FileCache>, thread: u64, errors: &AtomicUsize) -> io::Result<u64> {
    let mut skewed = Skewed(thread + 1);
    let mut mine = std::collections::HashMap::new();
    for operation in 0..OPERATIONS {
        let word = skewed.below(WORDS / THREADS) * THREADS + thread;
        if operation % 10 == 0 {
            file.write(word * 8, &operation.to_ne_bytes())?;
            mine.insert(word, operation);
        } else {
            let mut bytes = [0; 8];
            let count = file.read(word * 8, &mut bytes)?;
            let expected = mine.get(&word).copied().unwrap_or(original(word));
            errors.fetch_add(usize::from((count, u64::from_ne_bytes(bytes)) != (8, expected)), Relaxed);
        }
    }
    // Checks all words that this thread wrote.
    for (word, expected) in mine {
        let mut bytes = [0; 8];
        file.read(word * 8, &mut bytes)?;
        errors.fetch_add(usize::from(u64::from_ne_bytes(bytes) != expected), Relaxed);
    }
    Ok(OPERATIONS)
}

fn main() -> io::Result<()> {
    let path = std::env::temp_dir().join(format!("squall-page-cache-{}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    // The open file stays usable without a name, and disappears with this program.
    std::fs::remove_file(&path)?;
    let words: Vec<u8> = (0..WORDS).flat_map(|word| original(word).to_ne_bytes()).collect();
    file.write_all_at(&words, 0)?;
    let seen_by_others = file.try_clone()?;

    let cache = Cache::new(file)?.create(ClusterSize::Cpu);
    let handle = cache.handle();
    let (errors, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (mut evicted, mut synced) = (0, 0);
    thread::scope(|threads| -> io::Result<()> {
        let errors = &errors;
        let workers: Vec<_> =
            (0..THREADS).map(|thread| threads.spawn(move || work(handle, thread, errors))).collect();
        let keeper = threads.spawn(|| -> io::Result<()> {
            // Evicts and writes back while the workers run.
            while !over.load(Relaxed) {
                evicted += handle.evict(PAGES as usize / 8)?;
                synced += handle.sync()?;
                thread::sleep(std::time::Duration::from_millis(1));
            }
            Ok(())
        });
        let done: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        over.store(true, Relaxed);
        keeper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        for worker in done {
            worker.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        Ok(())
    })?;
    assert_eq!(errors.load(Relaxed), 0, "words that differ from the last write");
    let statistics = handle.statistics();
    println!("{statistics:?}; {evicted} pages were evicted and {synced} written back meanwhile");
    // Each call touched one page.
    assert!(statistics.hits + statistics.misses >= THREADS * OPERATIONS);
    assert!(statistics.misses as usize >= evicted && evicted > 0 && statistics.pages <= PAGES as usize);

    // After a sync, the file equals the cache.
    handle.sync()?;
    assert_eq!(handle.sync()?, 0);
    let (mut cached, mut on_disk) = (vec![0; words.len()], vec![0; words.len()]);
    assert_eq!(handle.read(0, &mut cached)?, words.len());
    seen_by_others.read_exact_at(&mut on_disk, 0)?;
    assert!(cached == on_disk && cached != words);

    // Truncated bytes read as zero when the file grows again.
    let length = PAGES / 2 * PAGE as u64 + 100;
    let gone = handle.truncate(length)?;
    let mut bytes = [7; 200];
    assert_eq!(handle.read(length - 100, &mut bytes)?, 100);
    handle.write(length + 5 * PAGE as u64, b"more")?;
    assert_eq!(handle.read(length - 100, &mut bytes)?, 200);
    assert!(bytes[..100] == cached[length as usize - 100..length as usize] && bytes[100..] == [0; 100]);
    assert_eq!(gone as u64, PAGES / 2 - 1);
    println!("{gone} pages left the cache with the truncation");

    // Evicts all pages.
    let left = handle.statistics().pages;
    assert_eq!((handle.evict(0)?, handle.statistics().pages), (left, 0));
    assert_eq!(seen_by_others.metadata()?.len(), length + 5 * PAGE as u64 + 4);
    println!("{left} pages were evicted; {} hits in all", handle.statistics().hits);
    Ok(())
}
