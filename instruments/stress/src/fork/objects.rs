//! The objects of a run: one of each kind in each form, and one lock of each kind.

use std::sync::Mutex;
use std::sync::atomic::AtomicU32;

use squall::fleet::{Link, LinkReceiver, LinkSender};
use squall::lock::{BiasedLock, ConfigurableLock, DistributedRwLock, Lock, LockedPtr, TwoBits};
use squall::objects::cached::{self, CachedMapExt as _, Form, OwnedCachedMap};
use squall::objects::counter::{self, Counter};
use squall::objects::directory::{self, OwnedDirectory};
use squall::objects::gate::{self, Gate};
use squall::objects::lock::AdaptiveLock;
use squall::objects::map::{self, MapExt as _, MapLimit, OwnedMap};
use squall::objects::read_mostly::{self, OwnedReadMostly};
use squall::parts::table::Table;
use squall::rcu::Rcu;
use squall::{ClusterSize, Owned};

/// The number of keys of each map and directory.
pub(super) const KEYS: u64 = 8;
/// The lock in a word.
pub(super) const BITS: TwoBits<AtomicU32> = TwoBits::low();
/// The number of parts of a partitioned map.
const PARTS: usize = 3;

/// A value that shows whether it was read in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pair(u64, u64);

impl Pair {
    pub(super) fn new(value: u64) -> Pair {
        Pair(value, !value)
    }

    pub(super) fn is_whole(self) -> bool {
        self.0 == !self.1
    }

    /// Adds one. Returns whether the value was whole before.
    pub(super) fn step(&mut self) -> bool {
        let was_whole = self.is_whole();
        *self = Pair::new(self.0 + 1);
        was_whole
    }
}

/// A form's name, and an object in this form.
type Formed<T> = (&'static str, T);

pub(super) struct Objects {
    pub(super) maps: Vec<Formed<OwnedMap<u64, u64>>>,
    pub(super) cached: Vec<Formed<OwnedCachedMap<u64, u64>>>,
    pub(super) cells: Vec<Formed<OwnedReadMostly<Pair>>>,
    pub(super) counters: Vec<Formed<Owned<dyn Counter>>>,
    pub(super) directories: Vec<Formed<OwnedDirectory<u64, (), u64>>>,
    pub(super) gates: Vec<Formed<Owned<dyn Gate>>>,
    /// Swapped all the time, and so not compared with a record.
    pub(super) swapped: Owned<dyn Counter>,
    pub(super) locks: Locks,
    pub(super) link: Ends,
    pub(super) table: Table<u64, u64>,
    pub(super) rcu: Rcu<Pair>,
}

/// One lock of each kind around a value.
pub(super) struct Locks {
    pub(super) plain: Lock<Pair>,
    pub(super) biased: BiasedLock<Pair>,
    pub(super) configurable: ConfigurableLock<Pair>,
    pub(super) adaptive: AdaptiveLock<Pair>,
    pub(super) rw: DistributedRwLock<Pair>,
    pub(super) word: AtomicU32,
    pub(super) pointer: LockedPtr<Pair>,
}

impl Locks {
    fn new() -> Locks {
        let zero = Pair::new(0);
        Locks {
            plain: Lock::new(zero),
            biased: BiasedLock::new(zero),
            configurable: ConfigurableLock::new(zero),
            adaptive: AdaptiveLock::new(zero),
            rw: DistributedRwLock::new(zero),
            word: AtomicU32::new(0),
            pointer: LockedPtr::new(std::ptr::null_mut()),
        }
    }
}

/// The ends of a link. The peer is in this process, and idle.
pub(super) struct Ends {
    pub(super) sender: LinkSender,
    pub(super) receiver: Mutex<LinkReceiver>,
    _peer: Link,
}

impl Ends {
    fn new() -> Ends {
        let (here, there) = Link::pair().expect("this process has few open files");
        let peer = std::thread::spawn(move || Link::over(there).expect("both sides make the link"));
        let (sender, receiver) = Link::over(here).expect("both sides make the link").split();
        let _peer = peer.join().unwrap_or_else(|_| unreachable!("the thread made its link"));
        Ends { sender, receiver: Mutex::new(receiver), _peer }
    }
}

/// Returns the part of a key.
fn home(hash: u64) -> usize {
    (hash >> 1) as usize % PARTS
}

impl Objects {
    pub(super) fn new() -> Objects {
        let cpu = ClusterSize::Cpu;
        let objects = Objects {
            maps: vec![
                ("shared", map::shared()),
                ("locked", map::locked()),
                ("partitioned", map::partitioned(PARTS, home)),
                ("replicated", map::replicated(cpu)),
                ("adaptive", map::adaptive()),
                ("limited", map::limited(map::shared(), MapLimit::entries(2 * KEYS))),
            ],
            cached: vec![
                ("shared", cached::map(Form::shared())),
                ("distributed", cached::map(Form::distributed(cpu))),
                ("updated", cached::map(Form::distributed(cpu).updated())),
                ("where threads are", cached::map(Form::where_threads_are(cpu, 8))),
            ],
            cells: vec![
                ("shared", read_mostly::shared(Pair::new(0))),
                ("distributed", read_mostly::distributed(Pair::new(0), cpu)),
                ("copied", read_mostly::copied(Pair::new(0), cpu)),
                ("adaptive", read_mostly::adaptive(Pair::new(0))),
            ],
            counters: vec![
                ("shared", counter::shared()),
                ("distributed", counter::distributed()),
                ("adaptive", counter::adaptive()),
            ],
            directories: vec![
                ("shared", directory::shared(|()| 0)),
                ("distributed", directory::distributed(cpu, |()| 0)),
            ],
            gates: vec![("shared", gate::shared()), ("distributed", gate::distributed())],
            swapped: counter::shared(),
            locks: Locks::new(),
            link: Ends::new(),
            table: Table::new(),
            rcu: Rcu::new(Box::new(Pair::new(0))),
        };
        for key in 0..KEYS {
            objects.maps.iter().for_each(|(_, map)| _ = map.set(key, key));
            objects.cached.iter().for_each(|(_, map)| _ = map.set(key, key));
            objects.table.set(key, key);
        }
        objects
    }
}
