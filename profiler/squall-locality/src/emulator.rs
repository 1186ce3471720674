//! Finds the emulator and checks that it can load plugins.

use std::path::{Path, PathBuf};
use std::process::Command;

use squall_locality_plugin::plugin::NAME_7;

use crate::Error;

/// Installation hint for common distributions.
pub const INSTALL: &str = "install QEMU's user-mode emulation, 7.2 or later, with plugins: on Debian 12 and Ubuntu `apt install qemu-user`; \
    where the package's emulator is linked statically (Debian 13), build QEMU with `./configure --target-list=x86_64-linux-user,aarch64-linux-user \
    --enable-plugins` and name it by --emulator or SQUALL_EMULATOR";

/// Oldest supported version of QEMU.
const OLDEST: (u32, u32, u32) = (7, 2, 0);

/// First version with plugin interface 7, which rejects plugins that declare an earlier one. Development
/// versions of 11.1 are numbered 11.0.50 and up.
const INTERFACE_7: (u32, u32, u32) = (11, 0, 50);

/// File name of the plugin for plugin interfaces before 7.
const NAME: &str = "plugin.so";

/// An emulator that can load plugins.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Emulator {
    /// Path of its program.
    pub path: PathBuf,
    /// First line that it prints for `--version`.
    pub version: String,
}

/// Name of the emulator for this machine's architecture.
fn name() -> &'static str {
    if cfg!(target_arch = "aarch64") { "qemu-aarch64" } else { "qemu-x86_64" }
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

impl Emulator {
    /// Finds the emulator: at `given`, else at `SQUALL_EMULATOR`, else in `PATH`.
    ///
    /// # Errors
    /// If there is no emulator, it cannot be run, is too old, or was built without plugins. The error says
    /// how to install one.
    pub fn find(given: Option<&Path>) -> Result<Emulator, Error> {
        let named =
            given.map(Path::to_path_buf).or_else(|| std::env::var_os("SQUALL_EMULATOR").map(PathBuf::from));
        let path = match named {
            Some(path) if path.components().count() > 1 => path,
            Some(named) => on_path(&named.to_string_lossy())
                .ok_or_else(|| Error(format!("there is no emulator {}; {INSTALL}", named.display())))?,
            None => {
                on_path(name()).ok_or_else(|| Error(format!("there is no {} here; {INSTALL}", name())))?
            }
        };
        let said = |argument: &str| {
            let output = Command::new(&path).arg(argument).output();
            output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        };
        let version = said("--version").map_err(|e| Error(format!("{}: {e}; {INSTALL}", path.display())))?;
        let version = version.lines().next().unwrap_or_default().to_owned();
        let help = said("--help").unwrap_or_default();
        let Some(number) = number(&version) else {
            return Err(Error(format!("{} does not say that it is QEMU; {INSTALL}", path.display())));
        };
        if number < OLDEST {
            return Err(Error(format!("{} is too old: {version}; {INSTALL}", path.display())));
        }
        if !help.contains("-plugin") {
            let path = path.display();
            return Err(Error(format!("{path} was built without plugins ({version}); {INSTALL}")));
        }
        Ok(Emulator { path, version })
    }

    /// File names for the plugin's library, in the order to try. The plugin declares the interface version
    /// that its file name stands for. The first name fits the emulator's version; the second is for emulators
    /// whose interface differs from their version.
    pub(crate) fn plugin_names(&self) -> [&'static str; 2] {
        if number(&self.version) >= Some(INTERFACE_7) { [NAME_7, NAME] } else { [NAME, NAME_7] }
    }
}

/// Parses the version in a text like `qemu-x86_64 version 7.2.22 (Debian …)`. A missing third part is 0.
fn number(text: &str) -> Option<(u32, u32, u32)> {
    let rest = &text[text.find("version ")? + "version ".len()..];
    let mut parts = rest.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((parts.next()?.ok()?, parts.next()?.ok()?, parts.next().and_then(Result::ok).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        assert_eq!(number("qemu-x86_64 version 7.2.22 (Debian 1:7.2+dfsg)"), Some((7, 2, 22)));
        assert_eq!(number("qemu-aarch64 version 10.0"), Some((10, 0, 0)));
        assert_eq!(number("bash, version five"), None);
        assert_eq!(number(""), None);
    }

    #[test]
    fn the_plugin_name_depends_on_the_emulators_version() {
        let name = |version: &str| {
            let version = format!("qemu-x86_64 version {version}");
            Emulator { path: PathBuf::new(), version }.plugin_names()
        };
        let (old, new) = ("plugin.so", "plugin-7.so");
        assert!(["7.2.22", "10.2.0", "11.0.3"].iter().all(|version| name(version) == [old, new]));
        assert!(["11.0.91", "11.1.0", "12.0"].iter().all(|version| name(version) == [new, old]));
    }

    #[test]
    fn an_emulator_needs_its_version_and_plugins() {
        let folder = std::env::temp_dir().join(format!("squall-emulators-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let said = |version: &str, help: &str| {
            let path = folder.join(format!("qemu-{version}-{}", help.len()));
            let script = format!(
                "#!/bin/sh\ncase $1 in --version) echo 'qemu-x86_64 version {version}';; *) echo '{help}';; esac\n"
            );
            let text = path.with_extension("sh");
            std::fs::write(&text, script).expect("written");
            // Another process writes the script. In this process a child forked by another test could inherit
            // the file open for writing, and running it would fail with `ETXTBSY`.
            let install = Command::new("install").args(["-m", "700"]).arg(&text).arg(&path).status();
            assert!(install.is_ok_and(|status| status.success()), "the script is installed");
            Emulator::find(Some(&path)).map(|_| ()).map_err(|error| error.0)
        };
        assert!(said("7.1.0", "-plugin").expect_err("it is older than 7.2").contains("too old"));
        assert!(said("8.0.4", "-trace").expect_err("it has none").contains("without plugins"));
        assert_eq!(said("7.2.0", "-plugin"), Ok(()));
        std::fs::remove_dir_all(&folder).expect("ours");
    }

    #[test]
    fn a_program_that_is_no_emulator_is_refused_with_a_hint() {
        for path in ["/nonexistent/qemu", "/bin/true", "no-such-emulator"] {
            let refused = Emulator::find(Some(Path::new(path))).expect_err("an error");
            assert!(refused.0.contains("apt install qemu-user"), "{refused}");
        }
    }
}
