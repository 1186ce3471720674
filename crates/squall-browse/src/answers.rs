//! Answers: the program's statements about its objects, and the changes that clients may make.
//!
//! - I1. A request that only reads writes no memory that a call reads. It uses snapshots of the inspection
//!   and the records of `control`.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use squall_adapt::control::{self, ControlError, Status};
use squall_adapt::decision::Decision;
use squall_core::swap::{SwapOutcome, SwapReport};
use squall_core::{Id, MediatorInfo, ObjectInfo, ObjectKind, ObjectState};
use squall_machine::ClusterSize;
use squall_policy::attribute::AttributeInfo;

use crate::actions;
use crate::protocol::{
    AttributeView, CallsView, ClassMemoryView, DecisionView, Detail, EVENTS_MAX, Hello, LevelView, ListQuery,
    Listing, MachineView, MediatorView, MemoryView, NodeMemoryView, OBJECTS_MAX, ObjectView, Refusal,
    RefusalKind, RelatedView, RepView, Request, SAMPLE_MS_MAX, Sort, SwapView, VERSION, VpMemoryView,
};
use crate::short;

/// Largest number of representatives listed individually.
const REPS_LISTED_MAX: usize = 1024;
/// Largest number of parts listed individually.
const PARTS_LISTED_MAX: usize = 256;

/// Answers a request with the text after `"ok":`, and records it if it is a change.
pub(crate) fn answer(request: Request) -> Result<String, Refusal> {
    let action = actions::Action::begin(&request);
    let answer = perform(request);
    if let Some(action) = action {
        action.end(answer.as_ref().err().map(|refusal| refusal.message.as_str()));
    }
    answer
}

fn perform(request: Request) -> Result<String, Refusal> {
    match request {
        Request::Hello {} => text(&hello()),
        Request::List(query) => text(&list(&query)?),
        Request::Object { id } => text(&detail(&find(&id)?)),
        Request::History { id } => text(&decisions(control::history(find(&id)?.id))),
        Request::Decisions {} => text(&decisions(control::recent())),
        Request::Swaps {} => {
            text(&latest(squall_core::swap::recent()).iter().map(swap_view).collect::<Vec<_>>())
        }
        Request::Memory {} => text(&memory()),
        Request::Implementations { id } => text(&control::implementations(find(&id)?.id)),
        Request::Attributes { id } => text(&attributes(find(&id)?.id)?),
        Request::Actions {} => text(&actions::recent()),
        Request::Machine {} => text(&machine()),
        Request::Set { id, name, value, author } => {
            done(control::set_attribute_by(find(&id)?.id, &name, &value, &requester(author.as_deref())))
        }
        Request::Freeze { id, .. } => done(control::freeze(find(&id)?.id, true)),
        Request::Thaw { id, .. } => done(control::freeze(find(&id)?.id, false)),
        Request::FreezeAll { .. } => freeze_all(true),
        Request::ThawAll { .. } => freeze_all(false),
        Request::Swap { id, implementation, author } => {
            let author = requester(author.as_deref());
            let report = control::swap_by(find(&id)?.id, &implementation, &author).map_err(refuse)?;
            text(&swap_view(&report))
        }
        Request::Sample { id, span_ms } => text(&sample(&id, span_ms)?),
    }
}

fn text(payload: &impl Serialize) -> Result<String, Refusal> {
    serde_json::to_string(payload).map_err(|error| {
        Refusal::new(RefusalKind::Refused, format!("the answer cannot be encoded as JSON: {error}"))
    })
}

/// Answers a request that has no result.
fn done(result: Result<(), ControlError>) -> Result<String, Refusal> {
    result.map_err(refuse)?;
    text(&())
}

fn freeze_all(frozen: bool) -> Result<String, Refusal> {
    control::freeze_all(frozen);
    text(&())
}

fn refuse(error: ControlError) -> Refusal {
    Refusal::new(RefusalKind::Refused, error.to_string())
}

fn hello() -> Hello {
    let program = std::env::current_exe().ok();
    let program = program.as_ref().and_then(|path| path.file_name());
    Hello {
        protocol: VERSION,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        program: program.map_or("unknown".to_owned(), |name| name.to_string_lossy().into_owned()),
        all_frozen: control::all_frozen(),
        records_authors: true,
        instance: Some(instance()),
    }
}

/// Returns the random number of this run of the program.
fn instance() -> u64 {
    static INSTANCE: OnceLock<u64> = OnceLock::new();
    *INSTANCE.get_or_init(|| RandomState::new().hash_one(std::process::id()))
}

/// Returns the allocator's statistics. Does not set the allocator up if the program does not use it.
fn memory() -> MemoryView {
    let Some(stats) = squall_alloc::stats_if_used() else { return MemoryView::default() };
    let class = |class: &squall_alloc::ClassStats| ClassMemoryView {
        block_bytes: class.block_bytes as u64,
        local: class.is_local,
        slabs: class.slabs_count,
        used: class.used_count,
        cached: class.cached_count,
        fills: class.fills_count,
        returned: class.returned_count,
        sent_home: class.sent_home_count,
    };
    let node = |units: &squall_alloc::PoolUnits| NodeMemoryView {
        used_bytes: units.used_bytes() as u64,
        free_bytes: units.dirty_bytes() as u64,
    };
    let vp = |vp: &squall_alloc::VpStats| VpMemoryView {
        vp: vp.vp,
        cached_bytes: vp.cached_bytes(),
        outbox_count: vp.outbox_count,
        classes: vp.classes.iter().map(class).collect(),
    };
    MemoryView {
        mode: Some(
            match stats.mode {
                squall_alloc::Mode::Restartable => "restartable",
                squall_alloc::Mode::Locked => "locked",
            }
            .to_owned(),
        ),
        vp_bytes_max: squall_alloc::BOUND_BYTES as u64,
        vps: stats.vps.iter().map(vp).collect(),
        nodes: stats.nodes.iter().map(node).collect(),
        large_count: stats.large_count as u64,
        large_bytes: stats.large_bytes as u64,
    }
}

fn machine() -> MachineView {
    let machine = squall_machine::machine();
    let level = |size: ClusterSize| {
        let clusters = machine.clusters(size);
        let vps = |cluster| clusters.members(cluster).iter().map(|vp| vp.index()).collect();
        LevelView { name: size.to_string(), clusters: clusters.iter().map(vps).collect() }
    };
    MachineView {
        is_virtual: machine.is_virtual(),
        levels: ClusterSize::LEVELS.into_iter().map(level).collect(),
        online: machine.online().iter().map(|vp| vp.index()).collect(),
    }
}

fn parse_id(id: &str) -> Result<Id, Refusal> {
    id.parse().map_err(|_| {
        let message = format!("{:?} is not an id; an id is SLOT.GENERATION, such as 17.3", shortened(id));
        Refusal::new(RefusalKind::BadRequest, message)
    })
}

/// Truncates a client's text, but keeps enough of it to recognise it.
pub(crate) fn shortened(text: &str) -> String {
    const CHARS: usize = 64;
    let mut chars = text.chars();
    let mut short: String = chars.by_ref().take(CHARS).collect();
    if chars.next().is_some() {
        short.push('…');
    }
    short
}

/// Returns the author of a change, as the reason of a decision names it: with escaped control characters and
/// characters that change the direction of writing.
fn requester(author: Option<&str>) -> String {
    let Some(author) = author else { return "a client that gave no name".to_owned() };
    let mut shown = String::new();
    for letter in shortened(author).chars() {
        match letter {
            '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                shown.extend(letter.escape_default());
            }
            _ if letter.is_control() => shown.extend(letter.escape_default()),
            _ => shown.push(letter),
        }
    }
    shown
}

fn key(id: Id) -> (u32, u32) {
    (id.slot(), id.generation())
}

fn find(id: &str) -> Result<ObjectInfo, Refusal> {
    squall_core::info_of(parse_id(id)?).ok_or_else(|| {
        let message = format!(
            "there is no object {id}; it was destroyed or never existed (\"list\" names those there are)"
        );
        Refusal::new(RefusalKind::NoObject, message)
    })
}

fn list(query: &ListQuery) -> Result<Listing, Refusal> {
    let after = query.after.as_deref().map(parse_id).transpose()?;
    if after.is_some() && query.sort != Sort::Id {
        let message =
            "\"after\" goes with \"sort\":\"id\" only, because the other orders change all the time";
        return Err(Refusal::new(RefusalKind::BadRequest, message));
    }
    let limit = query.limit.unwrap_or(OBJECTS_MAX).min(OBJECTS_MAX);
    let is_whole = query.interface.is_none() && query.name.is_none();
    let (objects, total) = if is_whole && query.sort == Sort::Id {
        squall_core::snapshot_after(after, limit)
    } else {
        let mut objects = matching(query, after);
        order(&mut objects, query.sort);
        let total = objects.len();
        objects.truncate(limit);
        (objects, total)
    };
    let ids: Vec<Id> = objects.iter().map(|object| object.id).collect();
    let statuses = control::statuses_of(&ids);
    let mut classes = short::Classes::default();
    let objects =
        objects.iter().zip(&statuses).map(|(object, status)| view(object, status.as_ref(), &mut classes));
    Ok(Listing { total, all_frozen: control::all_frozen(), objects: objects.collect() })
}

/// Returns the objects after this id that satisfy the filters of a query.
fn matching(query: &ListQuery, after: Option<Id>) -> Vec<ObjectInfo> {
    let mut objects = squall_core::snapshot();
    objects.retain(|object| {
        let is_named = |part: &str| object.name.as_ref().is_some_and(|name| name.contains(part));
        query.interface.as_deref().is_none_or(|part| object.interface.contains(part))
            && query.name.as_deref().is_none_or(is_named)
            && after.is_none_or(|after| key(object.id) > key(after))
    });
    objects
}

/// Sorts the largest first, and equal ones by id. Ids grow.
fn order(objects: &mut [ObjectInfo], sort: Sort) {
    objects.sort_by_key(|object| key(object.id));
    let mut by = |amount: &dyn Fn(&ObjectInfo) -> f64| {
        objects.sort_by(|one, other| amount(other).total_cmp(&amount(one)));
    };
    match sort {
        Sort::Id => {}
        Sort::Bytes => by(&|object| object.bytes as f64),
        Sort::Misses => by(&|object| object.misses as f64),
        Sort::Reps => by(&|object| object.reps.len() as f64),
        Sort::Contended => by_status(by, |status| status.contended_per_s),
        Sort::Swaps => by_status(by, |status| status.swaps_count as f64),
    }
}

/// Sorts by an amount of the objects that the engine knows. The others come last.
fn by_status(mut by: impl FnMut(&dyn Fn(&ObjectInfo) -> f64), amount: fn(&Status) -> f64) {
    let amounts: HashMap<Id, f64> =
        control::statuses().iter().map(|status| (status.id, amount(status))).collect();
    by(&|object| amounts.get(&object.id).copied().unwrap_or(-1.0));
}

fn view(object: &ObjectInfo, status: Option<&Status>, classes: &mut short::Classes) -> ObjectView {
    ObjectView {
        id: object.id.to_string(),
        name: object.name.as_deref().map(str::to_owned),
        interface: object.interface.to_owned(),
        class: classes.short(object.class).to_owned(),
        family: status.map(|status| status.family.to_owned()),
        form: status.map(|status| status.form.to_owned()),
        forms: status
            .map_or(Vec::new(), |status| status.forms.iter().map(|form| (*form).to_owned()).collect()),
        state: match object.state {
            ObjectState::Live => "live",
            ObjectState::Arbitrated => "arbitrated",
            ObjectState::Swapping => "swapping",
            ObjectState::Ending => "ending",
            _ => "unknown",
        }
        .to_owned(),
        reps: object.reps.len(),
        vps: object.translations.len(),
        bytes: object.bytes,
        age_ms: millis(object.age),
        misses: object.misses,
        contended_per_s: status.map(|status| status.contended_per_s).filter(|rate| rate.is_finite()),
        swaps: status.map_or(0, |status| status.swaps_count),
        frozen: status.is_some_and(|status| status.frozen),
        dry_run: status.is_some_and(|status| status.dry_run),
        stays: status.map(|status| status.stays.to_string()),
        last_decision: status.and_then(|status| status.last.as_ref()).map(sentence),
        part_of: object.part_of.map(|whole| whole.to_string()),
        mediator: object.mediator.as_ref().map(mediator),
    }
}

fn mediator(mediator: &MediatorInfo) -> MediatorView {
    MediatorView {
        phase: mediator.phase.to_string(),
        target: short::class(mediator.target),
        replacement: mediator.replacement.map(short::class),
        method: mediator.method.map(str::to_owned),
    }
}

/// Describes an object that another one is linked to, if it still lives.
fn related(id: Id) -> Option<RelatedView> {
    let object = squall_core::info_of(id)?;
    Some(RelatedView {
        id: object.id.to_string(),
        name: object.name.as_deref().map(str::to_owned),
        interface: object.interface.to_owned(),
        class: short::class(object.class),
    })
}

fn detail(object: &ObjectInfo) -> Detail {
    let status = control::status(object.id);
    let reps = object.reps.iter().take(REPS_LISTED_MAX).map(|rep| RepView {
        cluster: rep.cluster.map(|cluster| cluster.index()),
        vp: rep.vp.map(|vp| vp.index()),
        holds: rep.holds,
    });
    let parts = squall_core::parts_of(object.id);
    Detail {
        whole: object.part_of.and_then(related),
        parts_count: parts.len(),
        parts: parts.into_iter().take(PARTS_LISTED_MAX).filter_map(related).collect(),
        row: view(object, status.as_ref(), &mut short::Classes::default()),
        class_path: object.class.to_owned(),
        kind: match object.kind {
            ObjectKind::Shared => "shared",
            ObjectKind::Clustered => "clustered",
            _ => "unknown",
        }
        .to_owned(),
        interface_source: format!("{}:{}", object.interface_source.file, object.interface_source.line),
        made_at: object.made_at.to_string(),
        home: object.home.map(|vp| vp.index()),
        translations: object.translations.to_string(),
        value_bytes: object.value_bytes,
        rep_list: reps.collect(),
        attributes: attributes(object.id).unwrap_or_default(),
        implementations: control::implementations(object.id).iter().map(|name| (*name).to_owned()).collect(),
        last: status.and_then(|status| status.last).as_ref().map(decision_view),
    }
}

fn attributes(id: Id) -> Result<Vec<AttributeView>, Refusal> {
    let attributes: Vec<AttributeInfo> = control::attributes(id).map_err(refuse)?;
    let view = |attribute: AttributeInfo| AttributeView {
        name: attribute.name.to_string(),
        kind: attribute.kind.to_string(),
        value: attribute.value.to_string(),
        unit: attribute.unit.to_string(),
        default: attribute.default.to_string(),
        range: attribute.range.to_string(),
        about: attribute.about.to_string(),
        from: format!("{:?}", attribute.from).to_lowercase(),
    };
    Ok(attributes.into_iter().map(view).collect())
}

/// Returns the last entries of a list that ends with the newest.
fn latest<T>(mut events: Vec<T>) -> Vec<T> {
    let surplus = events.len().saturating_sub(EVENTS_MAX);
    events.drain(..surplus);
    events
}

fn decisions(found: Vec<Decision>) -> Vec<DecisionView> {
    latest(found).iter().map(decision_view).collect()
}

fn decision_view(decision: &Decision) -> DecisionView {
    DecisionView {
        at_ms: since_1970(decision.at),
        id: decision.id.to_string(),
        name: decision.name.as_deref().map(str::to_owned),
        family: decision.family.to_owned(),
        from: decision.from.to_owned(),
        to: decision.to.to_owned(),
        place: decision.place.map(|vp| vp.index()),
        verdict: decision.verdict.to_string(),
        why: decision.why.clone(),
        readings: decision.readings().to_owned(),
        took_us: micros(decision.took),
        swap: decision.report.as_ref().map(swap_view),
    }
}

/// Describes a decision in a sentence that does not repeat the object.
fn sentence(decision: &Decision) -> String {
    let Decision { from, to, verdict, why, .. } = decision;
    format!("{from} to {to}: {verdict}; {why}")
}

fn swap_view(report: &SwapReport) -> SwapView {
    SwapView {
        began_ms: since_1970(report.began),
        id: report.id.to_string(),
        interface: report.interface.to_owned(),
        from: short::class(report.from),
        to: short::class(report.to),
        outcome: match &report.outcome {
            SwapOutcome::Swapped => "swapped".to_owned(),
            SwapOutcome::RolledBack(failure) => failure.to_string(),
            _ => "unknown".to_owned(),
        },
        total_us: micros(report.total()),
        longest_pause_us: micros(report.longest_pause),
        forwarded: report.forwarded,
        blocked: report.blocked,
        format: report.format.map(str::to_owned),
        bytes: report.bytes,
    }
}

fn sample(id: &str, span_ms: u64) -> Result<CallsView, Refusal> {
    if !(1..=SAMPLE_MS_MAX).contains(&span_ms) {
        let message = format!("\"span_ms\" is {span_ms}; it must be from 1 to {SAMPLE_MS_MAX}");
        return Err(Refusal::new(RefusalKind::BadRequest, message));
    }
    let calls = control::sample(find(id)?.id, Duration::from_millis(span_ms)).map_err(refuse)?;
    Ok(CallsView {
        span_us: micros(calls.span),
        by_method: calls.by_method.iter().map(|(method, count)| ((*method).to_owned(), *count)).collect(),
        by_vp: calls.by_vp.iter().map(|(vp, count)| (vp.index(), *count)).collect(),
    })
}

pub(crate) fn since_1970(at: SystemTime) -> u64 {
    at.duration_since(SystemTime::UNIX_EPOCH).map_or(0, millis)
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_ids_are_refused_and_truncated_in_errors() {
        for bad in ["", ".", "17", "17.", ".3", "17.3.1", "+1.2", "1.-2", "4294967296.0", " 1.2", "1.2 "] {
            assert_eq!(find(bad).expect_err(bad).kind, RefusalKind::BadRequest, "{bad:?}");
        }
        let long = find(&"9".repeat(60_000)).expect_err("no id");
        assert!(long.message.len() < 200, "{long}");
        assert_eq!(find("16777215.4294967295").expect_err("nobody").kind, RefusalKind::NoObject);
    }

    #[test]
    fn an_author_cannot_control_a_terminal() {
        assert_eq!(requester(Some("O'Brien \u{1b}[2J\u{202e}")), "O'Brien \\u{1b}[2J\\u{202e}");
        assert_eq!(requester(None), "a client that gave no name");
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(shortened("ä".repeat(65).as_str()), format!("{}…", "ä".repeat(64)));
        assert_eq!(shortened("ä"), "ä");
    }
}
