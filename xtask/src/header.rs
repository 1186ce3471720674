//! The C header of squall-pool-c, generated from the functions that the crate exports.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use cbindgen::{Builder, Config, DocumentationLength, DocumentationStyle, Language, RenameRule, Style};

/// The functions and types.
const SOURCE: &str = "crates/squall-pool-c/src/ffi/mod.rs";
/// The committed header.
const HEADER: &str = "crates/squall-pool-c/include/squall_pool.h";

/// Options of `xtask header`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Fails if the committed header differs, and writes nothing
    #[arg(long)]
    check: bool,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}

fn generate(root: &Path) -> anyhow::Result<String> {
    let mut config = Config {
        language: Language::C,
        cpp_compat: true,
        include_guard: Some("SQUALL_POOL_H".into()),
        header: Some(
            "/* The pool that the members of a fleet share. See README.md of squall-pool-c. */".into(),
        ),
        autogen_warning: Some(
            "/* Written by `cargo run -p xtask -- header`. Change src/ffi/mod.rs instead. */".into(),
        ),
        no_includes: true,
        style: Style::Type,
        line_length: 100,
        tab_width: 4,
        documentation_style: DocumentationStyle::Doxy,
        documentation_length: DocumentationLength::Full,
        ..Config::default()
    };
    config.enumeration.rename_variants = RenameRule::QualifiedScreamingSnakeCase;
    config.function.must_use = None;
    // The values of a field of type `int`.
    config.export.include = vec!["PoolStrategy".into()];
    // A function of the C library.
    config.export.exclude = vec!["pthread_setcancelstate".into()];
    let bindings = Builder::new().with_config(config).with_src(root.join(SOURCE)).generate();
    let mut header = Vec::new();
    bindings.with_context(|| format!("{SOURCE} has no header"))?.write(&mut header);
    String::from_utf8(header).context("the header is no text")
}

/// Writes the header, or checks it.
pub(crate) fn command(options: &Options) -> anyhow::Result<()> {
    let (root, path) = (root(), root().join(HEADER));
    let header = generate(&root)?;
    if !options.check {
        return std::fs::write(&path, header).with_context(|| format!("{HEADER} cannot be written"));
    }
    let committed = std::fs::read_to_string(&path).with_context(|| format!("{HEADER} cannot be read"))?;
    if committed != header {
        bail!("{HEADER} differs from {SOURCE}; run `cargo run -p xtask -- header` and commit the header");
    }
    println!("{HEADER} agrees with {SOURCE}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_header_is_the_generated_one() {
        command(&Options { check: true }).unwrap();
    }
}
