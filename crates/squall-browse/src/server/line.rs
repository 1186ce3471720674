//! One line of a client, and the line that answers it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::protocol::{Answer, Refusal, RefusalKind, Request};
use crate::session::Session;

/// Answers a request of a session with one line.
pub(crate) type Handler = Box<dyn FnMut(Request, &mut Session) -> Result<String, Refusal> + Send>;

/// Answers one line with one line.
pub(super) fn answer_line(handler: &mut Handler, session: &mut Session, line: &[u8]) -> String {
    let request = match serde_json::from_slice::<Request>(line) {
        Ok(request) => request,
        Err(error) => return refused(bad_request(line, &error)),
    };
    match catch_unwind(AssertUnwindSafe(|| handler(request, session))) {
        Ok(Ok(payload)) => format!("{{\"ok\":{payload}}}"),
        Ok(Err(refusal)) => refused(refusal),
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().copied();
            let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            let what = text.unwrap_or("with a payload that is not text");
            let refusal = Refusal::new(
                RefusalKind::Panicked,
                format!("the program panicked while it handled this request: {what}"),
            );
            // The drop of a payload may panic, so it is leaked.
            std::mem::forget(panic);
            refused(refusal)
        }
    }
}

fn bad_request(line: &[u8], error: &serde_json::Error) -> Refusal {
    let message = if line.is_empty() {
        "an empty line; a request is a line with a JSON object, such as {\"op\":\"hello\"}".to_owned()
    } else if error.is_data() {
        format!("{error}; a request is a JSON object with the key \"op\" and the fields of that operation")
    } else {
        format!("{error}; a request is a line with a JSON object, such as {{\"op\":\"hello\"}}")
    };
    Refusal::new(RefusalKind::BadRequest, message)
}

/// Encodes a refusal as a line.
pub(super) fn refused(refusal: Refusal) -> String {
    // Cannot fail: it holds only text and a name.
    serde_json::to_string(&Answer::<()>::Refused(refusal)).unwrap_or_default()
}
