//! Handlers of requests: one for a mailbox, or one for each method.

use crate::inlet::Inlet;
use crate::request::Request;
use crate::tasks::Work;
use crate::watch::{Label, Watch};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::future::Future;

type Handler = Box<dyn Fn(Request) -> Work>;

fn boxed<F>(handler: impl Fn(Request) -> F + 'static) -> Handler
where
    F: Future<Output = ()> + 'static,
{
    Box::new(move |request| Box::pin(handler(request)))
}

/// A table of methods with their handlers, for [`serve_methods`](crate::Dispatcher::serve_methods).
///
/// The method is the number that a caller gives to [`call`](crate::Caller::call).
/// Source: Wentzlaff 2012, §3.3 (FO-16): handlers are keyed by the word for the type of the message.
#[derive(Default)]
#[must_use = "a table does nothing until a dispatcher serves it"]
pub struct Methods {
    name: Option<String>,
    handlers: HashMap<u64, (Option<String>, Handler)>,
}

impl Methods {
    /// Makes an empty table. The watchdog names its tasks by the alias of the mailbox, and by the method.
    pub fn new() -> Methods {
        Methods::default()
    }

    /// Makes an empty table with a name, by which the watchdog reports its tasks.
    pub fn named(name: &str) -> Methods {
        Methods { name: Some(name.to_owned()), ..Methods::new() }
    }

    /// Adds a method. Each request for it gets a task with the future that `handler` returns.
    ///
    /// # Panics
    /// If the table has the method.
    pub fn on<F>(self, method: u64, handler: impl Fn(Request) -> F + 'static) -> Methods
    where
        F: Future<Output = ()> + 'static,
    {
        self.add(method, None, boxed(handler))
    }

    /// Adds a method like [`on`](Methods::on), with a name for its tasks.
    ///
    /// # Panics
    /// If the table has the method.
    pub fn on_named<F>(self, method: u64, name: &str, handler: impl Fn(Request) -> F + 'static) -> Methods
    where
        F: Future<Output = ()> + 'static,
    {
        self.add(method, Some(name.to_owned()), boxed(handler))
    }

    fn add(mut self, method: u64, name: Option<String>, handler: Handler) -> Methods {
        match self.handlers.entry(method) {
            Entry::Vacant(place) => _ = place.insert((name, handler)),
            Entry::Occupied(_) => panic!("method {method} has a handler already; add each method once"),
        }
        self
    }

    pub(crate) fn into_handlers(self, watch: &Watch, inlet: &Inlet) -> Handlers {
        let of = self.name.unwrap_or_else(|| format!("requests of {inlet}"));
        let label = |method: u64, name: Option<String>| match name {
            Some(name) => watch.label(&format!("{of}: {name}")),
            None => watch.label(&format!("{of}: method {method}")),
        };
        let entries = self.handlers.into_iter();
        Handlers::Table(
            entries.map(|(method, (name, handler))| (method, (label(method, name), handler))).collect(),
        )
    }
}

impl fmt::Debug for Methods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut methods: Vec<_> = self.handlers.keys().collect();
        methods.sort_unstable();
        f.debug_struct("Methods").field("name", &self.name).field("methods", &methods).finish()
    }
}

/// The handlers of a mailbox, with the labels of their tasks.
pub(crate) enum Handlers {
    /// For all methods.
    One(Label, Handler),
    /// By method.
    Table(HashMap<u64, (Label, Handler)>),
}

impl Handlers {
    pub(crate) fn one<F>(watch: &Watch, name: &str, handler: impl Fn(Request) -> F + 'static) -> Handlers
    where
        F: Future<Output = ()> + 'static,
    {
        Handlers::One(watch.label(name), boxed(handler))
    }

    /// Returns the handler of a method.
    pub(crate) fn get(&self, method: u64) -> Option<(Label, &Handler)> {
        match self {
            Handlers::One(label, handler) => Some((*label, handler)),
            Handlers::Table(table) => table.get(&method).map(|(label, handler)| (*label, handler)),
        }
    }
}
