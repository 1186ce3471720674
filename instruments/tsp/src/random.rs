//! Random instances for tests.

use squall_history::rng::Rng;

use crate::Instance;

/// Makes a random instance with weights from 1 to `most`.
///
/// # Panics
/// If `cities` or `most` is outside the limits of an [`Instance`].
#[must_use]
pub(crate) fn random(rng: &mut Rng, cities: usize, is_symmetric: bool, most: u32) -> Instance {
    let mut weights: Vec<u32> = (0..cities * cities).map(|_| rng.below(u64::from(most)) as u32 + 1).collect();
    if is_symmetric {
        for from in 0..cities {
            (0..from).for_each(|to| weights[from * cities + to] = weights[to * cities + from]);
        }
    }
    Instance::new(format!("random-{cities}"), weights).expect("a permitted number of cities")
}
