//! `squall browse` as scripts run it, on the test's own process.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use crate::common::{self, stderr, stdout};
use serde_json::Value;
use squall::browse::{Builder, Server};

/// Starts an inspection server with a path of its own.
fn serve(name: &str) -> Server {
    let path = std::env::temp_dir().join(format!("squall-browse-{name}-{}.sock", std::process::id()));
    Builder::new().path(path).serve().expect("a server")
}

fn start(server: &Server, args: &[&str]) -> Child {
    let mut command = common::squall();
    command.arg("browse").arg(server.path()).args(args);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary was built")
}

/// Returns the status of the page at this address.
fn status(address: &str) -> String {
    let rest = address.strip_prefix("http://").expect("an address");
    let (host, path) = rest.split_once('/').expect("a token");
    let mut stream = TcpStream::connect(host).expect("it serves");
    write!(stream, "GET /{path} HTTP/1.0\r\nhost: {host}\r\n\r\n").expect("sent");
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).expect("text");
    line.trim_end().to_owned()
}

#[test]
fn the_first_line_is_the_address_and_the_command_ends_with_the_program() {
    let server = serve("address");
    let mut child = start(&server, &[]);
    let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut address = String::new();
    output.read_line(&mut address).expect("text");
    let address = address.trim_end();
    assert!(address.starts_with("http://127.0.0.1:"), "{address}");
    assert!(status(address).ends_with("200 OK"), "{}", status(address));
    let without = address.trim_end_matches('/').rsplit_once('/').expect("a token").0;
    assert!(status(&format!("{without}/")).contains("403"));
    drop(server);
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("text");
    assert_eq!(rest, "");
    let ended = child.wait_with_output().expect("it ends");
    assert!(ended.status.success(), "{}", stderr(&ended));
    let expected = format!("(process {}) has ended", std::process::id());
    assert!(stderr(&ended).contains(&expected), "{}", stderr(&ended));
}

#[test]
fn as_json_every_line_is_an_object() {
    let object = squall::objects::counter::adaptive().named("browsed");
    let server = serve("json");
    let mut child = start(&server, &["--json", "--interval", "50"]);
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut lines = lines.map(|line| serde_json::from_str::<Value>(&line.expect("text")).expect("JSON"));
    let first = lines.next().expect("the address");
    assert!(first["address"].as_str().is_some_and(|address| status(address).ends_with("200 OK")), "{first}");
    let row = lines.find(|row| row["name"] == "browsed").expect("its row");
    assert_eq!((&row["form"], &row["state"]), (&"shared".into(), &"live".into()));
    let id = row["id"].clone();
    drop(object);
    assert!(lines.any(|row| row["id"] == id && row["state"] == "gone"));
    drop(server);
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn a_program_is_found_by_its_name() {
    crate::top::program();
    let this = std::env::current_exe().expect("a file");
    let name = this.file_name().expect("a name");
    let mut command = common::squall();
    command.arg("browse").arg(name).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary was built");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("text");
    if line.is_empty() {
        // This test runs in several processes at once.
        let error = stderr(&child.wait_with_output().expect("it ends"));
        assert!(
            error.contains("several programs") && error.contains(&std::process::id().to_string()),
            "{error}"
        );
        return;
    }
    assert!(status(line.trim_end()).ends_with("200 OK"), "{line}");
    child.kill().expect("it was ours");
    child.wait().expect("it was ours");
}

#[test]
fn a_missing_program_and_a_taken_port_are_named() {
    let output = common::run(common::squall().args(["browse", "no-such-program"]));
    assert!(!output.status.success() && stdout(&output).is_empty());
    assert!(stderr(&output).contains("no-such-program"), "{}", stderr(&output));
    let nobody = common::run(common::squall().args(["browse", "4294967294"]));
    assert!(stderr(&nobody).contains("there is no process 4294967294"), "{}", stderr(&nobody));
    let server = serve("port");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("bound").port().to_string();
    let mut command = common::squall();
    let output = common::run(command.arg("browse").arg(server.path()).args(["--port", &port]));
    assert!(stderr(&output).contains(&format!("port {port}")), "{}", stderr(&output));
}
