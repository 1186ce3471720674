//! A server that lets an untrusted child decode its input. See the README.

#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
mod child;
#[cfg(target_os = "linux")]
mod host;
#[cfg(target_os = "linux")]
mod redo;

#[cfg(target_os = "linux")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    match std::env::args().nth(1).as_deref() {
        Some("--child") => Ok(child::run(false)?),
        Some("--hostile-child") => Ok(child::run(true)?),
        Some("--hostile") => host::run(true, 2_000),
        None => host::run(false, 10_000),
        Some(other) => Err(format!("unknown argument {other:?}; use --hostile or none").into()),
    }
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("calls between processes exist on Linux alone");
}
