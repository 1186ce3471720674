//! Location of the socket of a process, and checks of its folder.
//!
//! - I1. A default folder has mode 0700, is not a symbolic link, and belongs to its user alone. So in a
//!   shared folder such as /tmp other users cannot have put a socket into it.
//! - I2. Server and client agree on the path: the server uses the first of two folders, the client tries
//!   both.

use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

/// Mode of a folder that holds sockets.
const FOLDER_MODE: u32 = 0o700;
/// Largest number of files of the folder that are checked for unserved sockets.
const SWEPT_MAX: usize = 256;
/// Permission bits of a mode.
const MODE_MASK: u32 = 0o777;

/// Returns the name of a process's socket in its folder.
fn file_name(pid: u32) -> String {
    format!("{pid}.sock")
}

/// Returns the folder below the user's run-time folder.
fn below_runtime(runtime: &Path) -> PathBuf {
    runtime.join("squall")
}

/// Returns the folder of users without a run-time folder.
fn below_tmp(uid: u32) -> PathBuf {
    PathBuf::from(format!("/tmp/squall-{uid}"))
}

/// Returns the run-time folder that the environment names, if it belongs to this user.
///
/// A program that changed its user (sudo, su) may still see the folder of the previous user, and must not
/// create files there.
fn runtime_folder(named: Option<&Path>, uid: u32) -> Option<PathBuf> {
    let folder = named.filter(|folder| folder.is_absolute())?;
    let found = fs::symlink_metadata(folder).ok()?;
    (found.is_dir() && found.uid() == uid).then(|| folder.to_owned())
}

/// Returns the default path of this process's socket. Creates its folder if needed.
pub(crate) fn own() -> io::Result<PathBuf> {
    let uid = geteuid().as_raw();
    let named = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let folder =
        runtime_folder(named.as_deref(), uid).map_or(below_tmp(uid), |runtime| below_runtime(&runtime));
    make_folder(&folder, uid)?;
    sweep(&folder);
    Ok(folder.join(file_name(std::process::id())))
}

/// Returns the paths where a process of this user may have its socket (I2), the most likely first.
pub(crate) fn of_process(pid: u32, uid: u32) -> Vec<PathBuf> {
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtimes = [runtime_of(pid), own, Some(PathBuf::from(format!("/run/user/{uid}")))];
    let folders = runtimes.into_iter().flatten().filter(|folder| folder.is_absolute());
    let folders = folders.map(|runtime| below_runtime(&runtime)).chain([below_tmp(uid)]);
    let mut paths: Vec<PathBuf> = Vec::new();
    for path in folders.map(|folder| folder.join(file_name(pid))) {
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    paths
}

/// Returns the processes that have a file in this user's folders of sockets. Some may have ended.
pub(crate) fn processes(uid: u32) -> Vec<u32> {
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtimes = [own, Some(PathBuf::from(format!("/run/user/{uid}")))];
    let folders = runtimes.into_iter().flatten().filter(|folder| folder.is_absolute());
    let folders = folders.map(|runtime| below_runtime(&runtime)).chain([below_tmp(uid)]);
    let files = folders.filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    let mut pids: Vec<u32> = files.filter_map(|file| pid_of(&file.file_name())).collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}

/// Returns the process that a socket with this name belongs to.
fn pid_of(name: &std::ffi::OsStr) -> Option<u32> {
    name.to_str()?.strip_suffix(".sock")?.parse().ok()
}

/// Returns the run-time folder that another process was started with.
fn runtime_of(pid: u32) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut variables = environment.split(|byte| *byte == 0);
    let value = variables.find_map(|variable| variable.strip_prefix(b"XDG_RUNTIME_DIR="))?;
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(value)))
}

/// Creates the folder, or checks that it is as I1 requires.
fn make_folder(folder: &Path, uid: u32) -> io::Result<()> {
    match DirBuilder::new().mode(FOLDER_MODE).create(folder) {
        // The umask may have removed bits.
        Ok(()) => fs::set_permissions(folder, Permissions::from_mode(FOLDER_MODE))?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(with_path("cannot make the folder", folder, &error)),
    }
    check_folder(folder, uid)
}

/// Removes sockets of processes that were killed. Failures are ignored; a later sweep tries again.
fn sweep(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten().take(SWEPT_MAX) {
        if pid_of(&entry.file_name()).is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            // A process that is invisible from here may still serve. Then the socket stays.
            let _ = remove_stale(&entry.path());
        }
    }
}

/// Checks that a folder is as I1 requires.
pub(crate) fn check_folder(folder: &Path, uid: u32) -> io::Result<()> {
    let found = fs::symlink_metadata(folder).map_err(|error| with_path("cannot look at", folder, &error))?;
    let wrong = if !found.is_dir() {
        "it is not a folder".to_owned()
    } else if found.uid() != uid {
        format!("it belongs to user {}", found.uid())
    } else if found.mode() & MODE_MASK != FOLDER_MODE {
        format!("its mode is {:03o}", found.mode() & MODE_MASK)
    } else {
        return Ok(());
    };
    let message = format!(
        "{}: {wrong}; it must be a folder of user {uid}, with mode {FOLDER_MODE:03o}",
        folder.display()
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
}

/// Removes a socket that is not served any more.
///
/// # Errors
/// `AddrInUse` if it is served; `AlreadyExists` if the file is not a socket, or belongs to another user.
pub(crate) fn remove_stale(path: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(with_path("cannot look at", path, &error)),
    };
    let refuse = |kind, why: &str| Err(io::Error::new(kind, format!("{}: {why}", path.display())));
    if !is_own_socket(&found) {
        return refuse(io::ErrorKind::AlreadyExists, "the file exists and is not a socket of this user");
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(with_path("cannot remove the stale socket", path, &error))
            }
            _ => Ok(()),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        _ => refuse(io::ErrorKind::AddrInUse, "another server uses this path already"),
    }
}

fn is_own_socket(found: &Metadata) -> bool {
    found.file_type().is_socket() && found.uid() == geteuid().as_raw()
}

/// Returns the device and inode of a path, to detect a file that was put in its place.
pub(crate) fn identity(path: &Path) -> Option<(u64, u64)> {
    let found = fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

/// Adds the path to an error of the system.
pub(crate) fn with_path(what: &str, path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uid() -> u32 {
        geteuid().as_raw()
    }

    /// A folder that is removed when the value is dropped.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("squall-paths-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            DirBuilder::new().mode(FOLDER_MODE).create(&path).expect("a folder");
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_folder_is_made_for_its_owner_alone() {
        let base = Folder::new("made");
        let folder = base.0.join("squall");
        make_folder(&folder, uid()).expect("made");
        assert_eq!(fs::metadata(&folder).expect("there").mode() & MODE_MASK, FOLDER_MODE);
        make_folder(&folder, uid()).expect("the second time it is found");
    }

    #[test]
    fn a_folder_that_is_not_ones_own_is_refused() {
        let base = Folder::new("refused");
        let folder = base.0.join("squall");
        make_folder(&folder, uid()).expect("made");
        let error = make_folder(&folder, uid() + 1).expect_err("of another user");
        assert!(error.to_string().contains("belongs to user"), "{error}");
        fs::set_permissions(&folder, Permissions::from_mode(0o755)).expect("own");
        let error = make_folder(&folder, uid()).expect_err("open to others");
        assert!(error.to_string().contains("its mode is 755"), "{error}");
        fs::set_permissions(&folder, Permissions::from_mode(FOLDER_MODE)).expect("own");
        let link = base.0.join("link");
        std::os::unix::fs::symlink(&folder, &link).expect("a link");
        let error = make_folder(&link, uid()).expect_err("a link");
        assert!(error.to_string().contains("not a folder"), "{error}");
    }

    #[test]
    fn only_unserved_sockets_are_removed() {
        let base = Folder::new("stale");
        let path = base.0.join("1.sock");
        remove_stale(&path).expect("nothing is there");
        fs::write(&path, "text").expect("a file");
        assert_eq!(remove_stale(&path).expect_err("a file").kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).expect("it stays"), b"text");
        fs::remove_file(&path).expect("own");
        let listener = std::os::unix::net::UnixListener::bind(&path).expect("free");
        assert_eq!(remove_stale(&path).expect_err("served").kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        assert!(path.exists(), "a listener leaves its file");
        remove_stale(&path).expect("stale");
        assert!(!path.exists());
    }

    #[test]
    fn sockets_of_processes_that_are_gone_are_swept_away() {
        let base = Folder::new("swept");
        let bind = |name: &str| std::os::unix::net::UnixListener::bind(base.0.join(name)).expect("free");
        // The kernel's largest process number is 2^22, so these processes do not exist.
        let served = bind("4294967290.sock");
        drop(bind("4294967291.sock"));
        drop(bind(&file_name(std::process::id())));
        fs::write(base.0.join("4294967292.sock"), "text").expect("room");
        fs::write(base.0.join("notes"), "text").expect("room");
        sweep(&base.0);
        let there = |name: &str| base.0.join(name).exists();
        assert!(there("4294967290.sock"), "somebody serves there");
        assert!(!there("4294967291.sock"));
        assert!(there(&file_name(std::process::id())), "this process lives");
        assert!(there("4294967292.sock") && there("notes"), "files that are not sockets stay");
        drop(served);
    }

    #[test]
    fn a_run_time_folder_of_another_user_is_not_used() {
        let base = Folder::new("runtime");
        assert_eq!(runtime_folder(Some(&base.0), uid()), Some(base.0.clone()));
        assert_eq!(runtime_folder(Some(&base.0), uid() + 1), None);
        assert_eq!(runtime_folder(Some(Path::new("relative")), uid()), None);
        assert_eq!(runtime_folder(Some(&base.0.join("missing")), uid()), None);
    }

    #[test]
    fn a_client_looks_in_both_places() {
        let paths = of_process(std::process::id(), uid());
        let name = file_name(std::process::id());
        assert!(paths.contains(&below_tmp(uid()).join(&name)), "{paths:?}");
        assert!(paths.contains(&PathBuf::from(format!("/run/user/{}/squall/{name}", uid()))), "{paths:?}");
    }
}
