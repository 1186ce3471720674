//! The key of a group, and visits to it.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use squall::fleet::{GroupInfo, GroupKey, HostTransport, Node, NodeBuilder};

use crate::output::Failure;

/// The longest time to wait for a member, and for one answer.
const LIMIT: Duration = Duration::from_secs(10);
const ANSWER: Duration = Duration::from_secs(1);

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
    /// Endpoints of members on this machine, as `host/NAME`. One that lives is enough.
    #[arg(value_name = "ENDPOINT", required = true, value_parser = parse_endpoint)]
    pub(super) endpoints: Vec<String>,
}

fn parse_endpoint(text: &str) -> Result<String, String> {
    match text.strip_prefix("host/") {
        Some(name) if !name.is_empty() => Ok(text.to_owned()),
        _ => Err("an endpoint of this machine is host/NAME".to_owned()),
    }
}

impl VisitArgs {
    /// Makes a visitor of the group.
    pub(super) fn visit(&self) -> Result<Node, Failure> {
        let Some(key) = self.key.key()? else {
            return Err(Failure::new("the key of the group is missing; name it by --key-file or --key-env"));
        };
        let failed = |error: std::io::Error| Failure::new(format!("this program cannot be reached: {error}"));
        let transport = HostTransport::unnamed().map_err(failed)?;
        let endpoints: Vec<&str> = self.endpoints.iter().map(String::as_str).collect();
        NodeBuilder::new(key).visit(transport, &endpoints).map_err(failed)
    }

    /// Returns the directory of the group. A question that is lost is asked again.
    pub(super) fn show(&self, visitor: &Node) -> Result<GroupInfo, Failure> {
        let began = Instant::now();
        loop {
            match visitor.show(ANSWER) {
                Ok(info) => return Ok(info),
                Err(_) if began.elapsed() < LIMIT => {}
                Err(_) => return Err(Failure::new(self.silence())),
            }
        }
    }

    fn silence(&self) -> String {
        format!(
            "no member at {} answered within {} s; look whether one lives, and whether the key is right",
            self.endpoints.join(", "),
            LIMIT.as_secs()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_of_this_machine_are_accepted() {
        assert_eq!(parse_endpoint("host/a").as_deref(), Ok("host/a"));
        for other in ["", "host/", "a", "tcp/10.0.0.1:1"] {
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
