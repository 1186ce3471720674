//! Finds out whether the compiler has `std::hint::cold_path` (Rust 1.95), for `branch`.

use std::process::Command;

fn main() {
    println!("cargo::rustc-check-cfg=cfg(squall_cold_path)");
    println!("cargo::rerun-if-changed=build.rs");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version =
        Command::new(rustc).arg("--version").output().map(|output| output.stdout).unwrap_or_default();
    // `rustc 1.95.0 (59807616e 2026-04-14)`
    let version = String::from_utf8_lossy(&version);
    let minor = version.strip_prefix("rustc 1.").and_then(|rest| rest.split('.').next()?.parse::<u32>().ok());
    if minor.is_some_and(|minor| minor >= 95) {
        println!("cargo::rustc-cfg=squall_cold_path");
    }
}
