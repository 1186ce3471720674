//! `tsp`: the travelling salesman over the queue in each form, with 1 to 16 searchers.
//!
//! In the variant `stepped` one thread steps the searchers in turns, so its figures are counts, and equal in
//! each run. `--threads` gives the numbers of searchers. A row is a form. Two columns count subproblems:
//! `expanded` those that were branched, and `useless` those of them that the best order leaves out. The other
//! columns are gets from another searcher's heap, gets that found the queue empty, subproblems moved by
//! balancing, and turns until the end.
//!
//! The rows `object` and `adaptive` are objects, which know their callers by their VPs. So in `stepped` and
//! `modelled` they need a virtual topology: `SQUALL_TOPOLOGY=cores:16 squall bench tsp`. `object` is the ring
//! with attributes that are set by name. An `adaptive` queue serves 20 searches in virtual time, and its
//! policy swaps it during the first ones. Its figures are means. It has no model.
//!
//! In the variant `modelled` an access of another searcher's heap takes four times as long as one of the own
//! heap. One heap serves one searcher at a time. `speed_up` is against one searcher with one heap.
//!
//! In the variant `timed` two threads search. The last rows are std's heap under one lock: std's (the rival),
//! one that blocks, and one that adapts its way of waiting. The median of some searches counts, each with a
//! new queue; the forms take turns.
//!
//! Each search proves the optimum, and another one than that of the file is an error.
//!
//! Source: KTK (Gheith et al. 1994), table 3 and figure 2.

use squall_tsp::{
    Costs, Form, Instance, Lock, Locked, Parallel, Queued, SearchError, modelled, parallel, queued, shipped,
    stepped, stepped_adaptive,
};

use crate::case::{Case, PLAIN, Scale, Setting, Variant};

const STEPPED: &str = "stepped";
const MODELLED: &str = "modelled";
const TIMED: &str = "timed";

pub(super) static CASE: Case = Case {
    name: "tsp",
    about: "a proof of the shortest tour over the queue, by form and searchers (counted, not timed)",
    variants: &[
        variant(STEPPED, "one thread steps the searchers in turns"),
        variant(MODELLED, "on a model of a machine with near and far memory"),
        Variant {
            threads: Some(2),
            threads_are: "thread",
            ..variant(TIMED, "two threads; milliseconds (timed)")
        },
    ],
    subjects: &[],
    scale: Scale::Latency,
    slice_ms: (0, 0),
    thread_range: false,
    metrics: Some(measure),
    default_threads: &[1, 2, 4, 8, 16],
};

const fn variant(name: &'static str, about: &'static str) -> Variant {
    Variant { name, about, threads_are: "searcher", ..PLAIN }
}

/// The instance, and the searches of a form of the variant `timed`: in a full and in a quick run.
const INSTANCE: (&str, &str) = ("plane16", "plane12");
const SEARCHES: (usize, usize) = (21, 5);
/// Searches over one adaptive queue.
const ADAPTIVE_SEARCHES: usize = 20;

type Metrics = Vec<(String, f64)>;

fn measure(setting: &Setting, quick: bool) -> Result<Metrics, String> {
    let name = if quick { INSTANCE.1 } else { INSTANCE.0 };
    let instance = shipped::find(name).ok_or_else(|| format!("there is no instance {name}"))?.instance();
    match setting.variant.name {
        STEPPED => count(&instance, setting.threads),
        MODELLED => model(&instance, setting.threads),
        _ => time(&instance, setting.threads, if quick { SEARCHES.1 } else { SEARCHES.0 }),
    }
}

/// An error if the length is not the optimum of the file.
fn check(instance: &Instance, form: &str, length: u64) -> Result<(), String> {
    match instance.stated_optimum() {
        Some(optimum) if optimum != length => Err(format!(
            "the form {form} claims the optimum {length} of {}, and {optimum} is right",
            instance.name()
        )),
        _ => Ok(()),
    }
}

fn failed(form: &str) -> impl Fn(SearchError) -> String + '_ {
    move |error| format!("the form {form} failed: {error}")
}

fn count(instance: &Instance, searchers: usize) -> Result<Metrics, String> {
    let mut metrics = Vec::new();
    for form in Form::modelled(searchers) {
        let name = form.name();
        let found = stepped(instance, &Queued::new(form, searchers), searchers).map_err(failed(name))?;
        check(instance, name, found.tour.length())?;
        let mut cell = |column, value: u64| metrics.push((format!("{name}/{column}"), value as f64));
        cell("expanded", found.work.expanded);
        cell("useless", found.useless);
        cell("gets", found.frontier.gets);
        if let Some(remote_gets) = found.frontier.remote_gets {
            cell("remote_gets", remote_gets);
        }
        cell("waits", found.work.waits);
        cell("moved", found.frontier.moved);
        cell("turns", found.rounds);
    }
    if Form::Adaptive.can_step(searchers) {
        adapt(instance, searchers, &mut metrics)?;
    }
    Ok(metrics)
}

/// Adds the row of the adaptive queue.
fn adapt(instance: &Instance, searchers: usize, metrics: &mut Metrics) -> Result<(), String> {
    let name = Form::Adaptive.name();
    let all = stepped_adaptive(instance, searchers, ADAPTIVE_SEARCHES).map_err(failed(name))?;
    for found in &all.found {
        check(instance, name, found.tour.length())?;
    }
    let mut cell = |column, value: f64| metrics.push((format!("{name}/{column}"), value));
    cell("expanded", all.mean(|found| found.work.expanded));
    cell("useless", all.mean(|found| found.useless));
    cell("gets", all.mean(|found| found.work.expanded + found.work.pruned));
    cell("waits", all.mean(|found| found.work.waits));
    cell("turns", all.mean(|found| found.rounds));
    Ok(())
}

fn model(instance: &Instance, searchers: usize) -> Result<Metrics, String> {
    let run = |form: Form, searchers| {
        let found = modelled(instance, &Queued::new(form, searchers), searchers, Costs::KSR1);
        found
            .map_err(failed(form.name()))
            .and_then(|found| check(instance, form.name(), found.length).map(|()| found))
    };
    let alone = run(Form::Central, 1)?.time as f64;
    let mut metrics = Vec::new();
    for form in Form::modelled(searchers) {
        let found = run(form, searchers)?;
        let mut cell = |column, value| metrics.push((format!("{}/{column}", form.name()), value));
        cell("time", found.time as f64);
        cell("speed_up", alone / found.time as f64);
        cell("expanded", found.work.expanded as f64);
        cell("lock_wait", found.lock_wait() as f64);
    }
    Ok(metrics)
}

/// One search of a subject.
type Search<'a> = Box<dyn Fn() -> Result<Parallel, SearchError> + 'a>;

fn time(instance: &Instance, threads: usize, searches: usize) -> Result<Metrics, String> {
    let mut subjects: Vec<(&str, Search<'_>)> = Vec::new();
    for form in Form::ALL {
        let search = move || queued(instance, &Queued::new(form, threads), threads, &|_| {});
        subjects.push((form.name(), Box::new(search)));
    }
    for lock in Lock::ALL {
        let search = move || parallel(instance, &Locked::new(lock), threads, &|_| {});
        subjects.push((lock.name(), Box::new(search)));
    }
    let mut ms = vec![Vec::with_capacity(searches); subjects.len()];
    for _ in 0..searches {
        for ((name, search), ms) in subjects.iter().zip(&mut ms) {
            let found = search().map_err(failed(name))?;
            check(instance, name, found.tour.length())?;
            ms.push(found.took.as_secs_f64() * 1e3);
        }
    }
    let medians = subjects.iter().zip(&mut ms).map(|((name, _), ms)| {
        ms.sort_by(f64::total_cmp);
        (format!("{name}/ms"), ms[ms.len() / 2])
    });
    Ok(medians.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(variant: &str, threads: usize) -> Metrics {
        let variant = CASE.variants.iter().find(|it| it.name == variant).expect("a variant");
        measure(&Setting { threads, variant, counted: false }, true).expect("figures")
    }

    #[test]
    fn each_variant_has_a_row_for_each_form() {
        for (variant, columns) in [(STEPPED, 7), (MODELLED, 4), (TIMED, 1)] {
            let found = metrics(variant, 2);
            for form in Form::ALL.into_iter().filter(|form| variant == TIMED || !form.is_object()) {
                let row = found.iter().filter(|(name, _)| name.starts_with(&format!("{}/", form.name())));
                // The relaxed form does not count remote gets.
                let missing = usize::from(variant == STEPPED && form == Form::Relaxed);
                assert_eq!(row.count(), columns - missing, "{variant}, {form:?}");
            }
            let locks = found.iter().filter(|(name, _)| name.starts_with("lock-")).count();
            assert_eq!(locks, if variant == TIMED { Lock::ALL.len() } else { 0 });
        }
    }

    #[test]
    fn counts_are_equal_in_each_run() {
        assert_eq!(metrics(STEPPED, 16), metrics(STEPPED, 16));
        assert_eq!(metrics(MODELLED, 16), metrics(MODELLED, 16));
    }

    #[test]
    fn another_length_than_the_optimum_is_an_error() {
        let instance = shipped::find("plane8").expect("it is shipped").instance();
        assert!(check(&instance, "ring", 1).is_err_and(|error| error.contains("314 is right")));
    }
}
