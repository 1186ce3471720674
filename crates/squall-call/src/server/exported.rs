//! An exported object: its rights, its settings and its connections.

use squall_core::{Handle, Id, Interface};
use squall_sys::padded::CachePadded;
use squall_sys::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use squall_sys::sync::{Mutex, StdArc as Arc, Weak, lock};
use std::time::Duration;

use super::client::Client;
use super::users::User;
use crate::codec::{Reader, Writer};
use crate::remote::{Remote, Unserved};

/// The call of a method by its number.
type Serve = dyn Fn(u32, &mut Reader<'_>, &mut Writer<'_>) -> Result<(), Unserved> + Send + Sync;

/// The id of an exported object, which callers write in each call: a generation, an index, two zero bits, and
/// the bit *external*, which only an export sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExternalId(u64);

impl ExternalId {
    const EXTERNAL: u64 = 1;
    const ALIGNMENT: u64 = 0b110;

    pub(crate) fn new(index: u32, generation: u32) -> ExternalId {
        ExternalId(u64::from(generation) << 32 | u64::from(index) << 3 | ExternalId::EXTERNAL)
    }

    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    /// Checks the bits that a caller sent against a table of `length` entries, and returns index and
    /// generation.
    pub(crate) fn check(bits: u64, length: usize) -> Option<(usize, u32)> {
        let (generation, index) = ((bits >> 32) as u32, (bits as u32 >> 3) as usize);
        let external = bits & ExternalId::EXTERNAL != 0 && bits & ExternalId::ALIGNMENT == 0;
        (external && index < length).then_some((index, generation))
    }
}

/// How an object is exported.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Methods that callers may call, as bits.
    pub(crate) rights: u64,
    /// Users that may connect, besides root and this process's user. Without a list, all users may.
    pub(crate) users: Option<Vec<u32>>,
    /// Largest number of connections.
    pub(crate) clients: usize,
    /// Largest number of connections of one user.
    pub(crate) clients_per_user: usize,
    /// Largest number of workers that serve one connection at a time.
    pub(crate) workers: usize,
    /// Processors of the workers. Without a list, a worker serves on its caller's processor.
    pub(crate) processors: Option<Vec<usize>>,
    /// Time after which a worker leaves a slot without calls.
    pub(crate) idle: Duration,
    /// Time that a worker spins for the next call of a caller on another processor.
    pub(crate) spin: Duration,
}

/// A connection, and the user that it counts for.
type Connected = (User, Weak<Client>);

/// An object that callers of other processes reach.
pub(crate) struct Exported {
    pub(crate) name: Arc<str>,
    pub(crate) interface: &'static str,
    pub(crate) methods: &'static [&'static str],
    pub(crate) schema: u64,
    pub(crate) signature: &'static str,
    pub(crate) object: Id,
    serve: Box<Serve>,
    pub(crate) settings: Settings,
    generation: u32,
    /// False once the export has ended.
    open: AtomicBool,
    rights: AtomicU64,
    /// Connections that exist, with those that have ended while a call of theirs still runs.
    clients: CachePadded<Mutex<Vec<Connected>>>,
}

impl std::fmt::Debug for Exported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exported")
            .field("name", &self.name)
            .field("interface", &self.interface)
            .finish_non_exhaustive()
    }
}

const CLIENTS: &str = "the list of an export's clients";

static ALL: Mutex<Vec<Weak<Exported>>> = Mutex::new(Vec::new());
/// The last generation given to an export of this process.
static GENERATION: AtomicU32 = AtomicU32::new(0);

impl Exported {
    pub(crate) fn new<I: ?Sized + Remote>(
        handle: Handle<I>,
        name: Arc<str>,
        settings: Settings,
    ) -> Arc<Exported> {
        let exported = Arc::new(Exported {
            name,
            interface: <I as Interface>::NAME,
            methods: <I as Interface>::METHODS,
            schema: I::SCHEMA,
            signature: I::SIGNATURE,
            object: Handle::id(handle),
            serve: Box::new(move |method, input, output| I::__serve(handle, method, input, output)),
            rights: AtomicU64::new(settings.rights),
            settings,
            // Relaxed: only the value matters.
            generation: GENERATION.fetch_add(1, Ordering::Relaxed) + 1,
            open: AtomicBool::new(true),
            clients: CachePadded::default(),
        });
        let mut all = lock(&ALL, "the list of exports");
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(&exported));
        exported
    }

    /// The exports of this process that are open.
    pub(crate) fn all() -> Vec<Arc<Exported>> {
        let all: Vec<_> = lock(&ALL, "the list of exports").iter().filter_map(Weak::upgrade).collect();
        all.into_iter().filter(|exported| exported.is_open()).collect()
    }

    /// The id that callers write in each call.
    pub(crate) fn external_id(&self) -> ExternalId {
        ExternalId::new(0, self.generation)
    }

    /// Whether these bits, which a caller wrote, are the id of this object.
    pub(crate) fn is(&self, bits: u64) -> bool {
        ExternalId::check(bits, 1).is_some_and(|(_, generation)| generation == self.generation)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// Methods that callers may call, as bits.
    pub(crate) fn rights(&self) -> u64 {
        self.rights.load(Ordering::Relaxed)
    }

    /// Changes the rights of all callers. Running calls go on.
    pub(crate) fn change_rights(&self, change: impl Fn(u64) -> u64) {
        // Relaxed: only the value matters.
        let _ = self.rights.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |rights| Some(change(rights)));
    }

    pub(crate) fn serve(
        &self,
        method: u32,
        input: &mut Reader<'_>,
        output: &mut Writer<'_>,
    ) -> Result<(), Unserved> {
        (self.serve)(method, input, output)
    }

    /// Adds a connection.
    pub(super) fn add(&self, user: User, client: &Arc<Client>) {
        lock(&self.clients, CLIENTS).push((user, Arc::downgrade(client)));
    }

    /// Whether one more connection of this user may exist.
    pub(super) fn has_room(&self, user: User) -> bool {
        let mut clients = lock(&self.clients, CLIENTS);
        clients.retain(|(_, client)| client.strong_count() > 0);
        let own = clients.iter().filter(|(other, _)| *other == user).count();
        clients.len() < self.settings.clients && own < self.settings.clients_per_user
    }

    /// The connections that are open.
    pub(crate) fn clients(&self) -> Vec<Arc<Client>> {
        let all: Vec<_> =
            lock(&self.clients, CLIENTS).iter().filter_map(|(_, client)| client.upgrade()).collect();
        all.into_iter().filter(|client| client.is_connected()).collect()
    }

    /// Ends the export: further calls get an error, and all connections end.
    pub(crate) fn close(&self) {
        self.open.store(false, Ordering::Relaxed);
        for client in self.clients() {
            client.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_of_an_external_id_is_checked() {
        let bits = ExternalId::new(2, 7).bits();
        assert_eq!(ExternalId::check(bits, 3), Some((2, 7)));
        assert_eq!(ExternalId::check(bits, 2), None, "out of range");
        assert_eq!(ExternalId::check(bits & !1, 3), None, "not external");
        assert_eq!(ExternalId::check(bits | 2, 3), None, "not aligned");
        assert_eq!(ExternalId::check(bits | 4, 3), None, "not aligned");
    }
}
