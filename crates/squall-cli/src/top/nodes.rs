//! The nodes of a program, as text and as JSON.

use serde::Serialize;
use squall::browse::protocol::{FatesView, FiguresView, GroupView, NameView, NodeView, RefusalKind};
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

/// Returns one line for each node. A program of an older version has none.
pub(super) fn summary(client: &mut Client) -> Result<Vec<String>, ClientError> {
    match client.nodes() {
        Ok(nodes) => Ok(nodes.iter().map(title).collect()),
        Err(ClientError::Refused(refusal)) if refusal.kind == RefusalKind::BadRequest => Ok(Vec::new()),
        Err(error) => Err(error),
    }
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
            ]
        );
        let lost = lines(&Row { node: &node, group: None, why: Some("no member answered".to_owned()) });
        assert_eq!(lost.last().map(String::as_str), Some("  no member answered"));
    }
}
