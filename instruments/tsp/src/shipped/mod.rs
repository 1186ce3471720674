//! The instances of this crate. The names begin with `plane` (symmetric: places on a plane) or `wind`
//! (asymmetric: a flight against the wind takes longer). The others are of TSPLIB.
//!
//! - I1. The optimum in the comment of each file is right. A test computes it by the dynamic program.

#[cfg(test)]
mod make;

use crate::{Instance, tsplib};

/// A file of this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shipped {
    /// Name of the file.
    pub file: &'static str,
    /// Its text.
    pub text: &'static str,
}

macro_rules! files {
    ($($file:literal),*) => {
        &[$(Shipped { file: $file, text: include_str!(concat!("../../instances/", $file)) }),*]
    };
}

/// All files, from few cities to many.
pub const ALL: &[Shipped] = files![
    "plane8.tsp",
    "wind8.atsp",
    "plane10.tsp",
    "wind10.atsp",
    "plane12.tsp",
    "wind12.atsp",
    "plane14.tsp",
    "wind14.atsp",
    "burma14.tsp",
    "plane16.tsp",
    "wind16.atsp",
    "ulysses16.tsp",
    "gr17.tsp"
];

impl Shipped {
    /// The name of the instance: that of the file without its ending.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.file.split_once('.').map_or(self.file, |(name, _)| name)
    }

    /// Reads the instance.
    ///
    /// # Panics
    /// Never: a test reads each file.
    ///
    /// ```
    /// let instance = squall_tsp::shipped::find("plane8").unwrap().instance();
    /// assert_eq!(instance.cities(), 8);
    /// ```
    #[must_use]
    pub fn instance(&self) -> Instance {
        tsplib::parse(self.file, self.text).expect("a file of this crate is right")
    }
}

/// Finds a file by its name, or by that of its instance.
#[must_use]
pub fn find(name: &str) -> Option<Shipped> {
    ALL.iter().copied().find(|it| it.file == name || it.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exact::held_karp;

    #[test]
    fn each_file_states_its_optimum() {
        for it in ALL {
            let instance = it.instance();
            let optimum = held_karp(&instance).expect("few cities").length();
            assert_eq!(instance.stated_optimum(), Some(optimum), "{}", it.file);
            assert_eq!((instance.name(), find(it.name())), (it.name(), Some(*it)));
            assert_eq!(instance.is_symmetric(), it.file.ends_with(".tsp"), "{}", it.file);
        }
        assert_eq!(find("plane8.tsp").map(|it| it.name()), Some("plane8"));
        assert!(find("plane9").is_none());
    }

    #[test]
    fn a_file_cut_anywhere_is_refused_or_complete() {
        for it in ALL {
            let whole = it.instance();
            for cut in 0..it.text.len() {
                if let Ok(instance) = tsplib::parse(it.file, &it.text[..cut]) {
                    assert_eq!(instance, whole, "{} cut at {cut}", it.file);
                }
            }
        }
    }
}
