//! The data that all threads of the stress share.

use std::sync::atomic::AtomicU64;

use super::board::Board;
use super::breaks::Break;
use super::counts::Counts;
use super::ledger::Ledger;
use crate::skeleton;
use crate::skeleton::store_buffer::StoreBuffer;

pub(super) type World = skeleton::world::World<Break, Counts, State>;

pub(crate) struct State {
    pub(super) ledger: Ledger,
    pub(super) board: Board,
    pub(super) store_buffer: StoreBuffer,
    /// Planned panics in drops, which the library must catch itself.
    pub(super) drop_panics: AtomicU64,
}

/// Makes the world for so many workers and for objects of these classes.
pub(super) fn make(
    broken: Option<Break>,
    workers: usize,
    classes: &'static [&'static str],
) -> &'static World {
    World::leaked(broken, workers, |_| State {
        ledger: Ledger::new(classes),
        board: Board::new(),
        store_buffer: StoreBuffer::new(),
        drop_panics: AtomicU64::new(0),
    })
}
