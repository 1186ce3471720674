//! Comparing the machine that `squall info --json` reports with the one that was built.

use std::process::Command;

use serde_json::Value;

use crate::order::Order;

/// The kernel's list of processors that may ever come online.
pub(crate) const POSSIBLE: &str = "/sys/devices/system/cpu/possible";
/// The kernel's list of processors that are online now.
pub(crate) const ONLINE: &str = "/sys/devices/system/cpu/online";

/// Runs `squall info --json` and checks each expected fact.
///
/// # Errors
/// When it fails, prints no JSON, or reports another number for a fact, or none.
pub(crate) fn check(squall: &str, order: &Order) -> Result<(), String> {
    let output = Command::new(squall).args(["info", "--json"]).output().map_err(|e| format!("squall info: {e}"))?;
    if !output.status.success() {
        return Err(format!("squall info --json: {}", output.status));
    }
    let info: Value = serde_json::from_slice(&output.stdout).map_err(|e| format!("squall info --json: {e}"))?;
    for (fact, count) in &order.expect {
        let found = find(&info, fact).ok_or_else(|| format!("squall info --json does not say {fact}"))?;
        if found != *count {
            return Err(format!("squall info --json says {fact} {found}, the machine has {count}"));
        }
    }
    println!("vm: topology as built: {:?}", order.expect);
    Ok(())
}

/// The number of this fact: at the top (`vps`), or among the levels of `topology`.
fn find(info: &Value, fact: &str) -> Option<u64> {
    let direct = info.get(fact).or_else(|| info.get("topology")?.get(fact))?;
    direct.as_u64().or_else(|| Some(direct.as_array()?.len() as u64))
}

#[cfg(test)]
mod tests {
    use super::find;
    use serde_json::json;

    #[test]
    fn facts_are_found_at_the_top_and_in_the_topology() {
        let info = json!({"vps": 8, "topology": {"nodes": 2, "caches": [[0, 1], [2, 3]]}});
        assert_eq!(find(&info, "vps"), Some(8));
        assert_eq!(find(&info, "nodes"), Some(2));
        assert_eq!(find(&info, "caches"), Some(2));
        assert_eq!(find(&info, "cores"), None);
    }
}
