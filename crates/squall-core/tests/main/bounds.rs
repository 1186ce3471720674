//! Tables with a bound: of the environment, of the program, and of the process's address space.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicU64, Ordering};

use squall_core::{CreateError, Handle, Id, Owned, class_of, info_of, shared, tables, try_shared};
use squall_machine::Vp;

use crate::support::alone;

#[squall_macros::interface(crate = squall_core)]
trait Hits: Send + Sync {
    fn add(&self, n: u64) -> u64;
}

struct Central(AtomicU64);

impl Hits for Central {
    fn add(&self, n: u64) -> u64 {
        self.0.fetch_add(n, Ordering::Relaxed) + n
    }
}

fn try_new() -> Result<Owned<dyn Hits>, CreateError> {
    try_shared::<dyn Hits, _>(Central(AtomicU64::new(0)))
}

#[test]
fn the_bound_of_the_environment_is_kept_and_named() {
    if !alone("bounds::the_bound_of_the_environment_is_kept_and_named", &[&[("SQUALL_OBJECTS_MAX", "8000")]])
    {
        return;
    }
    let mut objects = Vec::new();
    let error = loop {
        match try_new() {
            Ok(object) => objects.push(object),
            Err(error) => break error.to_string(),
        }
    };
    for part in ["8192 ids are in use", "the bound is 8192", "SQUALL_OBJECTS_MAX"] {
        assert!(error.contains(part), "{error}");
    }
    assert!(objects.len() > 7_000, "{}", objects.len());
    let sum: u64 = objects.iter().map(|object| object.add(1)).sum();
    assert_eq!(sum, objects.len() as u64);
    // Ids from outside may lie beyond the tables.
    let far: Id = "16000000.1".parse().expect("an id");
    assert!(info_of(far).is_none() && class_of(far).is_none() && tables::callers_of(far).is_empty());
    tables::discard_page_of(Vp::current(), far);
    let stats = tables::stats();
    assert!(stats.reserved_bytes < 16 << 20 || squall_machine::machine().vp_limit() > 200, "{stats:?}");
    assert!(objects.iter().all(|object| object.add(1) == 2));
}

#[test]
fn the_program_sets_the_bound_before_the_first_object() {
    if !alone("bounds::the_program_sets_the_bound_before_the_first_object", &[&[]]) {
        return;
    }
    tables::set_objects_max(10_000).expect("there is no object yet");
    let object = shared::<dyn Hits, _>(Central(AtomicU64::new(0)));
    assert_eq!(object.add(1), 1);
    assert_eq!(tables::set_objects_max(20_000), Err(16_384));
    assert!(Handle::<dyn Hits>::find(Handle::id(object.handle())).is_some());
}

/// Limits the addresses of this process to `left` more bytes. Returns whether the process sees the limit.
fn limit_addresses(left: usize) -> bool {
    let limit = squall_sys::pages::mapped_bytes().expect("/proc is there") + left;
    let limits = libc::rlimit { rlim_cur: limit as u64, rlim_max: limit as u64 };
    // SAFETY: setrlimit(2) with a limit of our own.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limits) }, 0);
    squall_sys::pages::address_limit() == Some(limit)
}

#[test]
#[cfg_attr(any(squall_asan, squall_tsan), ignore = "the sanitizer itself needs addresses")]
fn objects_work_in_a_process_with_few_addresses() {
    const MANY: &[(&str, &str)] = &[("SQUALL_TOPOLOGY", "cores:32")];
    if !alone("bounds::objects_work_in_a_process_with_few_addresses", &[&[], MANY]) {
        return;
    }
    if !limit_addresses(256 << 20) {
        return eprintln!("SKIP the emulator hides the limit");
    }
    let objects: Vec<_> = (0..1_000).map(|_| try_new().expect("there are addresses")).collect();
    assert!(objects.iter().all(|object| object.add(1) == 1));
    assert!(tables::stats().reserved_bytes <= 32 << 20, "{:?}", tables::stats());
}

#[test]
fn every_vp_gets_ids_where_the_tables_have_fewer_blocks_than_vps() {
    const MANY: &[(&str, &str)] = &[("SQUALL_TOPOLOGY", "cores:32"), ("SQUALL_OBJECTS_MAX", "8192")];
    if !alone("bounds::every_vp_gets_ids_where_the_tables_have_fewer_blocks_than_vps", &[MANY]) {
        return;
    }
    let make = |vp| squall_machine::Vp::with_vp(squall_machine::Vp::new(vp), try_new).unwrap();
    let objects: Vec<_> = (0..32).flat_map(|vp| [make(vp), make(vp)]).map(|made| made.unwrap()).collect();
    assert!(objects.iter().all(|object| object.add(1) == 1));
    drop(objects);
    squall_rcu::barrier().unwrap();
    // One VP can have nearly all ids, except those that other VPs keep.
    let many: Vec<_> = (0..7_000).map(|_| make(31).expect("ids are free")).collect();
    assert!(many.iter().all(|object| object.add(1) == 1));
}

#[test]
#[cfg_attr(any(squall_asan, squall_tsan), ignore = "the sanitizer itself needs addresses")]
fn an_error_for_want_of_addresses_names_the_numbers() {
    const ALL: &[(&str, &str)] = &[("SQUALL_OBJECTS_MAX", "16777216")];
    if !alone("bounds::an_error_for_want_of_addresses_names_the_numbers", &[ALL]) {
        return;
    }
    if !limit_addresses(256 << 20) {
        return eprintln!("SKIP the emulator hides the limit");
    }
    let Err(CreateError::OutOfMemory(cause)) = try_new().map(drop) else { panic!("it fits") };
    assert_eq!(cause.kind(), ErrorKind::OutOfMemory);
    let text = cause.to_string();
    for part in ["the tables need", "MiB are in use", "SQUALL_OBJECTS_MAX"] {
        assert!(text.contains(part), "{text}");
    }
}
