//! Process ids, allocated by a fleet, and reused late.
//!
//! Problem: a fixed set of ids is given out by several servers. An id in use must be given to no second
//! process. An id that was freed should rest, since others may still hold it. Idea: two pools. Servers draw
//! from one, and return to the other. When the first one is empty, they exchange the roles: a new *round*
//! begins.
//!
//! Each id carries the first round in which it may be drawn, and each process id the round of its draw. So no
//! server is asked for its vote: a server that meets an id of a later round has learned of the round.
//!
//! - I1. The rounds of the draws of one id grow. So an id is drawn at most once in each round.
//! - I2. A server begins a round after a get that found the pool of the last round empty, or after it met an
//!   id of such a server.
//! - I3. An id has one element in both pools together, or a client has it, or it is lost.
//!
//! Argument for I1. A server draws an id in its own round, if the id carries none above it. A free writes the
//! round of the draw and that of the server, the larger one, plus 1.
//!
//! With one server, and calls one after the other: between two draws of an id, all ids are drawn that were
//! free at the first one. With several servers, one that has not met the new round may return an id to the
//! pool of the old one. That id rests for one round more, or is drawn in the old round.
//!
//! Not promised: ids of dead servers. A killed server loses the free ids of its store, and those of replies
//! on their way. They are given out no more. A fleet that lost all servers has no ids: a new one must not
//! give out ids that processes may still have.
//!
//! Cost: a draw and a free are each one call, and one operation of a pool. The first draw of a round takes
//! one more. Each pool has an element for each free id.
//!
//! Source: Wentzlaff, *fos*, 2012, §5.2 (DP-19), where the exchange is a proposal without a protocol.

mod client;
mod error;
mod server;
mod wire;

pub use self::client::{Pid, PidClient};
pub use self::error::{PidError, PidErrorKind, PidNotFreed};
pub use self::server::PidServer;
