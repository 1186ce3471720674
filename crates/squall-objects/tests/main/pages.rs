//! Pools of pages: free lists and their overflow, limits, reclamation, pools below, and swaps.

use crate::common::{Crew, VPS, alone, form, on, virtual_time};
use squall_adapt::settings;
use squall_core::swap::{Swap, arbitrate, swap};
use squall_core::{Handle, Owned, shared};
use squall_objects::pages::{
    self, Attribute, DISTRIBUTED, PAGE_BYTES, Page, PagePool, PagePoolExt, PageUser, SHARED, Supply,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

/// A constructor of a form.
type Make = fn(Supply) -> Owned<dyn PagePool>;

const FORMS: [Make; 3] = [pages::shared, pages::distributed, pages::adaptive];

/// A user that keeps pages, and notes each call in a common list.
struct Cache {
    name: &'static str,
    pages: Mutex<Vec<Page>>,
    calls: Arc<Mutex<Vec<&'static str>>>,
}

impl PageUser for Cache {
    fn give_back(&self, wanted: usize) -> usize {
        self.calls.lock().unwrap().push(self.name);
        let mut pages = self.pages.lock().unwrap();
        let kept = pages.len().saturating_sub(wanted);
        pages.split_off(kept).len()
    }
}

/// Makes a user of these pages, with an id of the range of `vp`.
fn cache(
    vp: u32,
    name: &'static str,
    pages: Vec<Page>,
    calls: &Arc<Mutex<Vec<&'static str>>>,
) -> Owned<dyn PageUser> {
    on(vp, || shared(Cache { name, pages: Mutex::new(pages), calls: calls.clone() }))
}

#[test]
fn a_page_is_its_owners_alone() {
    let _alone = alone();
    for make in FORMS {
        let pool = make(Supply::system(200));
        let mut pages = pool.get_batch(200);
        assert!(pages.len() == 200 && pool.get().is_none());
        for (number, page) in pages.iter_mut().enumerate() {
            assert_eq!(page.len(), PAGE_BYTES);
            page.fill(number as u8);
        }
        assert!(pages.iter().enumerate().all(|(number, page)| page.iter().all(|byte| *byte == number as u8)));
        drop(pages);
        assert_eq!((pool.used(), pool.free()), (200, 200));
        assert!(pool.get_zeroed().unwrap().iter().all(|byte| *byte == 0));
    }
}

#[test]
fn co_45_a_list_beyond_the_threshold_moves_a_batch_to_the_overflow_list() {
    let _alone = alone();
    let pool = pages::distributed(Supply::system(usize::MAX));
    pool.set_attribute(Attribute::Threshold, 20);
    pool.set_attribute(Attribute::Batch, 8);
    pool.set_attribute(Attribute::Chunk, 10);
    let pages = on(0, || pool.get_batch(25));
    assert_eq!(pool.used(), 30, "three chunks");
    on(0, || drop(pages));
    assert_eq!((pool.used(), pool.free()), (30, 30));
    // VP 0 keeps at most 20 pages. The others come from the overflow list, without a new chunk.
    let pages = on(1, || pool.get_batch(10));
    assert_eq!((pages.len(), pool.used()), (10, 30));
    // The list of VP 0 is not touched while chunks can be had.
    let more = on(1, || pool.get_batch(10));
    assert_eq!((more.len(), pool.used()), (10, 40));
}

#[test]
fn a_free_page_is_found_at_any_vp_when_the_limit_is_reached() {
    let _alone = alone();
    let pool = pages::distributed(Supply::system(100));
    on(0, || drop(pool.get_batch(100)));
    on(31, || drop(pool.get_batch(30)));
    for vp in 0..VPS {
        let all = on(vp, || pool.get_batch(101));
        assert_eq!(all.len(), 100);
        on(vp, || drop(all));
    }
    pool.set_max_pages(40);
    let all = pool.get_batch(101);
    assert_eq!((all.len(), pool.max_pages()), (100, 40), "pages stay");
    drop(all);
    assert_eq!((pool.give_up(70), pool.used()), (70, 30));
    assert_eq!(pool.get_batch(101).len(), 40);
}

#[test]
fn dp_20_pages_stay_at_their_node() {
    let _alone = alone();
    let pool = pages::distributed(Supply::system(usize::MAX));
    pool.set_attribute(Attribute::Batch, 8);
    pool.set_attribute(Attribute::Chunk, 8);
    let (here, there) = (on(0, || pool.get_batch(24)), on(16, || pool.get_batch(8)));
    assert!(here.iter().all(|page| page.node() == 0) && there.iter().all(|page| page.node() == 1));
    // Another node returns them: they go home by the overflow list.
    on(16, || drop(here));
    assert!(on(16, || pool.get().unwrap().node() == 1));
    let used = pool.used();
    let here = on(1, || pool.get_batch(24));
    assert!(here.iter().all(|page| page.node() == 0));
    assert_eq!(pool.used(), used, "no new chunk");
}

#[test]
fn co_46_a_user_is_in_the_table_of_its_ids_home() {
    let _alone = alone();
    let calls = Arc::default();
    let user = cache(7, "user", Vec::new(), &calls);
    let tables = |pool: &Owned<dyn PagePool>| {
        let is_there = |vp: &usize| pool.members(*vp).unwrap().users == [user.handle()];
        Vec::from_iter((0..VPS as usize).filter(is_there))
    };
    let pool = pages::distributed(Supply::system(1));
    assert_eq!(pool.members(VPS as usize), None);
    let (first, second) = (on(3, || pool.attach(user.handle())), pool.attach(user.handle()));
    assert_eq!(tables(&pool), [7]);
    drop(second);
    assert_eq!(tables(&pool), [7], "attached once more than detached");
    on(4, || swap(pool.handle(), pages::new_shared())).unwrap();
    on(4, || drop(pool.get()));
    assert_eq!(tables(&pool), [4], "one list and one table");
    on(4, || swap(pool.handle(), pages::new_distributed())).unwrap();
    assert_eq!(tables(&pool), [7]);
    on(9, || drop(first));
    assert!(tables(&pool).is_empty());
}

#[test]
fn co_47_users_are_asked_first_and_then_the_pools_below() {
    let _alone = alone();
    for make in [pages::shared as Make, pages::distributed] {
        let calls: Arc<Mutex<Vec<&'static str>>> = Arc::default();
        let asked = || std::mem::take(&mut *calls.lock().unwrap());
        let pool = make(Supply::system(40));
        pool.set_attribute(Attribute::Batch, 10);
        pool.set_attribute(Attribute::Chunk, 1);
        let below = make(Supply::under(pool.handle(), usize::MAX));
        let first = cache(8, "one", pool.get_batch(15), &calls);
        let second = cache(9, "two", pool.get_batch(15), &calls);
        let three = cache(1, "three", below.get_batch(10), &calls);
        let attached =
            (pool.attach(first.handle()), pool.attach(second.handle()), below.attach(three.handle()));
        assert_eq!((pool.free(), below.free(), below.used()), (0, 0, 10));
        // One table has its users in the order of their ids. The table of VP 8 comes before that of VP 9.
        let is_shared = pool.members(8).unwrap().users != [first.handle()];
        let in_order = !is_shared || first.handle() < second.handle();
        let [one, two] = if in_order { ["one", "two"] } else { ["two", "one"] };
        let get = |count| on(8, || pool.get_batch(count));
        let mut pages = get(1);
        assert_eq!(asked(), [one], "its table comes first, and it has enough");
        pages.append(&mut get(9));
        assert_eq!(asked(), [""; 0], "a batch came");
        pages.append(&mut get(1));
        assert_eq!(asked(), [one, two], "the last five, and five more");
        pages.append(&mut get(19));
        assert_eq!((asked().last(), pages.len()), (Some(&two), 30));
        pages.append(&mut get(10));
        assert_eq!((asked().last(), pages.len(), below.used()), (Some(&"three"), 40, 0));
        assert!(on(8, || pool.get()).is_none());
        assert_eq!(asked(), [one, two, "three"], "all were asked");
        drop(attached);
        assert!(pool.get().is_none() && asked().is_empty());
    }
}

#[test]
fn co_44_a_pool_below_has_a_limit_of_its_own_and_returns_its_pages() {
    let _alone = alone();
    for make in [pages::shared as Make, pages::distributed] {
        let calls = Arc::default();
        let top = make(Supply::system(100));
        let tenant = make(Supply::under(top.handle(), 10));
        assert_eq!((tenant.parent(), top.parent()), (Some(top.handle()), None));
        let mut pages = tenant.get_batch(20);
        assert_eq!((pages.len(), tenant.used()), (10, 10));
        // At its own limit, its own users are asked.
        let (own, other) =
            (cache(0, "own", pages.split_off(8), &calls), cache(0, "other", Vec::new(), &calls));
        let attached = (tenant.attach(own.handle()), top.attach(other.handle()));
        pages.push(tenant.get().unwrap());
        assert_eq!(*calls.lock().unwrap(), ["own"]);
        // If the pool above is short, all are asked.
        let most = top.get_batch(100);
        assert_eq!((most.len(), tenant.free()), (91, 0), "the free page of the tenant came, too");
        assert!(calls.lock().unwrap().contains(&"other"));
        drop((attached, own, most));
        drop(pages);
        Owned::destroy(tenant).wait().unwrap();
        assert_eq!(top.get_batch(200).len(), 100, "the pages of the ended pool came back");
    }
}

#[test]
fn pages_outlive_their_pool() {
    let _alone = alone();
    let pool = pages::distributed(Supply::system(10));
    let (handle, mut page) = (pool.handle(), pool.get_zeroed().unwrap());
    drop(pool);
    page[4095] = 1;
    assert_eq!(handle.try_get().unwrap_err().method(), "try_get");
    assert!(catch_unwind(|| handle.get()).is_err());
    let below = catch_unwind(|| pages::shared(Supply::under(handle, 1)));
    assert!(below.is_err(), "the pool above was destroyed");
    assert_eq!(page[4095], 1);
}

/// A user that gets a page while it is asked, or panics.
struct Nested {
    pool: Handle<dyn PagePool>,
    panics: bool,
    asked: AtomicUsize,
}

impl PageUser for Nested {
    fn give_back(&self, _: usize) -> usize {
        self.asked.fetch_add(1, Ordering::Relaxed);
        assert!(!self.panics, "the user panics");
        assert!(self.pool.get().is_none() && self.pool.reclaim(1) == 0);
        0
    }
}

#[test]
fn a_user_that_gets_a_page_or_panics_harms_only_its_caller() {
    let _alone = alone();
    let pool = pages::distributed(Supply::system(1));
    let page = pool.get().unwrap();
    let user = |panics| Nested { pool: pool.handle(), panics, asked: AtomicUsize::new(0) };
    let nested: Owned<dyn PageUser> = shared(user(false));
    let attached = pool.attach(nested.handle());
    assert!(pool.get().is_none());
    drop(attached);
    let panicky: Owned<dyn PageUser> = shared(user(true));
    let _attached = pool.attach(panicky.handle());
    for _ in 0..2 {
        assert!(catch_unwind(AssertUnwindSafe(|| pool.get())).is_err());
    }
    drop(page);
    assert!(pool.get().is_some());
}

#[test]
fn a_user_that_was_destroyed_is_not_asked() {
    let _alone = alone();
    let calls = Arc::default();
    let pool = pages::shared(Supply::system(1));
    let user = cache(0, "gone", Vec::new(), &calls);
    let _attached = pool.attach(user.handle());
    drop(user);
    let _page = pool.get().unwrap();
    assert!(pool.get().is_none() && calls.lock().unwrap().is_empty());
}

#[test]
fn a_swap_without_pages_is_told_to_callers() {
    let _alone = alone();
    let pool = pages::shared(Supply::system(10));
    Swap::new(pool.handle()).without_state().run(pages::new_distributed()).unwrap();
    let error = pool.try_free().unwrap_err();
    assert!(error.to_string().contains("no pages moved in"), "{error}");
}

/// Threads get, mark and return pages while the pool changes form.
#[test]
fn swaps_keep_all_pages() {
    const THREADS: u8 = 4;
    let _alone = alone();
    // Enough for the pages that threads hold and those that they move at the same time.
    let pool = pages::shared(Supply::system(128));
    pool.set_attribute(Attribute::Threshold, 4);
    pool.set_attribute(Attribute::Batch, 3);
    pool.set_attribute(Attribute::Chunk, 5);
    let below = pages::distributed(Supply::under(pool.handle(), 40));
    let (start, stop) = (Barrier::new(usize::from(THREADS) + 1), AtomicBool::new(false));
    thread::scope(|threads| {
        for thread in 0..THREADS {
            let (pools, start, stop) = ([pool.handle(), below.handle()], &start, &stop);
            threads.spawn(move || {
                start.wait();
                let (mut turn, mut held) = (u32::from(thread), Vec::new());
                while !stop.load(Ordering::Relaxed) {
                    turn = turn.wrapping_add(5);
                    on(turn % VPS, || {
                        // A search may miss pages that others return meanwhile.
                        let pool = pools[turn as usize % 2];
                        let mut page = std::iter::repeat_with(|| pool.get()).find_map(|page| page).unwrap();
                        page.fill(thread);
                        held.push(page);
                    });
                    if held.len() == 4 {
                        assert!(held.iter().all(|page| page.iter().all(|byte| *byte == thread)));
                        on(turn / 7 % VPS, || held.clear());
                    }
                }
            });
        }
        start.wait();
        let swapped = catch_unwind(AssertUnwindSafe(|| {
            for _ in 0..20 {
                swap(pool.handle(), pages::new_distributed()).unwrap();
                swap(below.handle(), pages::new_shared()).unwrap();
                swap(pool.handle(), pages::new_shared()).unwrap();
                swap(below.handle(), pages::new_distributed()).unwrap();
            }
        }));
        stop.store(true, Ordering::Relaxed);
        swapped.unwrap();
    });
    assert_eq!(pool.used(), pool.free() + below.free());
    assert_eq!(below.used(), below.free());
}

#[test]
fn an_adaptive_pool_grows_where_several_vps_call_and_shrinks_when_it_is_quiet() {
    let mut time = virtual_time();
    settings::ALL.set(&settings::QUIET, Duration::from_millis(200)).unwrap();
    let pool = on(0, || pages::adaptive(Supply::system(1000)));
    let (handle, id) = (pool.handle(), Handle::id(pool.handle()));
    let held = pool.get().unwrap();
    let crew = Crew::new(&[0, 1, 2, 3], 256, move |calls| (0..calls).for_each(|_| drop(handle.get())));
    time.with(crew, |time| time.until("the pool is distributed", || form(id) == DISTRIBUTED));
    time.until("the pool shrinks", || form(id) == SHARED);
    drop(held);
    assert_eq!(pool.free(), pool.used());
}

#[test]
fn a_page_of_a_destroyed_pool_returns_to_a_pool_above() {
    let _alone = alone();
    for make in FORMS {
        let top = make(Supply::system(100));
        let mid = make(Supply::under(top.handle(), 20));
        let low = make(Supply::under(mid.handle(), 20));
        let leaf = make(Supply::under(low.handle(), 10));
        let mut pages = leaf.get_batch(10);
        assert_eq!((pages.len(), leaf.used(), low.used()), (10, 10, 20));
        Owned::destroy(leaf).wait().unwrap();
        drop(pages.split_off(5));
        let kept = low.free();
        assert_eq!((low.used(), mid.used()), (20, 20), "the pool above has the pages");
        assert!(kept >= 5, "{kept}");
        // With two dead pools below each other, the pages go to the next one.
        Owned::destroy(low).wait().unwrap();
        drop(pages);
        let pages = mid.get_batch(20);
        assert_eq!((pages.len(), mid.used()), (20, 20), "no page is lost");
        drop(pages);
        mid.give_up(100);
        assert_eq!((mid.used(), mid.free()), (0, 0));
        assert_eq!(top.free(), top.used());
    }
}

#[test]
fn a_page_of_a_pool_that_refuses_calls_is_not_counted_any_longer() {
    let _alone = alone();
    for make in FORMS {
        let top = make(Supply::system(100));
        let tenant = make(Supply::under(top.handle(), 1));
        let page = tenant.get().unwrap();
        let closed = arbitrate(tenant.handle(), |call| call.refuse("closed")).unwrap();
        drop(page);
        drop(closed);
        assert_eq!((tenant.used(), top.free()), (0, top.used()));
        assert!(tenant.get().is_some());
    }
}

/// A user that says that it gave back this many pages, and keeps them.
struct Liar(usize, Arc<AtomicUsize>);

impl PageUser for Liar {
    fn give_back(&self, _: usize) -> usize {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0
    }
}

#[test]
fn users_after_one_that_brings_nothing_are_asked() {
    let _alone = alone();
    for make in FORMS {
        let top = make(Supply::system(3));
        let tenant = make(Supply::under(top.handle(), 5));
        // One pool's users, and then those of a pool below.
        for (number, pool) in [&top, &tenant].into_iter().enumerate() {
            let asked = Arc::new(AtomicUsize::new(0));
            let liars: Vec<_> = [1, usize::MAX, usize::MAX]
                .map(|says| shared::<dyn PageUser, _>(Liar(says, asked.clone())))
                .into();
            let mut attachments = Vec::from_iter(liars.iter().map(|liar| pool.attach(liar.handle())));
            assert!(top.get_batch(4).len() == 3, "{number}");
            let calls = Arc::default();
            let (kept, _) = (tenant.get_batch(3), asked.swap(0, Ordering::Relaxed));
            let honest = cache(31, "honest", kept, &calls);
            attachments.push(pool.attach(honest.handle()));
            assert!(tenant.get().is_some(), "{number}");
            assert!(asked.load(Ordering::Relaxed) <= 3, "each one is asked once");
        }
    }
}

#[test]
fn pools_that_are_attached_in_a_circle_are_asked() {
    let _alone = alone();
    for make in FORMS {
        let (a, b) = (make(Supply::system(1)), make(Supply::system(1)));
        a.attach_pool(b.handle());
        b.attach_pool(a.handle());
        a.attach_pool(a.handle());
        let page = a.get().unwrap();
        assert!(a.get().is_none());
        drop(page);
    }
}
