//! The server and the client of `squall bench net`, over Zenoh.

#[path = "../../../instruments/bench/src/cases/net/echo.rs"]
mod echo;

use squall_engine_zenoh::Zenoh;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["serve", listen] => echo::serve(&make(listen)?)?,
        ["client", listen, endpoint, bytes] => {
            echo::client(&make(listen)?, endpoint, bytes.parse()?, false, Zenoh::is_connected)?;
        }
        _ => return Err("usage: serve LISTEN | client LISTEN ENDPOINT BYTES".into()),
    }
    Ok(())
}

/// Makes the transport. Zenoh needs a port, so a free one takes the place of port 0.
fn make(listen: &str) -> Result<Arc<Zenoh>, Box<dyn std::error::Error>> {
    let mut listen: SocketAddr = listen.parse()?;
    if listen.port() == 0 {
        listen = TcpListener::bind(listen)?.local_addr()?;
    }
    Ok(Arc::new(Zenoh::new(listen)))
}
