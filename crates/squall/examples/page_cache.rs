//! A distributed hash table inside an object of one's own: the cache of a file's pages.
//!
//! The root has the file and the master's table: for each page that is in memory its bytes, one for all. Each representative has a table
//! of the pages that its processor used, with what it knows of them alone: how often it hit, and whether it did since the clock came by.
//! So a hit writes nothing that another processor's hits write; of all that miss a page one reads it from the file; and a page that is thrown
//! out is gone for all at one moment. (K42's file cache manager: Appavoo 2005, §4.1.4.)
//!
//! `cargo run --release -p squall --example page_cache`

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread;

use squall::parts::dhash::{Emptying, Local, Locking, Master, Verdict};
use squall::lock::DistributedRwLock as RwLock;
use squall::prelude::*;

const PAGE: usize = 4096;

#[interface]
trait FileCache: Send + Sync {
    /// Reads from the file, by way of the cache. Returns how many bytes there were.
    #[blocking]
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;
    /// Writes to the cache; the file has it after the next [`sync`](FileCache::sync), or when the page is thrown out.
    #[blocking]
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Writes what was changed to the file. Returns how many pages that were.
    #[blocking]
    fn sync(&self) -> io::Result<usize>;
    /// Cuts the file off. Returns how many pages left the cache.
    #[blocking]
    fn truncate(&self, length: u64) -> io::Result<usize>;
    /// The clock: throws pages out until so many are left, first those that nobody used since it came by.
    #[blocking]
    fn evict(&self, keep: usize) -> io::Result<usize>;
    /// What was done so far, everywhere.
    #[blocking]
    fn statistics(&self) -> Statistics;
}

#[derive(Clone, Copy, Debug, Default)]
struct Statistics {
    hits: u64,
    misses: u64,
    pages: usize,
    /// Local parts of these pages.
    mapped: usize,
}

/// What a page is for all.
struct Page {
    frame: RwLock<Frame>,
}

struct Frame {
    bytes: Box<[u8; PAGE]>,
    is_dirty: bool,
}

/// What a page is in one place.
#[derive(Default)]
struct Here {
    hits: u64,
    referenced: bool,
}

/// The root.
struct Cache {
    file: File,
    length: AtomicU64,
    /// Held shared by who writes to pages or the file, and alone by who cuts it off.
    writing: RwLock<()>,
    pages: Master<u64, Page, Here>,
    /// Hits of pages that are not there any more.
    past_hits: AtomicU64,
}

/// The representative.
#[repr(align(128))]
struct LocalCache {
    pages: Local<u64, Page, Here>,
    misses: AtomicU64,
    at: RepContext<Cache>,
}

impl Root for Cache {
    type Interface = dyn FileCache;
    type Rep = LocalCache;

    fn make_rep(&self, at: RepContext<Cache>) -> LocalCache {
        LocalCache { pages: self.pages.local(), misses: AtomicU64::new(0), at }
    }
}

impl Cache {
    fn new(file: File) -> io::Result<Cache> {
        let length = AtomicU64::new(file.metadata()?.len());
        // Nobody has used a page where it is not mapped yet.
        let pages = Master::new(|_page: &Page| Here::default());
        Ok(Cache { file, length, writing: RwLock::new(()), pages, past_hits: AtomicU64::new(0) })
    }

    /// Reads a page from the file; what is beyond its end is zero.
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

    /// Writes a page to the file if it was changed, as far as the file goes. Returns whether it was.
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

    /// Puts a page that is locked everywhere back to empty, and keeps what its places knew.
    fn throw_out<S>(&self, mut page: Emptying<'_, '_, u64, Page, Here, S>)
    where
        S: std::hash::BuildHasher + Clone + Send + Sync + 'static,
    {
        let hits: u64 = page.replicas().iter().map(|here| here.hits).sum();
        self.past_hits.fetch_add(hits, Relaxed);
        page.do_empty().finish_empty();
    }
}

impl LocalCache {
    /// Calls `act` with a page, which is read from the file if it is nowhere; nobody throws it out meanwhile.
    fn with<R>(&self, number: u64, act: impl FnOnce(&Page) -> R) -> io::Result<R> {
        let fetch = || self.at.root().fetch(number);
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

/// The pages that bytes from here on lie in: each with where it begins there, and which of the bytes.
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
        let length = self.at.root().length.load(Relaxed);
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
        let root = self.at.root();
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
        let root = self.at.root();
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
        let root = self.at.root();
        let _alone = root.writing.write();
        root.file.set_len(length)?;
        root.length.store(length, Relaxed);
        // Pages that are being read from the file have what it was before, perhaps: they are waited for, and go too.
        let (last, rest) = (length / PAGE as u64, (length % PAGE as u64) as usize);
        root.pages.find_and_lock(&last, |page| page.global().frame.write().bytes[rest..].fill(0));
        let (first, mut gone) = (length.div_ceil(PAGE as u64), 0);
        let mut walk = root.pages.add_reference();
        while walk
            .get_next_and_lock(|page| {
                if *page.key() >= first {
                    page.start_empty(|page| root.throw_out(page));
                    gone += 1;
                }
            })
            .is_some()
        {}
        Ok(gone)
    }

    fn evict(&self, keep: usize) -> io::Result<usize> {
        let root = self.at.root();
        let _writing = root.writing.read();
        let mut gone = 0;
        // Twice round at most: who has a second chance at the first time has none at the second, unless somebody uses it.
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
                        // Whoever used it before all its places were locked has it kept.
                        if page.replicas().iter().any(|here| here.referenced) {
                            return Ok(());
                        }
                        root.write_back(*page.key(), page.global())?;
                        root.throw_out(page);
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
        let root = self.at.root();
        let misses = self.at.gather(|rep| rep.misses.load(Relaxed), |a, b| a + b).unwrap_or(0);
        let count = |sum: &mut Statistics, _: &u64, _: &Page| sum.pages += 1;
        let add = |sum: &mut Statistics, _: &u64, _: &Page, here: &mut Here| {
            sum.hits += here.hits;
            sum.mapped += 1;
        };
        let sum = root.pages.do_op_all(Locking::Each, Statistics::default(), count, add);
        Statistics { hits: sum.hits + root.past_hits.load(Relaxed), misses, ..sum }
    }
}

/// What a word of the file says before anybody writes it.
fn original(word: u64) -> u64 {
    word.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

/// Numbers that come again more often the smaller they are.
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

/// One thread's work: it writes to words of its own, and knows what is in them. Returns the calls it made.
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
    // All that it wrote is there, wherever it is now.
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
    // Nobody else sees it, and nothing of it is left behind.
    std::fs::remove_file(&path)?;
    let words: Vec<u8> = (0..WORDS).flat_map(|word| original(word).to_ne_bytes()).collect();
    file.write_all_at(&words, 0)?;
    let seen_by_others = file.try_clone()?;

    let cache = Cache::new(file)?.create(ClusterSize::Cpu);
    let co = cache.handle();
    let (errors, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (mut evicted, mut synced) = (0, 0);
    thread::scope(|threads| -> io::Result<()> {
        let errors = &errors;
        let workers: Vec<_> =
            (0..THREADS).map(|thread| threads.spawn(move || work(co, thread, errors))).collect();
        let keeper = threads.spawn(|| -> io::Result<()> {
            // The clock and the writer come by while all that goes on.
            while !over.load(Relaxed) {
                evicted += co.evict(PAGES as usize / 8)?;
                synced += co.sync()?;
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
    assert_eq!(errors.load(Relaxed), 0, "words that were not what was written last");
    let statistics = co.statistics();
    println!("{statistics:?}; {evicted} pages thrown out and {synced} written back meanwhile");
    // Each call touched one page; those that check at the end, too.
    assert!(statistics.hits + statistics.misses >= THREADS * OPERATIONS);
    assert!(statistics.misses as usize >= evicted && evicted > 0 && statistics.pages <= PAGES as usize);

    // The file has what the cache has, once that is written back.
    co.sync()?;
    assert_eq!(co.sync()?, 0);
    let (mut cached, mut on_disk) = (vec![0; words.len()], vec![0; words.len()]);
    assert_eq!(co.read(0, &mut cached)?, words.len());
    seen_by_others.read_exact_at(&mut on_disk, 0)?;
    assert!(cached == on_disk && cached != words);

    // What is cut off is gone for all, also when the file grows again.
    let length = PAGES / 2 * PAGE as u64 + 100;
    let gone = co.truncate(length)?;
    let mut bytes = [7; 200];
    assert_eq!(co.read(length - 100, &mut bytes)?, 100);
    co.write(length + 5 * PAGE as u64, b"more")?;
    assert_eq!(co.read(length - 100, &mut bytes)?, 200);
    assert!(bytes[..100] == cached[length as usize - 100..length as usize] && bytes[100..] == [0; 100]);
    assert_eq!(gone as u64, PAGES / 2 - 1);
    println!("{gone} pages left with what was cut off");

    // All the rest, by the clock: nobody uses them any more.
    let left = co.statistics().pages;
    assert_eq!((co.evict(0)?, co.statistics().pages), (left, 0));
    assert_eq!(seen_by_others.metadata()?.len(), length + 5 * PAGE as u64 + 4);
    println!("{left} pages were left, and {} hits are remembered", co.statistics().hits);
    Ok(())
}
