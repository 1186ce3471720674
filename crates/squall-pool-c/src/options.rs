//! The options of a pool, read from a struct of the size that the program gives.
//!
//! Problem: the struct grows with the library, and programs were compiled with other versions of it. Idea:
//! zero means the default. So a shorter struct has zeros at its end, and a longer one is understood if all
//! bytes beyond the known ones are zero.
//!
//! - I1. A struct that the library does not understand wholly is refused.
//!
//! Source: `copy_struct_from_user` of Linux, as of clone3(2) and openat2(2).

use crate::failure::Failure;
use pool::{Attributes, Strategy};

/// The options besides the size, in the order of the header.
const NAMES: [&str; 8] = [
    "strategy",
    "bulk",
    "idle_events",
    "pull_below",
    "push_above",
    "estimate_step",
    "push_margin",
    "broadcast_acts",
];
/// The bytes of the struct's first version: later ones are larger.
const BYTES_MIN: usize = 4 * (1 + NAMES.len());
/// More bytes than any version of the struct will have.
const BYTES_MAX: usize = 4096;

/// Checks the size of a struct.
pub(crate) fn check_size(size: i32) -> Result<usize, Failure> {
    let bytes = usize::try_from(size).ok().filter(|bytes| (BYTES_MIN..=BYTES_MAX).contains(bytes));
    bytes.ok_or_else(|| {
        let text =
            format!("the options have `size` {size}, but need {BYTES_MIN}; set it to sizeof(PoolOptions)");
        Failure::argument(text)
    })
}

/// Reads a struct of checked size (I1).
pub(crate) fn attributes(bytes: &[u8]) -> Result<Attributes, Failure> {
    let (known, unknown) = bytes.split_at(BYTES_MIN.min(bytes.len()));
    if unknown.iter().any(|byte| *byte != 0) {
        let text = "the options have bytes that this version of the library does not know; set them to zero";
        return Err(Failure::argument(text));
    }
    let (ints, _) = known.as_chunks::<4>();
    let mut numbers = [0_u32; NAMES.len()];
    // The first one is the size.
    for ((number, int), name) in numbers.iter_mut().zip(ints.iter().skip(1)).zip(NAMES) {
        *number = u32::try_from(i32::from_ne_bytes(*int)).map_err(|_| {
            Failure::argument(format!("the option `{name}` is negative; zero means its default"))
        })?;
    }
    let [strategy, bulk, idle_events, pull_below, push_above, estimate_step, push_margin, broadcast_acts] =
        numbers;
    let defaults = Attributes::new(self::strategy(strategy)?);
    let or = |number: u32, default: usize| if number == 0 { default } else { number as usize };
    let or_short = |number: u32, default: u32| if number == 0 { default } else { number };
    Ok(Attributes {
        bulk: or(bulk, defaults.bulk),
        idle_events: or_short(idle_events, defaults.idle_events),
        pull_below: or(pull_below, defaults.pull_below),
        push_above: or(push_above, defaults.push_above),
        estimate_step: or(estimate_step, defaults.estimate_step),
        push_margin: or(push_margin, defaults.push_margin),
        broadcast_acts: or_short(broadcast_acts, defaults.broadcast_acts),
        ..defaults
    })
}

/// Returns the strategy of a number: those of the thesis from 1 on.
fn strategy(number: u32) -> Result<Strategy, Failure> {
    let Some(place) = number.checked_sub(1) else { return Ok(Attributes::default().strategy) };
    Strategy::ALL.get(place as usize).copied().ok_or_else(|| {
        Failure::argument(format!(
            "the option `strategy` is {number}, which no PoolStrategy has; take one of them"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ffi::{PoolOptions, PoolStrategy, SquallCode};

    fn read(ints: &[i32]) -> Result<Attributes, Failure> {
        let bytes: Vec<u8> = ints.iter().flat_map(|int| int.to_ne_bytes()).collect();
        attributes(&bytes)
    }

    fn refused(ints: &[i32], part: &str) {
        let failure = read(ints).unwrap_err();
        assert_eq!(failure.code, SquallCode::Argument);
        assert!(failure.to_string().contains(part), "{failure}");
    }

    #[test]
    fn zero_is_the_default_and_other_numbers_are_taken() {
        assert_eq!(read(&[36, 0, 0, 0, 0, 0, 0, 0, 0]).unwrap(), Attributes::default());
        let given = Attributes {
            bulk: 2,
            idle_events: 3,
            pull_below: 4,
            push_above: 5,
            estimate_step: 6,
            push_margin: 7,
            broadcast_acts: 8,
            ..Attributes::new(Strategy::Centralized)
        };
        assert_eq!(read(&[36, 1, 2, 3, 4, 5, 6, 7, 8]).unwrap(), given);
        let largest = read(&[36, 2, i32::MAX, 0, 0, 0, 0, 0, i32::MAX]).unwrap();
        assert_eq!((largest.bulk, largest.broadcast_acts), (i32::MAX as usize, i32::MAX as u32));
    }

    #[test]
    fn each_strategy_has_the_number_of_the_header() {
        let numbers = [
            PoolStrategy::Centralized,
            PoolStrategy::Distributed,
            PoolStrategy::BulkTransfer,
            PoolStrategy::BackgroundPull,
            PoolStrategy::BackgroundPush,
            PoolStrategy::EstimatedPush,
            PoolStrategy::Directory,
        ];
        for (number, strategy) in numbers.into_iter().zip(Strategy::ALL) {
            assert_eq!(read(&[36, number as i32, 0, 0, 0, 0, 0, 0, 0]).unwrap(), Attributes::new(strategy));
            assert_eq!(format!("{number:?}"), format!("{strategy:?}"));
        }
        assert_eq!(strategy(PoolStrategy::Default as u32).unwrap(), Attributes::default().strategy);
    }

    #[test]
    fn a_struct_of_another_version_is_understood_wholly_or_refused() {
        assert_eq!(size_of::<PoolOptions>(), BYTES_MIN);
        for size in [i32::MIN, -1, 0, 4, 35, 4097, i32::MAX] {
            assert_eq!(check_size(size).unwrap_err().code, SquallCode::Argument);
        }
        assert_eq!((check_size(36).unwrap(), check_size(4096).unwrap()), (36, 4096));
        assert_eq!(read(&[44, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).unwrap(), Attributes::default());
        refused(&[44, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], "does not know");
        // A size that is no multiple of a number's.
        let mut odd = vec![0; 37];
        assert_eq!(attributes(&odd).unwrap(), Attributes::default());
        odd[36] = 1;
        assert!(attributes(&odd).is_err());
    }

    #[test]
    fn wrong_numbers_are_refused() {
        for (at, name) in NAMES.into_iter().enumerate() {
            let mut ints = [36, 0, 0, 0, 0, 0, 0, 0, 0];
            ints[1 + at] = -1;
            refused(&ints, &format!("`{name}` is negative"));
        }
        refused(&[36, 8, 0, 0, 0, 0, 0, 0, 0], "`strategy` is 8");
    }
}
