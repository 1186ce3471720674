//! The default server of each interface, in this process.
//!
//! Problem: most clients of an interface want its one usual server, and should not pass its address around.
//! Idea: a table from interfaces to servers. A program sets an entry once, when it starts. A stub finds its
//! server when it is made.
//!
//! - I1. An entry is found by the type of the interface. So two interfaces never share one.
//! - I2. The lock of the table is held for a copy of an entry. No stub is made and no entry dropped under it.
//!
//! Source: Wentzlaff 2012, §3.3.1 (FO-21). The thesis has two stubs for each function: `rpc_x` calls the
//! default mailbox, and `rpcm_x` gets one as an argument. Here [`connect_default`] and
//! [`connect`](crate::connect) make the object, and its methods are the same.

use crate::{ConnectError, Sender, StubOptions};
use squall_call::__macro::Port;
use squall_call::Remote;
use squall_core::{InterfaceOf, Owned};
use squall_sys::sync::{Mutex, MutexGuard, OnceLock, lock};
use std::any::TypeId;
use std::collections::HashMap;

/// The way to the server of an object: a mailbox of this process, or the name of a listener of links.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ServerAddress {
    /// A mailbox, with a capability for many messages.
    Mailbox(Sender),
    /// The name of a [`LinkListener`](crate::LinkListener) of another process. Linux only.
    Listener(String),
}

impl From<&Sender> for ServerAddress {
    fn from(sender: &Sender) -> ServerAddress {
        ServerAddress::Mailbox(sender.clone())
    }
}

impl From<&str> for ServerAddress {
    fn from(listener: &str) -> ServerAddress {
        ServerAddress::Listener(listener.to_owned())
    }
}

type Table = HashMap<TypeId, ServerAddress>;

fn table() -> MutexGuard<'static, Table> {
    static TABLE: OnceLock<Mutex<Table>> = OnceLock::new();
    lock(TABLE.get_or_init(Mutex::default), "the default servers of interfaces")
}

/// Sets the default server of an interface in this process, for [`connect_default`]. Returns the former one.
///
/// Stubs that were made before keep their server. The server is not asked now.
///
/// # Example
/// See [`connect_default`].
pub fn set_default<I: ?Sized + Remote + 'static>(server: impl Into<ServerAddress>) -> Option<ServerAddress> {
    let server = server.into();
    table().insert(TypeId::of::<I>(), server)
}

/// Removes the default server of an interface in this process. Returns it, if there was one.
pub fn remove_default<I: ?Sized + Remote + 'static>() -> Option<ServerAddress> {
    table().remove(&TypeId::of::<I>())
}

/// Makes an object that calls the default server of its interface.
///
/// [`connect`](crate::connect) and [`connect_link`](crate::connect_link) are the forms for a server of the
/// caller's choice. The objects are alike.
///
/// # Errors
/// [`ConnectError::NoDefault`]: this process has no default server of the interface. Those of
/// [`connect`](crate::connect) and [`connect_link`](crate::connect_link).
/// # Panics
/// In the child of a fork.
/// # Cost
/// A look into a table under a lock, and that of [`connect`](crate::connect). Calls cost the same.
///
/// # Example
/// ```
/// use squall::fleet::{Class, Dispatcher, Mailbox, connect_default, set_default};
///
/// #[squall::interface(remote)]
/// trait Greeter: Send + Sync {
///     fn greet(&self, name: &str) -> String;
/// }
///
/// struct English;
///
/// impl Greeter for English {
///     fn greet(&self, name: &str) -> String {
///         format!("Hello, {name}!")
///     }
/// }
///
/// let greeter = squall::shared::<dyn Greeter, _>(English);
/// let object = greeter.handle();
/// let mailbox = Mailbox::new();
/// set_default::<dyn Greeter>(&mailbox.sender(mailbox.add_capability()?)?);
/// std::thread::spawn(move || {
///     let mut dispatcher = Dispatcher::new();
///     dispatcher.serve_object(mailbox, Class::External, object);
///     dispatcher.run();
/// });
/// // Anywhere else in the program.
/// assert_eq!(connect_default::<dyn Greeter>()?.greet("Ada"), "Hello, Ada!");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn connect_default<I>() -> Result<Owned<I>, ConnectError>
where
    I: ?Sized + Remote + InterfaceOf<Port<I>> + 'static,
{
    StubOptions::new().connect_default()
}

impl StubOptions {
    /// Makes an object as [`connect_default`] does, with these options.
    ///
    /// # Errors
    /// As [`connect_default`].
    /// # Panics
    /// In the child of a fork.
    pub fn connect_default<I>(&self) -> Result<Owned<I>, ConnectError>
    where
        I: ?Sized + Remote + InterfaceOf<Port<I>> + 'static,
    {
        let server = table().get(&TypeId::of::<I>()).cloned();
        match server {
            Some(ServerAddress::Mailbox(sender)) => self.connect(&sender),
            Some(ServerAddress::Listener(name)) => self.connect_listener(&name),
            None => Err(ConnectError::NoDefault { interface: std::any::type_name::<I>() }),
        }
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    fn connect_listener<I: ?Sized + Remote + InterfaceOf<Port<I>>>(
        &self,
        name: &str,
    ) -> Result<Owned<I>, ConnectError> {
        self.connect_link(name)
    }

    #[cfg(not(all(target_os = "linux", not(miri))))]
    fn connect_listener<I: ?Sized + Remote + InterfaceOf<Port<I>>>(
        &self,
        name: &str,
    ) -> Result<Owned<I>, ConnectError> {
        let server = crate::Server::Listener(name.to_owned());
        Err(ConnectError::NotLinked { server, error: std::io::ErrorKind::Unsupported.into() })
    }
}
