//! The programs of the engines: this program again, with a hidden command, or the ones in `engines/`.

use super::{echo, node_echo, plain, tarpc_echo};
use crate::case::Missing;
use squall_net::Tcp;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// The hidden command of the servers and clients of the case `net`.
pub const NET_PROGRAM: &str = "__net";

/// An engine, and the way to its program.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) name: &'static str,
    program: Program,
    /// Whether its client knows the commands `lost` and `found`.
    pub(super) knows_connections: bool,
}

#[derive(Debug)]
enum Program {
    /// The running program.
    Own,
    /// A program of the folder `engines`, and the variable with another path.
    Separate { folder: &'static str, variable: &'static str },
}

pub(super) static TCP: Engine = own("tcp", false);
pub(super) static OURS: Engine = own("squall-net", true);
pub(super) static OURS_WAITING: Engine = own("squall-net-waiting", true);
pub(super) static OURS_NOISE: Engine = own("squall-net-noise", true);
pub(super) static NODE: Engine = own("squall-node", false);
pub(super) static NODE_IN_PLACE: Engine = own("squall-node-in-place", false);
pub(super) static TARPC: Engine = own("tarpc", false);
pub(super) static ZENOH: Engine = Engine {
    name: "zenoh",
    program: Program::Separate { folder: "zenoh", variable: "SQUALL_ENGINE_ZENOH" },
    knows_connections: true,
};
pub(super) static IROH: Engine = Engine {
    name: "iroh",
    program: Program::Separate { folder: "iroh", variable: "SQUALL_ENGINE_IROH" },
    knows_connections: true,
};

const fn own(name: &'static str, knows_connections: bool) -> Engine {
    Engine { name, program: Program::Own, knows_connections }
}

impl Engine {
    /// Begins the command of a server or client, with its leading arguments.
    pub(super) fn command(&self) -> Result<Vec<String>, Missing> {
        match self.program {
            Program::Own => {
                let own = std::env::current_exe()
                    .map_err(|error| Missing(format!("the path of this program is unknown: {error}")))?;
                Ok(vec![own.display().to_string(), NET_PROGRAM.to_owned(), self.name.to_owned()])
            }
            Program::Separate { folder, variable } => {
                let built = format!("engines/{folder}/target/release/squall-engine-{folder}");
                let path = std::env::var_os(variable).map_or_else(|| PathBuf::from(built), PathBuf::from);
                if !Path::is_file(&path) {
                    return Err(Missing(format!(
                        "{} is absent; run `cargo build --release --manifest-path engines/{folder}/Cargo.toml` \
                         in the root of the repository, or name the program in {variable}",
                        path.display()
                    )));
                }
                Ok(vec![path.display().to_string()])
            }
        }
    }
}

/// Makes a command of its words.
pub(super) fn command(words: &[String]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}

/// Runs a server or client of the case `net`, until its standard input ends.
///
/// # Errors
/// The arguments are not those of this command, or the network fails.
pub fn net_program(arguments: &[String]) -> io::Result<()> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let usage = || {
        let text = "usage: ENGINE serve LISTEN | ENGINE client LISTEN ENDPOINT BYTES";
        io::Error::new(io::ErrorKind::InvalidInput, text)
    };
    let address = |text: &str| text.parse::<SocketAddr>().map_err(io::Error::other);
    match arguments[..] {
        ["tcp", "serve", listen] => plain::serve(address(listen)?),
        ["tcp", "client", _, endpoint, bytes] => {
            plain::client(address(endpoint)?, bytes.parse().map_err(io::Error::other)?)
        }
        ["tarpc", "serve", listen] => tarpc_echo::serve(address(listen)?),
        ["tarpc", "client", _, endpoint, bytes] => {
            tarpc_echo::client(address(endpoint)?, bytes.parse().map_err(io::Error::other)?)
        }
        [engine, "serve", listen] if engine.starts_with(NODE.name) => {
            node_echo::serve(address(listen)?, engine == NODE_IN_PLACE.name)
        }
        [engine, "client", listen, endpoint, bytes] if engine.starts_with(NODE.name) => {
            node_echo::client(address(listen)?, endpoint, bytes.parse().map_err(io::Error::other)?)
        }
        [engine, "serve", listen] if engine.starts_with(OURS.name) => {
            echo::serve(&Arc::new(transport(engine, address(listen)?)?))
        }
        [engine, "client", listen, endpoint, bytes] if engine.starts_with(OURS.name) => {
            let tcp = Arc::new(transport(engine, address(listen)?)?);
            let bytes = bytes.parse().map_err(io::Error::other)?;
            echo::client(&tcp, endpoint, bytes, engine == OURS_WAITING.name, |tcp| {
                tcp.stats().connections > 0
            })
        }
        _ => Err(usage()),
    }
}

/// Makes the transport of one of our engines.
fn transport(engine: &str, listen: SocketAddr) -> io::Result<Tcp> {
    let builder = Tcp::builder(listen);
    let encrypts = engine == OURS_NOISE.name;
    if encrypts { builder.encrypt(node_echo::key()?).build() } else { builder.build() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_engine_says_how_to_build_it() {
        static ABSENT: Engine = Engine {
            name: "absent",
            program: Program::Separate { folder: "absent", variable: "SQUALL_ENGINE_ABSENT" },
            knows_connections: true,
        };
        let Missing(why) = ABSENT.command().unwrap_err();
        assert!(why.contains("--manifest-path engines/absent/Cargo.toml"), "{why}");
        assert!(why.contains("SQUALL_ENGINE_ABSENT"), "{why}");
    }

    #[test]
    fn other_arguments_are_errors() {
        for arguments in [&[][..], &["tcp"], &["tcp", "serve", "x"], &["udp", "serve", "127.0.0.1:0"]] {
            let arguments: Vec<String> = arguments.iter().map(|&word| word.to_owned()).collect();
            assert!(net_program(&arguments).is_err(), "{arguments:?}");
        }
    }
}
