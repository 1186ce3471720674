//! Prints the remote accesses of each structure of a map under each use: see `count.rs`.
//!
//! ```text
//! cargo run --release -p squall-objects --example map_ranking
//! ```

mod count;

use count::{Count, Structure, TOPOLOGY, Use, count, counted_inside, set_machine};

fn main() {
    set_machine();
    println!(
        "per operation, on {TOPOLOGY}: accesses to another node's memory or to a line that another node"
    );
    println!("wrote last, of all accesses to lines");
    print!("{:16}", "use");
    Structure::ALL.iter().for_each(|structure| print!(" {:>16}", format!("{structure:?}")));
    println!();
    for used in [Use::FirstTouch, Use::Reuse, Use::ReadEverywhere] {
        print!("{:16}", format!("{used:?}"));
        for structure in Structure::ALL {
            let Count { accesses, remote, operations } = count(structure, used);
            let per_operation = |n: u64| n as f64 / operations as f64;
            print!(" {:>7.3} of {:>5.2}", per_operation(remote), per_operation(accesses));
        }
        println!();
    }
    for (name, distributed) in [("shared", false), ("distributed", true)] {
        let (elsewhere, operations) = counted_inside(distributed);
        println!("a {name} counter inside: {:.3} additions elsewhere", elsewhere as f64 / operations as f64);
    }
}
