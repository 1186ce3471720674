//! What goes over the socket: a request is one line of JSON, its answer another one.
//!
//! A request is an object with the key `pin`; the keys beside it are the fields of [`Request`], and no others are allowed.
//! The answer is `{"ok": …}` or `{"error": {"kind": …, "message": …}}`, in the order of the requests. Where the server
//! no longer knows where a line begins it says so and closes the connection.
//!
//! ```text
//! > {"op":"hello"}
//! < {"ok":{"protocol":1,"pid":4711,"program":"line_server",…}}
//! > {"op":"set","id":"17.3","name":"width","value":"4"}
//! < {"error":{"kind":"refused","message":"…"}}
//! ```
//!
//! Later versions add operations, fields of answers and optional fields of requests. A change that an older client would
//! misread raises [`VERSION`].

use serde::{Deserialize, Serialize};

/// The version of the protocol.
pub const VERSION: u32 = 1;
/// Bytes of a request, its newline included.
pub const REQUEST_BYTES_MAX: usize = 64 * 1024;
/// Objects in one answer.
pub const OBJECTS_MAX: usize = 4096;
/// Decisions or swaps in one answer: the latest.
pub const EVENTS_MAX: usize = 1024;
/// The longest time in which calls are counted for one request.
pub const SAMPLE_MS_MAX: u64 = 1000;

/// What can be asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Request {
    /// Who is there: a [`Hello`].
    Hello {},
    /// Objects: a [`Listing`].
    List(ListQuery),
    /// One object in detail: a [`Detail`].
    Object {
        /// Its id, as text.
        id: String,
    },
    /// The decisions about one object, oldest first: [`DecisionView`]s.
    History {
        /// Its id, as text.
        id: String,
    },
    /// The last decisions about any object, oldest first: [`DecisionView`]s.
    Decisions {},
    /// The last swaps of the program, oldest first: [`SwapView`]s.
    Swaps {},
    /// What the locality allocator has, if the program uses it: a [`MemoryView`].
    Memory {},
    /// The names of the implementations that an object can be swapped to.
    Implementations {
        /// Its id, as text.
        id: String,
    },
    /// The attributes of an object: [`AttributeView`]s.
    Attributes {
        /// Its id, as text.
        id: String,
    },
    /// Sets an attribute of an object.
    Set {
        /// The object's id, as text.
        id: String,
        /// The attribute.
        name: String,
        /// Its value, as text.
        value: String,
    },
    /// Keeps the object's policy from changing it.
    Freeze {
        /// Its id, as text.
        id: String,
    },
    /// Lets the object's policy change it again.
    Thaw {
        /// Its id, as text.
        id: String,
    },
    /// Keeps every policy from changing anything.
    FreezeAll {},
    /// Lets policies change what is not frozen by itself.
    ThawAll {},
    /// Swaps an object for another implementation: a [`SwapView`].
    Swap {
        /// Its id, as text.
        id: String,
        /// The name under which the program registered the implementation.
        implementation: String,
    },
    /// Counts an object's calls for a while: a [`CallsView`]. While it counts, each of the object's calls costs more.
    Sample {
        /// Its id, as text.
        id: String,
        /// For how long; at most [`SAMPLE_MS_MAX`].
        span_ms: u64,
    },
}

/// Which objects, and in which order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ListQuery {
    /// The order.
    pub sort: Sort,
    /// At most so many; [`OBJECTS_MAX`] if nothing is said, or more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Only those behind this one; with [`Sort::Id`] alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Only those whose interface's name contains this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
}

/// The order of a list: the largest first, but ids, which grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Sort {
    /// By id.
    #[default]
    Id,
    /// By bytes.
    Bytes,
    /// By misses.
    Misses,
    /// By contended steps a second.
    Contended,
    /// By swaps.
    Swaps,
    /// By representatives.
    Reps,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer<T> {
    /// What was asked for.
    #[serde(rename = "ok")]
    Ok(T),
    /// Why not.
    #[serde(rename = "error")]
    Refused(Refusal),
}

/// Why something asked for was not done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Refusal {
    /// For programs.
    pub kind: RefusalKind,
    /// For people: what is wrong, and what would be right.
    pub message: String,
}

/// See [`Refusal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RefusalKind {
    /// The request is none.
    BadRequest,
    /// The request is too long; the connection ends.
    TooLong,
    /// The rest of a request did not come; the connection ends.
    TooSlow,
    /// So many clients are there; the connection ends.
    TooManyClients,
    /// The client is another user; the connection ends.
    NotAllowed,
    /// No object has this id now.
    NoObject,
    /// The object, its policy or its attribute would not have it.
    Refused,
    /// The program's own code panicked while the request was answered.
    Panicked,
    /// One that a later version sends.
    #[serde(other)]
    Unknown,
}

impl Refusal {
    pub(crate) fn new(kind: RefusalKind, message: impl Into<String>) -> Refusal {
        Refusal { kind, message: message.into() }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refusal {}

/// Who is there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Hello {
    /// [`VERSION`], of the server.
    pub protocol: u32,
    /// The version of the library.
    pub version: String,
    /// The process.
    pub pid: u32,
    /// The name of its program.
    pub program: String,
    /// Whether every policy is frozen.
    pub all_frozen: bool,
}

/// Objects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Listing {
    /// How many objects fit the query, those that are left out here among them.
    pub total: usize,
    /// Whether every policy is frozen.
    pub all_frozen: bool,
    /// In the order that was asked for.
    pub objects: Vec<ObjectView>,
}

/// An object, in one row.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ObjectView {
    /// Its id, as text.
    pub id: String,
    /// Its interface.
    pub interface: String,
    /// Its class, without the path of its module.
    pub class: String,
    /// What changes its form, if something does.
    pub family: Option<String>,
    /// The form it has now, if something changes it.
    pub form: Option<String>,
    /// The forms it can have.
    pub forms: Vec<String>,
    /// `live`, `arbitrated`, `swapping` or `ending`.
    pub state: String,
    /// How many representatives it has.
    pub reps: usize,
    /// How many VPs ever missed on it.
    pub vps: usize,
    /// Bytes of all its parts.
    pub bytes: usize,
    /// Since it was made.
    pub age_ms: u64,
    /// Misses, modulo 2^32.
    pub misses: u64,
    /// Contended steps a second, if something measures them.
    pub contended_per_s: Option<f64>,
    /// Times that its policy swapped it.
    pub swaps: u64,
    /// Whether its policy is frozen.
    pub frozen: bool,
    /// Whether its policy only says what it would do.
    pub dry_run: bool,
}

/// An object in detail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Detail {
    /// Its row.
    #[serde(flatten)]
    pub row: ObjectView,
    /// Its class, with the path of its module.
    pub class_path: String,
    /// `shared` or `clustered`.
    pub kind: String,
    /// Where its interface is declared.
    pub interface_source: String,
    /// Where it was made.
    pub made_at: String,
    /// The VP whose range its id is of.
    pub home: Option<usize>,
    /// The VPs that ever missed on it, as a list of ranges.
    pub translations: String,
    /// Those bytes of it that are the author's own fields.
    pub value_bytes: usize,
    /// The first of its representatives; `row.reps` says how many there are.
    pub rep_list: Vec<RepView>,
    /// Its attributes; empty if it has none.
    pub attributes: Vec<AttributeView>,
    /// What it can be swapped to.
    pub implementations: Vec<String>,
    /// The last decision about it.
    pub last: Option<DecisionView>,
}

/// A representative.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RepView {
    /// The cluster it serves.
    pub cluster: Option<usize>,
    /// The VP that made it.
    pub vp: Option<usize>,
    /// Calls that hold it because they may block.
    pub holds: u32,
}

/// An attribute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AttributeView {
    /// Its name.
    pub name: String,
    /// The kind of its values.
    pub kind: String,
    /// Its value, as text.
    pub value: String,
    /// The unit of its values; empty if they have none.
    pub unit: String,
    /// The value it has if nobody sets it.
    pub default: String,
    /// What values it can have.
    pub range: String,
    /// What it is for.
    pub about: String,
    /// Who set it: `default`, `class`, `instance`, `operation` or `call`.
    pub from: String,
}

/// A decision of a policy, or of a person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DecisionView {
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// The object's id, as text.
    pub id: String,
    /// What decided.
    pub family: String,
    /// The form before.
    pub from: String,
    /// The form that was chosen.
    pub to: String,
    /// The VP to which that is biased, if it is to one.
    #[serde(default)]
    pub place: Option<usize>,
    /// What became of it.
    pub verdict: String,
    /// The readings that led to it.
    pub why: String,
    /// How long it took.
    pub took_us: u64,
    /// The swap, if one began.
    pub swap: Option<SwapView>,
}

/// What the locality allocator has. One thing was looked at after the other, while the program went on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct MemoryView {
    /// How blocks are cached: `restartable` or `locked`; nothing where the program never allocated by it.
    pub mode: Option<String>,
    /// The most bytes that a VP caches.
    pub vp_bytes_max: u64,
    /// The VPs that ever allocated.
    pub vps: Vec<VpMemoryView>,
    /// Pages by node.
    pub nodes: Vec<NodeMemoryView>,
    /// Large blocks, each a mapping.
    pub large_count: u64,
    /// Their bytes.
    pub large_bytes: u64,
}

/// What the locality allocator has of a VP.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct VpMemoryView {
    /// Its number.
    pub vp: u32,
    /// Bytes of its own blocks in its cache.
    pub cached_bytes: u64,
    /// Blocks of other VPs that wait there to be sent home.
    pub outbox_count: u64,
    /// The classes that it ever used.
    pub classes: Vec<ClassMemoryView>,
}

/// What the locality allocator has of a class of blocks of a VP.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ClassMemoryView {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Whether its blocks are for one VP's threads alone.
    pub local: bool,
    /// Slabs.
    pub slabs: u64,
    /// Blocks with users.
    pub used: u64,
    /// Blocks in the cache.
    pub cached: u64,
    /// How often the cache was filled.
    pub fills: u64,
    /// Blocks that went back to slabs.
    pub returned: u64,
    /// How many of these other VPs sent home.
    pub sent_home: u64,
}

/// What the locality allocator has of a node's pages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct NodeMemoryView {
    /// Bytes of slabs.
    pub used_bytes: u64,
    /// Bytes that are free, and have memory still.
    pub free_bytes: u64,
}

/// A swap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SwapView {
    /// Milliseconds since 1970.
    pub began_ms: u64,
    /// The object's id, as text.
    pub id: String,
    /// Its interface.
    pub interface: String,
    /// The class before.
    pub from: String,
    /// The class that was to serve.
    pub to: String,
    /// `swapped`, or why not.
    pub outcome: String,
    /// From its first step to its last.
    pub total_us: u64,
    /// The longest time that a call waited.
    pub longest_pause_us: u64,
    /// Calls that were passed on to the object before.
    pub forwarded: u64,
    /// Calls that waited.
    pub blocked: u64,
    /// The format of the state that moved.
    pub format: Option<String>,
    /// Bytes of it.
    pub bytes: usize,
}

/// Calls of an object, counted for a while.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CallsView {
    /// For how long.
    pub span_us: u64,
    /// Calls of each method.
    pub by_method: Vec<(String, u64)>,
    /// Calls on each VP that made any.
    pub by_vp: Vec<(usize, u64)>,
}

impl CallsView {
    /// Calls a second.
    pub fn per_s(&self) -> f64 {
        let calls: u64 = self.by_method.iter().map(|(_, calls)| calls).sum();
        calls as f64 * 1e6 / self.span_us.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_what_the_documentation_shows() {
        let read = |text: &str| serde_json::from_str::<Request>(text);
        assert_eq!(read(r#"{"op":"hello"}"#).expect("hello"), Request::Hello {});
        assert_eq!(read(r#"{"op":"list"}"#).expect("list"), Request::List(ListQuery::default()));
        let query = ListQuery { sort: Sort::Bytes, limit: Some(3), ..ListQuery::default() };
        assert_eq!(read(r#"{"op":"list","sort":"bytes","limit":3}"#).expect("list"), Request::List(query));
        let set = read(r#"{"op":"set","id":"17.3","name":"width","value":"4"}"#).expect("set");
        assert_eq!(set, Request::Set { id: "17.3".into(), name: "width".into(), value: "4".into() });
        assert_eq!(serde_json::to_string(&Request::FreezeAll {}).expect("text"), r#"{"op":"freeze-all"}"#);
    }

    #[test]
    fn errors_name_what_would_be_right() {
        let error = |text: &str| serde_json::from_str::<Request>(text).expect_err("bad").to_string();
        let unknown = error(r#"{"op":"kill"}"#);
        assert!(unknown.contains("`kill`") && unknown.contains("`freeze-all`"), "{unknown}");
        assert!(error(r#"{"op":"object"}"#).contains("missing field `id`"));
        let extra = error(r#"{"op":"object","id":"1.0","ids":2}"#);
        assert!(extra.contains("`ids`") && extra.contains("`id`"), "{extra}");
        let sort = error(r#"{"op":"list","sort":"name"}"#);
        assert!(sort.contains("`bytes`"), "{sort}");
        assert!(error(r#"{"op":"hello","id":1}"#).contains("unknown field"), "no field is passed over");
    }

    #[test]
    fn a_client_reads_what_a_later_server_says() {
        let text = r#"{"error":{"kind":"weary","message":"later","more":1}}"#;
        let answer: Answer<Hello> = serde_json::from_str(text).expect("readable");
        let Answer::Refused(refusal) = answer else { panic!("{answer:?}") };
        assert_eq!((refusal.kind, refusal.message.as_str()), (RefusalKind::Unknown, "later"));
    }
}
