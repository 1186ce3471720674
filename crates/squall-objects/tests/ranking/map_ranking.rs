//! EX-K5, EX-K7 and X-24: the nearest structure under each use. Each structure is the best under some use
//! and poor under others.

#[path = "../../examples/map_ranking/count.rs"]
mod count;

use count::{Structure, Use, count, counted_inside, set_machine};

fn remote(structure: Structure, used: Use) -> u64 {
    count(structure, used).0
}

#[test]
fn ex_k7_x_24_keys_of_one_processor_are_nearest_in_parts_and_a_table_in_many_places_is_worse_than_one() {
    set_machine();
    let [central, partitioned, replicated, dhash] = Structure::ALL.map(|of| remote(of, Use::Alone));
    let what =
        format!("central {central}, partitioned {partitioned}, replicated {replicated}, dhash {dhash}");
    assert!(partitioned * 20 < central, "{what}");
    assert!(central < replicated && partitioned * 20 < dhash, "{what}");
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
