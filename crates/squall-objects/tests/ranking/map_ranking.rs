//! EX-K5, EX-K7 and X-24: the nearest structure under each use. Each structure is the best under some use
//! and poor under others.

#[path = "../../examples/map_ranking/count.rs"]
mod count;

use count::{Structure, Use, count, counted_inside, set_machine};

fn remote(structure: Structure, used: Use) -> u64 {
    count(structure, used).remote
}

/// The paper's workload: each thread touches its own pages once. A distributed table scales as poorly as the
/// central one, since each first touch asks the master, and makes a replica that is not used again.
#[test]
fn ex_k7_first_touches_are_local_in_parts_and_dear_in_a_distributed_table() {
    set_machine();
    let [central, partitioned, _, dhash] = Structure::ALL.map(|of| count(of, Use::FirstTouch));
    let counts = format!("central {central:?}, partitioned {partitioned:?}, dhash {dhash:?}");
    assert!(partitioned.remote * 20 < central.remote, "{counts}");
    assert!(dhash.remote >= central.remote, "{counts}");
    assert!(dhash.accesses > central.accesses * 2, "{counts}");
}

/// Re-use repays the replicas: the distributed table is then local, and the central one stays remote.
#[test]
fn ex_k7_reuse_is_local_in_a_distributed_table() {
    set_machine();
    let [central, partitioned, replicated, dhash] = Structure::ALL.map(|of| remote(of, Use::Reuse));
    let counts =
        format!("central {central}, partitioned {partitioned}, replicated {replicated}, dhash {dhash}");
    assert!(partitioned == 0 && dhash == 0 && central > 0, "{counts}");
    // The first lookup of a node makes its copy, so few lookups do not repay the copies.
    assert!(replicated > 0, "{counts}");
}

#[test]
fn x_24_keys_that_all_read_are_nearest_where_they_are_replicated() {
    set_machine();
    let [central, partitioned, replicated, dhash] = Structure::ALL.map(|of| remote(of, Use::ReadEverywhere));
    let what =
        format!("central {central}, partitioned {partitioned}, replicated {replicated}, dhash {dhash}");
    assert!(replicated * 2 < central && replicated * 2 < partitioned, "{what}");
    assert!(dhash * 2 < central && dhash * 2 < partitioned, "{what}");
}

#[test]
fn ex_k5_a_counter_inside_matters_even_where_all_else_is_distributed() {
    set_machine();
    let ((shared, operations), (distributed, _)) = (counted_inside(false), counted_inside(true));
    assert!(shared * 10 >= operations * 9, "{shared} of {operations}");
    assert_eq!(distributed, 0);
}
