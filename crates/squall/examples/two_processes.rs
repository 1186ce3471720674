//! Two processes: a client starts its server, kills it, and goes on with the next one.
//!
//! `cargo run --release -p squall --features call --example two_processes`

use squall::call::{ImportOptions, RenewableImport, export};
use squall::objects::map::{self, MapExt, OwnedMap};
use std::error::Error;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The pages of a site. Two programs would have this trait in a library that both use.
#[squall::interface(remote)]
trait Pages: Send + Sync {
    /// Counts a request. Returns the number of requests of this page.
    fn hit(&self, page: &str) -> u64;
}

struct Hits(OwnedMap<String, u64>);

impl Pages for Hits {
    fn hit(&self, page: &str) -> u64 {
        *self.0.entry(page.into()).and_modify(|hits| *hits += 1).or_insert(1)
    }
}

/// The server: exports the object, and serves until its standard input ends.
fn serve(name: &str) -> Result<(), Box<dyn Error>> {
    let pages = squall::shared::<dyn Pages, _>(Hits(map::adaptive()));
    let _export = export(pages.handle(), name)?;
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}

fn start_server(name: &str) -> std::io::Result<Child> {
    Command::new(std::env::current_exe()?).args(["serve", name]).stdin(Stdio::piped()).spawn()
}

/// The client. With the argument `serve`, the program is the server.
pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, role, name] = &arguments[..]
        && role == "serve"
    {
        return serve(name);
    }
    let name = format!("two_processes.{}", std::process::id());
    let limit = Duration::from_secs(60);
    let mut server = start_server(&name)?;
    let pages = RenewableImport::<dyn Pages>::new(ImportOptions::new().limit(limit), &name, limit)?;
    for _ in 0..3 {
        println!("{} requests of /", pages.call(limit, |pages| pages.try_hit("/"))?);
    }
    server.kill()?;
    server.wait()?;
    let mut server = start_server(&name)?;
    // A call that the server's end interrupted may have run. This client would rather count a request twice
    // than not at all, so it repeats the call.
    let hits = pages.call(limit, |pages| pages.try_hit("/")).or_else(|error| {
        println!("{error}");
        pages.call(limit, |pages| pages.try_hit("/"))
    })?;
    println!("{hits} request of / at the new server");
    drop(server.stdin.take());
    server.wait()?;
    Ok(())
}
