//! Prints the cost of a load over the cluster size. See `count.rs`.
//!
//! ```text
//! cargo run --release -p squall-objects --example cluster_size
//! ```

mod count;

use count::{Load, SIZES, Subject, TOPOLOGY, curve, set_machine};

fn main() {
    set_machine();
    println!("accesses to another node's memory + copies changed, per 1000 operations, on {TOPOLOGY}");
    print!("{:16} {:>8}", "subject", "changes");
    SIZES.iter().for_each(|vps| print!(" {:>22}", format!("clusters of {vps}")));
    println!();
    for subject in Subject::ALL {
        for changes_of_10k in [10, 100, 1000, 5000] {
            let operations = 100_000;
            let costs = curve(subject, Load { operations, changes_of_10k, seed: 1 });
            let least = costs.iter().map(|cost| cost.total()).min();
            print!("{:16} {:>6.1} %", format!("{subject:?}"), changes_of_10k as f64 / 100.0);
            for cost in costs {
                let per = |count: u64| count as f64 * 1000.0 / operations as f64;
                let mark = if Some(cost.total()) == least { "*" } else { " " };
                let parts = format!("{:.0} + {:.0}", per(cost.remote), per(cost.updates));
                print!(" {parts:>12} {:>8.1}{mark}", per(cost.total()));
            }
            println!();
        }
    }
}
