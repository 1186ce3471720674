//! Protocol over the socket: a request is one line of JSON, and its answer is one line of JSON.
//!
//! A request is an object with the key `op`. Its other keys are the fields of that variant of [`Request`];
//! unknown keys are errors. The answer is `{"ok": …}` or `{"error": {"kind": …, "message": …}}`, in the order
//! of the requests. If the server cannot tell where the next line begins, it says so and closes the
//! connection.
//!
//! ```text
//! > {"op":"hello"}
//! < {"ok":{"protocol":1,"pid":4711,"program":"line_server",…}}
//! > {"op":"set","id":"17.3","name":"width","value":"4"}
//! < {"error":{"kind":"refused","message":"…"}}
//! ```
//!
//! Later versions add operations, fields of answers and optional fields of requests. A change that an older
//! client would misread raises [`VERSION`].

mod fleets;
mod memory;
mod pools;
mod processes;
mod records;

use serde::{Deserialize, Serialize};

pub use fleets::{
    EndView, FatesView, FiguresView, GroupView, MemberView, MoveView, NameView, NodeView, OwnerView,
};
pub use memory::{ClassMemoryView, MemoryView, NodeMemoryView, VpMemoryView};
pub use pools::{PoolCountsView, PoolView};
pub use processes::{CallerView, ExportView, ImportView};
pub use records::{RecordsView, SumValueView, SumView};

/// Version of the protocol.
pub const VERSION: u32 = 1;
/// Largest size of a request in bytes, including its newline.
pub const REQUEST_BYTES_MAX: usize = 64 * 1024;
/// Largest number of objects in one answer.
pub const OBJECTS_MAX: usize = 4096;
/// Largest number of decisions or swaps in one answer. Older ones are left out.
pub const EVENTS_MAX: usize = 1024;
/// Largest number of changes by clients that the program remembers.
pub const ACTIONS_MAX: usize = 256;
/// Longest span of a call count, in milliseconds.
pub const SAMPLE_MS_MAX: u64 = 1000;
/// Longest time between two requests for records, in milliseconds.
pub const RECORDS_MS_MAX: u64 = 60_000;
/// Largest number of sums of records in one answer. Further records are counted as missed.
pub const SUMS_MAX: usize = 1024;
/// Names of the operations of this version: the `op` of each [`Request`].
pub const OPERATIONS: [&str; 28] = [
    "hello",
    "list",
    "changes",
    "object",
    "history",
    "decisions",
    "actions",
    "machine",
    "swaps",
    "memory",
    "implementations",
    "attributes",
    "set",
    "unset",
    "freeze",
    "thaw",
    "freeze-all",
    "thaw-all",
    "swap",
    "deny",
    "allow",
    "disconnect",
    "nodes",
    "group",
    "leave",
    "pools",
    "sample",
    "records",
];

/// A request.
///
/// ```
/// use squall::browse::protocol::Request;
///
/// let request: Request = serde_json::from_str(r#"{"op":"freeze","id":"17.3"}"#)?;
/// assert_eq!(request, Request::Freeze { id: "17.3".to_owned(), author: None });
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Request {
    /// Asks for the program. Answered with a [`Hello`].
    Hello {},
    /// Lists objects. Answered with a [`Listing`].
    List(ListQuery),
    /// Lists the rows that changed since the earlier requests of this kind on this connection: at first all
    /// rows. Answered with [`Changes`].
    Changes {},
    /// Asks for one object in detail. Answered with a [`Detail`].
    Object {
        /// Id of the object, as text.
        id: String,
    },
    /// Lists the decisions about one object, oldest first. Answered with [`DecisionView`]s.
    History {
        /// Id of the object, as text.
        id: String,
    },
    /// Lists the latest decisions about all objects, oldest first. Answered with [`DecisionView`]s.
    Decisions {},
    /// Lists the latest changes that clients asked for, oldest first. Answered with [`ActionView`]s.
    Actions {
        /// Lists only those of this object and of all objects together. Absent: all changes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
    },
    /// Asks for the topology that the program uses. Answered with a [`MachineView`].
    Machine {},
    /// Lists the latest swaps of the program, oldest first. Answered with [`SwapView`]s.
    Swaps {
        /// Lists only those of this object. Absent: all swaps.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
    },
    /// Asks for the statistics of the locality allocator. Answered with a [`MemoryView`].
    Memory {},
    /// Lists the names of the implementations that an object can be swapped to.
    Implementations {
        /// Id of the object, as text.
        id: String,
    },
    /// Lists the attributes of an object. Answered with [`AttributeView`]s.
    Attributes {
        /// Id of the object, as text.
        id: String,
    },
    /// Sets an attribute of an object.
    Set {
        /// Id of the object, as text.
        id: String,
        /// Name of the attribute.
        name: String,
        /// New value, as text.
        value: String,
        /// Author of the change, for the [log](Request::Actions) and for the reason of a decision.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        author: Option<String>,
    },
    /// Unsets an attribute of an object, so that the value of its class, or the default, applies again.
    /// Answered with `true` if the object had a value of its own.
    Unset {
        /// Id of the object, as text.
        id: String,
        /// Name of the attribute.
        name: String,
        /// Author of the change, for the [log](Request::Actions).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        author: Option<String>,
    },
    /// Freezes an object, so that its policy does not change it.
    Freeze {
        /// Id of the object, as text.
        id: String,
        /// Author of the change, for the [log](Request::Actions).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        author: Option<String>,
    },
    /// Thaws an object.
    Thaw {
        /// Id of the object, as text.
        id: String,
        /// Author of the change, for the [log](Request::Actions).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        author: Option<String>,
    },
    /// Freezes all objects.
    FreezeAll {
        /// Author of the change, for the [log](Request::Actions).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        author: Option<String>,
    },
    /// Thaws all objects that are not frozen individually.
    ThawAll {
        /// Author of the change, for the [log](Request::Actions).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        author: Option<String>,
    },
    /// Swaps an object for another implementation. Answered with a [`SwapView`].
    Swap {
        /// Id of the object, as text.
        id: String,
        /// Name of the implementation, as the program registered it.
        implementation: String,
        /// Author of the change, for the [log](Request::Actions) and for the reason of a decision.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        author: Option<String>,
    },
    /// Denies all callers of other processes a method of an exported object. Calls that run go on.
    Deny {
        /// Id of the object, as text.
        id: String,
        /// Name of the method.
        method: String,
        /// Author of the change, for the [log](Request::Actions).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        author: Option<String>,
    },
    /// Allows a method of an exported object again.
    Allow {
        /// Id of the object, as text.
        id: String,
        /// Name of the method.
        method: String,
        /// Author of the change, for the [log](Request::Actions).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        author: Option<String>,
    },
    /// Ends a connection of another process to an exported object.
    Disconnect {
        /// Id of the object, as text.
        id: String,
        /// Number of the connection: [`CallerView::number`].
        caller: u64,
        /// Author of the change, for the [log](Request::Actions).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        author: Option<String>,
    },
    /// Lists the nodes of the program: the members and visitors of groups. Answered with [`NodeView`]s.
    Nodes {},
    /// Asks for the group of a node. Answered with a [`GroupView`]. The node asks the other members for their
    /// figures, and waits for them less than a second.
    Group {
        /// Number of the node: [`NodeView::number`].
        node: u64,
    },
    /// Lets a node leave its group in two phases: its shards move away, then the group removes it. Answered
    /// with `true` once it has left, or after a second with `false`: then it goes on leaving.
    Leave {
        /// Number of the node: [`NodeView::number`].
        node: u64,
        /// Author of the change, for the [log](Request::Actions).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        author: Option<String>,
    },
    /// Lists the members of pools in the program. Answered with [`PoolView`]s.
    Pools {},
    /// Counts an object's calls for a span. Answered with a [`CallsView`]. Each of the object's calls costs
    /// more during the count.
    Sample {
        /// Id of the object, as text.
        id: String,
        /// Span of the count; at most [`SAMPLE_MS_MAX`].
        span_ms: u64,
    },
    /// Sums the records of locks, gates, queues, swaps, the engine and the program since the previous such
    /// request of this connection. Answered with [`RecordsView`]. The first request begins the recording.
    Records {
        /// The client asks again within this time; at most [`RECORDS_MS_MAX`]. Otherwise the recording ends.
        within_ms: u64,
    },
}

/// Selection and order of the objects in a list.
///
/// ```
/// use squall::browse::protocol::{ListQuery, Request, Sort};
///
/// let query = ListQuery { sort: Sort::Bytes, limit: Some(10), ..ListQuery::default() };
/// let line = serde_json::to_string(&Request::List(query))?;
/// assert_eq!(line, r#"{"op":"list","sort":"bytes","limit":10}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ListQuery {
    /// Order of the list.
    pub sort: Sort,
    /// Largest number of objects; at most [`OBJECTS_MAX`], which is the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Lists only objects after this id. Allowed only with [`Sort::Id`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Lists only objects with an interface name that contains this text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Lists only objects with a name that contains this text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Order of a list: ids ascending, all others descending.
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
    /// By contended calls per second.
    Contended,
    /// By swaps.
    Swaps,
    /// By representatives.
    Reps,
}

/// An answer.
///
/// ```
/// use squall::browse::protocol::{Answer, RefusalKind};
///
/// let line = r#"{"error":{"kind":"no-object","message":"there is no object 17.3"}}"#;
/// let Answer::Refused(refusal) = serde_json::from_str::<Answer<()>>(line)? else { panic!() };
/// assert_eq!(refusal.kind, RefusalKind::NoObject);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer<T> {
    /// The request was carried out; its result.
    #[serde(rename = "ok")]
    Ok(T),
    /// The request was rejected; the reason.
    #[serde(rename = "error")]
    Refused(Refusal),
}

/// Reason why a request was rejected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Refusal {
    /// Reason for programs.
    pub kind: RefusalKind,
    /// Reason for people: the mistake, and the values allowed.
    pub message: String,
}

/// Kind of a [`Refusal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RefusalKind {
    /// The line is not a valid request.
    BadRequest,
    /// The request is too long. The connection ends.
    TooLong,
    /// The rest of a request did not arrive in time. The connection ends.
    TooSlow,
    /// Too many clients are connected. The connection ends.
    TooManyClients,
    /// The client belongs to another user. The connection ends.
    NotAllowed,
    /// There is no object with this id now.
    NoObject,
    /// The object, its policy or its attribute does not allow the request.
    Refused,
    /// The program's own code panicked while it handled the request.
    Panicked,
    /// A kind that only a later version knows.
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

/// The program behind the socket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Hello {
    /// The server's [`VERSION`].
    pub protocol: u32,
    /// Version of the library.
    pub version: String,
    /// Number of the process.
    pub pid: u32,
    /// Name of the program.
    pub program: String,
    /// `true` if all objects are frozen.
    pub all_frozen: bool,
    /// `true` if requests that change something may name their author.
    #[serde(default)]
    pub records_authors: bool,
    /// Random number of this run of the program. Another number means that all ids mean other objects. Absent
    /// in the answer of an older version.
    #[serde(default)]
    pub instance: Option<u64>,
    /// Names of the requests that the program knows: their `op`. Empty in the answer of an older version.
    #[serde(default)]
    pub operations: Vec<String>,
}

impl Hello {
    /// Returns `true` if both come from the same run of the same program, so that ids mean the same objects.
    pub fn is_same_program(&self, other: &Hello) -> bool {
        (self.pid, self.instance) == (other.pid, other.instance)
    }
}

/// A list of objects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Listing {
    /// Number of objects that match the query, including those left out here. With `after`, or with a filter
    /// and [`Sort::Id`], all objects that are left out count as one.
    pub total: usize,
    /// `true` if all objects are frozen.
    pub all_frozen: bool,
    /// The objects, in the requested order.
    pub objects: Vec<ObjectView>,
}

/// Rows that changed since the previous scan of this connection. A scan takes one or more requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Changes {
    /// `true` if this answer ends the scan. Otherwise the next request continues it.
    pub complete: bool,
    /// The objects that are new, or have another row than before, in the order of their ids. A row with only
    /// another age is not sent.
    pub objects: Vec<ObjectView>,
    /// Ids of the objects that are gone. Sent with the answer that ends the scan.
    pub gone: Vec<String>,
    /// Number of objects whose rows the client has got.
    pub total: usize,
    /// `true` if all objects are frozen.
    pub all_frozen: bool,
}

/// One object, as a row of a list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ObjectView {
    /// Id of the object, as text.
    pub id: String,
    /// Name that the program gave it, if any. May contain control characters.
    pub name: Option<String>,
    /// Name of its interface.
    pub interface: String,
    /// Name of its class, without module paths and constant parameters. [`Detail::class_path`] is the full
    /// name.
    pub class: String,
    /// Name of its family, if it is adaptive.
    pub family: Option<String>,
    /// Name of its present form, if it is adaptive.
    pub form: Option<String>,
    /// Names of the forms that it can have.
    pub forms: Vec<String>,
    /// `live`, `arbitrated`, `swapping` or `ending`.
    pub state: String,
    /// Number of representatives.
    pub reps: usize,
    /// Number of VPs that have ever missed on it.
    pub vps: usize,
    /// Bytes of all its parts.
    pub bytes: usize,
    /// Age in milliseconds.
    pub age_ms: u64,
    /// Misses, modulo 2^32.
    pub misses: u64,
    /// Contended calls per second, if the engine measures them.
    pub contended_per_s: Option<f64>,
    /// Number of swaps that the engine knows of.
    pub swaps: u64,
    /// `true` if the object itself is frozen.
    pub frozen: bool,
    /// `true` if all objects are frozen. Its policy changes nothing in both cases.
    #[serde(default)]
    pub frozen_all: bool,
    /// `true` if its policy only records its decisions.
    pub dry_run: bool,
    /// Reason why it keeps its present form, as a sentence, if it is adaptive.
    pub stays: Option<String>,
    /// The latest decision about it, as a sentence, if there was one.
    pub last_decision: Option<String>,
    /// Id of the live object that it is a part of, if the program said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part_of: Option<String>,
    /// The mediator in front of it, while it is being swapped or is arbitrated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mediator: Option<MediatorView>,
    /// Names by which other processes can import it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exported_as: Vec<String>,
    /// Number of connections of other processes that call it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub callers: usize,
    /// Name by which it was imported, if it is an object of another process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imported_as: Option<String>,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// A mediator in front of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MediatorView {
    /// `forward`, `block`, `transfer` or `arbitrate`: the treatment of calls.
    pub phase: String,
    /// Class of the object behind it.
    pub target: String,
    /// Class of the object that takes its place if the swap succeeds.
    pub replacement: Option<String>,
    /// The only method whose calls an arbiter's function gets, if it was attached to one method.
    pub method: Option<String>,
}

/// An object that is linked to another one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RelatedView {
    /// Id of the object, as text.
    pub id: String,
    /// Name that the program gave it, if any. May contain control characters.
    pub name: Option<String>,
    /// Name of its interface.
    pub interface: String,
    /// Name of its class, without module paths and constant parameters.
    pub class: String,
}

/// One object in detail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Detail {
    /// The fields of its row.
    #[serde(flatten)]
    pub row: ObjectView,
    /// Name of its class, with the module path.
    pub class_path: String,
    /// `shared` or `clustered`.
    pub kind: String,
    /// Source position of its interface.
    pub interface_source: String,
    /// Source position of its creation.
    pub made_at: String,
    /// VP that its id was allocated on.
    pub home: Option<usize>,
    /// VPs that have ever missed on it, as a list of ranges.
    pub translations: String,
    /// Bytes of the author's own fields.
    pub value_bytes: usize,
    /// The first representatives. `row.reps` is the number of all.
    pub rep_list: Vec<RepView>,
    /// Its attributes; empty if it has no attributes.
    pub attributes: Vec<AttributeView>,
    /// Names of the implementations that it can be swapped to.
    pub implementations: Vec<String>,
    /// The latest decision about the object.
    pub last: Option<DecisionView>,
    /// The change by which a client froze the object or, if it is not frozen itself, all objects.
    #[serde(default)]
    pub frozen_by: Option<ActionView>,
    /// The live object that it is a part of.
    #[serde(default)]
    pub whole: Option<RelatedView>,
    /// The first live objects that are parts of it.
    #[serde(default)]
    pub parts: Vec<RelatedView>,
    /// Number of all of its parts.
    #[serde(default)]
    pub parts_count: usize,
    /// Its exports to other processes, with their callers.
    #[serde(default)]
    pub exports: Vec<ExportView>,
    /// The process that serves it, if it was imported.
    #[serde(default)]
    pub import: Option<ImportView>,
}

/// One representative.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RepView {
    /// Cluster that the representative serves.
    pub cluster: Option<usize>,
    /// VP that created the representative.
    pub vp: Option<usize>,
    /// Calls that hold it because they may block.
    pub holds: u32,
}

/// One attribute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AttributeView {
    /// Name; `operation.name` for the value of one operation.
    pub name: String,
    /// Type of the attribute's values.
    pub kind: String,
    /// Value, as text.
    pub value: String,
    /// Unit; empty if it has no unit.
    pub unit: String,
    /// Default value.
    pub default: String,
    /// Range, or the list of values.
    pub range: String,
    /// Description.
    pub about: String,
    /// Scope of the value: `default`, `class`, `instance`, `operation` or `call`.
    pub from: String,
}

/// One decision of a policy or of a person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DecisionView {
    /// Time of the decision, in milliseconds since 1970.
    pub at_ms: u64,
    /// Id of the object, as text.
    pub id: String,
    /// Name that the program gave the object, if any. May contain control characters.
    pub name: Option<String>,
    /// Family of the object.
    pub family: String,
    /// Form that served before the decision.
    pub from: String,
    /// Form that was chosen.
    pub to: String,
    /// VP that the form is biased to, for a biased form.
    #[serde(default)]
    pub place: Option<usize>,
    /// Action taken.
    pub verdict: String,
    /// Author of a swap by hand, if the program knows it. See [`ActionView::author`].
    #[serde(default)]
    pub author: Option<String>,
    /// User of the client that asked for it, as the kernel reports it.
    #[serde(default)]
    pub uid: Option<u32>,
    /// Process of that client, as the kernel reports it.
    #[serde(default)]
    pub pid: Option<u32>,
    /// Reason, as a sentence.
    pub why: String,
    /// Sensor readings, call counts and cost estimates that the decision rests on.
    #[serde(default)]
    pub readings: String,
    /// Duration in microseconds.
    pub took_us: u64,
    /// Report of the swap, if one began.
    pub swap: Option<SwapView>,
}

/// One change that a client asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ActionView {
    /// Time of the change, in milliseconds since 1970.
    pub at_ms: u64,
    /// Id of the object, as text; absent for a change of all objects.
    pub id: Option<String>,
    /// The change, such as `freeze` or `set margin = 2.5`. May contain control characters.
    pub action: String,
    /// Author of the change, as the client named itself, with escaped control characters. The user and the
    /// process that the kernel reports follow, unless the name ends with `user NAME` of that very user.
    pub author: Option<String>,
    /// User of the client, as the kernel reports it.
    pub uid: Option<u32>,
    /// Process of the client, as the kernel reports it. Absent if its pid namespace is not visible.
    pub pid: Option<u32>,
    /// `done`, or the reason of the refusal.
    pub outcome: String,
}

/// Topology that the program uses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct MachineView {
    /// `true` if the program uses a virtual topology.
    pub is_virtual: bool,
    /// Levels of the topology, finest first.
    pub levels: Vec<LevelView>,
    /// VPs that are online.
    pub online: Vec<usize>,
}

/// One level of a topology.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct LevelView {
    /// Name of the level, such as `core`.
    pub name: String,
    /// VPs of each cluster.
    pub clusters: Vec<Vec<usize>>,
}

/// Report of a swap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SwapView {
    /// Begin of the swap, in milliseconds since 1970.
    pub began_ms: u64,
    /// Id of the object, as text.
    pub id: String,
    /// Name of its interface.
    pub interface: String,
    /// Class of the object that served before the swap.
    pub from: String,
    /// Class that was to serve.
    pub to: String,
    /// `swapped`, or the reason of the failure.
    pub outcome: String,
    /// Duration in microseconds.
    pub total_us: u64,
    /// Longest time that a call waited, in microseconds.
    pub longest_pause_us: u64,
    /// Calls that were forwarded to the old implementation.
    pub forwarded: u64,
    /// Calls that waited.
    pub blocked: u64,
    /// Format of the state that moved.
    pub format: Option<String>,
    /// Bytes of that state.
    pub bytes: usize,
}

/// Calls of an object, counted over a span.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CallsView {
    /// Span of the count, in microseconds.
    pub span_us: u64,
    /// Calls of each method.
    pub by_method: Vec<(String, u64)>,
    /// Calls of each VP that called the object.
    pub by_vp: Vec<(usize, u64)>,
}

impl CallsView {
    /// Returns the calls per second.
    pub fn per_s(&self) -> f64 {
        let calls: u64 = self.by_method.iter().map(|(_, calls)| calls).sum();
        calls as f64 * 1e6 / self.span_us.max(1) as f64
    }
}

#[cfg(test)]
mod tests;
