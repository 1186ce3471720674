//! Whole calls of a node: a service under a name, and a visitor that calls it and waits for each result.

use super::echo::say;
use super::plain::obey;
use squall_fleet::{GroupKey, Name, NameOptions, NodeBuilder, ServiceCall};
use squall_net::Tcp;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// The key of the group. The server and the client are programs of one benchmark, so it is no secret.
const KEY: &str = "00000000000000000000000000000001";
/// The name of the service.
const ECHO: &str = "/echo";
/// The longest time of a call.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn key() -> io::Result<GroupKey> {
    KEY.parse().map_err(io::Error::other)
}

fn builder() -> io::Result<NodeBuilder> {
    key().map(NodeBuilder::new)
}

fn name() -> io::Result<Name> {
    ECHO.parse().map_err(|error| io::Error::other(format!("{error}")))
}

/// Serves the name, until the standard input ends. Calls run on a worker, or in place.
pub(super) fn serve(listen: SocketAddr, in_place: bool) -> io::Result<()> {
    let (node, root) = builder()?.found(Tcp::builder(listen).build()?, &[])?;
    let echo = |call: ServiceCall<'_>| Some(call.body.to_vec());
    let options = if in_place { NameOptions::new().in_place() } else { NameOptions::new() };
    node.serve(&name()?, &root, options, echo).map_err(io::Error::other)?;
    say(&format!("ready {}", node.endpoint()))?;
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(())
}

/// Does round trips on command.
pub(super) fn client(listen: SocketAddr, to: &str, bytes: usize) -> io::Result<()> {
    let node = builder()?.visit(Tcp::builder(listen).build()?, &[to])?;
    let (name, mut body, mut number) = (name()?, vec![1; bytes.max(8)], 0_u64);
    obey(|| {
        number += 1;
        body[..8].copy_from_slice(&number.to_le_bytes());
        let result = node.call(&name, 0, &body, PATIENCE).map_err(io::Error::other)?;
        if result == body { Ok(()) } else { Err(io::Error::other("another result came back")) }
    })
}
