//! The key of a group, and visits to it.

use std::fs;
use std::io;
#[cfg(feature = "net")]
use std::net::Ipv4Addr;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use squall::fleet::{GroupInfo, GroupKey, HostTransport, Node, NodeBuilder};

use crate::output::Failure;

/// The longest time to wait for a member.
const LIMIT: Duration = Duration::from_secs(10);

/// The source of the key. It is never an argument, since all users of a machine can read those.
#[derive(Args)]
#[group(multiple = false)]
pub(super) struct KeyArgs {
    /// The file with the key of the group: 32 hexadecimal digits.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// The environment variable with the key of the group.
    #[arg(long, value_name = "VARIABLE")]
    key_env: Option<String>,
}

impl KeyArgs {
    /// Returns the key, if one of the options names it.
    pub(super) fn key(&self) -> Result<Option<GroupKey>, Failure> {
        let (place, text) = match (&self.key_file, &self.key_env) {
            (Some(file), _) => {
                let text = fs::read_to_string(file);
                (format!("the file {file:?}"), text.map_err(|error| error.to_string()))
            }
            (None, Some(variable)) => {
                let text = std::env::var(variable).map_err(|error| error.to_string());
                (format!("the variable {variable}"), text)
            }
            (None, None) => return Ok(None),
        };
        let key = text.and_then(|text| text.trim().parse().map_err(str::to_owned));
        key.map(Some).map_err(|why| Failure::new(format!("{place} has no key of a group: {why}")))
    }
}

/// A group to visit.
#[derive(Args)]
pub(super) struct VisitArgs {
    #[command(flatten)]
    key: KeyArgs,
    /// Endpoints of members: `host/NAME` on this machine, or `tcp/ADDRESS:PORT`, all of one kind. One that
    /// lives is enough.
    #[arg(value_name = "ENDPOINT", required = true, value_parser = parse_endpoint)]
    pub(super) endpoints: Vec<String>,
}

/// The kind of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Host,
    Tcp,
}

/// Returns the kind of an endpoint, if it is well formed.
fn kind(endpoint: &str) -> Option<Kind> {
    match endpoint.split_once('/')? {
        ("host", name) if !name.is_empty() => Some(Kind::Host),
        ("tcp", address) if address.parse::<SocketAddr>().is_ok() => Some(Kind::Tcp),
        _ => None,
    }
}

fn parse_endpoint(text: &str) -> Result<String, String> {
    match kind(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err("an endpoint is host/NAME on this machine, or tcp/ADDRESS:PORT".to_owned()),
    }
}

impl VisitArgs {
    /// Makes a visitor of the group.
    pub(super) fn visit(&self) -> Result<Node, Failure> {
        let Some(key) = self.key.key()? else {
            return Err(Failure::new("the key of the group is missing; name it by --key-file or --key-env"));
        };
        let endpoints: Vec<&str> = self.endpoints.iter().map(String::as_str).collect();
        let builder = NodeBuilder::new(key);
        let tcp = self.endpoints.iter().filter(|endpoint| kind(endpoint) == Some(Kind::Tcp)).count();
        let visitor = match tcp {
            0 => HostTransport::unnamed().and_then(|transport| builder.visit(transport, &endpoints)),
            _ if tcp == endpoints.len() => visit_tcp(builder, &endpoints)?,
            _ => {
                let why = "a visit goes by one way: name endpoints of this machine alone, or of TCP alone";
                return Err(Failure::new(why));
            }
        };
        visitor.map_err(|error| Failure::new(format!("this program cannot be reached: {error}")))
    }

    /// Returns the directory of the group.
    pub(super) fn show(&self, visitor: &Node) -> Result<GroupInfo, Failure> {
        visitor.show(LIMIT).map_err(|_| Failure::new(self.silence()))
    }

    fn silence(&self) -> String {
        format!(
            "no member at {} answered within {} s; look whether one lives, and whether the key is right",
            self.endpoints.join(", "),
            LIMIT.as_secs()
        )
    }
}

/// Makes a visitor over TCP. Members answer on the connections that it makes, so it listens on no network.
#[cfg(feature = "net")]
fn visit_tcp(builder: NodeBuilder, endpoints: &[&str]) -> Result<io::Result<Node>, Failure> {
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    Ok(squall_net::Tcp::builder(listen).build().and_then(|transport| builder.visit(transport, endpoints)))
}

#[cfg(not(feature = "net"))]
fn visit_tcp(_: NodeBuilder, endpoints: &[&str]) -> Result<io::Result<Node>, Failure> {
    let why = "this squall has no TCP; build it with `--features net`, or visit from the member's machine";
    Err(Failure::new(format!("{}: {why}", endpoints.join(", "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_of_this_machine_and_of_tcp_are_accepted() {
        for (endpoint, kind_of) in
            [("host/a", Kind::Host), ("tcp/10.0.0.1:1", Kind::Tcp), ("tcp/[fd00::1]:7447", Kind::Tcp)]
        {
            assert_eq!(parse_endpoint(endpoint).as_deref(), Ok(endpoint));
            assert_eq!(kind(endpoint), Some(kind_of));
        }
        for other in ["", "host/", "a", "tcp/", "tcp/10.0.0.1", "tcp/name:1", "udp/10.0.0.1:1"] {
            assert!(parse_endpoint(other).is_err(), "{other}");
        }
    }

    #[test]
    fn a_key_is_read_from_its_file_or_refused_with_its_place() {
        let path = std::env::temp_dir().join(format!("squall-key-{}", std::process::id()));
        let args = KeyArgs { key_file: Some(path.clone()), key_env: None };
        let refused = |part: &str| {
            let failure = args.key().expect_err("there is no key").to_string();
            assert!(failure.contains("squall-key-") && failure.contains(part), "{failure}");
        };
        refused("No such file");
        fs::write(&path, "12\n").unwrap();
        refused("32 hexadecimal digits");
        fs::write(&path, "0123456789abcdef0123456789abcdef\n").unwrap();
        let key = args.key().expect("a key").expect("a key");
        assert_eq!(key.to_string(), "0123456789abcdef0123456789abcdef");
        fs::remove_file(&path).unwrap();
        assert!(KeyArgs { key_file: None, key_env: None }.key().expect("no key is named").is_none());
    }
}
