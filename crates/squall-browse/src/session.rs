//! Session: the facts that the server keeps for one connection.
//!
//! - I1. A session ends with its connection, and so does its memory.

use crate::changes::Sent;
use crate::records::Records;
use squall_adapt::decision::Author;

/// Longest line of `/etc/passwd` that counts, in bytes.
const USER_LINE_MAX: usize = 4096;

/// The process and user at the other end of a connection, as the kernel reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) uid: u32,
    /// Absent if the client's pid namespace is not visible from here.
    pub(crate) pid: Option<u32>,
}

/// Returns an author for [`Client::set_author`](crate::Client::set_author): a tool, and the user of this
/// process. The program takes this author as it is.
///
/// ```
/// let author = squall::browse::author("my tool");
/// assert!(author.starts_with("my tool, user "));
/// ```
pub fn author(tool: &str) -> String {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        let uid = rustix::process::geteuid().as_raw();
        format!("{tool}, user {}", user_of(uid).unwrap_or_else(|| uid.to_string()))
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    tool.to_owned()
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Session {
    /// Absent in tests without a socket.
    pub(crate) peer: Option<Peer>,
    /// Rows that the client knows.
    pub(crate) sent: Sent,
    pub(crate) records: Records,
}

impl Session {
    #[cfg_attr(not(all(target_os = "linux", not(miri))), allow(dead_code))]
    pub(crate) fn new(peer: Peer) -> Session {
        Session { peer: Some(peer), sent: Sent::default(), records: Default::default() }
    }

    /// Returns the author of a change. The client claims a name, and the kernel knows its user and process.
    /// The kernel's words are left out only if the claim ends with `user NAME` of that user.
    pub(crate) fn author(&self, claimed: Option<&str>) -> Author {
        let claimed = claimed.map(crate::answers::shortened);
        let Some(Peer { uid, pid }) = self.peer else {
            return Author::new(claimed.as_deref().unwrap_or("a client without a name"));
        };
        checked(claimed.as_deref(), user_of(uid).as_deref(), uid, pid)
    }
}

fn checked(claimed: Option<&str>, user: Option<&str>, uid: u32, pid: Option<u32>) -> Author {
    let uid_text = uid.to_string();
    let user = user.unwrap_or(&uid_text);
    let process = pid.map_or("a process of another container".to_owned(), |pid| format!("process {pid}"));
    let last = claimed.and_then(|claimed| claimed.rsplit_once("user ")).map(|(_, last)| last);
    let text = match claimed {
        None => format!("user {user}, {process}"),
        Some(claimed) if last == Some(user) || last == Some(&*uid_text) => claimed.to_owned(),
        Some(claimed) => format!("{claimed} (kernel: user {user}, {process})"),
    };
    Author::new(&text).with_peer(uid, pid)
}

/// Returns the name of a user, if this system has it in a file.
fn user_of(uid: u32) -> Option<String> {
    name_of(&std::fs::read_to_string("/etc/passwd").ok()?, uid)
}

/// Returns the name of a user in the text of `/etc/passwd`.
fn name_of(users: &str, uid: u32) -> Option<String> {
    let lines = users.lines().filter(|line| line.len() <= USER_LINE_MAX);
    let mut users = lines.map(|line| line.split(':')).filter_map(|mut fields| {
        let name = fields.next()?;
        Some((name, fields.nth(1)?.parse::<u32>().ok()?))
    });
    users.find(|(name, this)| *this == uid && !name.is_empty()).map(|(name, _)| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_words_are_added_unless_they_agree_with_the_claim() {
        let users = "root:x:0:0:root:/:/bin/sh\nbad line\nann:x:1000:1000::/:/bin/sh\n";
        let user = name_of(users, 1000);
        assert_eq!((user.as_deref(), name_of(users, 7)), (Some("ann"), None));
        let named = |claimed| checked(claimed, Some("ann"), 1000, Some(4711)).to_string();
        assert_eq!(named(Some("squall top, user ann")), "squall top, user ann");
        assert_eq!(named(Some("squall top, user 1000")), "squall top, user 1000");
        assert_eq!(
            named(Some("squall top, user bob")),
            "squall top, user bob (kernel: user ann, process 4711)"
        );
        assert_eq!(named(Some("user ann's bob")), "user ann's bob (kernel: user ann, process 4711)");
        assert_eq!(named(None), "user ann, process 4711");
        let unknown = checked(Some("bob\n"), None, 7, None);
        assert_eq!(unknown.to_string(), "bob\\n (kernel: user 7, a process of another container)");
        assert_eq!((unknown.uid, unknown.pid), (Some(7), None));
        assert_eq!(Session::default().author(None).to_string(), "a client without a name");
    }
}
