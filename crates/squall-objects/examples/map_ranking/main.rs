//! Prints the remote accesses of each structure of a map under each use: see `count.rs`.
//!
//! ```text
//! cargo run --release -p squall-objects --example map_ranking
//! ```

mod count;

use count::{Structure, TOPOLOGY, Use, count, counted_inside, set_machine};

fn main() {
    set_machine();
    println!(
        "accesses to another node's memory, or to what another node wrote last, per operation, on {TOPOLOGY}"
    );
    print!("{:16}", "use");
    Structure::ALL.iter().for_each(|structure| print!(" {:>12}", format!("{structure:?}")));
    println!();
    for used in [Use::Alone, Use::ReadEverywhere] {
        print!("{:16}", format!("{used:?}"));
        for structure in Structure::ALL {
            let (remote, operations) = count(structure, used);
            print!(" {:>12.3}", remote as f64 / operations as f64);
        }
        println!();
    }
    for (name, distributed) in [("shared", false), ("distributed", true)] {
        let (elsewhere, operations) = counted_inside(distributed);
        println!("a {name} counter inside: {:.3} additions elsewhere", elsewhere as f64 / operations as f64);
    }
}
