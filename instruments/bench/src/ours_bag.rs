//! Subjects `squall-*` of the cases of bags and pools.

use std::any::Any;

use squall::adapt::control;
use squall::objects::bag::{self, Bag, BagExt};
use squall::objects::ids::{self, IdPool, IdPoolExt};
use squall::objects::pages::{self, PagePool, PagePoolExt, Supply};
use squall::objects::pool::ObjectPool;
use squall::parts::bag::Bag as Part;
use squall::{Handle, Id, Owned};

use crate::case::Setting;
use crate::rivals::bags::Direct;
use crate::work::bag::{Access, Unordered};
use crate::work::object_pool::{AsyncBuffers, Buffer, Buffers, objects};
use crate::work::taking::{IDS, Taking};

/// Puts a counted adaptive object into its form for the threads, and keeps it there.
fn set_for_threads(setting: &Setting, id: Id, distributed: &str) {
    if setting.counted {
        if setting.threads > 1 {
            control::swap(id, distributed).expect("an adaptive object takes its second form");
        }
        control::freeze(id, true).expect("an adaptive object keeps its form");
    }
}

/// `squall-part`: the bag without an object.
impl Unordered for Part<u64> {
    fn new(_: &Setting) -> Self {
        Part::new()
    }

    fn access(&self, _: usize) -> impl Access + '_ {
        Direct(self)
    }

    fn take_left(&self) -> Option<u64> {
        self.here().get()
    }
}

/// Each call finds out where the thread is, since it may have moved.
impl Access for Direct<'_, Part<u64>> {
    #[inline(always)]
    fn put(&mut self, value: u64) {
        self.0.here().put(value);
    }

    #[inline(always)]
    fn get(&mut self) -> Option<u64> {
        self.0.here().get()
    }
}

/// Declares a type for each form of an object that this benchmark owns.
macro_rules! forms {
    ($($(#[$doc:meta])* $name:ident: $interface:ty;)+) => {
        $($(#[$doc])* pub(crate) struct $name(Owned<$interface>);)+
    };
}

forms! {
    /// `squall-shared` of `bag`.
    SharedBag: dyn Bag<u64>;
    /// `squall-distributed` of `bag`.
    DistributedBag: dyn Bag<u64>;
    /// `squall` of `bag`.
    AdaptiveBag: dyn Bag<u64>;
    /// `squall-shared` of `id-pool`.
    SharedIds: dyn IdPool;
    /// `squall-distributed` of `id-pool`.
    DistributedIds: dyn IdPool;
    /// `squall` of `id-pool`.
    AdaptiveIds: dyn IdPool;
    /// `squall-shared` of `page-pool`.
    SharedPages: dyn PagePool;
    /// `squall-distributed` of `page-pool`.
    DistributedPages: dyn PagePool;
    /// `squall` of `page-pool`.
    AdaptivePages: dyn PagePool;
}

impl Access for Handle<dyn Bag<u64>> {
    #[inline(always)]
    fn put(&mut self, value: u64) {
        BagExt::put(*self, value);
    }

    #[inline(always)]
    fn get(&mut self) -> Option<u64> {
        BagExt::get(*self)
    }
}

macro_rules! unordered {
    ($name:ident, $setting:ident, $make:expr) => {
        impl Unordered for $name {
            fn new($setting: &Setting) -> Self {
                $name($make)
            }

            fn access(&self, _: usize) -> impl Access + '_ {
                self.0.handle()
            }

            fn take_left(&self) -> Option<u64> {
                BagExt::get(self.0.handle())
            }
        }
    };
}

unordered!(SharedBag, _setting, bag::shared());
unordered!(DistributedBag, _setting, bag::distributed());
unordered!(AdaptiveBag, setting, {
    let owned = bag::adaptive();
    set_for_threads(setting, Handle::id(owned.handle()), bag::DISTRIBUTED);
    owned
});

/// `squall` of `object-pool`: the adaptive pool.
impl Buffers for ObjectPool<Buffer> {
    fn new(setting: &Setting) -> Self {
        let pool = ObjectPool::new(Buffer::new);
        set_for_threads(setting, Handle::id(pool.handle()), bag::DISTRIBUTED);
        pool
    }

    #[inline(always)]
    fn touch_one(&self) -> u64 {
        self.get().touch()
    }

    fn hold(&self) -> Option<Box<dyn Any>> {
        Some(Box::new(self.get()))
    }
}

/// `squall-distributed` of `object-pool`: the pool in that form.
pub(crate) struct DistributedPool(ObjectPool<Buffer>);

impl Buffers for DistributedPool {
    fn new(_: &Setting) -> Self {
        DistributedPool(ObjectPool::builder(Buffer::new).distributed().build())
    }

    #[inline(always)]
    fn touch_one(&self) -> u64 {
        self.0.get().touch()
    }

    fn hold(&self) -> Option<Box<dyn Any>> {
        Some(Box::new(self.0.get()))
    }
}

/// `squall` of `object-pool async`: the adaptive pool, with a maximum size.
pub(crate) struct Bounded(ObjectPool<Buffer>);

impl AsyncBuffers for Bounded {
    fn new(setting: &Setting) -> Self {
        let pool = ObjectPool::builder(Buffer::new).max_size(objects(setting)).build();
        set_for_threads(setting, Handle::id(pool.handle()), bag::DISTRIBUTED);
        Bounded(pool)
    }

    async fn touch_one(&self) -> u64 {
        self.0.get_async().await.touch()
    }
}

macro_rules! taking {
    ($name:ident, $setting:ident, $make:expr, $pair:expr) => {
        impl Taking for $name {
            fn new($setting: &Setting) -> Self {
                $name($make)
            }

            #[inline(always)]
            fn pair(&self) -> u64 {
                $pair(self.0.handle())
            }
        }
    };
}

#[inline(always)]
fn id_pair(ids: Handle<dyn IdPool>) -> u64 {
    let id = ids.get().expect("an id is free");
    u64::from(id.value())
}

#[inline(always)]
fn page_pair(pages: Handle<dyn PagePool>) -> u64 {
    let mut page = pages.get().expect("a page is free");
    page[0] = page[0].wrapping_add(1);
    u64::from(page[0])
}

/// Most pages of a pool.
const PAGES: usize = 4096;

taking!(SharedIds, _setting, ids::shared(IDS), id_pair);
taking!(DistributedIds, _setting, ids::distributed(IDS), id_pair);
taking!(
    AdaptiveIds,
    setting,
    {
        let owned = ids::adaptive(IDS);
        set_for_threads(setting, Handle::id(owned.handle()), ids::DISTRIBUTED);
        owned
    },
    id_pair
);
taking!(SharedPages, _setting, pages::shared(Supply::system(PAGES)), page_pair);
taking!(DistributedPages, _setting, pages::distributed(Supply::system(PAGES)), page_pair);
taking!(
    AdaptivePages,
    setting,
    {
        let owned = pages::adaptive(Supply::system(PAGES));
        set_for_threads(setting, Handle::id(owned.handle()), pages::DISTRIBUTED);
        owned
    },
    page_pair
);
