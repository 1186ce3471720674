//! Errors of calls as values that travel between processes.
//!
//! Problem: an error holds static texts, and a received one comes from another process, which may be hostile.
//! Idea: keep each distinct text of a received error for good, up to a number of texts of a bounded length.
//! Honest programs have few of them. Beyond that, a fixed text stands for the received one.

use std::collections::BTreeSet;

use squall_sys::sync::{Mutex, lock};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::error::{CallError, CallErrorKind, Details};
use super::transport::Transport;
use crate::protocol::id::Id;
use crate::protocol::names::Name;

/// Largest number of kept texts.
const TEXTS_MAX: usize = 1024;
/// Largest length in bytes of a kept text.
const TEXT_BYTES_MAX: usize = 256;
/// The text in place of one that is not kept.
const UNKNOWN: &str = "(a text of another process)";

static TEXTS: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

/// Returns a static text that equals this one, if it is kept.
fn kept(text: &str) -> &'static str {
    keep(&mut lock(&TEXTS, "the texts of received errors"), text)
}

fn keep(texts: &mut BTreeSet<&'static str>, text: &str) -> &'static str {
    if let Some(found) = texts.get(text) {
        return found;
    }
    if texts.len() >= TEXTS_MAX || text.len() > TEXT_BYTES_MAX {
        return UNKNOWN;
    }
    let text: &'static str = String::leak(text.to_owned());
    texts.insert(text);
    text
}

/// [`CallErrorKind`] with texts of any lifetime.
#[derive(Serialize, Deserialize)]
#[serde(rename = "CallErrorKind")]
enum Kind<T> {
    Destroyed,
    NotThere,
    Refused(T),
    Forked,
    Reentrant,
    InTransfer,
    Transport(Transport),
}

impl Serialize for CallErrorKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let kind = match *self {
            CallErrorKind::Destroyed => Kind::Destroyed,
            CallErrorKind::NotThere => Kind::NotThere,
            CallErrorKind::Refused(why) => Kind::Refused(why),
            CallErrorKind::Forked => Kind::Forked,
            CallErrorKind::Reentrant => Kind::Reentrant,
            CallErrorKind::InTransfer => Kind::InTransfer,
            CallErrorKind::Transport(transport) => Kind::Transport(transport),
        };
        kind.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for CallErrorKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<CallErrorKind, D::Error> {
        Ok(match Kind::<String>::deserialize(deserializer)? {
            Kind::Destroyed => CallErrorKind::Destroyed,
            Kind::NotThere => CallErrorKind::NotThere,
            Kind::Refused(why) => CallErrorKind::Refused(kept(&why)),
            Kind::Forked => CallErrorKind::Forked,
            Kind::Reentrant => CallErrorKind::Reentrant,
            Kind::InTransfer => CallErrorKind::InTransfer,
            Kind::Transport(transport) => CallErrorKind::Transport(transport),
        })
    }
}

/// [`CallError`] with texts of any lifetime. The id is a slot and a generation.
#[derive(Serialize, Deserialize)]
#[serde(rename = "CallError")]
struct Parts<T> {
    interface: T,
    class: Option<T>,
    id: (u32, u32),
    name: Option<T>,
    method: T,
    reason: CallErrorKind,
}

impl Serialize for CallError {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Details { interface, class, id, name, method, reason, is_received: _ } = &*self.0;
        let id = (id.slot(), id.generation());
        Parts::<&str> { interface, class: *class, id, name: name.as_deref(), method, reason: *reason }
            .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for CallError {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<CallError, D::Error> {
        let Parts { interface, class, id: (slot, generation), name, method, reason } =
            Parts::<String>::deserialize(deserializer)?;
        Ok(CallError(Box::new(Details {
            interface: kept(&interface),
            class: class.as_deref().map(kept),
            id: Id::from_parts(slot, generation).ok_or_else(|| D::Error::custom("no id of an object"))?,
            name: name.map(|name| Name::new(name.into())),
            method: kept(&method),
            reason,
            is_received: true,
        })))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_read_as_it_was_written() {
        let id = Id::from_parts(7, 3).unwrap();
        let kinds = [
            CallErrorKind::Destroyed,
            CallErrorKind::NotThere,
            CallErrorKind::Refused("it is night"),
            CallErrorKind::Forked,
            CallErrorKind::Reentrant,
            CallErrorKind::InTransfer,
            CallErrorKind::Transport(Transport::Busy),
        ];
        for kind in kinds {
            let mut error = CallError::new("Counter", Some("Central"), id, "add", kind);
            error.0.name = Some(Name::new("GET /".into()));
            let text = serde_json::to_string(&error).unwrap();
            let read = serde_json::from_str::<CallError>(&text).unwrap();
            assert_eq!(read, error, "{text}");
            assert!(
                read.__is_received() && read.__in_method("get").__is_received() && !error.__is_received()
            );
        }
        let none = r#"{"interface":"","class":null,"id":[0,0],"name":null,"method":"","reason":"Forked"}"#;
        assert!(serde_json::from_str::<CallError>(none).is_err(), "an id that no object has");
    }

    #[test]
    fn a_hostile_process_leaves_a_bounded_number_of_texts() {
        let texts = &mut BTreeSet::new();
        let long = "x".repeat(TEXT_BYTES_MAX + 1);
        assert_eq!((keep(texts, &long), keep(texts, &long[1..])), (UNKNOWN, &long[1..]));
        for number in 0..2 * TEXTS_MAX {
            keep(texts, &format!("text {number}"));
        }
        assert_eq!(texts.len(), TEXTS_MAX);
        assert_eq!((keep(texts, &long[1..]), keep(texts, "a new one")), (&long[1..], UNKNOWN));
    }
}
