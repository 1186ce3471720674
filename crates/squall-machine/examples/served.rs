//! Statistics of a server: each worker counts its requests and bytes on its own processor; a monitor sums
//! them for the machine and per node.
//!
//! `cargo run --release -p squall-machine --example served`; try it with
//! `SQUALL_TOPOLOGY=nodes:2,caches:2,cores:2,threads:1`.

use squall_machine::pervp::{PerVpWord, restart_mode};
use squall_machine::{ClusterSize, machine};
use std::thread;

fn main() {
    let (requests, bytes) = (PerVpWord::new(), PerVpWord::new());
    thread::scope(|scope| {
        for worker in 0..4_u64 {
            let (requests, bytes) = (&requests, &bytes);
            scope.spawn(move || {
                for request in 0..100_000_u64 {
                    requests.add(1);
                    bytes.add(request % 1500 + worker);
                }
            });
        }
    });
    println!("{} requests, {} bytes; operations are {}", requests.sum(), bytes.sum(), restart_mode());
    let nodes = machine().clusters(ClusterSize::Node);
    for node in nodes.iter() {
        let members = nodes.members(node);
        let here: u64 = members.iter().map(|&vp| requests.load(vp)).sum();
        println!("{node:?}: {here} requests on {} processors", members.len());
    }
    assert_eq!(requests.sum(), 400_000);
}
