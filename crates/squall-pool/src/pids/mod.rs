//! Process ids, allocated by a fleet, and reused late.
//!
//! Problem: a fixed set of ids is given out by several servers. An id in use must be given to no second
//! process. An id that was freed should rest, since others may still hold it. Idea: two pools. Servers draw
//! from one, and return to the other. When the first one is empty, they exchange the roles: a new *round*
//! begins.
//!
//! Each id carries the first round in which it may be drawn, and each process id the round of its draw. So
//! servers do not vote: a server learns of a round from ids, and from the calls of clients.
//!
//! - I1. The rounds of the draws of one id grow. So an id is drawn at most once in each round.
//! - I2. From the moment at which an id comes into a pool until it leaves the pool, at most one round begins.
//!   So a second id is drawn at most twice meanwhile: once in each of both rounds.
//! - I3. With one server, an id that is freed in a round is not drawn in it. With several servers, a client
//!   that is alone and makes one call after the other has the same promise. A killed server may break it for
//!   a round.
//! - I4. An id has one element in both pools together, or a client has it, or it is lost.
//!
//! With several servers and several clients, a server may miss the begin of a round. Until it learns of the
//! round, it draws in an older one, and frees into the pool from which others draw. So an id that it frees
//! may be drawn in the round of its free, though never twice in a round (I1). Such a server may also take an
//! id of a later round: it puts the id back, and learns of the round. The id begins to rest anew (I2). A draw
//! at that moment may miss the id.
//!
//! With one server, and one call after the other, the ids form a queue: an id is drawn after all ids that
//! were free at its last draw.
//!
//! Not promised: ids of dead servers. A killed server loses the free ids of its store, and those of replies
//! on their way. A living server loses the id of a reply that did not come, if the client then meets another
//! server, or one that has forgotten it: the client draws again. Lost ids are given out no more. A fleet that
//! lost all servers has no ids: a new one must not give out ids that processes may still have. An id of the
//! earlier fleet has its key, so a free of it is an error.
//!
//! A process that dies keeps its ids, until another one frees them: a program that gives ids to processes
//! keeps their [`Pid`]s. A second free of an id does not compile, since a free consumes the [`Pid`].
//!
//! Cost: a draw and a free are each one call, and one operation of a pool. The first draw of a round takes
//! one more. Each pool has an element for each free id.
//!
//! Source: Wentzlaff, *fos*, 2012, §5.2 (DP-19), where the exchange is a proposal without a protocol.

mod client;
mod error;
mod rounds;
mod server;
mod sessions;
#[cfg(test)]
mod sim;
mod wire;

pub use self::client::{Pid, PidClient};
pub use self::error::{PidError, PidErrorKind, PidNotFreed};
pub use self::server::PidServer;
