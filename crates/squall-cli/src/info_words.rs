//! Explanations of the lines of `squall info`: a sentence that says the meaning, and one with the
//! consequence.

use serde_json::Value;

/// Explanation of one line.
pub(crate) struct Words {
    /// The thing that the line names.
    pub(crate) is: &'static str,
    /// The consequence for a program.
    pub(crate) means: &'static str,
}

/// Lines with one consequence: the key, with the keys above it, and the two sentences.
const FIXED: &[(&str, &str, &str)] = &[
    ("version", "Version of Squall.", "Name it in a report of a fault."),
    ("commit", "Commit that this binary was built from.", "Name it in a report of a fault."),
    ("rustc", "Compiler of this binary.", "Compare measured times only between equal compilers."),
    ("kernel", "Kernel that runs now.", "Kernels before 5.10 lack a membarrier that the fast modes need."),
    ("arch", "Instruction set of this binary.", "x86_64 and aarch64 have the fast paths."),
    ("cpu", "Model of the processors.", "Compare measured times only between equal models."),
    (
        "page_bytes",
        "Size of a page of memory.",
        "Memory that Squall reserves costs only the pages that are touched.",
    ),
    (
        "vps",
        "Virtual processors: those that Squall keeps data for.",
        "A distributed object has at most this many representatives.",
    ),
    (
        "vp_limit",
        "Highest number of a virtual processor, plus one.",
        "Tables and reserved addresses grow with it.",
    ),
    ("possible", "Processors that this machine may ever have.", "They bound the virtual processors."),
    ("online", "Processors that are switched on.", "Threads run on these only."),
    (
        "allowed",
        "Processors that this process may use (taskset).",
        "Threads of the program run on these only.",
    ),
    ("cpuset", "Processors that the control group permits.", "A container's share of the machine."),
    (
        "quota_cpus",
        "Processor time that the control group grants, in processors.",
        "With a quota below the allowed processors, threads pause while they hold locks.",
    ),
    (
        "parallelism",
        "Threads that can really run at once.",
        "Start about as many busy threads. At 1, objects never become distributed.",
    ),
    (
        "topology.virtual",
        "Whether SQUALL_TOPOLOGY replaces the machine's levels.",
        "If true, the machine is pretended: for tests, not for measurements.",
    ),
    ("topology.source", "Source of the levels.", "Clusters are right if this source is right."),
    (
        "topology.levels",
        "Levels of neighbouring processors, from the smallest.",
        "A distributed object has one representative for each cluster of the level it chooses.",
    ),
    (
        "topology.default_cluster_size",
        "Level of the clusters of new objects.",
        "Threads of one such cluster share a representative.",
    ),
    (
        "topology.memory_nodes",
        "Memories with processors of their own (NUMA nodes).",
        "With several, a representative lies in the memory of its processors.",
    ),
    (
        "topology.kinds",
        "Kinds of processors, such as fast and efficient ones.",
        "A thread's speed depends on its processor.",
    ),
    (
        "topology.unplaced",
        "Processors without a place in the levels.",
        "Each is a cluster of its own, so its threads share with no neighbour.",
    ),
    (
        "reclaimer.name",
        "Thread that runs deferred calls, such as drops.",
        "Look for this name in `top -H` or a debugger.",
    ),
    (
        "reclaimer.state",
        "State of that thread in this process.",
        "If it is off, the threads that retire objects run the drops themselves.",
    ),
    ("engine.name", "Thread that lets objects adapt.", "Look for this name in `top -H` or a debugger."),
    ("engine.state", "State of that thread in this process.", "While it is off, objects keep their form."),
    (
        "costs.multiplication_ns",
        "Time of a multiplication on this processor.",
        "The unit of the other work in the costs of adaptive objects.",
    ),
    (
        "costs.locked_addition_ns",
        "Time of an atomic addition to a word in the cache.",
        "The dearer it is, the sooner objects avoid it.",
    ),
    (
        "costs.addition_to_own_vp_ns",
        "Time of an addition to a word of the processor.",
        "If it costs as much as an atomic one, distributed counters gain by locality alone.",
    ),
    ("costs.full_fence_ns", "Time of a full memory fence.", "Locks and writes of tables contain some."),
    (
        "costs.fences_of_an_operation_ns",
        "Time that fences add to each call of an object.",
        "Zero while membarrier serves; else every call pays it.",
    ),
    (
        "costs.line_transfer_ns",
        "Time to move a cache line between processors.",
        "A usual value until contended locks have measured it.",
    ),
    (
        "may_start",
        "Threads that Squall may start, each with its trigger.",
        "Other hidden threads do not exist. The setting after the semicolon avoids each.",
    ),
    (
        "rcu.threads",
        "Threads that called an object or opened an operation.",
        "A grace period looks at each of them.",
    ),
    (
        "rcu.records",
        "Records of threads, in use or kept for later ones.",
        "Their number follows the most threads at once.",
    ),
    ("rcu.bytes_per_thread", "Memory of such a record.", "Each thread that calls objects costs this much."),
    (
        "rcu.pending_calls",
        "Deferred calls that wait for a grace period.",
        "If it keeps growing, a thread stays inside a call or a read section.",
    ),
    ("rcu.pending_bytes", "Memory that those calls will free.", "It counts as used until then."),
    ("rcu.grace_periods", "Grace periods so far.", "Each let retired memory be freed."),
    (
        "rcu.throttled",
        "Times that a thread had to help, because too many calls were pending.",
        "Above zero, the program retires faster than readers finish.",
    ),
    ("pervp.chunks", "Reservations for data of each processor.", "More are made as objects need them."),
    ("pervp.reserved_bytes", "Addresses of those reservations.", "Only touched pages are memory."),
    (
        "pervp.bytes_per_vp",
        "Bytes in use for each processor.",
        "Multiply by the processors in use for the memory.",
    ),
    (
        "objects.live",
        "Objects in this process. `squall info` made one for this report.",
        "A program sees its own number in `squall top`.",
    ),
    (
        "objects.misses",
        "Calls that found no entry for their processor.",
        "The first call on each processor is one; later calls are fast.",
    ),
    (
        "objects.reserved_bytes",
        "Addresses of the tables of objects.",
        "They count as virtual memory (VSZ), not as memory in use (RSS).",
    ),
    (
        "objects.bytes_per_shared_object",
        "Memory of an object with one representative.",
        "The value comes on top.",
    ),
    (
        "objects.table_bytes_per_object",
        "Memory in the global table for each object.",
        "It is paid once for an object.",
    ),
    (
        "objects.table_bytes_per_object_and_vp",
        "Memory in a processor's table for each object that it calls.",
        "It is paid once for an object and processor.",
    ),
    (
        "objects.slots_used",
        "Slots of the tables that were ever taken.",
        "Slots of destroyed objects are used again.",
    ),
    (
        "objects.slots_retired",
        "Slots that ran out of generations.",
        "They are never used again. The number stays at zero for years.",
    ),
    ("threads", "Threads of Squall in this process now.", "A program sees its own in `squall top`."),
    (
        "warnings",
        "Contradictions found in the description of the machine.",
        "Each says the assumption that replaces the missing fact.",
    ),
];

/// Returns the explanation of the line with this key, which contains the keys above it, as in `rcu.threads`.
pub(crate) fn of(path: &str, value: &Value) -> Option<Words> {
    if let Some((_, is, means)) = FIXED.iter().find(|(key, ..)| *key == path) {
        return Some(Words { is, means });
    }
    let mode = value.get("mode").and_then(Value::as_str).unwrap_or_default();
    let state = value.as_str().unwrap_or_default();
    let (is, means) = match path {
        "rseq" => (
            "Restartable sequences: short operations that the kernel restarts if it moves the thread.",
            match mode {
                "restartable" => "An update of a processor's own data needs no locked instruction.",
                _ => "An update of a processor's own data takes a locked instruction: several times as long.",
            },
        ),
        "membarrier" => (
            "Fences that the waiting side pays, through the kernel.",
            match mode {
                "membarrier" => "A call of an object needs no fence.",
                _ => "Each call of an object contains a fence, which costs some nanoseconds.",
            },
        ),
        "objects.state" => (
            "Result of making one object and calling it.",
            match state {
                "working" => "Objects work in this environment.",
                _ => "Objects do not work here. The text is the error that a program gets.",
            },
        ),
        "alloc" => (
            "The allocator `LocalityAlloc` and the arenas.",
            match mode {
                "restartable" => "An allocation takes a block of its processor, without a lock.",
                "refused by the system" => {
                    "The system grants no addresses: raise the limit (ulimit -v), or set SQUALL_ALLOC_ARENA_MIB."
                }
                _ => "Each allocation takes a lock, and is several times slower.",
            },
        ),
        _ => return None,
    };
    Some(Words { is, means })
}
