//! The crates of the workspace: the floor of each, and its permissions.
//!
//! A new crate needs a row here; tidy refuses a crate without one.

/// Where a crate may hold `unsafe`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsafe {
    /// Anywhere. A lint demands an argument for each block.
    Anywhere,
    /// Only below these folders, and in these files, of the crate. The crate's root denies it elsewhere.
    Below(&'static [&'static str]),
    /// Nowhere. The crate's root forbids it.
    Nowhere,
}

/// One crate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crate {
    /// Its package name.
    pub(crate) name: &'static str,
    /// Its floor. A crate may depend only on crates of lower floors.
    pub(crate) floor: u32,
    /// Where it may hold `unsafe`.
    pub(crate) may_unsafe: Unsafe,
    /// Whether it takes atomics, cells and threads from `squall_sys::sync` alone, so that a model checker
    /// sees them.
    pub(crate) one_door: bool,
}

/// The highest floor on which every module opens with a header.
pub(crate) const ESSAY_FLOOR: u32 = 3;
/// The floor of the crate that users depend on.
const FACADE: u32 = 8;
/// The floor of programs as users write them.
const EXAMPLES: u32 = 9;
/// The floor of the programs that measure Squall.
const INSTRUMENTS: u32 = 10;
/// The floor of the tools that build and check the rest. Like floor 0, it depends on no crate of Squall.
const TOOLS: u32 = 0;

/// Every crate of the workspace.
pub(crate) const CRATES: &[Crate] = &[
    Crate { name: "squall-sys", floor: 0, may_unsafe: Unsafe::Anywhere, one_door: false },
    Crate { name: "squall-machine", floor: 1, may_unsafe: Unsafe::Anywhere, one_door: true },
    Crate { name: "squall-rcu", floor: 2, may_unsafe: Unsafe::Anywhere, one_door: true },
    Crate { name: "squall-alloc", floor: 2, may_unsafe: Unsafe::Anywhere, one_door: true },
    Crate { name: "squall-lock", floor: 2, may_unsafe: Unsafe::Anywhere, one_door: true },
    Crate { name: "squall-parts", floor: 3, may_unsafe: Unsafe::Anywhere, one_door: true },
    Crate { name: "squall-core", floor: 3, may_unsafe: Unsafe::Anywhere, one_door: true },
    Crate { name: "squall-macros", floor: 0, may_unsafe: Unsafe::Nowhere, one_door: false },
    Crate { name: "squall-policy", floor: 4, may_unsafe: Unsafe::Nowhere, one_door: false },
    Crate { name: "squall-call", floor: 4, may_unsafe: Unsafe::Nowhere, one_door: false },
    Crate { name: "squall-fleet", floor: 5, may_unsafe: Unsafe::Nowhere, one_door: false },
    Crate { name: "squall-adapt", floor: 5, may_unsafe: Unsafe::Nowhere, one_door: false },
    Crate { name: "squall-net", floor: 6, may_unsafe: Unsafe::Nowhere, one_door: false },
    Crate { name: "squall-pool", floor: 6, may_unsafe: Unsafe::Nowhere, one_door: false },
    Crate { name: "squall-pool-c", floor: 7, may_unsafe: Unsafe::Below(&["src/ffi"]), one_door: false },
    Crate { name: "squall-objects", floor: 6, may_unsafe: Unsafe::Nowhere, one_door: false },
    Crate {
        name: "squall-pager",
        floor: 7,
        may_unsafe: Unsafe::Below(&["src/slot.rs", "src/memory.rs", "src/hat"]),
        one_door: false,
    },
    Crate { name: "squall-cache", floor: 7, may_unsafe: Unsafe::Nowhere, one_door: false },
    Crate { name: "squall-browse", floor: 7, may_unsafe: Unsafe::Nowhere, one_door: false },
    Crate { name: "squall-locality", floor: 6, may_unsafe: Unsafe::Nowhere, one_door: false },
    Crate { name: "squall", floor: FACADE, may_unsafe: Unsafe::Nowhere, one_door: false },
    Crate { name: "squall-cache-example", floor: EXAMPLES, may_unsafe: Unsafe::Nowhere, one_door: false },
    Crate { name: "squall-untrusted-example", floor: EXAMPLES, may_unsafe: Unsafe::Nowhere, one_door: false },
    Crate { name: "squall-workers-example", floor: EXAMPLES, may_unsafe: Unsafe::Nowhere, one_door: false },
    Crate { name: "squall-tsp", floor: EXAMPLES, may_unsafe: Unsafe::Nowhere, one_door: false },
    Crate {
        name: "squall-bench",
        floor: INSTRUMENTS,
        may_unsafe: Unsafe::Below(&["src/rivals"]),
        one_door: false,
    },
    Crate {
        name: "squall-stress",
        floor: INSTRUMENTS + 1,
        may_unsafe: Unsafe::Below(&["src/rcu/signals", "src/fork/raw.rs"]),
        one_door: false,
    },
    Crate { name: "squall-report", floor: INSTRUMENTS + 1, may_unsafe: Unsafe::Nowhere, one_door: false },
    Crate { name: "squall-web", floor: INSTRUMENTS, may_unsafe: Unsafe::Nowhere, one_door: false },
    Crate { name: "squall-cli", floor: INSTRUMENTS + 2, may_unsafe: Unsafe::Nowhere, one_door: false },
    Crate { name: "squall-locality-plugin", floor: TOOLS, may_unsafe: Unsafe::Anywhere, one_door: false },
    Crate { name: "squall-history", floor: TOOLS, may_unsafe: Unsafe::Nowhere, one_door: false },
    Crate { name: "squall-vm-init", floor: TOOLS, may_unsafe: Unsafe::Nowhere, one_door: false },
    Crate { name: "xtask", floor: TOOLS, may_unsafe: Unsafe::Nowhere, one_door: false },
];

/// The crate of this name.
pub(crate) fn named(name: &str) -> Option<&'static Crate> {
    CRATES.iter().find(|known| known.name == name)
}
