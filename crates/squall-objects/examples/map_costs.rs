//! What is done in a map that has copies beside what is done in a table, in nanoseconds: the constants of the policy of adaptive maps
//! (`src/map/policy.rs`) that no case of the benchmark shows. One thread, which goes from node to node of a virtual machine, so that no line
//! travels: what that costs the policy adds. The least of many rounds, since whatever else runs only adds to it.
//!
//! `cargo run --release -p squall-objects --example map_costs`

use std::hash::{BuildHasherDefault, DefaultHasher};
use std::hint::black_box;
use std::time::Instant;

use squall_core::CoRef;
use squall_machine::{ClusterSize, Machine, Vp};
use squall_objects::map::{self, Entries, Mapping};

const NODES: u32 = 4;
const KEYS: u64 = 1000;
const ROUNDS: usize = 400;

type Hasher = BuildHasherDefault<DefaultHasher>;
type Co = CoRef<dyn Mapping<u64, u64, Hasher>>;

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

fn read(co: Co, key: u64) {
    black_box(co.read(&key, |value| *value));
}

fn main() {
    let spec = format!("nodes:{NODES},cores:2").parse().expect("it is a machine");
    Machine::set_virtual(spec).expect("nobody has asked for the machine yet");
    let central = map::central_with(0, Hasher::default());
    let copied = map::replicated_with(0, ClusterSize::Node, Hasher::default());
    for co in [central.co(), copied.co()] {
        (0..KEYS).for_each(|key| _ = co.set(key, key));
    }
    let (table, copies) = (central.co(), copied.co());
    let written = least(|| (), |key| _ = table.set(key, key));
    let looked = least(|| (), |key| read(table, key));
    println!("a table: read {looked:.1} ns, write {written:.1} ns");

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
