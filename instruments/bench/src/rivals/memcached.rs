//! `memcached`, if the program is installed: a child process, on loopback.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::geteuid;

use crate::case::Missing;

/// Number of attempts to reach it, and the wait in between.
const TRIES: u32 = 500;
const BETWEEN_TRIES: Duration = Duration::from_millis(10);

/// Runs memcached until our end of the pipe is closed: by us, or because this process ended in any way.
const KEEPER: &str = r#"memcached "$@" & child=$!; read -r _; kill "$child"; wait "$child""#;

/// The running program; dropping it ends it.
pub(crate) struct Memcached(Child);

impl Drop for Memcached {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Starts it with `threads` threads, and waits until it answers.
pub(crate) fn start(threads: usize) -> Result<(Memcached, SocketAddr), Missing> {
    let failed = |why: &dyn std::fmt::Display| Missing(format!("memcached: {why}"));
    match Command::new("memcached").arg("-V").stdin(Stdio::null()).output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(Missing("the program memcached is not installed".to_owned()));
        }
        Err(error) => return Err(failed(&error)),
        Ok(_) => {}
    }
    // A port that was free a moment ago.
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    let address = free.map_err(|error| failed(&error))?;
    let mut command = Command::new("sh");
    command.args(["-c", KEEPER, "sh", "-l", "127.0.0.1", "-U", "0", "-m", "1024"]);
    command.args(["-p", &address.port().to_string(), "-t", &threads.to_string()]);
    if geteuid().is_root() {
        command.args(["-u", "root"]);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let running = Memcached(command.spawn().map_err(|error| failed(&error))?);
    for _ in 0..TRIES {
        if TcpStream::connect(address).is_ok() {
            return Ok((running, address));
        }
        std::thread::sleep(BETWEEN_TRIES);
    }
    Err(failed(&"the server does not answer"))
}
