//! Answers: the program's statements about its objects, and the changes that clients may make.
//!
//! - I1. A request that only reads writes no memory that a call reads. It uses snapshots of the inspection
//!   and the records of `control`. One exception: it counts itself as a user of each connection of an
//!   exported or imported object.
//! - I2. A request about a node or its group locks the node for a moment. Calls of the node wait for it.

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
use crate::between::{self, Between};
use crate::changes;
use crate::fleets;
use crate::pools;
use crate::protocol::{
    AttributeView, CallsView, ClassMemoryView, DecisionView, Detail, EVENTS_MAX, Hello, LevelView, ListQuery,
    Listing, MachineView, MediatorView, MemoryView, NodeMemoryView, OBJECTS_MAX, OPERATIONS, ObjectView,
    Refusal, RefusalKind, RelatedView, RepView, Request, SAMPLE_MS_MAX, Sort, SwapView, VERSION,
    VpMemoryView,
};
use crate::session::Session;
use crate::short;

/// Largest number of representatives listed individually.
const REPS_LISTED_MAX: usize = 1024;
/// Largest number of parts listed individually.
const PARTS_LISTED_MAX: usize = 256;

/// Answers a request with the text after `"ok":`, and records it if it is a change.
pub(crate) fn answer(request: Request, session: &mut Session) -> Result<String, Refusal> {
    let action = actions::Action::begin(&request, session);
    let answer = perform(request, session);
    if let Some(action) = action {
        action.end(answer.as_ref().err().map(|refusal| refusal.message.as_str()));
    }
    answer
}

fn perform(request: Request, session: &mut Session) -> Result<String, Refusal> {
    match request {
        Request::Hello {} => text(&hello()),
        Request::List(query) => text(&list(&query)?),
        Request::Changes {} => text(&changes::next(&mut session.sent)),
        Request::Object { id } => text(&detail(&find(&id)?)),
        Request::History { id } => text(&decisions(control::history(find(&id)?.id))),
        Request::Decisions {} => text(&decisions(control::recent())),
        Request::Swaps { id } => text(&swaps(id.as_deref())?),
        Request::Memory {} => text(&memory()),
        Request::Implementations { id } => text(&control::implementations(find(&id)?.id)),
        Request::Attributes { id } => text(&attributes(find(&id)?.id)?),
        Request::Actions { id } => {
            let mut actions = actions::recent();
            actions.retain(|action| id.is_none() || action.id.is_none() || action.id == id);
            text(&actions)
        }
        Request::Machine {} => text(&machine()),
        Request::Set { id, name, value, author } => {
            let author = session.author(author.as_deref());
            done(control::set_attribute_by(find(&id)?.id, &name, &value, &author))
        }
        Request::Unset { id, name, .. } => {
            text(&control::unset_attribute(find(&id)?.id, &name).map_err(refuse)?)
        }
        Request::Freeze { id, .. } => done(control::freeze(find(&id)?.id, true)),
        Request::Thaw { id, .. } => done(control::freeze(find(&id)?.id, false)),
        Request::FreezeAll { .. } => freeze_all(true),
        Request::ThawAll { .. } => freeze_all(false),
        Request::Swap { id, implementation, author } => {
            let author = session.author(author.as_deref());
            let report = control::swap_by(find(&id)?.id, &implementation, &author).map_err(refuse)?;
            text(&swap_view(&report))
        }
        Request::Deny { id, method, .. } => agreed(between::set_right(find(&id)?.id, &method, false)),
        Request::Allow { id, method, .. } => agreed(between::set_right(find(&id)?.id, &method, true)),
        Request::Disconnect { id, caller, .. } => agreed(between::disconnect(find(&id)?.id, caller)),
        Request::Nodes {} => text(&fleets::list()),
        Request::Group { node } => text(&fleets::group(node).map_err(refused)?),
        Request::Leave { node, .. } => text(&fleets::leave(node).map_err(refused)?),
        Request::Pools {} => text(&pools::list()),
        Request::Sample { id, span_ms } => text(&sample(&id, span_ms)?),
        Request::Records { within_ms } => text(&session.records.take(within_ms)?),
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

/// Answers a request about calls between processes, which has no result.
fn agreed(result: Result<(), String>) -> Result<String, Refusal> {
    result.map_err(refused)?;
    text(&())
}

fn freeze_all(frozen: bool) -> Result<String, Refusal> {
    control::freeze_all(frozen);
    text(&())
}

fn refused(why: String) -> Refusal {
    Refusal::new(RefusalKind::Refused, why)
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
        operations: OPERATIONS.map(str::to_owned).to_vec(),
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

/// Returns the latest swaps of one object, or of all.
fn swaps(id: Option<&str>) -> Result<Vec<SwapView>, Refusal> {
    let id = id.map(parse_id).transpose()?;
    let mut swaps = squall_core::swap::recent();
    swaps.retain(|swap| id.is_none_or(|id| swap.id == id));
    Ok(latest(swaps).iter().map(swap_view).collect())
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
    let (objects, total) = match query.sort {
        Sort::Id => page(query, after, limit),
        _ => sorted(query, limit),
    };
    let ids: Vec<Id> = objects.iter().map(|object| object.id).collect();
    let statuses = control::statuses_of(&ids);
    let mut classes = short::Classes::default();
    let between = Between::now();
    let objects = objects
        .iter()
        .zip(&statuses)
        .map(|(object, status)| view(object, status.as_ref(), &mut classes, &between));
    Ok(Listing { total, all_frozen: control::all_frozen(), objects: objects.collect() })
}

fn is_wanted(query: &ListQuery, object: &ObjectInfo) -> bool {
    query.interface.as_deref().is_none_or(|part| object.interface.contains(part))
        && query
            .name
            .as_deref()
            .is_none_or(|part| object.name.as_ref().is_some_and(|name| name.contains(part)))
}

/// Returns the objects after this one in the order of ids, and the total. Describes only objects that are
/// listed or filtered out.
fn page(query: &ListQuery, mut after: Option<Id>, limit: usize) -> (Vec<ObjectInfo>, usize) {
    let has_total = after.is_none() && query.interface.is_none() && query.name.is_none();
    let mut objects = Vec::new();
    loop {
        // One object more tells whether any is left out.
        let wanted = limit + 1 - objects.len();
        let part = squall_core::snapshot_after(after, wanted);
        let is_last = part.len() < wanted;
        after = part.last().map(|last| last.id);
        objects.extend(part.into_iter().filter(|object| is_wanted(query, object)));
        if is_last || objects.len() > limit {
            break;
        }
    }
    let total = match objects.last() {
        Some(last) if has_total && objects.len() > limit => {
            objects.len() + squall_core::count_after(Some(last.id))
        }
        _ => objects.len(),
    };
    objects.truncate(limit);
    (objects, total)
}

/// Returns the first objects of this order, the largest first and equal ones by id, and the total.
fn sorted(query: &ListQuery, limit: usize) -> (Vec<ObjectInfo>, usize) {
    let mut objects = squall_core::snapshot();
    objects.retain(|object| is_wanted(query, object));
    objects.sort_by_key(|object| key(object.id));
    let loads = |amount: fn(&(Id, f64, u64)) -> f64| -> HashMap<Id, f64> {
        control::__loads().iter().map(|load| (load.0, amount(load))).collect()
    };
    let loads = match query.sort {
        Sort::Contended => loads(|(_, contended_per_s, _)| *contended_per_s),
        Sort::Swaps => loads(|(_, _, swaps)| *swaps as f64),
        _ => HashMap::new(),
    };
    let amount = |object: &ObjectInfo| match query.sort {
        Sort::Id => 0.0,
        Sort::Bytes => object.bytes as f64,
        Sort::Misses => object.misses as f64,
        Sort::Reps => object.reps.len() as f64,
        // Objects that the engine does not know come last.
        Sort::Contended | Sort::Swaps => loads.get(&object.id).copied().unwrap_or(-1.0),
    };
    objects.sort_by(|one, other| amount(other).total_cmp(&amount(one)));
    let total = objects.len();
    objects.truncate(limit);
    (objects, total)
}

pub(crate) fn view(
    object: &ObjectInfo,
    status: Option<&Status>,
    classes: &mut short::Classes,
    between: &Between,
) -> ObjectView {
    let mut row = ObjectView {
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
        frozen_all: control::all_frozen(),
        dry_run: status.is_some_and(|status| status.dry_run),
        stays: status.map(|status| status.stays.to_string()),
        last_decision: status.and_then(|status| status.last.as_ref()).map(sentence),
        part_of: object.part_of.map(|whole| whole.to_string()),
        mediator: object.mediator.as_ref().map(mediator),
        ..ObjectView::default()
    };
    between.add_to(object.id, &mut row);
    row
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
    let between = Between::now();
    Detail {
        whole: object.part_of.and_then(related),
        parts_count: parts.len(),
        parts: parts.into_iter().take(PARTS_LISTED_MAX).filter_map(related).collect(),
        row: view(object, status.as_ref(), &mut short::Classes::default(), &between),
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
        last: status.as_ref().and_then(|status| status.last.as_ref()).map(decision_view),
        exports: between.exports(object.id),
        import: between.import(object.id),
        frozen_by: status.and_then(|status| actions::freeze_of(status.frozen.then_some(object.id))),
    }
}

fn attributes(id: Id) -> Result<Vec<AttributeView>, Refusal> {
    let attributes: Vec<AttributeInfo> = control::attributes(id).map_err(refuse)?;
    let view = |attribute: AttributeInfo| AttributeView {
        name: attribute.path(),
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
        author: decision.author.as_ref().map(ToString::to_string),
        uid: decision.author.as_ref().and_then(|author| author.uid),
        pid: decision.author.as_ref().and_then(|author| author.pid),
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
pub(crate) mod tests {
    use super::*;

    #[squall_macros::interface(crate = squall_core)]
    pub(crate) trait Plain: Send + Sync {
        fn one(&self) -> u32;
    }

    struct One;

    impl Plain for One {
        fn one(&self) -> u32 {
            1
        }
    }

    /// Creates an object.
    pub(crate) fn plain() -> squall_core::Owned<dyn Plain> {
        squall_core::shared(One)
    }

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
    fn long_texts_are_cut_between_characters() {
        assert_eq!(shortened("ä".repeat(65).as_str()), format!("{}…", "ä".repeat(64)));
        assert_eq!(shortened("ä"), "ä");
    }
}
