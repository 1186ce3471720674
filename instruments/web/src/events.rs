//! Stream of server-sent events: the rows for one page.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use tokio::sync::mpsc::Receiver;

use crate::rows::Update;

/// Events of one page. The last event says why the program's connection ended.
pub(crate) struct Events {
    updates: Receiver<Arc<Update>>,
    end: Arc<OnceLock<String>>,
    over: bool,
}

impl Events {
    pub(crate) fn new(updates: Receiver<Arc<Update>>, end: Arc<OnceLock<String>>) -> Events {
        Events { updates, end, over: false }
    }
}

impl Stream for Events {
    type Item = Result<String, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.over {
            return Poll::Ready(None);
        }
        let update = ready!(self.updates.poll_recv(context));
        self.over = update.is_none();
        Poll::Ready(Some(Ok(match update {
            Some(update) => rows_event(&update),
            None => ended_event(self.end.get().map_or("squall browse has ended", String::as_str)),
        })))
    }
}

fn rows_event(update: &Update) -> String {
    let gone = serde_json::to_string(&update.gone).unwrap_or_default();
    let Update { full, rows, all_frozen, .. } = update;
    let rows: Vec<&str> = rows.iter().map(|row| row.json.as_str()).collect();
    // JSON has no newline outside of texts, and escapes those inside.
    format!(
        "event: rows\ndata: {{\"full\":{full},\"all_frozen\":{all_frozen},\"gone\":{gone},\"rows\":[{}]}}\n\n",
        rows.join(",")
    )
}

fn ended_event(why: &str) -> String {
    format!("event: ended\ndata: {}\n\n", serde_json::json!({ "why": why }))
}
