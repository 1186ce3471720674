//! The views of records of the general monitor.

use serde::{Deserialize, Serialize};

/// Sums of the records since the previous request of this connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct RecordsView {
    /// `true` if the program begins to record with this request: at the first request, or at one that came
    /// later than the previous one promised.
    pub begins: bool,
    /// Time since the previous request, in microseconds.
    pub span_us: u64,
    /// Sums by kind, object and codes.
    pub sums: Vec<SumView>,
    /// Records lost because their thread's buffer was full.
    pub dropped: u64,
    /// Records left out because there were too many kinds and objects.
    pub missed: u64,
}

/// Sums of the records of one kind about one object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct SumView {
    /// Name of the kind, such as `lock.wait`.
    pub kind: String,
    /// The object: an id such as `17.3`, an address such as `0x7f00d0`, or a number such as `#7`. Absent for
    /// records about no particular object.
    pub object: Option<String>,
    /// Name that the program gave the object, if any. May contain control characters.
    pub name: Option<String>,
    /// Number of records.
    pub count: u64,
    /// The values of the kind.
    pub values: Vec<SumValueView>,
}

/// A value of the records of one kind: either a code or a quantity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct SumValueView {
    /// Name of the value.
    pub name: String,
    /// Name of the code, if the value is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Sum of the quantity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum: Option<u64>,
    /// Largest quantity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<u64>,
}
