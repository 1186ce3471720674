//! For each rule, a tree that keeps it and trees that each break it in one way.

use std::collections::BTreeSet;

use super::RULES;
use super::problems::{Problem, Problems};
use super::tree::Tree;

/// Files of a small tree: paths and texts.
type Files = &'static [(&'static str, &'static str)];

struct Example {
    rule: &'static str,
    /// The rule finds no problem here.
    good: Files,
    /// The rule finds exactly one problem in each tree, and its text contains the words beside the tree.
    bad: &'static [(&'static str, Files)],
}

/// Manifests that keep every rule.
const MACHINE: &str = "[package]\nname = \"squall-machine\"\n[lints]\nworkspace = true\n[dependencies]\nsquall-sys = { workspace = true }\n";
const SYS: &str = "[package]\nname = \"squall-sys\"\n[lints]\nworkspace = true\n";
const CORE: &str = "[package]\nname = \"squall-core\"\n[lints]\nworkspace = true\n";
const RCU: &str = "[package]\nname = \"squall-rcu\"\n[target.\"cfg(not(loom))\".dev-dependencies]\nsquall = { path = \"../squall\" }\n";
const CLI: &str = "[package]\nname = \"squall-cli\"\n[lints]\nworkspace = true\n";
const VM: &str = "[package]\nname = \"squall-vm-init\"\n[lints]\nworkspace = true\n";
const BENCH: &str = "[package]\nname = \"squall-bench\"\n[lints]\nworkspace = true\n";
const STATED: &str = "//! Ring.\n//!\n//! - I1. One writer.\n//! - I2. See I1.\n";
const TEST: &str = "#[test]\nfn pops_in_order() {}\nmacro_rules! laws {\n    () => {\n        #[test]\n        fn $n() {}\n    }\n}\nlaws! {\n    empty_pops_none: 0,\n}\nfn no_test() {}\n";

const WORKSPACE: &str = "[workspace.package]\nlicense = \"MIT OR Apache-2.0\"\nkeywords = [\"rcu\"]\ncategories = [\"concurrency\"]\nrust-version = \"1.95\"\n";
const PUBLISHED: &str = "[package]\nname = \"squall-sys\"\ndescription = \"What Linux gives\"\nlicense.workspace = true\nkeywords.workspace = true\ncategories.workspace = true\nrust-version.workspace = true\nreadme = \"README.md\"\n";
const README: &str = "# squall-sys\n\nWhat Linux gives.\n\nNothing more.\n";

const LIST_HEAD: &str =
    "| id | paper, section | in our words | where | test | state |\n|---|---|---|---|---|---|\n";

/// Re-exports of the façade.
const FACADE: &str = "pub use squall_core::{Root, swap};\npub mod rcu {\n    pub use squall_rcu::*;\n}\npub mod prelude {\n    pub use squall_core::wrap::Around;\n}\n";

/// A word of 100 columns.
macro_rules! hundred {
    () => {
        "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"
    };
}

const EXAMPLES: &[Example] = &[
    Example {
        rule: "depend-down",
        good: &[
            ("crates/squall-machine/Cargo.toml", MACHINE),
            ("crates/squall-sys/Cargo.toml", SYS),
            (
                "a/Cargo.toml",
                "[package]\nname = \"squall-macros\"\n[target.\"cfg(squall_global_alloc)\".dependencies]\nsquall-alloc = \"1\"\n",
            ),
            ("b/Cargo.toml", RCU),
            ("b/src/lib.rs", "/// ```\n/// squall::f();\n/// ```\nfn f() { my_squall::g(\"squall::g\"); }\n"),
            ("b/tests/docs/counter.rs", "use squall::Root;\n"),
        ],
        bad: &[
            (
                "squall-sys on floor 0 depends on squall-lock on floor 2",
                &[(
                    "a/Cargo.toml",
                    "[package]\nname = \"squall-sys\"\n[target.\"cfg(squall_global_alloc)\".dependencies]\nsquall-lock = \"1\"\n",
                )],
            ),
            (
                "squall-sys on floor 0 depends on squall-alloc on floor 2",
                &[(
                    "a/Cargo.toml",
                    "[package]\nname = \"squall-sys\"\n[target.\"cfg(unix)\".dependencies]\nsquall-alloc = \"1\"\n",
                )],
            ),
            (
                "squall-sys on floor 0 depends on squall-machine on floor 1",
                &[(
                    "crates/squall-sys/Cargo.toml",
                    "[package]\nname = \"squall-sys\"\n[dev-dependencies]\nsquall-machine = \"1\"\n",
                )],
            ),
            (
                "squall-sys on floor 0 depends on squall-macros on floor 0",
                &[(
                    "a/Cargo.toml",
                    "[package]\nname = \"squall-sys\"\n[target.\"cfg(loom)\".dependencies]\nmacros = { package = \"squall-macros\" }\n",
                )],
            ),
            (
                "squall-rcu on floor 2 depends on squall on floor 8",
                &[(
                    "a/Cargo.toml",
                    "[package]\nname = \"squall-rcu\"\n[dev-dependencies]\nsquall = { path = \"b\", version = \"1\" }\n",
                )],
            ),
            (
                "squall-rcu on floor 2 depends on squall on floor 8",
                &[(
                    "a/Cargo.toml",
                    "[package]\nname = \"squall-rcu\"\n[dev-dependencies]\nsquall = { workspace = true }\n",
                )],
            ),
            (
                "squall-rcu on floor 2 depends on squall on floor 8",
                &[(
                    "a/Cargo.toml",
                    "[package]\nname = \"squall-rcu\"\n[dependencies]\nsquall = { path = \"b\" }\n",
                )],
            ),
            (
                "only examples may name squall",
                &[("a/Cargo.toml", RCU), ("a/tests/main.rs", "use squall::rcu::pin;\n")],
            ),
            (
                "squall-new has no floor",
                &[("crates/squall-new/Cargo.toml", "[package]\nname = \"squall-new\"\n")],
            ),
        ],
    },
    Example {
        rule: "map-matches-tree",
        good: &[
            ("crates/squall-sys/Cargo.toml", SYS),
            (
                "ARCHITECTURE.md",
                "# Map\n## Floors\n### `squall-sys`\n**Invariant.** a\n**Does not know.** b\n",
            ),
        ],
        bad: &[
            (
                "squall-sys has no heading",
                &[("crates/squall-sys/Cargo.toml", SYS), ("ARCHITECTURE.md", "# Map\n")],
            ),
            (
                "squall-old is no crate",
                &[("ARCHITECTURE.md", "### `squall-old`\n**Invariant.** a\n**Does not know.** b\n")],
            ),
            (
                "squall-sys has no **Does not know**",
                &[
                    ("crates/squall-sys/Cargo.toml", SYS),
                    ("ARCHITECTURE.md", "### `squall-sys`\n**Invariant.** a\n### x\n**Does not know.**\n"),
                ],
            ),
            ("is missing", &[]),
        ],
    },
    Example {
        rule: "no-import-circle",
        good: &[
            ("crates/squall-core/Cargo.toml", CORE),
            ("crates/squall-core/src/lib.rs", "mod a;\nmod b;\nmod call;\nmod c;\nmod d;\nmod e;\n"),
            ("crates/squall-core/src/a.rs", "use super::b::B;\npub(crate) struct A;\n"),
            ("crates/squall-core/src/b.rs", "use super::c::C;\npub(crate) struct B;\n"),
            ("crates/squall-core/src/c.rs", "use super::d::D;\npub(crate) struct C;\n"),
            ("crates/squall-core/src/d.rs", "use super::e::E;\npub(crate) struct D;\n"),
            ("crates/squall-core/src/e.rs", "use super::a::A;\npub(crate) struct E;\n"),
            ("crates/squall-core/src/call/mod.rs", "use super::a::A;\n"),
        ],
        bad: &[
            (
                "6 files in a circle, 5 are allowed: a.rs, b.rs, c.rs, d.rs, e.rs, f.rs; a.rs:1 names super::b::B of b.rs",
                &[
                    ("crates/squall-core/Cargo.toml", CORE),
                    ("crates/squall-core/src/lib.rs", "mod a;\nmod b;\nmod c;\nmod d;\nmod e;\nmod f;\n"),
                    ("crates/squall-core/src/a.rs", "use super::b::B;\npub(crate) struct A;\n"),
                    ("crates/squall-core/src/b.rs", "use super::c::C;\npub(crate) struct B;\n"),
                    ("crates/squall-core/src/c.rs", "use super::d::D;\npub(crate) struct C;\n"),
                    ("crates/squall-core/src/d.rs", "use super::e::E;\npub(crate) struct D;\n"),
                    ("crates/squall-core/src/e.rs", "use super::f::F;\npub(crate) struct E;\n"),
                    ("crates/squall-core/src/f.rs", "use super::a::A;\npub(crate) struct F;\n"),
                ],
            ),
            (
                "2 wings in a circle, 0 are allowed: call, swap",
                &[
                    ("crates/squall-core/Cargo.toml", CORE),
                    ("crates/squall-core/src/lib.rs", "mod call;\nmod swap;\n"),
                    ("crates/squall-core/src/call/mod.rs", "use super::swap::S;\npub(crate) struct C;\n"),
                    ("crates/squall-core/src/swap/mod.rs", "use super::call::C;\npub(crate) struct S;\n"),
                ],
            ),
            (
                "cannot be parsed",
                &[("crates/squall-core/Cargo.toml", CORE), ("crates/squall-core/src/lib.rs", "fn f( {}\n")],
            ),
        ],
    },
    Example {
        rule: "numbered-invariants",
        good: &[
            ("crates/squall-rcu/src/ring.rs", STATED),
            (
                "crates/squall-rcu/src/raw/mod.rs",
                "//! - **I1.** A crate's `X-22` and a name like `CI1` are no citations.\n",
            ),
            ("crates/squall-rcu/src/lib.rs", "// By ring/I2 and raw/I1.\nlet s = \"ring/I9\";\n"),
            ("crates/squall-rcu/README.md", "- I1. Holds.\n"),
            ("bench/src/lib.rs", "// rcu/I1\n"),
        ],
        bad: &[
            ("ring/I3 is stated nowhere", &[("a/src/ring.rs", STATED), ("a/src/lib.rs", "// ring/I3\n")]),
            (
                "queue/I1 is stated nowhere",
                &[("a/src/ring.rs", STATED), ("crates/a/README.md", "By queue/I1.\n")],
            ),
            ("I2 is not stated in this file", &[("a/src/lib.rs", "//! - I1. Yes.\n// by I2\n")]),
            ("I1 is stated twice", &[("a/src/lib.rs", "//! - I1. Yes.\n/// - I1. No.\n")]),
            ("I3 is stated where I2 comes next", &[("a/src/lib.rs", "//! - I1. Yes.\n//! - I3. No.\n")]),
        ],
    },
    Example {
        rule: "ordering-names-partner",
        good: &[(
            "a/src/lib.rs",
            concat!(
                "use x::Ordering::{self, Acquire};\n",
                "use x::{\n",
                "    Release, fence,\n",
                "};\n",
                "fn a() {\n",
                "    // Pairs with b.\n",
                "    x.load(Ordering::Acquire);\n",
                "    y.load(Ordering::Relaxed);\n",
                "    z.store(1, Release); // pairs with a\n",
                "    defence(1);\n",
                "\n",
                "\n",
                "\n",
                "\n",
                "\n",
                "\n",
                "    pass(Release::HandOff);\n",
                "}\n",
                "#[cfg(test)]\n",
                "mod tests {\n",
                "    fn t() { x.load(Ordering::SeqCst); }\n",
                "}\n"
            ),
        )],
        bad: &[
            ("Acquire without", &[("a/src/lib.rs", "fn a() {\n    x.load(Ordering::Acquire);\n}\n")]),
            ("SeqCst without", &[("a/src/lib.rs", "// Why not.\nfn a() { fence(SeqCst) }\n")]),
            ("light_fence without", &[("a/src/lib.rs", "fn a() { asym::light_fence() }\n")]),
            ("Release without", &[("a/src/lib.rs", "// pairs with b\n\n\n\n\n\n\nx.store(1, Release);\n")]),
        ],
    },
    Example {
        rule: "one-sync-door",
        good: &[
            ("crates/squall-machine/Cargo.toml", MACHINE),
            (
                "crates/squall-machine/src/lib.rs",
                "use squall_sys::sync::atomic::AtomicU64;\nuse std::cell::Cell;\nfn f() -> bool { std::thread::panicking() }\n#[cfg(all(loom, test))]\nmod model;\n#[cfg(test)]\nmod tests {\n    use std::thread;\n}\n",
            ),
            ("crates/squall-machine/src/model.rs", "use loom::model;\n"),
            ("crates/squall-sys/Cargo.toml", SYS),
            ("crates/squall-sys/src/lib.rs", "use std::sync::atomic::AtomicU64;\n"),
        ],
        bad: &[
            (
                "std::sync bypasses",
                &[
                    ("crates/squall-machine/Cargo.toml", MACHINE),
                    ("crates/squall-machine/src/a.rs", "use std::sync::Mutex;\n"),
                ],
            ),
            (
                "std::thread bypasses",
                &[
                    ("crates/squall-machine/Cargo.toml", MACHINE),
                    ("crates/squall-machine/src/a.rs", "fn f() { std::thread::yield_now() }\n"),
                ],
            ),
            (
                "loom bypasses",
                &[
                    ("crates/squall-machine/Cargo.toml", MACHINE),
                    ("crates/squall-machine/src/a.rs", "#[cfg(loom)]\nuse loom::sync::Arc;\n"),
                ],
            ),
            (
                "core::cell::UnsafeCell bypasses",
                &[
                    ("crates/squall-machine/Cargo.toml", MACHINE),
                    ("crates/squall-machine/src/a.rs", "use core::cell::UnsafeCell;\n"),
                ],
            ),
        ],
    },
    Example {
        rule: "unsafe-floor",
        good: &[
            ("crates/squall-vm-init/Cargo.toml", VM),
            ("crates/squall-vm-init/src/main.rs", "#![forbid(unsafe_code)]\n"),
            ("crates/squall-sys/Cargo.toml", SYS),
            ("crates/squall-sys/src/lib.rs", "unsafe fn f() {}\n"),
            ("bench/Cargo.toml", BENCH),
            ("bench/src/lib.rs", "#![deny(unsafe_code)]\n// unsafe is below rivals\n"),
            ("bench/src/rivals/liburcu.rs", "unsafe fn f() {}\n"),
        ],
        bad: &[
            (
                "lacks #![",
                &[
                    ("crates/squall-vm-init/Cargo.toml", VM),
                    ("crates/squall-vm-init/src/main.rs", "fn main() {}\n"),
                ],
            ),
            (
                "lacks #![",
                &[
                    ("crates/squall-vm-init/Cargo.toml", VM),
                    ("crates/squall-vm-init/src/bin/two.rs", "// #![forbid(unsafe_code)]\n"),
                ],
            ),
            ("unsafe outside of", &[("bench/Cargo.toml", BENCH), ("bench/src/other.rs", "unsafe { f() }\n")]),
        ],
    },
    Example {
        rule: "owned-fd",
        good: &[
            ("a/src/lib.rs", "use std::os::fd::{AsFd, OwnedFd};\nfn close() { self.close(); }\n"),
            ("crates/squall-sys/src/system.rs", "let fd = unsafe { OwnedFd::from_raw_fd(3) };\n"),
        ],
        bad: &[
            ("RawFd is refused", &[("a/src/lib.rs", "fn f(fd: RawFd) {}\n")]),
            ("from_raw_fd is refused", &[("a/src/lib.rs", "let fd = unsafe { OwnedFd::from_raw_fd(3) };\n")]),
            ("libc::close is refused", &[("a/src/lib.rs", "libc::close(fd);\n")]),
        ],
    },
    Example {
        rule: "lints-inherited",
        good: &[("crates/squall-sys/Cargo.toml", SYS)],
        bad: &[
            ("lacks `workspace = true`", &[("a/Cargo.toml", "[package]\nname = \"squall-sys\"\n")]),
            (
                "lacks `workspace = true`",
                &[("a/Cargo.toml", "[package]\nname = \"squall-sys\"\n[lints]\nworkspace = false\n")],
            ),
        ],
    },
    Example {
        rule: "published-complete",
        good: &[
            ("Cargo.toml", WORKSPACE),
            ("crates/squall-sys/Cargo.toml", PUBLISHED),
            ("crates/squall-sys/README.md", README),
            ("xtask/Cargo.toml", "[package]\nname = \"xtask\"\npublish = false\n"),
        ],
        bad: &[
            (
                "no readme",
                &[
                    ("Cargo.toml", WORKSPACE),
                    ("crates/squall-sys/Cargo.toml", PUBLISHED),
                    ("crates/squall-sys/README.md", "# squall-sys\n"),
                ],
            ),
            (
                "no license",
                &[
                    (
                        "Cargo.toml",
                        "[workspace.package]\nkeywords = [\"rcu\"]\ncategories = [\"concurrency\"]\nrust-version = \"1.95\"\n",
                    ),
                    ("crates/squall-sys/Cargo.toml", PUBLISHED),
                    ("crates/squall-sys/README.md", README),
                ],
            ),
        ],
    },
    Example {
        rule: "licences-here",
        good: &[
            ("Cargo.toml", WORKSPACE),
            ("LICENSE-MIT", "MIT License\n"),
            ("LICENSE-APACHE", "Apache License\n"),
        ],
        bad: &[
            ("is not the Apache", &[("Cargo.toml", WORKSPACE), ("LICENSE-MIT", "MIT License\n")]),
            (
                "is not MIT OR",
                &[
                    ("Cargo.toml", "[workspace.package]\nlicense = \"MIT\"\n"),
                    ("LICENSE-MIT", "MIT License\n"),
                    ("LICENSE-APACHE", "Apache License\n"),
                ],
            ),
        ],
    },
    Example {
        rule: "header-essay",
        good: &[
            ("crates/squall-sys/Cargo.toml", SYS),
            ("crates/squall-sys/src/lib.rs", "//! What it is.\n"),
            ("crates/squall-sys/src/tests.rs", "fn t() {}\n"),
            ("crates/squall-cli/Cargo.toml", CLI),
            ("crates/squall-cli/src/main.rs", "fn main() {}\n"),
        ],
        bad: &[(
            "does not open with",
            &[
                ("crates/squall-sys/Cargo.toml", SYS),
                ("crates/squall-sys/src/a.rs", "// Not a header.\nfn a() {}\n"),
            ],
        )],
    },
    Example {
        rule: "no-ignored-doctest",
        good: &[
            ("a/src/lib.rs", "/// ```no_run\n/// f();\n/// ```\n"),
            ("README.md", "```text\nignore\n```\n"),
        ],
        bad: &[
            ("an ignored example: use no_run, or delete it", &[("a/src/lib.rs", "/// ```ignore\n")]),
            ("an ignored example: use no_run, or delete it", &[("README.md", "```rust,ignore\n")]),
        ],
    },
    Example {
        rule: "examples-use-facade",
        good: &[
            ("crates/squall/src/lib.rs", FACADE),
            (
                "crates/squall-core/src/lib.rs",
                concat!(
                    "/// See `squall_core::Root`.\n",
                    "/// ```\n/// use squall::Root;\n/// use squall_core::wrap::Around;\n/// ```\n",
                    "/// squall_core::Root\nuse squall_rcu::pin; // ```\n// squall_rcu::pin\n"
                ),
            ),
            ("crates/squall-core/README.md", "`squall_core::Root`\n```rust\nmy_squall_core::Root;\n```\n"),
            ("crates/squall-sys/src/lib.rs", "/// ```\n/// squall_sys::page_bytes();\n/// ```\n"),
            ("instruments/bench/src/lib.rs", "/// ```\n/// squall_rcu::pin(f);\n/// ```\n"),
        ],
        bad: &[
            (
                "write squall::Root for squall_core::Root",
                &[
                    ("crates/squall/src/lib.rs", FACADE),
                    (
                        "crates/squall-core/src/a/b.rs",
                        "    //! ```no_run\n    //! # use squall_core::Root;\n",
                    ),
                ],
            ),
            (
                "write squall::swap for squall_core::{wrap, swap::{Swap",
                &[
                    ("crates/squall/src/lib.rs", FACADE),
                    (
                        "crates/squall-rcu/src/lib.rs",
                        "/// ```\n/// use squall_core::{wrap, swap::{Swap, State}};\n",
                    ),
                ],
            ),
            (
                "write squall::rcu::pin for squall_rcu::pin",
                &[
                    ("crates/squall/src/lib.rs", FACADE),
                    ("crates/squall-core/src/swap/README.md", "```rust\nsquall_rcu::pin(f);\n```\n"),
                ],
            ),
            ("cannot be parsed", &[("crates/squall/src/lib.rs", "pub use {\n")]),
        ],
    },
    Example {
        rule: "ci-tests-exist",
        good: &[
            ("a/Cargo.toml", CORE),
            ("a/src/lib.rs", "mod model {\n    fn holds() {}\n}\n"),
            ("a/tests/main/main.rs", "mod swap;\n"),
            (
                ".ci/run",
                "run cargo test -p squall-core --test main -- swap:: --nocapture\n-p squall-core --lib -- model::hol\n",
            ),
        ],
        bad: &[
            (
                "--test main: none of the packages has this test program",
                &[
                    ("a/Cargo.toml", CORE),
                    ("a/src/lib.rs", ""),
                    (".ci/run", "run cargo test -p squall-core --test main\n"),
                ],
            ),
            (
                "filter raw::model: no module or function matches raw",
                &[
                    ("a/Cargo.toml", CORE),
                    ("a/src/lib.rs", "mod model {}\n"),
                    (".ci/run", "-p squall-core --lib -- raw::model\n"),
                ],
            ),
        ],
    },
    Example {
        rule: "ci-features-exist",
        good: &[
            (
                "a/Cargo.toml",
                "[package]\nname = \"a\"\n\n[features]\ncall = []\n\n[dependencies]\nserde = { version = \"1\", optional = true }\n",
            ),
            (
                ".ci/run",
                "run cargo test -p a --features call,serde\nrun cargo check -p a --features \"$one\"\nall=(--workspace --features a/call)\n",
            ),
        ],
        bad: &[
            (
                "--features pool: none of the packages has this feature",
                &[
                    ("a/Cargo.toml", "[package]\nname = \"a\"\n\n[features]\ncall = []\n"),
                    (".ci/run", "run cargo check -p a --features call,pool\n"),
                ],
            ),
            (
                "--features b/call: none of the packages has this feature",
                &[
                    ("a/Cargo.toml", "[package]\nname = \"a\"\n\n[features]\ncall = []\n"),
                    (".ci/run", "run cargo check --workspace --features b/call\n"),
                ],
            ),
        ],
    },
    Example {
        rule: "no-machine-paths",
        good: &[(
            "README.md",
            "See /proc/cpuinfo, /sys/devices, /tmp and `docs/work/here`; a//work and x/home/y.\n",
        )],
        bad: &[
            (
                "a path of one machine: use a relative path",
                &[("README.md", concat!("Run /ho", "me/anna/squall.\n"))],
            ),
            ("a path of one machine: use a relative path", &[("a.sh", concat!("DIR=/wo", "rk/main\n"))]),
        ],
    },
    Example {
        rule: "no-leftovers",
        good: &[("a/src/lib.rs", "// X-22 is a ruling; hackney is not.\nfn todo() {}\n")],
        bad: &[
            ("marks unfinished work", &[("a/src/lib.rs", concat!("// TO", "DO: later\n"))]),
            ("marks unfinished work", &[("README.md", concat!("(FIX", "ME)\n"))]),
            ("marks unfinished work", &[("a/src/lib.rs", concat!("fn f() { unimple", "mented!() }\n"))]),
        ],
    },
    Example {
        rule: "plain-words",
        good: &[
            ("a/src/lib.rs", "// One who waits; nothing else.\nlet s = \"what who whose none\";\n"),
            ("a.md", "```\nwhat who nobody none\n```\n"),
            ("docs/results/x.md", "What who whose.\n"),
            ("xtask/ratchet.txt", "relatives b.md 3\n"),
            ("b.md", "What, who, whose.\n"),
        ],
        bad: &[
            ("2 relatives (what, who, whose ...), 1 are allowed: lines 1, 2", &[("a.md", "What\nwho\n")]),
            ("2 negatives", &[("a/src/lib.rs", "fn f() {} // None if no one waits.\n")]),
            (
                "4 relatives (what, who, whose ...), 3 are allowed",
                &[("xtask/ratchet.txt", "relatives b.md 3\n"), ("b.md", "What, who, whose, whom.\n")],
            ),
            (
                "b.md has 2 relatives (what, who, whose ...) now: write that down",
                &[("xtask/ratchet.txt", "relatives b.md 3\n"), ("b.md", "What, who.\n")],
            ),
            (
                "b.md keeps the rule now: strike it out",
                &[("xtask/ratchet.txt", "relatives b.md 3\n"), ("b.md", "What.\n")],
            ),
        ],
    },
    Example {
        rule: "plain-openings",
        good: &[(
            "a/src/lib.rs",
            "/// Returns it.\n///\n/// It waits.\nfn f() {}\n// As [`f`].\n/// Items.\nfn g() {}\n",
        )],
        bad: &[
            (
                "open with a pointer, 0 are allowed: lines 1",
                &[("a/src/lib.rs", "/// As [`f`].\nfn g() {}\n")],
            ),
            ("open with a pointer", &[("a/src/lib.rs", "//! This waits.\n")]),
        ],
    },
    Example {
        rule: "comment-columns",
        good: &[(
            "a/src/lib.rs",
            concat!("//! 123456", hundred!(), "\nlet s = \"0123456789", hundred!(), "\";\n"),
        )],
        bad: &[(
            "1 comment lines above 110 columns, 0 are allowed: lines 1",
            &[("a/src/lib.rs", concat!("f(); // 123", hundred!(), "\n"))],
        )],
    },
    Example {
        rule: "safety-comment",
        good: &[(
            "a/src/lib.rs",
            concat!(
                "// SAFETY: alone.\n",
                "unsafe impl Send for A {}\n",
                "fn f() {\n",
                "    // SAFETY: yes.\n",
                "    // More.\n",
                "    let x =\n",
                "        g(1, unsafe { h() });\n",
                "    unsafe { h() } // SAFETY: yes.\n",
                "}\n",
                "unsafe fn g() {}\n",
                "// SAFETY: arm\n",
                "A => {\n",
                "unsafe { h() }\n",
                "// SAFETY: one\n",
                "#[cfg(x)]\n",
                "let y = unsafe { h() };\n",
                "unsafe extern \"C\" {}\n"
            ),
        )],
        bad: &[
            ("1 unsafe blocks without", &[("a/src/lib.rs", "// SAFETY: of a.\na();\nunsafe { b() }\n")]),
            ("1 unsafe blocks without", &[("a/tests/t.rs", "// SAFETY: a.\n\nunsafe impl Send for A {}\n")]),
            (
                "2 unsafe blocks without a SAFETY comment, 0 are allowed: lines 1, 2",
                &[("a/src/lib.rs", "unsafe { b() };\nlet c = unsafe { b() };\n")],
            ),
        ],
    },
    Example {
        rule: "glossary",
        good: &[(
            "ARCHITECTURE.md",
            "# Map\n## Glossary\n\nOne word.\n\n- **object**: a thing.\n- **hold**: a count.\n\n## Next\ntext\n",
        )],
        bad: &[
            ("has no section", &[("ARCHITECTURE.md", "# Map\n")]),
            ("has no section", &[]),
            ("has no entry", &[("ARCHITECTURE.md", "## Glossary\n\nWords.\n")]),
            ("is not one line", &[("ARCHITECTURE.md", "## Glossary\n- **a**: b.\n  c.\n")]),
            ("twice", &[("ARCHITECTURE.md", "## Glossary\n- **a**: b.\n- **a**: c.\n")]),
        ],
    },
    Example {
        rule: "clean-text",
        good: &[("a.md", "one\n"), ("empty", ""), ("crates/a/tests/sysfs/list", "0-3\t\n\n")],
        bad: &[
            ("white space", &[("a.md", "one \ntwo\n")]),
            ("a tab outside C", &[("a.md", "\tone\n")]),
            ("one newline", &[("a.md", "one")]),
            ("one newline", &[("a.md", "one\n\n")]),
        ],
    },
];

/// The problems that rule `id` finds in a tree.
fn found(id: &str, files: impl IntoIterator<Item = (String, String)>) -> Vec<Problem> {
    let rule = RULES.iter().find(|rule| rule.id == id).expect("a rule of this id");
    let mut problems = Problems::new(rule.id);
    (rule.check)(&Tree::new(files), &mut problems);
    problems.list
}

fn owned(files: Files) -> Vec<(String, String)> {
    files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
}

fn assert_one(id: &str, files: Vec<(String, String)>, words: &str) {
    let problems = found(id, files.clone());
    let [problem] = &problems[..] else { panic!("{id} finds {problems:?} in {files:?}") };
    assert!(problem.text.contains(words), "{id} says {}, not {words}", problem.text);
}

#[test]
fn good_trees_keep_their_rule() {
    for example in EXAMPLES {
        let problems = found(example.rule, owned(example.good));
        assert!(problems.is_empty(), "{}: {problems:?}", example.rule);
    }
}

#[test]
fn bad_trees_break_their_rule_once() {
    for example in EXAMPLES {
        for (words, files) in example.bad {
            assert_one(example.rule, owned(files), words);
        }
    }
}

#[test]
fn every_rule_has_examples() {
    // The trees of these rules are too large for the table. Each has its own test below.
    let apart = ["one-concept-file", "short-functions", "mechanisms-tested", "style-matches-tidy"];
    let shown: BTreeSet<&str> = EXAMPLES.iter().map(|example| example.rule).chain(apart).collect();
    let all: BTreeSet<&str> = RULES.iter().map(|rule| rule.id).collect();
    assert_eq!(shown, all);
    assert!(EXAMPLES.iter().all(|example| !example.good.is_empty() && !example.bad.is_empty()));
}

#[test]
fn one_concept_file_counts_lines_outside_tests() {
    let lines = |shipped: usize, test: usize| {
        let text =
            "fn a();\n".repeat(shipped) + "#[cfg(test)]\nmod tests {\n" + &"fn t();\n".repeat(test) + "}\n";
        vec![("a/src/lib.rs".to_owned(), text)]
    };
    // The empty line after the last newline counts as shipped code.
    assert!(found("one-concept-file", lines(799, 900)).is_empty());
    assert_one("one-concept-file", lines(800, 0), "801 lines outside tests");
}

#[test]
fn short_functions_may_only_shrink() {
    let tree = |length: usize, list: &str| {
        let body = "    x();\n".repeat(length - 2);
        vec![
            ("a.rs".to_owned(), format!("fn long() {{\n{body}}}\n")),
            ("xtask/long-functions.txt".to_owned(), list.to_owned()),
        ]
    };
    let rule = "short-functions";
    assert!(found(rule, tree(70, "")).is_empty());
    assert!(found(rule, tree(80, "# path function lines\na.rs long 80\n")).is_empty());
    assert_one(rule, tree(71, ""), "71 lines, 70 are allowed");
    assert_one(rule, tree(81, "a.rs long 80\n"), "81 lines, 80 are allowed");
    assert_one(rule, tree(79, "a.rs long 80\n"), "79 lines now");
    assert_one(rule, tree(60, "a.rs long 80\n"), "strike it out");
    assert_one(rule, tree(60, "a.rs long\n"), "is not: path, function, length");
}

#[test]
fn mechanisms_are_tested_when_done() {
    let tree = |rows: &str| {
        vec![
            ("docs/mechanisms.md".to_owned(), format!("# Mechanisms\n\n{LIST_HEAD}{rows}")),
            ("a/src/ring.rs".to_owned(), TEST.to_owned()),
        ]
    };
    let rule = "mechanisms-tested";
    let good = "| T-1 | Tornado, 3 | pop | `a/src/ring.rs` | `pops_in_order`, `empty_pops_none`, `squall stress ring` | done |\n\
                | T-2 | Tornado, 4 | push | | | planned |\n\
                | T-3 | Tornado, 5 | peek. Missing: of two. | | | part |\n\
                | T-4 | Tornado, 6 | sleep. Reason: no clock. | | | out of scope |\n";
    assert!(found(rule, tree(good)).is_empty());
    let bad = [
        ("| T-1 | p | w | `a/src/gone.rs` | `pops_in_order` | done |\n", "a/src/gone.rs is not a file"),
        ("| T-1 | p | w | `a/src/ring.rs` | `pops` | done |\n", "pops is not a test"),
        ("| T-1 | p | w | `a/src/ring.rs` | `no_test` | done |\n", "no_test is not a test"),
        ("| T-1 | p | w | `a/src/ring.rs` | `squall stress ring` | done |\n", "names no test"),
        ("| T-1 | p | w | in the ring | `pops_in_order` | done |\n", "names no file"),
        ("| T-1 | p | w | | | finished |\n", "state finished"),
        ("| T-1 | p | w | | | part |\n", "no `Missing:`"),
        ("| T-1 | p | w | | | out of scope |\n", "no `Reason:`"),
        ("| T-1 | p | w | | | planned |\n| T-1 | p | w | | | planned |\n", "twice"),
        ("| T-1 | | w | | | planned |\n", "without id, paper or words"),
        ("| T-1 | p | w | planned |\n", "4 columns"),
    ];
    for (rows, words) in bad {
        assert_one(rule, tree(rows), words);
    }
    assert_one(rule, Vec::new(), "is missing");
}

#[test]
fn style_and_tidy_name_the_same_rules() {
    let list = |ids: &[&str]| {
        let rules = ids.iter().enumerate().map(|(index, id)| format!("{}. `{id}` (T): text\n", index + 1));
        vec![("STYLE.md".to_owned(), rules.collect::<String>() + "30. `narrow-pub` (L): text\n")]
    };
    let ids: Vec<&str> = RULES.iter().map(|rule| rule.id).collect();
    let rule = "style-matches-tidy";
    assert!(found(rule, list(&ids)).is_empty());
    assert_one(rule, list(&ids[1..]), "is checked and not marked T");
    assert_one(rule, list(&[&ids[..], &["unheard-of"]].concat()), "marked T and not checked");
    let unmarked = vec![("STYLE.md".to_owned(), list(&ids)[0].1.clone() + "31. `later`: text\n")];
    assert_one(rule, unmarked, "an unknown mark");
    assert_one(rule, Vec::new(), "is missing");
}
