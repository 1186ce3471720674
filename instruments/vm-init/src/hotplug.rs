//! Taking processors offline and bringing them back, one step at a time.

use std::fs;
use std::path::PathBuf;

use crate::topology::ONLINE;

/// Where the kernel keeps a folder for each processor.
const PROCESSORS: &str = "/sys/devices/system/cpu";

/// The `online` files of the processors that can come and go.
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

/// Brings every processor online that the kernel was told to leave off while it started.
///
/// # Errors
/// When sysfs cannot be read, or the kernel refuses one.
pub(crate) fn bring_all() -> Result<(), String> {
    for switch in switches()?.iter().filter(|switch| !is_online(switch)) {
        fs::write(switch, "1").map_err(|e| format!("{}: {e}", switch.display()))?;
    }
    Ok(())
}

/// The processors that can go, and those that are gone at the moment.
///
/// - I1. A processor in `gone` was put there by [`Processors::step`], which took it offline itself; nobody else does.
/// - I2. At most half of the removable processors are gone at once, so that threads always have where to go and
///   several processors stay in play.
#[derive(Debug)]
pub(crate) struct Processors {
    removable: Vec<PathBuf>,
    gone: Vec<PathBuf>,
    online_before: String,
    cycles: usize,
    random: u64,
}

impl Processors {
    /// The processors of this machine whose `online` file exists.
    ///
    /// # Errors
    /// When sysfs cannot be read.
    pub(crate) fn find() -> Result<Processors, String> {
        let mut removable = switches()?;
        removable.retain(is_online);
        let online_before = crate::read(ONLINE);
        // Any odd number will do as the seed: the order of departures need only be irregular.
        Ok(Processors {
            removable,
            gone: Vec::new(),
            online_before,
            cycles: 0,
            random: 0x9E37_79B9_7F4A_7C15,
        })
    }

    /// How many processors can be taken offline.
    pub(crate) fn removable(&self) -> usize {
        self.removable.len()
    }

    /// How many have been taken offline and brought back.
    pub(crate) fn cycles(&self) -> usize {
        self.cycles
    }

    /// Takes one more offline or brings one back.
    ///
    /// # Errors
    /// When the kernel refuses to bring one back.
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

    /// Takes as many offline as may be gone at once, or as the kernel lets go.
    pub(crate) fn thin_out(&mut self) {
        let limit = self.limit();
        // The kernel may refuse one for good; that must not keep us here.
        for _ in 0..8 * limit {
            if self.gone.len() < limit {
                self.leave();
            }
        }
    }

    /// Brings all back, and checks that as many are online as were before.
    ///
    /// # Errors
    /// When the kernel refuses, or another set of processors is online than before.
    pub(crate) fn restore(&mut self) -> Result<(), String> {
        while !self.gone.is_empty() {
            self.bring_back(0)?;
        }
        let online = crate::read(ONLINE);
        if online == self.online_before {
            Ok(())
        } else {
            Err(format!("online before: {}, now: {online}", self.online_before))
        }
    }

    /// The most that may be gone at once.
    fn limit(&self) -> usize {
        self.removable.len().div_ceil(2)
    }

    /// Takes one offline, drawn at random. The kernel may refuse, and then it stays.
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

    /// A pseudo-random number (xorshift), small enough for an index.
    fn draw(&mut self) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 33) as usize
    }
}
