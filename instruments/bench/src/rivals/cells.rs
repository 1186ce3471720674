//! Ways to keep a read-mostly value: their interface, and the rivals, each used as its documentation advises.

use std::sync::{Arc, Mutex, RwLock};

use arc_swap::{ArcSwap, Cache};
use hazarc::AtomicArc;
use left_right::Absorb;
use tokio::sync::watch;

/// The value: one line, with equal words.
pub(crate) type Value = [u64; 8];

/// The value with this number.
pub(crate) fn value(number: u64) -> Value {
    [number; 8]
}

/// A way to keep a value.
pub(crate) trait Kept: Send + Sync + 'static {
    /// State that a reading thread keeps.
    type Reader<'a>
    where
        Self: 'a;

    /// Makes the value with number 1, for `threads` threads.
    fn new(threads: usize) -> Self;

    fn reader(&self) -> Self::Reader<'_>;

    /// Returns the number of the current value.
    fn read(&self, reader: &mut Self::Reader<'_>) -> u64;

    fn set(&self, value: Value);
}

/// `arc-swap`: a guard for each read.
pub(crate) struct Loaded(ArcSwap<Value>);

impl Kept for Loaded {
    type Reader<'a> = ();

    fn new(_: usize) -> Loaded {
        Loaded(ArcSwap::from_pointee(value(1)))
    }

    fn reader(&self) {}

    #[inline(always)]
    fn read(&self, (): &mut ()) -> u64 {
        self.0.load()[0]
    }

    fn set(&self, value: Value) {
        self.0.store(Arc::new(value));
    }
}

/// `arc-swap-cache`: each thread keeps a reference, and checks at each read that it is still current.
pub(crate) struct Cached(ArcSwap<Value>);

impl Kept for Cached {
    type Reader<'a> = Cache<&'a ArcSwap<Value>, Arc<Value>>;

    fn new(_: usize) -> Cached {
        Cached(ArcSwap::from_pointee(value(1)))
    }

    fn reader(&self) -> Self::Reader<'_> {
        Cache::new(&self.0)
    }

    #[inline(always)]
    fn read(&self, reader: &mut Self::Reader<'_>) -> u64 {
        reader.load()[0]
    }

    fn set(&self, value: Value) {
        self.0.store(Arc::new(value));
    }
}

/// `hazarc`: a guard for each read.
pub(crate) struct HazarcLoaded(AtomicArc<Value>);

impl Kept for HazarcLoaded {
    type Reader<'a> = ();

    fn new(_: usize) -> HazarcLoaded {
        HazarcLoaded(AtomicArc::from(value(1)))
    }

    fn reader(&self) {}

    #[inline(always)]
    fn read(&self, (): &mut ()) -> u64 {
        self.0.load()[0]
    }

    fn set(&self, value: Value) {
        self.0.store(Arc::new(value));
    }
}

/// `hazarc-cache`: each thread keeps a reference, and checks at each read that it is still current.
pub(crate) struct HazarcCached(AtomicArc<Value>);

impl Kept for HazarcCached {
    type Reader<'a> = hazarc::Cache<&'a AtomicArc<Value>>;

    fn new(_: usize) -> HazarcCached {
        HazarcCached(AtomicArc::from(value(1)))
    }

    fn reader(&self) -> Self::Reader<'_> {
        hazarc::Cache::new(&self.0)
    }

    #[inline(always)]
    fn read(&self, reader: &mut Self::Reader<'_>) -> u64 {
        reader.load()[0]
    }

    fn set(&self, value: Value) {
        self.0.store(Arc::new(value));
    }
}

/// `left-right`: two copies, and a handle per reading thread; an update waits until all readers have left the
/// other copy.
pub(crate) struct LeftRight {
    write: Mutex<left_right::WriteHandle<Copied, Value>>,
    read: left_right::ReadHandleFactory<Copied>,
}

/// A copy of the value.
#[derive(Clone)]
pub(crate) struct Copied(Value);

impl Absorb<Value> for Copied {
    fn absorb_first(&mut self, operation: &mut Value, _: &Self) {
        self.0 = *operation;
    }

    fn sync_with(&mut self, first: &Self) {
        self.0 = first.0;
    }
}

const NO_PANIC: &str = "nobody panics holding it";
const LIVES: &str = "its writer lives as long as it does";

impl Kept for LeftRight {
    type Reader<'a> = left_right::ReadHandle<Copied>;

    fn new(_: usize) -> LeftRight {
        let (write, read) = left_right::new_from_empty(Copied(value(1)));
        LeftRight { read: read.factory(), write: Mutex::new(write) }
    }

    fn reader(&self) -> Self::Reader<'_> {
        self.read.handle()
    }

    #[inline(always)]
    fn read(&self, reader: &mut Self::Reader<'_>) -> u64 {
        reader.enter().expect(LIVES).0[0]
    }

    fn set(&self, value: Value) {
        self.write.lock().expect(NO_PANIC).append(value).publish();
    }
}

/// `evmap`: a map with one key, refreshed after each write.
pub(crate) struct Evmap {
    write: Mutex<evmap::handles::WriteHandle<u64, Value>>,
    read: Mutex<evmap::handles::ReadHandle<u64, Value>>,
}

/// The key.
const KEY: u64 = 0;

impl Kept for Evmap {
    type Reader<'a> = evmap::handles::ReadHandle<u64, Value>;

    fn new(_: usize) -> Evmap {
        let (mut write, read) = evmap::new();
        write.update(KEY, value(1)).publish();
        Evmap { write: Mutex::new(write), read: Mutex::new(read) }
    }

    fn reader(&self) -> Self::Reader<'_> {
        self.read.lock().expect(NO_PANIC).clone()
    }

    #[inline(always)]
    fn read(&self, reader: &mut Self::Reader<'_>) -> u64 {
        reader.get_one(&KEY).expect(LIVES)[0]
    }

    fn set(&self, value: Value) {
        self.write.lock().expect(NO_PANIC).update(KEY, value).publish();
    }
}

/// `std-rwlock`: the lock is held only while the guarded `Arc` is cloned.
impl Kept for RwLock<Arc<Value>> {
    type Reader<'a> = ();

    fn new(_: usize) -> Self {
        RwLock::new(Arc::new(value(1)))
    }

    fn reader(&self) {}

    #[inline(always)]
    fn read(&self, (): &mut ()) -> u64 {
        let value = Arc::clone(&self.read().expect(NO_PANIC));
        value[0]
    }

    fn set(&self, value: Value) {
        let value = Arc::new(value);
        let old = std::mem::replace(&mut *self.write().expect(NO_PANIC), value);
        // Drops outside the lock.
        drop(old);
    }
}

/// `tokio-watch`: a receiver for each thread.
impl Kept for watch::Sender<Value> {
    type Reader<'a> = watch::Receiver<Value>;

    fn new(_: usize) -> Self {
        watch::Sender::new(value(1))
    }

    fn reader(&self) -> Self::Reader<'_> {
        self.subscribe()
    }

    #[inline(always)]
    fn read(&self, reader: &mut Self::Reader<'_>) -> u64 {
        reader.borrow()[0]
    }

    fn set(&self, value: Value) {
        self.send_replace(value);
    }
}
