//! Has the compiler make the two libraries that the binary carries: the plugin for the emulator, and what is preloaded into
//! the emulated program.
//!
//! Cargo knows no package that carries another's shared library, on a stable toolchain. So their source comes as text
//! from `squall-locality-plugin`, and the compiler is called here, once for each, with no flags of the build's: a plugin of a
//! sanitizer's, or of another libc, would not load into the emulator.
//!
//! Where they cannot be made, the crate builds all the same, and says at run time what it lacks, why, and what to do.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use squall_locality_plugin::{PRELOAD, SOURCES};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=SQUALL_LOCALITY_RUSTC");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let target = plugin_target();
    println!("cargo::rustc-env=SQUALL_PLUGIN_TARGET={}", target.as_deref().unwrap_or("the target"));
    let mut plugin_why = String::new();
    for (name, sources) in [("plugin", SOURCES), ("preload", &[("lib.rs", PRELOAD)][..])] {
        let library = out.join(format!("{name}.so"));
        let made = match &target {
            Some(target) => compile(name, sources, target, &out, &library),
            None => Err("programs of this target cannot be looked at".to_owned()),
        };
        if let Err(why) = made {
            println!("cargo::warning=squall-locality: no {name} is in this build: {why}");
            if name == "plugin" {
                plugin_why = why;
            }
            fs::write(&library, []).expect("the build's folder can be written to");
        }
    }
    // One line: that is what a variable can be.
    println!("cargo::rustc-env=SQUALL_PLUGIN_WHY={}", plugin_why.replace(['\n', '\r'], " "));
}

/// The target of the libraries: glibc's, since that is what emulators are linked to. None where none fits.
fn plugin_target() -> Option<String> {
    let var = |name: &str| env::var(name).unwrap_or_default();
    let (os, arch) = (var("CARGO_CFG_TARGET_OS"), var("CARGO_CFG_TARGET_ARCH"));
    match (os.as_str(), arch.as_str()) {
        ("linux", "x86_64" | "aarch64") => Some(format!("{arch}-unknown-linux-gnu")),
        _ => None,
    }
}

/// The linker that is set for this target: the one that Cargo says, where this is what it builds for. Another target's (musl's)
/// makes no library that an emulator could load.
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
    // The plugin carries the other's text, beside its own.
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
    // Flags that a wrapper of the compiler would take from here are the build's, not these libraries'.
    for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"] {
        command.env_remove(name);
    }
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    if output.status.success() {
        Ok(())
    } else {
        let said = String::from_utf8_lossy(&output.stderr);
        // The compiler's first error, past its warnings.
        let first = said.lines().find(|line| line.starts_with("error")).or(said.lines().next());
        Err(format!("{}: {}", output.status, first.unwrap_or("")))
    }
}
