//! The server and the client of `squall bench net`, over iroh.

#[path = "../../../instruments/bench/src/cases/net/echo.rs"]
mod echo;

use squall_engine_iroh::Iroh;
use std::sync::Arc;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let make = |listen: &str| Ok::<_, Box<dyn std::error::Error>>(Arc::new(Iroh::new(listen.parse()?)?));
    match arguments[..] {
        ["serve", listen] => echo::serve(&make(listen)?)?,
        ["client", listen, endpoint, bytes] => {
            echo::client(&make(listen)?, endpoint, bytes.parse()?, false, Iroh::is_connected)?;
        }
        _ => return Err("usage: serve LISTEN | client LISTEN ENDPOINT BYTES".into()),
    }
    Ok(())
}
