//! Safeguards of a protocol, each of which a test can remove.
//!
//! Problem: a simulator that finds no fault may be blind. Idea: each safeguard has a name. A test removes one
//! on its thread, and the simulator must then report a violation.
//!
//! - I1. In a build without tests each safeguard stands, at no cost.
//!
//! Source: the twins of the models ([`weaken`](super::weaken)).

/// Not public: makes an enum of safeguards. `cfg(test)` is that of the crate that calls this.
#[doc(hidden)]
#[macro_export]
macro_rules! __safeguards {
    (
        $(#[$attribute:meta])*
        pub(crate) enum $Guard:ident { $($(#[$about:meta])* $name:ident,)* }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum $Guard { $($(#[$about])* $name,)* }

        #[cfg(test)]
        std::thread_local! {
            static REMOVED: std::cell::Cell<Option<$Guard>> = const { std::cell::Cell::new(None) };
        }

        #[allow(dead_code)]
        impl $Guard {
            /// All safeguards.
            #[cfg(test)]
            pub(crate) const ALL: &[$Guard] = &[$($Guard::$name),*];

            /// Returns whether the safeguard is removed. Always false outside tests.
            #[inline(always)]
            pub(crate) fn is_removed(self) -> bool {
                #[cfg(test)]
                return REMOVED.get() == Some(self);
                #[cfg(not(test))]
                false
            }

            /// Returns whether the safeguard stands and `condition` holds.
            #[inline(always)]
            pub(crate) fn and(self, condition: bool) -> bool {
                !self.is_removed() && condition
            }

            /// Returns whether `condition` holds or the safeguard is removed.
            #[inline(always)]
            pub(crate) fn or(self, condition: bool) -> bool {
                self.is_removed() || condition
            }

            /// Removes a safeguard on this thread while `run` runs.
            #[cfg(test)]
            pub(crate) fn without<R>(removed: Option<$Guard>, run: impl FnOnce() -> R) -> R {
                struct Restore;
                impl Drop for Restore {
                    fn drop(&mut self) {
                        REMOVED.set(None);
                    }
                }
                let _restore = Restore;
                REMOVED.set(removed);
                run()
            }
        }
    };
}
