//! `cargo run -p xtask -- compile-cost`: the cost of compiling programs that use Squall, beside the same
//! programs with other crates.
//!
//! Two programs use a map with 24 pairs of key and value types: Squall's adaptive map, and DashMap. The
//! crates below them are built first, outside the count. Three more programs are built from an empty folder,
//! with all crates: one with a counter of Squall, one with DashMap, `arc-swap` and `parking_lot` together,
//! and an empty one.
//!
//! Figures: processor time of all processes of the build, the peak memory of the largest process, and the
//! size of the binary. Every figure depends on the compiler and the machine, so compare only figures of one
//! run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use wait4::Wait4;

/// Options of `compile-cost`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Build only these programs: squall-maps, dashmap-maps, squall-counter, rivals, empty
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Build with this cargo profile
    #[arg(long, default_value = "release")]
    profile: String,
}

/// Types of keys and values, each with an expression that makes a value from the number `n`.
const KEYS: [(&str, &str); 6] = [
    ("u8", "n as u8"),
    ("u16", "n as u16"),
    ("u32", "n as u32"),
    ("u64", "n"),
    ("String", "n.to_string()"),
    ("Vec<u8>", "vec![n as u8; 3]"),
];
const VALUES: [(&str, &str); 4] =
    [("u8", "n as u8"), ("u64", "n"), ("String", "n.to_string()"), ("Vec<u64>", "vec![n; 3]")];

/// The use of one map of Squall, and of DashMap. `K`, `V`, `KEY` and `VALUE` are replaced.
const SQUALL_MAP: &str = "    {
        let (map, key, value) = (map::adaptive::<K, V>(), || KEY, || VALUE);
        found += u64::from(map.set(key(), value())) + u64::from(map.insert(key(), value()).is_some());
        found += u64::from(map.get(&key()).is_some()) + u64::from(map.update(&key(), |old| old.clone()));
        found += map.len() as u64 + u64::from(map.remove(&key()).is_some());
    }
";
const DASHMAP: &str = "    {
        let (map, key, value) = (DashMap::<K, V>::new(), || KEY, || VALUE);
        found += u64::from(map.insert(key(), value()).is_some()) + u64::from(map.insert(key(), value()).is_some());
        found += u64::from(map.get(&key()).map(|value| value.clone()).is_some());
        found += u64::from(map.get_mut(&key()).map(|mut value| *value = value.clone()).is_some());
        found += map.len() as u64 + u64::from(map.remove(&key()).is_some());
    }
";

/// A program to build.
struct Program {
    name: &'static str,
    dependencies: &'static str,
    source: String,
    /// Whether the crates below the program count.
    counts_all: bool,
}

fn programs() -> Vec<Program> {
    let maps = |head: &str, body: &str| {
        let pairs = KEYS.iter().flat_map(|key| VALUES.iter().map(move |value| (key, value)));
        let pairs = pairs.map(|((key, make_key), (value, make_value))| {
            let body = body.replace("KEY", make_key).replace("VALUE", make_value);
            body.replace("<K, V>", &format!("<{key}, {value}>"))
        });
        let pairs: String = pairs.collect();
        format!(
            "{head}\nfn main() {{\n    let n: u64 = std::env::args().count() as u64;\n    let mut found = 0_u64;\n\
             {pairs}    println!(\"{{found}}\");\n}}\n"
        )
    };
    let rivals = "use std::sync::Arc;
fn main() {
    let map = dashmap::DashMap::<u64, u64>::new();
    map.insert(1, 1);
    let value = arc_swap::ArcSwap::from(Arc::new(1_u64));
    let lock = parking_lot::Mutex::new(map.len() as u64 + **value.load());
    println!(\"{}\", *lock.lock());
}
";
    let counter = "use squall::objects::counter::{self, Counter as _};
fn main() {
    let hits = counter::adaptive();
    hits.inc();
    println!(\"{}\", hits.total());
}
";
    vec![
        Program {
            name: "squall-maps",
            dependencies: "squall = { path = \"ROOT/crates/squall\" }",
            source: maps("use squall::objects::map::{self, MapExt};", SQUALL_MAP),
            counts_all: false,
        },
        Program {
            name: "dashmap-maps",
            dependencies: "dashmap = \"6\"",
            source: maps("use dashmap::DashMap;", DASHMAP),
            counts_all: false,
        },
        Program {
            name: "squall-counter",
            dependencies: "squall = { path = \"ROOT/crates/squall\" }",
            source: counter.to_owned(),
            counts_all: true,
        },
        Program {
            name: "rivals",
            dependencies: "dashmap = \"6\"\narc-swap = \"1\"\nparking_lot = \"0.12\"",
            source: rivals.to_owned(),
            counts_all: true,
        },
        Program { name: "empty", dependencies: "", source: "fn main() {}\n".to_owned(), counts_all: true },
    ]
}

/// The cost of a build.
struct Cost {
    seconds: f64,
    mib: f64,
    binary_kib: f64,
}

pub(crate) fn command(options: &Options) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask has no parent folder")?;
    let programs = programs();
    let names: Vec<_> = programs.iter().map(|program| program.name).collect();
    for name in &options.only {
        ensure!(
            names.contains(&name.as_str()),
            "there is no program {name:?}; there are {}",
            names.join(", ")
        );
    }
    println!("{:<16} {:>12} {:>12} {:>12}", "program", "processor s", "memory MiB", "binary KiB");
    for program in &programs {
        if !options.only.is_empty() && !options.only.iter().any(|name| name == program.name) {
            continue;
        }
        let cost = measure(root, program, &options.profile)?;
        println!("{:<16} {:>12.1} {:>12.0} {:>12.0}", program.name, cost.seconds, cost.mib, cost.binary_kib);
    }
    Ok(())
}

fn measure(root: &Path, program: &Program, profile: &str) -> Result<Cost> {
    let folder = root.join("target/compile-cost").join(program.name);
    let source = folder.join("src/main.rs");
    fs::create_dir_all(folder.join("src"))?;
    let manifest = format!(
        "[package]\nname = \"{}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\n{}\n",
        program.name,
        program.dependencies.replace("ROOT", &root.display().to_string())
    );
    fs::write(folder.join("Cargo.toml"), manifest)?;
    // The versions of the workspace.
    fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock"))?;
    fs::write(&source, &program.source)?;
    if program.counts_all {
        match fs::remove_dir_all(folder.join("target")) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        // Fetches the crates.
        build(&folder, &["fetch"])?;
    } else {
        // Builds the crates below the program. Another text, so that the program itself is built again.
        fs::write(&source, "fn main() {}\n")?;
        build(&folder, &["build", "--profile", profile])?;
        fs::write(&source, &program.source)?;
    }
    let (seconds, mib) = build(&folder, &["build", "--profile", profile])?;
    let output = if profile == "dev" { "debug" } else { profile };
    let binary: PathBuf = folder.join("target").join(output).join(program.name);
    let binary_kib =
        fs::metadata(&binary).with_context(|| format!("no {}", binary.display()))?.len() as f64 / 1024.0;
    Ok(Cost { seconds, mib, binary_kib })
}

/// Runs cargo. Returns the processor time of all its processes in seconds, and the peak memory of the largest
/// process in MiB.
fn build(folder: &Path, arguments: &[&str]) -> Result<(f64, f64)> {
    let mut cargo = Command::new("cargo");
    cargo.args(arguments).arg("--quiet").current_dir(folder).stdin(Stdio::null());
    // The flags of a caller would build other programs.
    for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_TARGET_DIR", "CARGO_BUILD_TARGET"] {
        cargo.env_remove(name);
    }
    let ended = cargo.spawn().context("cargo does not start")?.wait4()?;
    ensure!(ended.status.success(), "cargo {} failed in {}", arguments.join(" "), folder.display());
    let usage = ended.rusage;
    Ok(((usage.utime + usage.stime).as_secs_f64(), usage.maxrss as f64 / f64::from(1 << 20)))
}
