//! Tests of the general monitor, in a process without other tests: their threads would write records, too.

mod monitors;
mod records;
