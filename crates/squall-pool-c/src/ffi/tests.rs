//! The border: each misuse returns its value, and a pool of two nodes keeps the promises of the listings.

use super::*;
use std::ffi::CString;
use std::ptr::null;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

type Buffer = [c_char; POOL_KEY_BYTES];

/// Makes a host name that no other test has.
fn host_name() -> CString {
    static LAST: AtomicU32 = AtomicU32::new(0);
    CString::new(format!("pool-c-{}-{}", std::process::id(), LAST.fetch_add(1, Relaxed))).unwrap()
}

fn last() -> (SquallCode, String) {
    // SAFETY: the text is valid until the next call of this thread.
    let text = unsafe { CStr::from_ptr(squallLastError()) };
    (squallLastCode(), text.to_str().unwrap().to_owned())
}

/// Checks the failure of the last call: its code, and a part of its sentence.
#[track_caller]
fn failed(code: SquallCode, part: &str) {
    let (found, text) = last();
    assert_eq!(found, code, "{text}");
    assert!(text.contains(part), "{text:?} does not contain {part:?}");
}

#[track_caller]
fn good<T>(pointer: *mut T) -> *mut T {
    assert!(!pointer.is_null(), "{:?}", last());
    assert_eq!(last(), (SquallCode::Ok, String::new()));
    pointer
}

fn group_key() -> Buffer {
    let mut key = [0; POOL_KEY_BYTES];
    // SAFETY: the buffer has as many bytes.
    assert_eq!(unsafe { squallGroupKey(33, key.as_mut_ptr()) }, 0);
    key
}

/// Two nodes of a group.
struct Two {
    first: *mut SquallNode,
    second: *mut SquallNode,
}

impl Two {
    fn new() -> Two {
        let (host_name, key) = (host_name(), group_key());
        // SAFETY: texts with an end.
        let first = good(unsafe { squallNodeFound(host_name.as_ptr(), key.as_ptr()) });
        // SAFETY: texts with an end, and null for a random name.
        let second = good(unsafe { squallNodeJoin(null(), key.as_ptr(), host_name.as_ptr()) });
        Two { first, second }
    }

    /// Makes a pool with a facade at both nodes.
    fn pool(&self, name: &CStr) -> (*mut Pool, *mut Pool) {
        // SAFETY: a text with an end.
        let here = good(unsafe { poolCreate(self.first, name.as_ptr()) });
        let key = key_of(here);
        // SAFETY: texts with an end.
        let there = good(unsafe { poolInitFacade(self.second, name.as_ptr(), key.as_ptr()) });
        (here, there)
    }
}

impl Drop for Two {
    fn drop(&mut self) {
        squallNodeFree(self.second);
        squallNodeFree(self.first);
    }
}

fn key_of(pool: *mut Pool) -> Buffer {
    let mut key = [0; POOL_KEY_BYTES];
    // SAFETY: the buffer has as many bytes.
    assert_eq!(unsafe { poolKey(pool, 33, key.as_mut_ptr()) }, 0, "{:?}", last());
    key
}

fn add(pool: *mut Pool, element: &[u8]) -> c_int {
    // SAFETY: the bytes of the slice.
    unsafe { poolAdd(pool, element.len() as c_int, element.as_ptr().cast()) }
}

fn get(pool: *mut Pool, buffer: &mut [u8]) -> c_int {
    // SAFETY: the bytes of the slice.
    unsafe { poolGet(pool, buffer.len() as c_int, buffer.as_mut_ptr().cast()) }
}

#[test]
fn results_are_those_of_the_listings() {
    let two = Two::new();
    let (here, there) = two.pool(c"/jobs");
    let mut buffer = [7; 8];
    assert_eq!((poolSize(here), get(there, &mut buffer)), (0, -1));
    failed(SquallCode::Empty, "/jobs");

    assert_eq!(add(here, b"eleven char"), 0);
    // Larger than the buffer: the buffer is unchanged, and the element stays.
    assert_eq!((get(there, &mut buffer), buffer), (-2, [7; 8]));
    failed(SquallCode::TooLarge, "11 bytes");
    assert_eq!(poolSize(there), 1);
    let mut large = [7; 12];
    assert_eq!(get(there, &mut large), 11);
    assert_eq!(&large, b"eleven char\x07");

    // An element without bytes is one.
    // SAFETY: null for no bytes.
    assert_eq!(unsafe { poolAdd(here, 0, null()) }, 0);
    assert_eq!(poolSize(there), 1);
    // SAFETY: null for no bytes.
    assert_eq!(unsafe { poolGet(there, 0, null_mut()) }, 0);
    assert_eq!(get(there, &mut buffer), -1);

    // A shutdown gives the elements away, and the last one loses them.
    assert_eq!((add(there, b"a"), add(there, b"b")), (0, 0));
    assert_eq!(poolShutdown(there), 0);
    assert_eq!(poolSize(here), 2);
    assert_eq!(get(here, &mut buffer), 1);
    let key = key_of(here);
    assert_eq!(poolShutdown(here), -1);
    assert_eq!(last().0, SquallCode::Ok);

    // Now the pool does not exist, and its name is free.
    // SAFETY: texts with an end.
    assert!(unsafe { poolInitFacade(two.second, c"/jobs".as_ptr(), key.as_ptr()) }.is_null());
    failed(SquallCode::Refused, "pool /jobs does not exist, or has another key");
    // SAFETY: a text with an end.
    let again = good(unsafe { poolCreate(two.first, c"/jobs".as_ptr()) });
    assert_eq!((poolSize(again), poolShutdown(again)), (0, -1));
}

#[test]
fn localities_are_set_from_any_facade() {
    let two = Two::new();
    let (here, there) = two.pool(c"/near");
    let (from, to) = (good(poolFindLocation(here)), good(poolFindLocation(there)));
    assert_eq!(poolFindLocation(here), from);
    // SAFETY: both are locations.
    assert_ne!(unsafe { (*from).data }, unsafe { (*to).data });
    // SAFETY: both are locations, in all calls below.
    unsafe {
        poolSetLocality(there, from, to, 5);
        assert_eq!(last(), (SquallCode::Ok, String::new()));
        poolSetLocality(there, from, to, -1);
        failed(SquallCode::Argument, "negative");
        poolSetLocality(there, null(), to, 5);
        failed(SquallCode::Argument, "`pool_location_from` is null");
        poolSetLocality(there, from, null(), 5);
        failed(SquallCode::Argument, "`pool_location_to` is null");
        let other = PoolLocation { data: [1; 64] };
        poolSetLocality(there, from, &other, 5);
        failed(SquallCode::Argument, "all 64");
        poolSetLocality(null_mut(), from, to, 5);
        failed(SquallCode::Handle, "pool");
    }
    assert_eq!(poolShutdown(there), 0);
    assert!(poolFindLocation(there).is_null());
    failed(SquallCode::Handle, "pool");
}

#[test]
fn wrong_pointers_are_unknown() {
    let two = Two::new();
    let (here, there) = two.pool(c"/a");
    assert_eq!(poolShutdown(there), 0);
    let wrong = [null_mut(), there, two.first.cast(), (&raw mut *Box::leak(Box::new(0_u64))).cast()];
    for pool in wrong {
        let mut buffer = [0; 64];
        let text = buffer.as_mut_ptr().cast();
        let failures = [add(pool, b"x"), get(pool, &mut buffer), poolSize(pool), poolSetLimit(pool, 1)];
        assert_eq!(failures, [-1; 4]);
        failed(SquallCode::Handle, "the pool is unknown");
        // SAFETY: the buffer has as many bytes.
        assert_eq!((unsafe { poolKey(pool, 64, text) }, poolShutdown(pool)), (-1, -2));
        failed(SquallCode::Handle, "the pool is unknown");
    }
    for node in [null_mut(), here.cast()] {
        let mut buffer: Buffer = [0; POOL_KEY_BYTES];
        // SAFETY: texts with an end, and the buffer has as many bytes.
        unsafe {
            assert!(poolCreate(node, c"/b".as_ptr()).is_null());
            failed(SquallCode::Handle, "the node is unknown");
            assert!(poolInitFacade(node, c"/b".as_ptr(), group_key().as_ptr()).is_null());
            failed(SquallCode::Handle, "the node is unknown");
            assert_eq!(squallNodeRight(node, 33, buffer.as_mut_ptr()), -1);
            assert_eq!(squallNodeTakeRight(node, group_key().as_ptr()), -1);
        }
        assert_eq!((squallNodeLeave(node), squallNodeFree(node)), (-1, -1));
        failed(SquallCode::Handle, "the node is unknown");
    }
    // The handles of a node's pools end with it.
    assert_eq!((poolSize(here), squallNodeFree(two.first)), (0, 0));
    assert_eq!(poolSize(here), -1);
    failed(SquallCode::Handle, "has ended");
    assert_eq!(squallNodeFree(two.first), -1);
}

#[test]
fn wrong_arguments_have_their_value() {
    let two = Two::new();
    let (here, _) = two.pool(c"/a");
    let mut buffer = [9_u8; 64];
    assert_eq!(add(here, b"x"), 0);
    // SAFETY: null, or memory of the given size, or a negative size.
    unsafe {
        assert_eq!(poolAdd(here, 1, null()), -1);
        failed(SquallCode::Argument, "`value` is null");
        assert_eq!(poolAdd(here, -1, buffer.as_ptr().cast()), -1);
        failed(SquallCode::Argument, "negative");
        assert_eq!(poolGet(here, 1, null_mut()), -1);
        failed(SquallCode::Argument, "`found_value` is null");
        assert_eq!(poolGet(here, c_int::MIN, buffer.as_mut_ptr().cast()), -1);
        failed(SquallCode::Argument, "negative");
        assert_eq!(poolKey(here, 32, buffer.as_mut_ptr().cast()), -1);
        failed(SquallCode::TooLarge, "33 bytes");
        assert_eq!(poolKey(here, 33, null_mut()), -1);
        failed(SquallCode::Argument, "null");
        assert_eq!(squallGroupKey(-1, buffer.as_mut_ptr().cast()), -1);
        failed(SquallCode::Argument, "negative");
    }
    assert_eq!(poolSetLimit(here, -1), -1);
    failed(SquallCode::Argument, "negative");
    // No failed call took the element, or wrote a byte.
    assert_eq!((poolSize(here), buffer), (1, [9; 64]));
    let huge = vec![1; 1_044_481];
    assert_eq!(add(here, &huge), -1);
    failed(SquallCode::TooLarge, "1044480");
    assert_eq!(add(here, &huge[1..]), 0);
    assert_eq!(poolSetLimit(here, 60_000), 0);
    assert_eq!(poolSize(here), 2);
}

#[test]
fn wrong_names_keys_and_rights_have_their_value() {
    let two = Two::new();
    let (here, there) = two.pool(c"/a");
    let key = key_of(here);
    assert_eq!(key, key_of(there));
    let create = |node, name: &CStr| {
        // SAFETY: a text with an end.
        unsafe { poolCreate(node, name.as_ptr()) }
    };
    let init = |name: &CStr, key: &[c_char]| {
        // SAFETY: texts with an end.
        unsafe { poolInitFacade(two.second, name.as_ptr(), key.as_ptr()) }
    };
    assert!(create(two.first, c"/a").is_null());
    failed(SquallCode::Refused, "pool /a exists");
    let long = CString::new(format!("/{}", "x".repeat(252))).unwrap();
    for name in [c"", c"/", c"a", c"/a//b", c"/\xff", &long] {
        assert!(create(two.first, name).is_null());
        assert_eq!(last().0, SquallCode::Argument);
        assert!(init(name, &key).is_null());
        assert_eq!(last().0, SquallCode::Argument);
    }
    assert!(init(c"/b", &key).is_null());
    failed(SquallCode::Refused, "pool /b does not exist");
    assert!(init(c"/a", &group_key()).is_null());
    failed(SquallCode::Refused, "pool /a does not exist, or has another key");
    assert!(init(c"/a", &key[1..]).is_null());
    failed(SquallCode::Argument, "32 hexadecimal digits");
    // SAFETY: null, or a text with an end.
    unsafe {
        assert!(poolCreate(two.first, null()).is_null());
        failed(SquallCode::Argument, "`name` is null");
        assert!(poolInitFacade(two.second, c"/a".as_ptr(), null()).is_null());
        failed(SquallCode::Argument, "`key` is null");
    }

    // The second node gets the right of the first one.
    assert!(create(two.second, c"/b").is_null());
    failed(SquallCode::Refused, "squallNodeTakeRight");
    let mut right: Buffer = [0; POOL_KEY_BYTES];
    // SAFETY: texts with an end, and the buffer has as many bytes.
    unsafe {
        assert_eq!(squallNodeRight(two.second, 33, right.as_mut_ptr()), -1);
        failed(SquallCode::Refused, "no right");
        assert_eq!(squallNodeRight(two.first, 33, right.as_mut_ptr()), 0);
        assert_eq!(squallNodeTakeRight(two.second, c"no right".as_ptr()), -1);
        failed(SquallCode::Argument, "the right");
        assert_eq!(squallNodeTakeRight(two.second, group_key().as_ptr()), 0);
    }
    assert!(create(two.second, c"/b").is_null());
    failed(SquallCode::Refused, "pool /b");
    // SAFETY: a text with an end.
    assert_eq!(unsafe { squallNodeTakeRight(two.second, right.as_ptr()) }, 0);
    good(create(two.second, c"/b"));
}

#[test]
fn wrong_groups_have_their_value() {
    let (taken, key) = (host_name(), group_key());
    // SAFETY: null, or texts with an end.
    unsafe {
        let node = good(squallNodeFound(taken.as_ptr(), key.as_ptr()));
        assert!(squallNodeFound(taken.as_ptr(), key.as_ptr()).is_null());
        failed(SquallCode::Refused, "another process has the name");
        assert!(squallNodeFound(c"".as_ptr(), key.as_ptr()).is_null());
        assert_eq!(last().0, SquallCode::Argument);
        assert!(squallNodeFound(host_name().as_ptr(), c"key".as_ptr()).is_null());
        failed(SquallCode::Argument, "32 hexadecimal digits");
        assert!(squallNodeFound(null(), key.as_ptr()).is_null());
        failed(SquallCode::Argument, "`host_name` is null");
        assert!(squallNodeFound(host_name().as_ptr(), null()).is_null());
        failed(SquallCode::Argument, "`group_key` is null");
        assert!(squallNodeJoin(null(), key.as_ptr(), null()).is_null());
        failed(SquallCode::Argument, "`seed_name` is null");
        assert!(squallNodeJoin(taken.as_ptr(), key.as_ptr(), taken.as_ptr()).is_null());
        failed(SquallCode::Refused, "another process has the name");
        // A host name has at most 80 bytes. A name that no node can have is not waited for.
        let long = [80, 81].map(|bytes| CString::new("x".repeat(bytes)).unwrap());
        for wrong in [c"", c"a\nb", c"\xff", &long[1]] {
            assert!(squallNodeFound(wrong.as_ptr(), key.as_ptr()).is_null());
            assert_eq!(last().0, SquallCode::Argument, "{:?}", last());
            assert!(squallNodeJoin(wrong.as_ptr(), key.as_ptr(), taken.as_ptr()).is_null());
            assert_eq!(last().0, SquallCode::Argument, "{:?}", last());
            assert!(squallNodeJoin(null(), key.as_ptr(), wrong.as_ptr()).is_null());
            assert_eq!(last().0, SquallCode::Argument, "{:?}", last());
            assert!(squallNodeFound(host_name().as_ptr(), wrong.as_ptr()).is_null());
            assert_eq!(last().0, SquallCode::Argument, "{:?}", last());
        }
        assert_eq!(squallNodeFree(good(squallNodeFound(long[0].as_ptr(), key.as_ptr()))), 0);
        assert_eq!(squallNodeFree(node), 0);
    }
}

#[test]
fn a_node_that_leaves_gives_the_elements_of_its_facades_away() {
    let two = Two::new();
    let (here, there) = two.pool(c"/a");
    for element in [b"1", b"2", b"3"] {
        assert_eq!(add(there, element), 0);
    }
    assert_eq!(squallNodeLeave(two.second), 0, "{:?}", last());
    assert_eq!((poolSize(there), poolSize(here)), (-1, 3));
    let mut found: Vec<u8> = (0..3)
        .map(|_| {
            let mut buffer = [0];
            assert_eq!(get(here, &mut buffer), 1);
            buffer[0]
        })
        .collect();
    found.sort_unstable();
    assert_eq!((&*found, get(here, &mut [0])), (&b"123"[..], -1));
}

#[test]
fn a_shutdown_beyond_its_limit_goes_on() {
    let two = Two::new();
    let (here, there) = two.pool(c"/a");
    assert_eq!((add(there, b"1"), poolSetLimit(there, 0)), (0, 0));
    // The first calls may have their end within no time.
    let end = loop {
        match poolShutdown(there) {
            -2 => failed(SquallCode::TimedOut, "more time"),
            end => break end,
        }
        assert_eq!((add(there, b"2"), last().0), (-1, SquallCode::Closed));
        assert_eq!(poolSetLimit(there, 60_000), 0);
    };
    assert_eq!((end, poolSize(here)), (0, 1));
    assert_eq!(poolShutdown(there), -2);
    failed(SquallCode::Handle, "the pool is unknown");
}

#[test]
fn threads_share_facades_and_each_element_goes_to_one() {
    const EACH: u32 = 200;
    let two = Two::new();
    let (here, there) = two.pool(c"/a");
    let facades = [here.addr(), there.addr(), here.addr(), there.addr()];
    let use_facade = |number: u32, facade: usize| {
        let pool: *mut Pool = pointer(Handle(facade));
        let mut found = Vec::new();
        for element in number * EACH..(number + 1) * EACH {
            assert_eq!(add(pool, &element.to_le_bytes()), 0, "{:?}", last());
            // At most as many gets as adds have ended, so one element is left for this one.
            let mut buffer = [0; 4];
            assert_eq!(get(pool, &mut buffer), 4, "{:?}", last());
            found.push(u32::from_le_bytes(buffer));
        }
        found
    };
    let use_facade = &use_facade;
    let mut found: Vec<u32> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0_u32..)
            .zip(facades)
            .map(|(number, facade)| scope.spawn(move || use_facade(number, facade)))
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    found.sort_unstable();
    assert!(found.into_iter().eq(0..4 * EACH));
    assert_eq!((poolShutdown(there), poolShutdown(here)), (0, -1));
}

#[test]
fn dp_10_the_creator_may_go_first() {
    let (first_name, second_name, key) = (host_name(), host_name(), group_key());
    // SAFETY: null, or texts with an end.
    unsafe {
        let first = good(squallNodeFound(first_name.as_ptr(), key.as_ptr()));
        let second = good(squallNodeJoin(second_name.as_ptr(), key.as_ptr(), first_name.as_ptr()));
        let here = good(poolCreate(first, c"/a".as_ptr()));
        let pool_key = key_of(here);
        let there = good(poolInitFacade(second, c"/a".as_ptr(), pool_key.as_ptr()));
        assert_eq!((add(here, b"1"), poolShutdown(here), squallNodeLeave(first)), (0, 0, 0));
        assert_eq!(poolSize(there), 1);

        // The key holds, and another node leads.
        let third = good(squallNodeJoin(null(), key.as_ptr(), second_name.as_ptr()));
        let late = good(poolInitFacade(third, c"/a".as_ptr(), pool_key.as_ptr()));
        assert_eq!(get(late, &mut [0]), 1);
        assert_eq!((poolShutdown(there), poolShutdown(late)), (0, -1));
        assert!(poolInitFacade(second, c"/a".as_ptr(), pool_key.as_ptr()).is_null());
        failed(SquallCode::Refused, "does not exist");
        assert_eq!((squallNodeLeave(second), squallNodeLeave(third)), (0, 0));
    }
}

#[test]
fn a_name_is_free_after_the_last_of_several_shutdowns_at_a_time() {
    let two = Two::new();
    for _ in 0..20 {
        // Refused if the claim of the round before is still there.
        let (here, there) = two.pool(c"/a");
        let facades = [here.addr(), there.addr()];
        let ends = std::thread::scope(|scope| {
            let shut = |facade| scope.spawn(move || poolShutdown(pointer(Handle(facade))));
            facades.map(shut).map(|thread| thread.join().unwrap())
        });
        assert!(ends.contains(&-1), "{ends:?}");
        assert!(!ends.contains(&-2), "{ends:?}");
    }
}

/// The options of the first version of the header.
const DEFAULTS: PoolOptions = PoolOptions {
    size: size_of::<PoolOptions>() as c_int,
    strategy: 0,
    bulk: 0,
    idle_events: 0,
    pull_below: 0,
    push_above: 0,
    estimate_step: 0,
    push_margin: 0,
    broadcast_acts: 0,
};

#[test]
fn facades_of_a_pool_have_equal_options() {
    let two = Two::new();
    let one = PoolOptions { strategy: PoolStrategy::Distributed as c_int, bulk: 7, ..DEFAULTS };
    let wrong = [
        (PoolOptions { strategy: PoolStrategy::Centralized as c_int, ..one }, "other options"),
        (PoolOptions { bulk: 8, ..one }, "other options"),
        (DEFAULTS, "other options"),
        (PoolOptions { strategy: 8, ..one }, "`strategy` is 8"),
        (PoolOptions { bulk: -1, ..one }, "`bulk` is negative"),
        (PoolOptions { size: 0, ..one }, "sizeof(PoolOptions)"),
        (PoolOptions { size: -1, ..one }, "sizeof(PoolOptions)"),
        (PoolOptions { size: c_int::MAX, ..one }, "sizeof(PoolOptions)"),
    ];
    // SAFETY: null, or texts with an end and options of their size, in all calls below. Wrong sizes are
    // refused before more than the size is read.
    unsafe {
        let here = good(poolCreateWith(two.first, c"/a".as_ptr(), &one));
        let key = key_of(here);
        for (options, part) in &wrong {
            let init = poolInitFacadeWith(two.second, c"/a".as_ptr(), key.as_ptr(), options);
            assert!(init.is_null());
            let is_other = *part == "other options";
            failed(if is_other { SquallCode::Refused } else { SquallCode::Argument }, part);
            if !is_other {
                assert!(poolCreateWith(two.first, c"/b".as_ptr(), options).is_null());
                failed(SquallCode::Argument, part);
            }
        }
        assert!(poolInitFacade(two.second, c"/a".as_ptr(), key.as_ptr()).is_null());
        failed(SquallCode::Refused, "other options");
        let there = good(poolInitFacadeWith(two.second, c"/a".as_ptr(), key.as_ptr(), &one));
        assert_eq!((add(here, b"1"), get(there, &mut [0])), (0, 1));

        // Null, zeros and the names of the defaults are equal options.
        let here = good(poolCreateWith(two.first, c"/b".as_ptr(), null()));
        let key = key_of(here);
        let named = PoolOptions { strategy: PoolStrategy::Directory as c_int, bulk: 50, ..DEFAULTS };
        for options in [&DEFAULTS as *const PoolOptions, &named, null()] {
            let there = good(poolInitFacadeWith(two.second, c"/b".as_ptr(), key.as_ptr(), options));
            assert_eq!((add(here, b"1"), get(there, &mut [0])), (0, 1));
            assert_eq!(poolShutdown(there), 0);
        }

        // A program that was compiled with a longer struct, at an address for no number.
        let mut longer = [0_u8; 49];
        longer[1..5].copy_from_slice(&48_i32.to_ne_bytes());
        let options: *const PoolOptions = longer.as_ptr().add(1).cast();
        let there = good(poolInitFacadeWith(two.second, c"/b".as_ptr(), key.as_ptr(), options));
        assert_eq!(poolShutdown(there), 0);
        longer[48] = 1;
        let options: *const PoolOptions = longer.as_ptr().add(1).cast();
        assert!(poolInitFacadeWith(two.second, c"/b".as_ptr(), key.as_ptr(), options).is_null());
        failed(SquallCode::Argument, "does not know");
    }
}

#[test]
fn each_strategy_gives_all_elements_out() {
    let two = Two::new();
    for strategy in 0..=7 {
        let options = PoolOptions { strategy, ..DEFAULTS };
        let name = CString::new(format!("/of-{strategy}")).unwrap();
        // SAFETY: texts with an end, and options of their size.
        let (here, there) = unsafe {
            let here = good(poolCreateWith(two.first, name.as_ptr(), &options));
            let key = key_of(here);
            (here, good(poolInitFacadeWith(two.second, name.as_ptr(), key.as_ptr(), &options)))
        };
        for element in 0..10 {
            assert_eq!(add(if element < 5 { here } else { there }, &[element]), 0, "{:?}", last());
        }
        let mut found: Vec<u8> = (0..10)
            .map(|_| {
                let mut buffer = [0];
                assert_eq!(get(there, &mut buffer), 1, "{:?}", last());
                buffer[0]
            })
            .collect();
        found.sort_unstable();
        assert!(found.into_iter().eq(0..10));
        assert_eq!(get(here, &mut [0]), -1);
        failed(SquallCode::Empty, "has no element");
        assert_eq!((poolShutdown(here), poolShutdown(there)), (0, -1));
    }
}

#[test]
fn calls_without_time_lose_and_double_no_element() {
    const ALL: usize = 100;
    let two = Two::new();
    let (here, there) = two.pool(c"/a");
    let mut found = [0; ALL];
    let mut take = |pool: *mut Pool| {
        let mut buffer = [0];
        let size = get(pool, &mut buffer);
        if size >= 0 {
            assert_eq!(size, 1);
            found[usize::from(buffer[0])] += 1;
        }
        size
    };
    // An add without time is done, or may be done.
    assert_eq!((poolSetLimit(here, 0), poolSetLimit(there, 0)), (0, 0));
    let mut sure = [false; ALL];
    for (number, is_sure) in (0_u8..).zip(&mut sure) {
        *is_sure = add(if number % 2 == 0 { here } else { there }, &[number]) == 0;
        assert!(*is_sure || matches!(last().0, SquallCode::Unknown | SquallCode::TimedOut), "{:?}", last());
    }
    // A get without time takes an element, or none.
    for _ in 0..ALL / 4 {
        for pool in [here, there] {
            if take(pool) < 0 {
                assert!(matches!(last().0, SquallCode::Empty | SquallCode::TimedOut), "{:?}", last());
            }
        }
    }
    assert_eq!((poolSetLimit(here, 60_000), poolSetLimit(there, 60_000)), (0, 0));
    while take(here) >= 0 {}
    failed(SquallCode::Empty, "has no element");
    for (found, is_sure) in found.iter().zip(sure) {
        assert!(*found == 1 || (*found == 0 && !is_sure), "{found}");
    }
}

#[test]
fn a_node_that_is_freed_ends_the_calls_of_other_threads() {
    let two = Two::new();
    let (here, there) = two.pool(c"/a");
    let facade = there.addr();
    std::thread::scope(|scope| {
        let (begin, begun) = std::sync::mpsc::channel();
        let user = scope.spawn(move || {
            let pool: *mut Pool = pointer(Handle(facade));
            assert_eq!((add(pool, b"x"), get(pool, &mut [0])), (0, 1), "{:?}", last());
            begin.send(()).unwrap();
            loop {
                let ends = [add(pool, b"x"), get(pool, &mut [0]), poolSize(pool)];
                if ends.contains(&-1) && last().0 == SquallCode::Handle {
                    return poolShutdown(pool);
                }
            }
        });
        begun.recv().unwrap();
        assert_eq!(squallNodeFree(two.second), 0);
        assert_eq!(user.join().unwrap(), -2);
    });
    // The other facade goes on.
    assert_eq!((add(here, b"y"), squallNodeFree(two.second)), (0, -1), "{:?}", last());
    failed(SquallCode::Handle, "the node is unknown");
}

#[test]
fn a_facade_that_two_threads_shut_down_ends_once() {
    let two = Two::new();
    let (here, there) = two.pool(c"/a");
    let mut elements = 0;
    for _ in 0..10 {
        let key = key_of(here);
        // SAFETY: texts with an end.
        let third = good(unsafe { poolInitFacade(two.second, c"/a".as_ptr(), key.as_ptr()) });
        assert_eq!(add(third, b"x"), 0);
        elements += 1;
        let facade = third.addr();
        let ends = std::thread::scope(|scope| {
            let shut = |()| scope.spawn(move || (poolShutdown(pointer(Handle(facade))), last().0));
            [(), ()].map(shut).map(|thread| thread.join().unwrap())
        });
        // The slower thread may find no facade any more.
        assert!(ends.contains(&(0, SquallCode::Ok)), "{ends:?}");
        assert!(
            ends.iter().all(|end| [(0, SquallCode::Ok), (-2, SquallCode::Handle)].contains(end)),
            "{ends:?}"
        );
        assert_eq!(poolSize(there), elements);
    }
}
