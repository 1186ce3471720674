//! Compares the machine that `squall info --json` reports with the emulated one.

use std::process::Command;

use serde_json::Value;

use crate::order::Order;

/// File with the kernel's list of possible processors, which may come online.
pub(crate) const POSSIBLE: &str = "/sys/devices/system/cpu/possible";
/// File with the kernel's list of online processors.
pub(crate) const ONLINE: &str = "/sys/devices/system/cpu/online";

/// Runs `squall info --json` and checks each expected fact.
///
/// # Errors
/// If the program fails or prints invalid JSON. If a fact is absent or has another value.
pub(crate) fn check(squall: &str, order: &Order) -> Result<(), String> {
    let output = Command::new(squall)
        .args(["info", "--json"])
        .output()
        .map_err(|e| format!("cannot start {squall}: {e}"))?;
    if !output.status.success() {
        return Err(format!("squall info --json failed: {}", output.status));
    }
    let info: Value = serde_json::from_slice(&output.stdout)
        .map_err(|e| format!("squall info --json printed no JSON: {e}"))?;
    for (fact, value) in &order.expect {
        let found = find(&info, fact).ok_or_else(|| format!("squall info --json does not say {fact}"))?;
        if found != *value {
            return Err(format!("squall info --json says {fact} {found}, the machine has {value}"));
        }
    }
    let facts: Vec<String> = order.expect.iter().map(|(fact, value)| format!("{fact} {value}")).collect();
    println!("vm: found as built: {}", facts.join(", "));
    Ok(())
}

/// Checks only the expected number of processors. Processors count even while they are offline.
///
/// # Errors
/// The errors of [`check`].
pub(crate) fn check_vps(squall: &str, order: &Order) -> Result<(), String> {
    let vps = order.expect.iter().filter(|(fact, _)| fact == "vps").cloned().collect();
    check(squall, &Order { expect: vps, ..order.clone() })
}

/// Returns the value of a fact. A fact is a number at the top level (`vps`) or the mode of a primitive
/// (`rseq`). The name of a level (`core`) stands for its number of clusters.
fn find(info: &Value, fact: &str) -> Option<String> {
    if let Some(value) = info.get(fact) {
        let mode = value.get("mode").and_then(Value::as_str).map(str::to_owned);
        return mode.or_else(|| value.as_u64().map(|number| number.to_string()));
    }
    let levels = info.get("topology")?.get("levels")?.as_array()?;
    let level = levels.iter().find(|level| level.get("name").is_some_and(|name| name == fact))?;
    level.get("clusters")?.as_u64().map(|number| number.to_string())
}

#[cfg(test)]
mod tests {
    use super::find;
    use serde_json::json;

    #[test]
    fn facts_are_found_at_the_top_in_modes_and_among_the_levels() {
        let levels = json!([{"name": "core", "clusters": 4}, {"name": "node", "clusters": 2}]);
        let rseq = json!({"mode": "restartable", "why": null});
        let info = json!({"vps": 8, "rseq": rseq, "topology": {"virtual": false, "levels": levels}});
        assert_eq!(find(&info, "vps").as_deref(), Some("8"));
        assert_eq!(find(&info, "core").as_deref(), Some("4"));
        assert_eq!(find(&info, "node").as_deref(), Some("2"));
        assert_eq!(find(&info, "rseq").as_deref(), Some("restartable"));
        assert_eq!(find(&info, "cache").as_deref(), None);
    }
}
