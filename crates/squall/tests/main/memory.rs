//! Cost of the tables in address space, pages and core dumps; and a million objects.
//!
//! Each test runs in a process of its own, since it reads figures of the whole process.
#![cfg(all(target_os = "linux", not(miri)))]

use crate::common::{Hits, Log, Shared, Spread, alone, end};
use squall::{CallErrorKind, ClusterSize, Handle, Machine, Owned, Root, Vp, machine};

/// A memory mapping of this process.
#[derive(Debug, Default)]
struct Mapping {
    bytes: usize,
    resident_bytes: usize,
    flags: String,
}

/// Reads the mappings from the kernel.
fn mappings() -> Vec<Mapping> {
    let mut mappings: Vec<Mapping> = Vec::new();
    for line in std::fs::read_to_string("/proc/self/smaps").unwrap().lines() {
        let (key, rest) = line.split_once(' ').unwrap_or((line, ""));
        let kib = || rest.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024;
        match key {
            "Size:" => mappings.last_mut().unwrap().bytes = kib(),
            "Rss:" => mappings.last_mut().unwrap().resident_bytes = kib(),
            "VmFlags:" => mappings.last_mut().unwrap().flags = format!(" {} ", rest.trim()),
            // The first line of a mapping: its addresses.
            _ if !key.ends_with(':') => mappings.push(Mapping::default()),
            _ => {}
        }
    }
    mappings
}

/// The mappings large enough to be tables. The kernel may join them with neighbours.
fn tables() -> Vec<Mapping> {
    mappings().into_iter().filter(|mapping| mapping.bytes >= 128 << 20).collect()
}

fn resident_bytes() -> usize {
    tables().iter().map(|mapping| mapping.resident_bytes).sum()
}

/// Runs `f` on this VP.
fn on<T>(vp: u32, f: impl FnOnce() -> T) -> T {
    Vp::with_vp(Vp::new(vp), f).unwrap()
}

#[test]
#[cfg_attr(squall_global_alloc, ignore = "the allocator's own reservation is as large")]
fn pitfall_19_the_tables_have_no_huge_pages_and_are_in_no_core_dump() {
    if !alone("memory::pitfall_19_the_tables_have_no_huge_pages_and_are_in_no_core_dump") {
        return;
    }
    let before: usize = tables().iter().map(|mapping| mapping.bytes).sum();
    let hits: Owned<dyn Hits> = squall::shared(Shared::default());
    hits.add(1);
    let tables = tables();
    let bytes: usize = tables.iter().map(|mapping| mapping.bytes).sum();
    assert!(bytes - before >= squall::tables::stats().reserved_bytes, "{tables:?}");
    if tables.iter().any(|mapping| mapping.flags.is_empty()) {
        eprintln!("SKIP: this kernel does not say what flags a mapping has");
        return;
    }
    let huge_pages = std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists();
    for table in &tables {
        assert!(table.flags.contains(" dd "), "in core dumps: {table:?}");
        assert!(!huge_pages || table.flags.contains(" nh "), "with huge pages: {table:?}");
    }
    end(hits);
}

#[test]
fn to_08_tables_cost_pages_only_where_they_are_used_and_give_them_back() {
    if !alone("memory::to_08_tables_cost_pages_only_where_they_are_used_and_give_them_back") {
        return;
    }
    Machine::set_virtual("nodes:4,cores:16".parse().unwrap()).unwrap();
    let page = 64 << 10; // The largest base page of Linux on these processors.
    let objects: Vec<Owned<dyn Hits>> =
        on(0, || (0..512).map(|_| Spread::new(&Log::default()).create(ClusterSize::Machine)).collect());
    let made = resident_bytes();
    // Creating objects touches a page or two of the global table and no local table.
    assert!(made <= 4 * page, "{made} bytes for {} objects", objects.len());
    // Each VP that calls pays for the pages of its own table.
    let call = |vp: u32| on(vp, || objects.iter().for_each(|hits| hits.add(1)));
    call(0);
    let one = resident_bytes() - made;
    assert!(one > 0 && one <= 2 * page, "{one}");
    (1..64).for_each(call);
    let all = resident_bytes() - made;
    assert!(all >= 63 * 4096 && all <= 64 * 2 * page, "{all}");
    // Pages of local tables can be discarded at any time; the global table stays.
    squall::tables::discard(Vp::new(0));
    assert!(resident_bytes() - made < all);
    squall::tables::discard_all();
    let left = resident_bytes();
    assert!(left <= made, "{left} bytes after, {made} bytes before the first call");
    (0..64).for_each(call);
    assert!(objects.iter().all(|hits| hits.total() == 2 * 64));
    objects.into_iter().for_each(end);
}

#[test]
fn co_24_a_great_many_objects_live_at_once_and_all_end() {
    if !alone("memory::co_24_a_great_many_objects_live_at_once_and_all_end") {
        return;
    }
    // A million in an optimised build.
    let count = if cfg!(debug_assertions) { 100_000_u64 } else { 1_000_000 };
    let log = Log::default();
    let first = squall::tables::stats();
    let mut objects: Vec<Owned<dyn Hits>> = (0..count).map(|_| squall::shared(Shared::new(&log))).collect();
    objects.iter().zip(0..).for_each(|(hits, n)| hits.add(n));
    assert!(objects.iter().zip(0..).all(|(hits, n)| hits.total() == n));
    let stats = squall::tables::stats();
    assert_eq!(stats.objects_count - first.objects_count, objects.len());
    assert!(stats.slots_count >= objects.len());
    let handles: Vec<Handle<dyn Hits>> = objects.iter().map(Owned::handle).collect();
    let mut ids: Vec<_> = handles.iter().map(|hits| Handle::id(*hits)).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), handles.len());
    let last = Owned::destroy(objects.pop().unwrap());
    drop(objects);
    assert!(
        handles.iter().all(|hits| hits.try_total().is_err_and(|e| e.reason() == CallErrorKind::Destroyed))
    );
    last.wait().unwrap();
    while log.roots_dropped() as u64 != count {
        squall::rcu::barrier().unwrap();
    }
    assert_eq!(squall::tables::stats().objects_count, first.objects_count);
    // New objects reuse the slots. A few new slots are needed, since VPs have lists of their own and threads
    // migrate.
    let again: Vec<Owned<dyn Hits>> = (0..count).map(|_| squall::shared(Shared::new(&log))).collect();
    let blocks = machine().vp_limit() * 512;
    assert!(squall::tables::stats().slots_count <= 2 * stats.slots_count + blocks);
    assert!(handles.iter().all(|hits| hits.try_add(1).is_err()));
    assert!(again.iter().all(|hits| hits.total() == 0));
}
