//! The nodes and the members of pools of a program, as text and as JSON.

use serde::Serialize;
use squall::browse::protocol::{
    FatesView, FiguresView, GroupView, NameView, NodeView, PoolView, RefusalKind,
};
use squall::browse::{Client, ClientError};

use super::print::json;
use super::text;
use crate::output::{Failure, line};

/// A node with its group, as a line of JSON.
#[derive(Debug, Serialize)]
struct Row<'a> {
    #[serde(flatten)]
    node: &'a NodeView,
    /// Absent if no member answers, or if the node has left.
    group: Option<GroupView>,
    /// The reason why the group is absent.
    why: Option<String>,
}

/// Prints each node, with its group.
pub(super) fn run(client: &mut Client, as_json: bool) -> Result<(), Failure> {
    let nodes = client.nodes()?;
    if nodes.is_empty() && !as_json {
        return line("The program has no nodes of groups.");
    }
    for node in &nodes {
        let (group, why) = match client.group(node.number) {
            Ok(group) => (Some(group), None),
            Err(ClientError::Refused(refusal)) => (None, Some(refusal.message)),
            Err(error) => return Err(error.into()),
        };
        let row = Row { node, group, why };
        if as_json { json(&row)? } else { lines(&row).into_iter().try_for_each(line)? }
    }
    Ok(())
}

/// Prints each member of a pool.
pub(super) fn run_pools(client: &mut Client, as_json: bool) -> Result<(), Failure> {
    let pools = client.pools()?;
    if as_json {
        return pools.iter().try_for_each(json);
    }
    if pools.is_empty() {
        return line("The program has no members of pools.");
    }
    pools.iter().flat_map(pool_lines).try_for_each(line)
}

/// Returns one line for each node, and one for each member of a pool. A program of an older version gives no
/// line.
pub(super) fn summary(client: &mut Client) -> Result<Vec<String>, ClientError> {
    let nodes = or_none(client.nodes())?;
    let pools = or_none(client.pools())?;
    Ok(nodes.iter().map(title).chain(pools.iter().map(pool_title)).collect())
}

/// Returns an empty list for a program of an older version, which does not know the request.
fn or_none<T>(list: Result<Vec<T>, ClientError>) -> Result<Vec<T>, ClientError> {
    match list {
        Err(ClientError::Refused(refusal)) if refusal.kind == RefusalKind::BadRequest => Ok(Vec::new()),
        list => list,
    }
}

/// Formats a member of a pool in one line.
fn pool_title(pool: &PoolView) -> String {
    let PoolView { number, state, elements, members, open_operations, counts, .. } = pool;
    let plural = if *members == 1 { "" } else { "s" };
    text::clean(&format!(
        "pool {number} {}: {state}, {members} member{plural}; {elements} elements here; operations {} begun, \
         {open_operations} open",
        text::escaped(&pool.name),
        counts.operations
    ))
}

fn pool_lines(pool: &PoolView) -> Vec<String> {
    let counts = &pool.counts;
    let place = match (pool.location, &pool.node) {
        (Some(location), Some(node)) => format!("place {location} at node {node}"),
        _ => "not in the pool".to_owned(),
    };
    let master = if pool.master { ", master" } else { "" };
    let heir = if pool.has_heir { ", has an heir" } else { "" };
    vec![
        pool_title(pool),
        text::clean(&format!("  {place}{master}{heir}; strategy {}", pool.strategy)),
        format!(
            "  {} messages sent; {} elements in {} demand transfers; {} background transfers; {} untaken elements",
            counts.messages,
            counts.demanded,
            counts.demand_transfers,
            counts.background_transfers,
            pool.untaken
        ),
    ]
}

/// Formats a node in one line.
fn title(node: &NodeView) -> String {
    let FiguresView { state, open_calls, calls, served, .. } = &node.figures;
    let endpoint = text::escaped(&node.endpoint);
    let lost = lost(calls).map_or(String::new(), |lost| format!(", {lost}"));
    text::clean(&format!(
        "node {} {endpoint}: {state}; calls {} done, {open_calls} open{lost}; served {served}",
        node.number, calls.done
    ))
}

/// Formats the calls without a result, if there are any.
fn lost(calls: &FatesView) -> Option<String> {
    let fates = [
        (calls.no_service, "no service"),
        (calls.not_accepted, "not accepted"),
        (calls.too_large, "too large"),
        (calls.closed, "node closed"),
        (calls.timed_out, "timed out"),
        (calls.server_lost, "server lost"),
        (calls.dropped, "dropped"),
        (calls.no_result, "result gone"),
    ];
    let found: Vec<String> = fates
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, words)| format!("{count} {words}"))
        .collect();
    (!found.is_empty()).then(|| found.join(", "))
}

fn lines(row: &Row<'_>) -> Vec<String> {
    let FiguresView { term, lease_ms, joined, running, sessions, shards, imported, exported, .. } =
        row.node.figures;
    let figures = &row.node.figures;
    let lease = if lease_ms > 0 { "has a lease" } else { "no lease" };
    let mut lines = vec![
        title(row.node),
        format!(
            "  number {}, machine {}; term {term}, {lease}, joined {joined} times",
            text::clean(&row.node.node),
            text::clean(&row.node.machine)
        ),
        format!(
            "  {running} calls run, {sessions} sessions; {shards} shards, {imported} moved in, {exported} moved out; \
             requests {} granted, {} refused",
            figures.granted, figures.refused
        ),
    ];
    for end in &figures.ends {
        lines.push(format!("  {} {}", text::escaped(&end.endpoint), text::clean(&end.reason)));
    }
    if let Some(group) = &row.group {
        let leader = group.leader.as_deref().map_or("none".to_owned(), text::escaped);
        lines.push(format!("  group of {} members, leader {leader}", group.members.len()));
        lines.extend(group.names.iter().map(name_line));
    }
    lines.extend(row.why.iter().map(|why| format!("  {}", text::clean(why))));
    lines
}

fn name_line(name: &NameView) -> String {
    let kind = match (name.shards, name.stateless) {
        _ if name.roster => ", roster".to_owned(),
        (0, false) => String::new(),
        (0, true) => ", stateless".to_owned(),
        (shards, _) => format!(", {shards} shards, {} move", name.moves.len()),
    };
    let nodes: Vec<String> = name.nodes.iter().map(|node| text::escaped(node)).collect();
    format!("  {}{kind}: {}", text::escaped(&name.name), nodes.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> NodeView {
        let text = serde_json::json!({
            "number": 3, "node": "0a", "endpoint": "host/a\u{1b}[2J", "machine": "00ab", "state": "member", "term": 7,
            "lease_ms": 640, "joined": 1, "open_calls": 2, "served": 12, "calls": { "done": 41, "timed_out": 5 },
            "ends": [{ "endpoint": "host/c", "reason": "died" }],
        });
        serde_json::from_value(text).expect("a node")
    }

    #[test]
    fn a_node_is_a_line_and_its_group_follows() {
        let node = node();
        let first = "node 3 host/a\\u{1b}[2J: member; calls 41 done, 2 open, 5 timed out; served 12";
        assert_eq!(title(&node), first);
        let group = serde_json::json!({ "leader": "host/b", "members": [{}, {}], "names": [
            { "name": "/fleet", "shards": 8, "moves": [{}], "nodes": ["host/a", "host/b"] },
            { "name": "/echo", "stateless": true, "nodes": ["host/b"] },
            { "name": "/pages", "roster": true, "nodes": ["host/a", "host/b"] },
        ] });
        let group = serde_json::from_value(group).expect("a group");
        let shown = lines(&Row { node: &node, group: Some(group), why: None });
        assert_eq!(
            shown,
            [
                first,
                "  number 0a, machine 00ab; term 7, has a lease, joined 1 times",
                "  0 calls run, 0 sessions; 0 shards, 0 moved in, 0 moved out; requests 0 granted, 0 refused",
                "  host/c died",
                "  group of 2 members, leader host/b",
                "  /fleet, 8 shards, 1 move: host/a, host/b",
                "  /echo, stateless: host/b",
                "  /pages, roster: host/a, host/b",
            ]
        );
        let lost = lines(&Row { node: &node, group: None, why: Some("no member answered".to_owned()) });
        assert_eq!(lost.last().map(String::as_str), Some("  no member answered"));
    }

    #[test]
    fn a_member_of_a_pool_is_a_line_and_its_figures_follow() {
        let pool = serde_json::json!({
            "number": 2, "name": "/p\u{1b}[2J", "node": "0a", "location": 5, "state": "serving", "master": true, "members": 3,
            "strategy": "directory", "elements": 7, "open_operations": 1, "untaken": 4, "has_heir": true, "operations": 12, "messages": 30,
            "demanded": 50, "demand_transfers": 2, "background_transfers": 6,
        });
        let mut pool: PoolView = serde_json::from_value(pool).expect("a pool");
        assert_eq!(
            pool_lines(&pool),
            [
                "pool 2 /p\\u{1b}[2J: serving, 3 members; 7 elements here; operations 12 begun, 1 open",
                "  place 5 at node 0a, master, has an heir; strategy directory",
                "  30 messages sent; 50 elements in 2 demand transfers; 6 background transfers; 4 untaken elements",
            ]
        );
        (pool.location, pool.node, pool.master, pool.has_heir, pool.members) = (None, None, false, false, 1);
        assert!(pool_title(&pool).contains(", 1 member;"));
        assert_eq!(pool_lines(&pool)[1], "  not in the pool; strategy directory");
    }
}
