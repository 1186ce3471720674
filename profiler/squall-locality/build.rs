//! Compiles the two libraries that the binary carries: the emulator's plugin, and the library preloaded into
//! the emulated program.
//!
//! Stable Cargo cannot embed a shared library of another package. The sources therefore come as text from
//! `squall-locality-plugin`, and this script calls the compiler once for each library. It passes none of the
//! build's flags: a plugin built for a sanitizer or for another libc would not load into the emulator.
//!
//! If a library cannot be compiled, the crate still builds. At run time it reports the missing library, the
//! reason and the remedy.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use squall_locality_plugin::{PRELOAD, SOURCES};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=SQUALL_LOCALITY_RUSTC");
    let out =
        PathBuf::from(env::var_os("OUT_DIR").expect("OUT_DIR is not set; Cargo sets it for build scripts"));
    let target = plugin_target();
    println!("cargo::rustc-env=SQUALL_PLUGIN_TARGET={}", target.as_deref().unwrap_or("the target"));
    let mut plugin_why = String::new();
    for (name, sources) in [("plugin", SOURCES), ("preload", &[("lib.rs", PRELOAD)][..])] {
        let library = out.join(format!("{name}.so"));
        let made = match &target {
            Some(target) => compile(name, sources, target, &out, &library),
            None => Err("the profiler does not support this target".to_owned()),
        };
        if let Err(why) = made {
            println!("cargo::warning=squall-locality: this build has no {name}: {why}");
            if name == "plugin" {
                plugin_why = why;
            }
            fs::write(&library, []).expect("cannot write to OUT_DIR");
        }
    }
    // A `cargo::rustc-env` value must be a single line.
    println!("cargo::rustc-env=SQUALL_PLUGIN_WHY={}", plugin_why.replace(['\n', '\r'], " "));
}

/// Target of the libraries: glibc's, because emulators are linked to glibc. `None` on unsupported systems.
fn plugin_target() -> Option<String> {
    let var = |name: &str| env::var(name).unwrap_or_default();
    let (os, arch) = (var("CARGO_CFG_TARGET_OS"), var("CARGO_CFG_TARGET_ARCH"));
    match (os.as_str(), arch.as_str()) {
        ("linux", "x86_64" | "aarch64") => Some(format!("{arch}-unknown-linux-gnu")),
        _ => None,
    }
}

/// Linker for `target`. If Cargo builds for `target`, this is Cargo's linker. Otherwise it is the configured
/// linker of `target`; the linker of another target (musl) would produce a library that an emulator cannot
/// load.
fn linker(target: &str) -> Option<std::ffi::OsString> {
    if env::var("TARGET").as_deref() == Ok(target) {
        return env::var_os("RUSTC_LINKER");
    }
    let variable = format!("CARGO_TARGET_{}_LINKER", target.replace('-', "_").to_uppercase());
    println!("cargo::rerun-if-env-changed={variable}");
    env::var_os(variable)
}

fn compile(
    name: &str,
    sources: &[(&str, &str)],
    target: &str,
    out: &Path,
    library: &Path,
) -> Result<(), String> {
    let folder = out.join(name);
    fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
    for (file, text) in sources {
        fs::write(folder.join(file), text).map_err(|e| e.to_string())?;
    }
    // The plugin's `lib.rs` includes the text of `preload.rs`.
    let beside = out.join("preload");
    fs::create_dir_all(&beside)
        .and_then(|()| fs::write(beside.join("preload.rs"), PRELOAD))
        .map_err(|e| e.to_string())?;
    let rustc =
        env::var_os("SQUALL_LOCALITY_RUSTC").or_else(|| env::var_os("RUSTC")).unwrap_or("rustc".into());
    let mut command = Command::new(rustc);
    command.arg(folder.join("lib.rs")).arg("-o").arg(library);
    command.args(["--crate-name", &format!("squall_{name}"), "--crate-type", "cdylib", "--edition", "2024"]);
    command.args(["--target", target, "--cfg", "squall_plugin", "--cap-lints", "allow"]);
    for option in ["opt-level=3", "panic=abort", "lto=fat", "codegen-units=1", "strip=symbols"] {
        command.args(["-C", option]);
    }
    if let Some(linker) = linker(target) {
        let mut option = std::ffi::OsString::from("linker=");
        option.push(linker);
        command.arg("-C").arg(option);
    }
    // Compiler wrappers would read these flags. They belong to the build, not to these libraries.
    for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"] {
        command.env_remove(name);
    }
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    if output.status.success() {
        Ok(())
    } else {
        let said = String::from_utf8_lossy(&output.stderr);
        // Skips warnings before the first error.
        let first = said.lines().find(|line| line.starts_with("error")).or(said.lines().next());
        Err(format!("{}: {}", output.status, first.unwrap_or("")))
    }
}
