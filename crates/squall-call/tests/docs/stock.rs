// An interface that other processes can call, and its implementation, for the examples of the documentation.

use std::collections::HashMap;
use std::sync::Mutex;

/// The stock of a warehouse.
#[squall::interface(remote)]
pub trait Stock: Send + Sync {
    /// Adds pieces of an item. Returns the number of its pieces.
    fn add(&self, item: &str, pieces: u32) -> u32;
    /// Returns the number of pieces of an item.
    fn count(&self, item: &str) -> u32;
    /// Removes all items.
    fn clear(&self);
}

/// A stock in the memory of one process.
#[derive(Default)]
pub struct InMemory(Mutex<HashMap<String, u32>>);

impl Stock for InMemory {
    fn add(&self, item: &str, pieces: u32) -> u32 {
        let mut items = self.0.lock().unwrap();
        let count = items.entry(item.to_owned()).or_default();
        *count += pieces;
        *count
    }

    fn count(&self, item: &str) -> u32 {
        self.0.lock().unwrap().get(item).copied().unwrap_or(0)
    }

    fn clear(&self) {
        self.0.lock().unwrap().clear();
    }
}
