//! One operation that finds its key, repeated: `hits WAY COUNT` looks up COUNT random keys among 1,000.
//!
//! To get the instructions per operation, count two values of COUNT with callgrind, for WAY and for
//! `nothing`, and divide the differences:
//!
//! `valgrind --tool=callgrind --callgrind-out-file=/dev/null target/release/examples/hits WAY COUNT`

use squall_parts::dhash::{Locking, MasterTable};
use squall_parts::table::Table;
use std::hash::{BuildHasherDefault, Hasher};
use std::hint::black_box;

const KEYS: u64 = 1_000;

/// Hashes numbers only, by one multiplication.
#[derive(Default)]
struct Multiply(u64);

impl Hasher for Multiply {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are numbers")
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = (n ^ (n >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(26);
    }
}

type Hashing = BuildHasherDefault<Multiply>;

const WAYS: &str =
    "nothing, table-read, table-get, read, master-read, find, find-or-allocate, do-op-1, do-op-2";

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (way, count) = (arguments.next(), arguments.next().and_then(|count| count.parse::<u64>().ok()));
    let (Some(way), Some(count)) = (way, count) else {
        eprintln!("usage: hits WAY COUNT, where WAY is one of {WAYS}");
        std::process::exit(2);
    };
    let table = Table::<u64, u64, Hashing>::with_hasher(Hashing::default());
    let master = MasterTable::<u64, u64, u64, Hashing>::with_hasher(Hashing::default(), |_| 0);
    let (here, there) = (master.local(), master.local());
    for key in 0..KEYS {
        table.set(key, key);
        here.find_or_allocate_and_lock(&key, || key, |_, _, _| ());
        if way == "do-op-2" {
            there.find_and_lock(&key, |_, _| ());
        }
    }
    let sum = |sum: &mut u64, _: &u64, part: &mut u64| *sum += *part;
    let hit: &dyn Fn(u64) -> u64 = match &*way {
        "nothing" => &|key| key,
        "table-read" => &|key| table.read(&key, |value| *value).unwrap_or(0),
        "table-get" => &|key| table.get(&key).unwrap_or(0),
        "read" => &|key| here.read(&key, |global| *global).unwrap_or(0),
        "master-read" => &|key| master.read(&key, |global| *global).unwrap_or(0),
        "find" => &|key| here.find_and_lock(&key, |_, part| (*part += 1, *part).1).unwrap_or(0),
        "find-or-allocate" => {
            &|key| here.find_or_allocate_and_lock(&key, || key, |_, _, part| (*part += 1, *part).1)
        }
        "do-op-1" | "do-op-2" => &|key| master.do_op(&key, Locking::All, 0, |_, _| (), sum).unwrap_or(0),
        other => {
            eprintln!("unknown way {other}; expected one of {WAYS}");
            std::process::exit(2);
        }
    };
    let (mut draw, mut seen) = (88_172_645_463_325_252_u64, 0_u64);
    for _ in 0..count {
        draw ^= draw << 13;
        draw ^= draw >> 7;
        draw ^= draw << 17;
        seen = seen.wrapping_add(hit(black_box(draw % KEYS)));
    }
    // Under valgrind, operations use fences in place of `membarrier`.
    println!("{way}: {count}, {}; {:?}", black_box(seen) % 10, squall_rcu::stats().fence);
}
