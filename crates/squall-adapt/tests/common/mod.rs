//! A subscriber of `tracing` for tests: it passes the fields of events on as text.

use std::fmt::Debug;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Passes the fields of each wanted event to a function.
pub(crate) struct Fields {
    pub(crate) wants: fn(&Metadata<'_>) -> bool,
    pub(crate) take: fn(String),
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0 += &format!("{}={value:?};", field.name());
    }
}

impl Subscriber for Fields {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        (self.wants)(metadata)
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        (self.take)(text.0);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
