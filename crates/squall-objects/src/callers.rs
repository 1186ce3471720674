//! Callers of an adaptive collection, for its policy: the VPs that put or get elements, and their rates.

use squall_adapt::family::Load;
use squall_machine::Vp;
use std::collections::BTreeMap;

/// Calls of one VP in a second. A batch counts as one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) vp: Vp,
    pub(crate) puts: f64,
    pub(crate) gets: f64,
}

impl Caller {
    /// Returns the rate of all calls.
    pub(crate) fn all(&self) -> f64 {
        self.puts + self.gets
    }
}

/// Returns the calling VPs with their rates, by VP. `puts` and `gets` are the names of the counted methods.
pub(crate) fn callers(load: &Load<'_>, puts: &[&str], gets: &[&str]) -> Vec<Caller> {
    let mut rates: BTreeMap<usize, Caller> = BTreeMap::new();
    let methods = puts.iter().map(|method| (method, true)).chain(gets.iter().map(|method| (method, false)));
    for (method, is_put) in methods {
        for (vp, rate) in load.calls.rates_of(method).filter(|(_, rate)| *rate > 0.0) {
            let caller = rates.entry(vp.index()).or_insert(Caller { vp, puts: 0.0, gets: 0.0 });
            *(if is_put { &mut caller.puts } else { &mut caller.gets }) += rate;
        }
    }
    let mut callers: Vec<Caller> = rates.into_values().collect();
    // A short count misses threads that did not run during it. Such a VP gets the smallest counted rates.
    let least = callers.iter().copied().min_by(|a, b| a.all().total_cmp(&b.all()));
    if let Some(least) = least {
        let missed: Vec<Vp> =
            load.callers.iter().filter(|vp| !callers.iter().any(|caller| caller.vp == *vp)).collect();
        callers.extend(missed.into_iter().map(|vp| Caller { vp, ..least }));
    }
    callers
}
