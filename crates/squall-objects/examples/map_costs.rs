//! Costs of a map's operations in each form, in nanoseconds: the constants of the policy of adaptive maps
//! (`src/map/policy.rs`).
//!
//! One thread runs them. With `copies` it moves from node to node of a virtual machine, so no cache line
//! moves; the policy adds that cost. Each figure is the least of many rounds, since other load only adds to
//! it.
//!
//! ```text
//! cargo run --release -p squall-objects --example map_costs
//! cargo run --release -p squall-objects --example map_costs -- copies
//! ```

use std::hint::black_box;
use std::thread;
use std::time::Instant;

use foldhash::fast::FixedState;
use squall_adapt::control;
use squall_core::Handle;
use squall_machine::{ClusterSize, Machine, Vp};
use squall_objects::map::{self, Map, MapExt};

const NODES: u32 = 4;
const KEYS: u64 = 1000;
const ROUNDS: usize = 400;

type Hasher = FixedState;
type MapHandle = Handle<dyn Map<u64, u64, Hasher>>;
type OwnedMap = map::OwnedMap<u64, u64, Hasher>;

fn on<T>(node: u32, f: impl FnOnce() -> T) -> T {
    Vp::with_vp(Vp::new(node * 2), f).expect("it is a processor of the machine")
}

/// Returns the least time of one call, over many rounds. Each round begins with `before`.
fn least(before: impl Fn(), call: impl Fn(u64)) -> f64 {
    let round = || {
        before();
        let begun = Instant::now();
        (0..KEYS).for_each(&call);
        begun.elapsed().as_secs_f64() * 1e9 / KEYS as f64
    };
    (0..ROUNDS).map(|_| round()).fold(f64::INFINITY, f64::min)
}

fn read(handle: MapHandle, key: u64) {
    black_box(handle.with(&key, |value| *value));
}

/// Prints the cost of a read and of a write.
fn read_and_write(of: &str, handle: MapHandle) {
    let looked = least(|| (), |key| read(handle, key));
    // A typical load of writes: half of them change a value, the others insert or remove an entry.
    let updated = least(|| (), |key| _ = black_box(handle.update(&key, |value| value + 1)));
    let moved = least(|| (), |key| _ = black_box((handle.remove(&key), handle.insert(key, 1)))) / 2.0;
    println!("{of}: read {looked:.1} ns, write {:.1} ns", (updated + moved) / 2.0);
}

/// Lets another thread take a map's lock from its owner until the lock has no owner any more.
fn disown(map: &OwnedMap) {
    let handle = map.handle();
    for times in [9, 513, (1 << 15) + 1, (1 << 21) + 1] {
        (0..times).for_each(|_| _ = black_box(handle.set(0, 0)));
        thread::scope(|threads| _ = threads.spawn(|| handle.set(0, 0)));
    }
}

/// Prints the cost of a swap from the locked form to a table and back, by the number of entries.
fn swapped(map: &OwnedMap, entries: u64) {
    (0..entries).for_each(|key| _ = map.handle().set(key, key));
    let to = |form| {
        let begun = Instant::now();
        control::swap(Handle::id(map.handle()), form).expect("no other swap is under way");
        begun.elapsed().as_secs_f64() * 1e9
    };
    let both = (0..50).map(|_| (to(map::SHARED), to(map::SMALL)));
    let least =
        both.fold((f64::INFINITY, f64::INFINITY), |least, now| (least.0.min(now.0), least.1.min(now.1)));
    println!("swap of {entries} entries: to a table {:.0} ns, back {:.0} ns", least.0, least.1);
}

fn main() {
    squall_adapt::engine::set_thread(false);
    match std::env::args().nth(1).as_deref() {
        None => forms(),
        Some("copies") => copies(),
        Some(other) => {
            eprintln!("unknown argument `{other}`: give `copies` or no argument");
            std::process::exit(2);
        }
    }
}

fn forms() {
    let owned = map::locked_with(0, Hasher::default());
    let shared = map::shared_with(0, Hasher::default());
    let small = map::adaptive_with(0, Hasher::default());
    for (of, map) in
        [("locked, by its owner", &owned), ("shared", &shared), ("locked, without an owner", &small)]
    {
        (0..KEYS).for_each(|key| _ = map.handle().set(key, key));
        if of.ends_with("without an owner") {
            disown(map);
        }
        read_and_write(of, map.handle());
    }
    [16, 1024, 8192, 65_536].iter().for_each(|entries| swapped(&small, *entries));
}

fn copies() {
    let spec = format!("nodes:{NODES},cores:2").parse().expect("a valid machine");
    Machine::set_virtual(spec).expect("no thread has used the machine yet");
    let shared = map::shared_with(0, Hasher::default());
    let copied = map::replicated_with(0, ClusterSize::Node, Hasher::default());
    for handle in [shared.handle(), copied.handle()] {
        (0..KEYS).for_each(|key| _ = handle.set(key, key));
    }
    let (table, copies) = (shared.handle(), copied.handle());
    let written = least(|| (), |key| _ = table.set(key, key));
    let looked = least(|| (), |key| read(table, key));
    let alone = least(|| (), |key| _ = copies.set(key, key));
    println!("announcement of a write without copies: {:.1} ns", alone - written);
    let mut before = alone;
    for nodes in 1..=NODES {
        let fill = || (0..nodes).for_each(|node| on(node, || (0..KEYS).for_each(|key| read(copies, key))));
        let taken = least(fill, |key| _ = copies.set(key, key));
        println!("probe of a write in the copies of node {nodes}: {:.1} ns", taken - before);
        before = taken;
    }
    let clear = || (0..KEYS).for_each(|key| _ = copies.set(key, key));
    let first = on(1, || least(clear, |key| read(copies, key)));
    let hit = on(1, || least(|| (), |key| read(copies, key)));
    println!("read that finds a copy: {hit:.1} ns");
    println!("copy made by a read: {:.1} ns", first - looked);
}
