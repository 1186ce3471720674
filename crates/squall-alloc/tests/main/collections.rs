//! Collections with an arena as their allocator.

use allocator_api2::boxed::Box;
use allocator_api2::vec::Vec;
use squall_alloc::{Arena, Placement};

#[test]
fn a_vector_and_a_box_live_in_an_arena() {
    for placement in [Placement::General, Placement::Local, Placement::Shared, Placement::Near(0)] {
        let pool = Arena::new(placement);
        let mut numbers = Vec::new_in(pool);
        for number in 0..100_000u64 {
            numbers.push(Box::new_in(number, pool));
        }
        numbers.truncate(50_000);
        numbers.shrink_to_fit();
        assert!(numbers.iter().enumerate().all(|(index, number)| index as u64 == **number));
    }
}
