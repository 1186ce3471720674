//! Counts of the work of a stress's threads. Each thread counts for itself, because a shared counter would be
//! a fence and could hide a missing one.

/// Declares `Stat`, the counted events as `Variant = "printed name"`, and `Counts`, the totals of all threads
/// that flushed. `count` and `count_many` count for the calling thread.
macro_rules! counts {
    ($($stat:ident = $name:literal),+ $(,)?) => {
        /// A counted event.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Stat {
            $($stat),+
        }

        const NAMES: &[(Stat, &str)] = &[$((Stat::$stat, $name)),+];

        const COUNT: usize = NAMES.len();

        std::thread_local! {
            static MINE: [std::cell::Cell<u64>; COUNT] = const { [const { std::cell::Cell::new(0) }; COUNT] };
        }

        /// Totals of the threads that flushed their counts.
        pub(crate) struct Counts([std::sync::atomic::AtomicU64; COUNT]);

        impl Default for Counts {
            fn default() -> Counts {
                Counts([const { std::sync::atomic::AtomicU64::new(0) }; COUNT])
            }
        }

        /// Counts one event of the calling thread.
        pub(crate) fn count(stat: Stat) {
            count_many(stat, 1);
        }

        /// Counts several events of the calling thread.
        pub(crate) fn count_many(stat: Stat, more: u64) {
            MINE.with(|mine| mine[stat as usize].set(mine[stat as usize].get() + more));
        }

        impl Counts {
            /// Moves the counts of the calling thread to the totals.
            pub(crate) fn flush(&self) {
                MINE.with(|mine| {
                    for (all, mine) in self.0.iter().zip(mine) {
                        all.fetch_add(mine.take(), std::sync::atomic::Ordering::Relaxed);
                    }
                });
            }

            pub(crate) fn of(&self, stat: Stat) -> u64 {
                self.0[stat as usize].load(std::sync::atomic::Ordering::Relaxed)
            }

            /// Returns the totals, by printed name, including those of the calling thread.
            pub(crate) fn lines(&self) -> Vec<(&'static str, u64)> {
                self.flush();
                NAMES.iter().map(|(stat, name)| (*name, self.of(*stat))).collect()
            }
        }

        #[cfg(test)]
        mod tests {
            use super::*;

            #[test]
            fn each_stat_has_its_own_index() {
                assert!(NAMES.iter().enumerate().all(|(index, (stat, _))| *stat as usize == index));
            }
        }
    };
}
pub(crate) use counts;
