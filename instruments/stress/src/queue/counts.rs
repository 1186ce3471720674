//! The counted events of all rounds.

use std::sync::atomic::{AtomicU64, Ordering};

/// Declares the counts with their printed names.
macro_rules! counts {
    ($($field:ident: $name:literal,)+) => {
        /// The counted events of all rounds.
        #[derive(Default)]
        pub(super) struct Counts {
            $(pub(super) $field: Count,)+
        }

        impl Counts {
            /// Returns the names and the counts.
            pub(super) fn lines(&self) -> Vec<(&'static str, u64)> {
                vec![$(($name, self.$field.0.load(Ordering::Relaxed))),+]
            }
        }
    };
}

counts! {
    puts: "elements put",
    gets: "elements got",
    takes: "elements taken",
    empty: "gets that said empty",
    forms: "changes of the form",
    orders: "changes of the order",
    changes: "attributes changed",
    drains: "drains",
    plentiful: "plentiful rounds",
    waits: "waits",
    cancelled: "waits cancelled",
    timed_out: "waits that gave up",
    closed: "waits ended by a close",
    rejected: "puts rejected",
    searches: "searches",
    ends: "waits ended by the end of the work",
    sorted: "elements got in order",
    panics: "panics in drops",
}

/// A count.
#[derive(Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, more: usize) {
        self.0.fetch_add(more as u64, Ordering::Relaxed);
    }
}
