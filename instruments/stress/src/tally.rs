//! What the threads of a torture did, counted by each for itself: a shared counter would be a fence where one must not be.

/// Makes `What` with these, `count` and `count_many` for the calling thread, and `Tally` for all threads that have handed in.
macro_rules! tally {
    ($($what:ident = $name:literal),+ $(,)?) => {
        /// What is counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum What {
            $($what),+
        }

        const NAMES: &[(What, &str)] = &[$((What::$what, $name)),+];

        const COUNT: usize = NAMES.len();

        std::thread_local! {
            static MINE: [std::cell::Cell<u64>; COUNT] = const { [const { std::cell::Cell::new(0) }; COUNT] };
        }

        /// What all threads did that have handed in.
        pub(crate) struct Tally([std::sync::atomic::AtomicU64; COUNT]);

        impl Default for Tally {
            fn default() -> Tally {
                Tally([const { std::sync::atomic::AtomicU64::new(0) }; COUNT])
            }
        }

        /// One more of these, by the calling thread.
        pub(crate) fn count(what: What) {
            count_many(what, 1);
        }

        pub(crate) fn count_many(what: What, more: u64) {
            MINE.with(|mine| mine[what as usize].set(mine[what as usize].get() + more));
        }

        impl Tally {
            /// Takes over what the calling thread has counted.
            pub(crate) fn hand_in(&self) {
                MINE.with(|mine| {
                    for (all, mine) in self.0.iter().zip(mine) {
                        all.fetch_add(mine.take(), std::sync::atomic::Ordering::Relaxed);
                    }
                });
            }

            pub(crate) fn of(&self, what: What) -> u64 {
                self.0[what as usize].load(std::sync::atomic::Ordering::Relaxed)
            }

            pub(crate) fn lines(&self) -> Vec<(&'static str, u64)> {
                NAMES.iter().map(|(what, name)| (*name, self.of(*what))).collect()
            }
        }

        #[cfg(test)]
        mod tests {
            use super::*;

            #[test]
            fn each_count_has_its_place() {
                assert!(NAMES.iter().enumerate().all(|(index, (what, _))| *what as usize == index));
            }
        }
    };
}
pub(super) use tally;
