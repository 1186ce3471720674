//! Commands of `squall top` that act on one object, for scripts.

use std::time::{Duration, SystemTime};

use squall::browse::Client;
use squall::browse::protocol::{
    ActionView, AttributeView, CallerView, DecisionView, Detail, ExportView, ImportView, MediatorView,
    MemoryView, RelatedView, SwapView,
};

use super::args::{CommandArgs, TopArgs};
use super::nodes;
use super::print::json;
use super::records;
use super::text;
use crate::output::{Failure, line};

/// The id that stands for all objects.
const ALL: &str = "all";

/// A command.
#[derive(Debug, PartialEq)]
pub(super) enum Command {
    Detail(String),
    History(String),
    Memory,
    Nodes,
    Pools,
    Records,
    Set { id: String, name: String, value: String },
    Unset { id: String, name: String },
    Freeze { id: String, frozen: bool },
    Swap { id: String, implementation: String },
    Right { id: String, method: String, is_allowed: bool },
    Disconnect { id: String, caller: u64 },
}

/// Returns the command that the options ask for, if any. Clap admits at most one.
pub(super) fn parse(args: &CommandArgs) -> Result<Option<Command>, Failure> {
    let CommandArgs {
        detail,
        history,
        memory,
        nodes,
        pools,
        records,
        set,
        unset,
        freeze,
        thaw,
        swap,
        deny,
        allow,
        disconnect,
    } = args;
    let wrong = || Failure::new("this option has the wrong number of values; see --help");
    if let Some(id) = detail {
        return Ok(Some(Command::Detail(id.clone())));
    }
    if let Some(id) = history {
        return Ok(Some(Command::History(id.clone())));
    }
    if *memory {
        return Ok(Some(Command::Memory));
    }
    if *nodes {
        return Ok(Some(Command::Nodes));
    }
    if *pools {
        return Ok(Some(Command::Pools));
    }
    if *records {
        return Ok(Some(Command::Records));
    }
    if let Some(values) = set {
        let [id, name, value] = values.as_slice() else { return Err(wrong()) };
        return Ok(Some(Command::Set { id: id.clone(), name: name.clone(), value: value.clone() }));
    }
    if let Some(values) = unset {
        let [id, name] = values.as_slice() else { return Err(wrong()) };
        return Ok(Some(Command::Unset { id: id.clone(), name: name.clone() }));
    }
    if let Some(values) = swap {
        let [id, implementation] = values.as_slice() else { return Err(wrong()) };
        return Ok(Some(Command::Swap { id: id.clone(), implementation: implementation.clone() }));
    }
    let right = deny.as_ref().map(|values| (values, false)).or(allow.as_ref().map(|values| (values, true)));
    if let Some((values, is_allowed)) = right {
        let [id, method] = values.as_slice() else { return Err(wrong()) };
        return Ok(Some(Command::Right { id: id.clone(), method: method.clone(), is_allowed }));
    }
    if let Some(values) = disconnect {
        let [id, caller] = values.as_slice() else { return Err(wrong()) };
        let caller = caller.parse().map_err(|_| {
            Failure::new(format!("{caller:?} is not the number of a caller; --detail {id} lists them"))
        })?;
        return Ok(Some(Command::Disconnect { id: id.clone(), caller }));
    }
    let freeze = freeze.as_ref().map(|id| (id, true)).or(thaw.as_ref().map(|id| (id, false)));
    Ok(freeze.map(|(id, frozen)| Command::Freeze { id: id.clone(), frozen }))
}

pub(super) fn run(client: &mut Client, command: &Command, args: &TopArgs) -> Result<(), Failure> {
    let TopArgs { json: as_json, readings, seconds, .. } = *args;
    match command {
        Command::Detail(id) => {
            let (detail, history) = (client.object(id)?, client.history(id)?);
            if as_json { json(&detail) } else { lines(detail_lines(&detail, &history, readings)) }
        }
        Command::History(id) => {
            let history = if id == ALL { client.decisions()? } else { client.history(id)? };
            match as_json {
                true => history.iter().try_for_each(json),
                false if history.is_empty() => line("There are no decisions yet."),
                false => lines(history.iter().map(|decision| decision_line(decision, readings)).collect()),
            }
        }
        Command::Memory => {
            let memory = client.memory()?;
            if as_json { json(&memory) } else { lines(memory_lines(&memory)) }
        }
        Command::Nodes => nodes::run(client, as_json),
        Command::Pools => nodes::run_pools(client, as_json),
        Command::Records => records::run(client, seconds, as_json),
        Command::Set { id, name, value } => {
            client.set(id, name, value)?;
            attribute(client, id, name, as_json)
        }
        Command::Unset { id, name } => {
            client.unset(id, name)?;
            attribute(client, id, name, as_json)
        }
        Command::Freeze { id, frozen } if id == ALL => {
            client.freeze_all(*frozen)?;
            let all_frozen = client.hello()?.all_frozen;
            match as_json {
                true => json(&serde_json::json!({ "all_frozen": all_frozen })),
                false if *frozen => line("Every policy is frozen."),
                false => line("Policies are thawed, except those that were frozen one by one."),
            }
        }
        Command::Freeze { id, frozen } => {
            client.freeze(id, *frozen)?;
            match as_json {
                true => json(&client.object(id)?.row),
                false => line(format_args!("{id} is {}", if *frozen { "frozen" } else { "thawed" })),
            }
        }
        Command::Swap { id, implementation } => {
            let swap = client.swap(id, implementation)?;
            if as_json { json(&swap) } else { line(swap_line(&swap)) }
        }
        Command::Right { id, method, is_allowed } => {
            client.set_right(id, method, *is_allowed)?;
            exports(client, id, as_json)
        }
        Command::Disconnect { id, caller } => {
            client.disconnect(id, *caller)?;
            exports(client, id, as_json)
        }
    }
}

/// Prints the exports of an object.
fn exports(client: &mut Client, id: &str, as_json: bool) -> Result<(), Failure> {
    let exports = client.object(id)?.exports;
    if as_json {
        return exports.iter().try_for_each(json);
    }
    lines(exports.iter().flat_map(export_lines).map(|line| text::clean(&line)).collect())
}

/// Prints an attribute of an object.
fn attribute(client: &mut Client, id: &str, name: &str, as_json: bool) -> Result<(), Failure> {
    let attributes = client.attributes(id)?;
    let Some(attribute) = attributes.iter().find(|attribute| attribute.name == name) else {
        return Ok(());
    };
    if as_json { json(attribute) } else { line(format_args!("{id}: {}", attribute_line(attribute))) }
}

fn memory_lines(memory: &MemoryView) -> Vec<String> {
    let Some(mode) = &memory.mode else {
        return vec!["The program has not used Squall's allocator.".to_owned()];
    };
    let mut lines =
        vec![format!("caches: {mode}, at most {} per VP", text::bytes(memory.vp_bytes_max as usize))];
    for (number, node) in memory.nodes.iter().enumerate() {
        let (used, free) = (text::bytes(node.used_bytes as usize), text::bytes(node.free_bytes as usize));
        lines.push(format!("node {number}: {used} in slabs, {free} free and not returned"));
    }
    let large = text::bytes(memory.large_bytes as usize);
    lines.push(format!("large blocks: {}, {large}", memory.large_count));
    for vp in &memory.vps {
        let cached = text::bytes(vp.cached_bytes as usize);
        lines.push(format!("vp {}: {cached} cached, {} blocks to send home", vp.vp, vp.outbox_count));
        lines.extend(vp.classes.iter().map(|class| {
            format!(
                "  {:>7}{} slabs {:>6}  used {:>8}  cached {:>5}  fills {:>8}  returned {:>9}  sent home {:>9}",
                class.block_bytes,
                if class.local { " local" } else { "      " },
                class.slabs,
                class.used,
                class.cached,
                class.fills,
                class.returned,
                class.sent_home
            )
        }));
    }
    lines
}

fn lines(lines: Vec<String>) -> Result<(), Failure> {
    lines.into_iter().try_for_each(line)
}

/// Formats the result of a swap.
pub(super) fn swap_line(swap: &SwapView) -> String {
    format!(
        "{}: {} to {}: {} in {} us, longest pause {} us, {} calls forwarded, {} waited, {} of state moved",
        swap.id,
        text::clean(&swap.from),
        text::clean(&swap.to),
        swap.outcome,
        swap.total_us,
        swap.longest_pause_us,
        swap.forwarded,
        swap.blocked,
        text::bytes(swap.bytes),
    )
}

/// Formats an attribute: its value, the source of the value, and its range.
pub(super) fn attribute_line(attribute: &AttributeView) -> String {
    let AttributeView { name, value, unit, default, range, about, from, .. } = attribute;
    let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
    text::clean(&format!("{name} = {value}{unit} ({from}; {range}, default {default}) {about}"))
}

/// Formats a decision and its reason, with its readings on request.
pub(super) fn decision_line(decision: &DecisionView, readings: bool) -> String {
    let DecisionView { id, from, to, verdict, why, .. } = decision;
    let place = decision.place.map_or(String::new(), |vp| format!(" at VP {vp}"));
    let swap = decision.swap.as_ref().map_or(String::new(), |swap| {
        format!("; {} us, longest pause {} us", swap.total_us, swap.longest_pause_us)
    });
    let name = named(decision.name.as_deref());
    let readings = match &*decision.readings {
        there if readings && !there.is_empty() => format!(" [{there}]"),
        _ => String::new(),
    };
    let ago = since(decision.at_ms);
    text::clean(&format!("{ago} ago, {id}{name}: {from} to {to}{place}: {verdict}; {why}{swap}{readings}"))
}

/// Formats the time since a moment, given in milliseconds since 1970.
fn since(at_ms: u64) -> String {
    let at = SystemTime::UNIX_EPOCH + Duration::from_millis(at_ms);
    text::span(at.elapsed().map_or(0, |ago| ago.as_millis() as u64))
}

/// Formats the change by which a client froze an object.
fn freeze_line(freeze: &ActionView) -> String {
    let author = freeze.author.as_deref().unwrap_or("a client without a name");
    format!("{}: by {}, {} ago", freeze.action, text::escaped(author), since(freeze.at_ms))
}

/// Formats a name to follow an id.
pub(super) fn named(name: Option<&str>) -> String {
    name.map_or(String::new(), |name| format!(" \"{}\"", text::escaped(name)))
}

/// Formats the mediator in front of an object.
fn mediator_line(mediator: &MediatorView) -> String {
    let MediatorView { phase, target, replacement, method, .. } = mediator;
    let replacement =
        replacement.as_ref().map_or(String::new(), |class| format!(", to be replaced by {class}"));
    let method = method.as_ref().map_or(String::new(), |method| format!(", for calls of {method}"));
    format!("mediator in phase {phase} before {target}{replacement}{method}")
}

/// Formats an export and its callers.
fn export_lines(export: &ExportView) -> Vec<String> {
    let ExportView { denied, callers, callers_count, .. } = export;
    let caller = |caller: &CallerView| {
        let CallerView { number, pid, uid, calls, .. } = caller;
        // The methods that all callers are denied stand above.
        let own: Vec<_> = caller.denied.iter().filter(|method| !denied.contains(method)).collect();
        let own = if own.is_empty() { String::new() } else { format!("; denied: {}", join(own)) };
        format!("  caller {number}: {}; {calls} calls{own}", process(*pid, *uid))
    };
    let denied = if denied.is_empty() { String::new() } else { format!("; denied: {}", join(denied)) };
    let name = text::escaped(&export.name);
    let mut lines = vec![format!("exported as \"{name}\"; callers: {callers_count}{denied}")];
    lines.extend(callers.iter().map(caller));
    lines
}

fn join<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    names.into_iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// Formats the other end of an imported object.
fn import_line(import: &ImportView) -> String {
    let ImportView { name, pid, uid, is_connected, calls, .. } = import;
    let state = if *is_connected { "" } else { "; it is gone, import the object again" };
    format!("imported as \"{}\" from {}; {calls} calls{state}", text::escaped(name), process(*pid, *uid))
}

/// Formats a process as the kernel names it.
fn process(pid: Option<u32>, uid: Option<u32>) -> String {
    match (pid, uid) {
        (Some(pid), Some(uid)) => format!("process {pid}, user {uid}"),
        (Some(pid), None) => format!("process {pid}"),
        (None, Some(uid)) => format!("a process of another namespace, user {uid}"),
        (None, None) => "the other end of a socket pair".to_owned(),
    }
}

/// Formats a linked object.
fn related(object: &RelatedView) -> String {
    format!("{}#{}{} ({})", object.interface, object.id, named(object.name.as_deref()), object.class)
}

/// Formats the details of one object.
pub(super) fn detail_lines(detail: &Detail, history: &[DecisionView], readings: bool) -> Vec<String> {
    let row = &detail.row;
    let name = named(row.name.as_deref());
    let mut lines = vec![
        format!("{}#{}{name} {} {} ({})", row.interface, row.id, row.state, detail.kind, detail.class_path),
        format!(
            "made at {}, {} ago; interface at {}",
            detail.made_at,
            text::span(row.age_ms),
            detail.interface_source
        ),
        format!(
            "{} bytes, {} of them in fields; {} misses; VPs {}; representatives {}",
            row.bytes,
            detail.value_bytes,
            row.misses,
            if detail.translations.is_empty() { "none" } else { &detail.translations },
            row.reps,
        ),
    ];
    lines.extend(row.mediator.iter().map(mediator_line));
    lines.extend(detail.exports.iter().flat_map(export_lines));
    lines.extend(detail.import.iter().map(import_line));
    lines.extend(detail.whole.iter().map(|whole| format!("part of {}", related(whole))));
    if !detail.parts.is_empty() {
        lines.push(format!("parts: {}", detail.parts_count));
        lines.extend(detail.parts.iter().map(|part| format!("  {}", related(part))));
    }
    if let (Some(family), Some(form)) = (&row.family, &row.form) {
        let frozen = match (row.frozen, row.frozen_all, row.dry_run) {
            (true, ..) => "; frozen",
            (_, true, _) => "; frozen with all objects",
            (.., true) => "; dry run",
            _ => "",
        };
        lines.push(format!("{family}: form {form}, one of {}{frozen}", row.forms.join(", ")));
        lines.extend(detail.frozen_by.iter().map(freeze_line));
        lines.extend(row.stays.iter().map(|stays| format!("stays {form}: {stays}")));
    }
    if !detail.implementations.is_empty() {
        lines.push(format!("implementations to swap to: {}", detail.implementations.join(", ")));
    }
    lines.extend(detail.attributes.iter().map(|attribute| format!("  {}", attribute_line(attribute))));
    if !history.is_empty() {
        lines.push("decisions, latest first:".to_owned());
    }
    lines.extend(history.iter().rev().map(|decision| format!("  {}", decision_line(decision, readings))));
    lines.iter().map(|line| text::clean(line)).collect()
}
