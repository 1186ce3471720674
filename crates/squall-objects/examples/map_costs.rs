//! What is done in a map of each form, in nanoseconds: the constants of the policy of adaptive maps (`src/map/policy.rs`). One thread; with
//! `copies` it goes from node to node of a virtual machine, so that no line travels: what that costs the policy adds. The least of many
//! rounds, since whatever else runs only adds to it.
//!
//! `cargo run --release -p squall-objects --example map_costs`, and the same with `-- copies`

use std::hint::black_box;
use std::thread;
use std::time::Instant;

use foldhash::fast::FixedState;
use squall_adapt::control;
use squall_core::Handle;
use squall_machine::{ClusterSize, Machine, Vp};
use squall_objects::map::{self, MapExt, Map};

const NODES: u32 = 4;
const KEYS: u64 = 1000;
const ROUNDS: usize = 400;

type Hasher = FixedState;
type MapHandle = Handle<dyn Map<u64, u64, Hasher>>;
type OwnedMap = map::OwnedMap<u64, u64, Hasher>;

fn on<T>(node: u32, f: impl FnOnce() -> T) -> T {
    Vp::with_vp(Vp::new(node * 2), f).expect("it is a processor of the machine")
}

/// The least time of one of so many calls, of many rounds; before each, what `before` does.
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

/// What a map reads and writes.
fn read_and_write(of: &str, handle: MapHandle) {
    let looked = least(|| (), |key| read(handle, key));
    // Writes as most loads have them: half of them change a value, the others put an entry in or take one out.
    let updated = least(|| (), |key| _ = black_box(handle.update(&key, |value| value + 1)));
    let moved = least(|| (), |key| _ = black_box((handle.remove(&key), handle.insert(key, 1)))) / 2.0;
    println!("{of}: read {looked:.1} ns, write {:.1} ns", (updated + moved) / 2.0);
}

/// Has another thread take a map's lock from its owner until there is none any more.
fn disown(map: &OwnedMap) {
    let handle = map.handle();
    for times in [9, 513, (1 << 15) + 1, (1 << 21) + 1] {
        (0..times).for_each(|_| _ = black_box(handle.set(0, 0)));
        thread::scope(|threads| _ = threads.spawn(|| handle.set(0, 0)));
    }
}

/// What it costs to make a table of one lock's entries and the other way round, by the number of entries.
fn swapped(map: &OwnedMap, entries: u64) {
    (0..entries).for_each(|key| _ = map.handle().set(key, key));
    let to = |form| {
        let begun = Instant::now();
        control::swap(Handle::id(map.handle()), form).expect("nobody else is at it");
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
            eprintln!("`{other}`: what is asked for is `copies`, or nothing");
            std::process::exit(2);
        }
    }
}

fn forms() {
    let owned = map::locked_with(0, Hasher::default());
    let central = map::shared_with(0, Hasher::default());
    let small = map::adaptive_with(0, Hasher::default());
    for (of, map) in
        [("one lock, its owner", &owned), ("a table", &central), ("one lock without an owner", &small)]
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
    let spec = format!("nodes:{NODES},cores:2").parse().expect("it is a machine");
    Machine::set_virtual(spec).expect("nobody has asked for the machine yet");
    let central = map::shared_with(0, Hasher::default());
    let copied = map::replicated_with(0, ClusterSize::Node, Hasher::default());
    for handle in [central.handle(), copied.handle()] {
        (0..KEYS).for_each(|key| _ = handle.set(key, key));
    }
    let (table, copies) = (central.handle(), copied.handle());
    let written = least(|| (), |key| _ = table.set(key, key));
    let looked = least(|| (), |key| read(table, key));
    let alone = least(|| (), |key| _ = copies.set(key, key));
    println!("announce, of a write where there are no copies: {:.1} ns", alone - written);
    let mut before = alone;
    for nodes in 1..=NODES {
        let fill = || (0..nodes).for_each(|node| on(node, || (0..KEYS).for_each(|key| read(copies, key))));
        let taken = least(fill, |key| _ = copies.set(key, key));
        println!("look, of a write for the copies of node {nodes}: {:.1} ns", taken - before);
        before = taken;
    }
    let clear = || (0..KEYS).for_each(|key| _ = copies.set(key, key));
    let first = on(1, || least(clear, |key| read(copies, key)));
    let hit = on(1, || least(|| (), |key| read(copies, key)));
    println!("replicated, of a read that finds a copy: {hit:.1} ns");
    println!("copy, of a read that makes one: {:.1} ns", first - looked);
}
