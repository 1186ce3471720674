//! Finds out two things at build time: the commit of the build and, with the feature `rivals`, whether
//! liburcu can be compiled and linked. A missing commit or liburcu is no error.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=shim/urcu.c");
    println!("cargo:rustc-check-cfg=cfg(have_urcu)");
    println!("cargo:rustc-env=SQUALL_COMMIT={}", commit());
    println!("cargo:rustc-env=SQUALL_RUSTC={}", rustc_version());
    #[cfg(feature = "rivals")]
    urcu::find();
}

/// The commit of the tree; ends with `+` if it has changes; `unknown` outside a checkout.
fn commit() -> String {
    for file in ["../../.git/HEAD", "../../.git/index", "../../.git/logs/HEAD"] {
        if std::path::Path::new(file).exists() {
            println!("cargo:rerun-if-changed={file}");
        }
    }
    let git = |args: &[&str]| {
        let out = Command::new("git").args(args).output().ok()?;
        out.status.success().then(|| String::from_utf8_lossy(&out.stdout).trim().to_owned())
    };
    let Some(head) = git(&["rev-parse", "--short=12", "HEAD"]) else { return "unknown".to_owned() };
    let clean = git(&["status", "--porcelain"]).is_some_and(|changes| changes.is_empty());
    if clean { head } else { format!("{head}+") }
}

fn rustc_version() -> String {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let out = Command::new(rustc).arg("--version").output();
    out.map(|out| String::from_utf8_lossy(&out.stdout).trim().to_owned()).unwrap_or_default()
}

#[cfg(feature = "rivals")]
mod urcu {
    use std::{env, fs, path::PathBuf, process::Command};

    const LIBS: [&str; 3] = ["urcu-memb", "urcu-qsbr", "urcu-common"];

    /// Compiles the shim and sets `have_urcu` if a program that uses both flavours compiles and links.
    pub(crate) fn find() {
        let flags = pkg_config("--cflags");
        let libs = pkg_config("--libs-only-L");
        if !links(&flags, &libs) {
            return;
        }
        for (name, define) in [("squall_memb_shim", None), ("squall_qsbr_shim", Some("SQUALL_QSBR"))] {
            let mut build = cc::Build::new();
            build.file("shim/urcu.c").opt_level(3).warnings(true).flags(&flags);
            if let Some(define) = define {
                build.define(define, None);
            }
            if build.try_compile(name).is_err() {
                return;
            }
        }
        for dir in libs.iter().filter_map(|flag| flag.strip_prefix("-L")) {
            println!("cargo:rustc-link-search=native={dir}");
        }
        for lib in LIBS {
            println!("cargo:rustc-link-lib={lib}");
        }
        println!("cargo:rustc-cfg=have_urcu");
    }

    fn pkg_config(what: &str) -> Vec<String> {
        let out = Command::new("pkg-config").args([what, "liburcu", "liburcu-qsbr"]).output();
        match out {
            Ok(out) if out.status.success() => {
                String::from_utf8_lossy(&out.stdout).split_whitespace().map(str::to_owned).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Whether headers and libraries for this target are present; tries to link a small program.
    fn links(flags: &[String], libs: &[String]) -> bool {
        let dir = PathBuf::from(
            env::var_os("OUT_DIR").expect("OUT_DIR is not set; Cargo sets it for build scripts"),
        );
        let (source, program) = (dir.join("probe.c"), dir.join("probe"));
        let text = "#include <urcu/urcu-memb.h>\n#include <urcu/urcu-qsbr.h>\n\
                    int main(void) { urcu_memb_synchronize_rcu(); urcu_qsbr_synchronize_rcu(); return 0; }\n";
        if fs::write(&source, text).is_err() {
            return false;
        }
        let Ok(compiler) = cc::Build::new().cargo_metadata(false).try_get_compiler() else { return false };
        let mut command = compiler.to_command();
        command.args(flags).arg(&source).arg("-o").arg(&program).args(libs);
        command.args(LIBS.iter().map(|lib| format!("-l{lib}")));
        command.output().is_ok_and(|out| out.status.success())
    }
}
