//! Takes processors offline and brings them back, one step at a time.

use std::fs;
use std::path::PathBuf;

use crate::topology::ONLINE;

/// The kernel's directory with a subdirectory per processor.
const PROCESSORS: &str = "/sys/devices/system/cpu";

/// Returns the `online` files of the removable processors.
fn switches() -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(PROCESSORS).map_err(|e| format!("{PROCESSORS}: {e}"))?;
    let mut switches: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path().join("online")).filter(|path| path.exists()).collect();
    switches.sort();
    Ok(switches)
}

fn is_online(switch: &PathBuf) -> bool {
    fs::read_to_string(switch).is_ok_and(|state| state.trim() == "1")
}

/// Brings every processor online that the kernel left offline while it started.
///
/// # Errors
/// If sysfs cannot be read, or the kernel refuses a processor.
pub(crate) fn bring_all() -> Result<(), String> {
    for switch in switches()?.iter().filter(|switch| !is_online(switch)) {
        fs::write(switch, "1").map_err(|e| format!("{}: {e}", switch.display()))?;
    }
    Ok(())
}

/// The removable processors, and those of them that are offline now (`gone`).
///
/// - I1. Only the methods of this type take processors offline, and each of those processors is in `gone`.
/// - I2. At most half of the removable processors are offline at once, so that threads always have several
///   processors to run on.
#[derive(Debug)]
pub(crate) struct Processors {
    removable: Vec<PathBuf>,
    gone: Vec<PathBuf>,
    online_before: String,
    cycles: usize,
    random: u64,
}

impl Processors {
    /// Finds the removable processors of this machine that are online.
    ///
    /// # Errors
    /// If sysfs cannot be read.
    pub(crate) fn find() -> Result<Processors, String> {
        let mut removable = switches()?;
        removable.retain(is_online);
        let online_before = crate::read(ONLINE);
        // The seed may be any odd number, since the order of removals only has to be irregular.
        Ok(Processors {
            removable,
            gone: Vec::new(),
            online_before,
            cycles: 0,
            random: 0x9E37_79B9_7F4A_7C15,
        })
    }

    /// Returns the number of removable processors.
    pub(crate) fn removable(&self) -> usize {
        self.removable.len()
    }

    /// Returns how often a processor was taken offline and brought back.
    pub(crate) fn cycles(&self) -> usize {
        self.cycles
    }

    /// Takes one more processor offline, or brings one back.
    ///
    /// # Errors
    /// If the kernel refuses to bring one back.
    pub(crate) fn step(&mut self) -> Result<(), String> {
        if self.removable.is_empty() {
            return Ok(());
        }
        let may_leave = self.gone.len() < self.limit();
        if self.gone.is_empty() || may_leave && self.draw().is_multiple_of(2) {
            self.leave();
            return Ok(());
        }
        let index = self.draw() % self.gone.len();
        self.bring_back(index)
    }

    /// Takes processors offline up to the limit (I2), or as many as the kernel allows.
    pub(crate) fn thin_out(&mut self) {
        let limit = self.limit();
        // The kernel may refuse a processor every time, so bound the attempts.
        for _ in 0..8 * limit {
            if self.gone.len() < limit {
                self.leave();
            }
        }
    }

    /// Brings all processors back, and checks that the set of online processors is the initial one.
    ///
    /// # Errors
    /// If the kernel refuses a processor, or the sets differ.
    pub(crate) fn restore(&mut self) -> Result<(), String> {
        while !self.gone.is_empty() {
            self.bring_back(0)?;
        }
        let online = crate::read(ONLINE);
        if online == self.online_before {
            Ok(())
        } else {
            Err(format!("processors {} were online before, but now {online} are", self.online_before))
        }
    }

    /// Returns the maximum number of processors that may be offline at once.
    fn limit(&self) -> usize {
        self.removable.len().div_ceil(2)
    }

    /// Takes a random processor offline. If the kernel refuses, the processor stays online.
    fn leave(&mut self) {
        let index = self.draw() % self.removable.len();
        let path = self.removable[index].clone();
        if !self.gone.contains(&path) && fs::write(&path, "0").is_ok() {
            self.gone.push(path);
        }
    }

    fn bring_back(&mut self, index: usize) -> Result<(), String> {
        let path = self.gone.swap_remove(index);
        fs::write(&path, "1").map_err(|e| format!("{}: {e}", path.display()))?;
        self.cycles += 1;
        Ok(())
    }

    /// Returns a pseudo-random number (xorshift), small enough for an index.
    fn draw(&mut self) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 33) as usize
    }
}
