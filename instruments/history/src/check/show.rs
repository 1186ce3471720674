//! Prints a wrong history: one line per call, with a bar for its duration.

use std::fmt::{Debug, Write};

use super::search::{Longest, Mark, Start};
use crate::history::Call;

/// Maximum number of printed start states.
const STARTS_SHOWN_MAX: usize = 4;

/// End of a failed search: index and expected answer of each call that might have been next, and the longest
/// partial order.
pub(super) type End<T, R> = (Vec<(usize, R)>, Longest<T>);

pub(super) fn show<T: Debug, O: Debug, R: Debug>(
    calls: &[(&Call<O, R>, Mark)],
    starts: &[Start<T>],
    end: Option<End<T, R>>,
) -> String {
    let places: Vec<_> =
        (0..calls.len()).filter(|place| matches!(calls[*place].1, Mark::Returned | Mark::Pending)).collect();
    let shown: Vec<_> = places.iter().map(|place| calls[*place].0).collect();
    let (bars, exact) = bars(&shown);
    let texts: Vec<_> = places.iter().map(|place| text(calls[*place])).collect();
    let width = texts.iter().map(|text| text.chars().count()).max().unwrap_or(0);
    let mut out = String::new();
    for (bar, text) in bars.iter().zip(&texts) {
        line(&mut out, format_args!("  {text:width$}  {bar}"));
    }
    if !exact {
        line(&mut out, format_args!("  (some calls with disjoint bars have no known order)"));
    }
    let mut states: Vec<String> = starts.iter().map(|start| format!("{:?}", start.state)).collect();
    states.sort_unstable();
    states.dedup();
    let more = if states.len() > STARTS_SHOWN_MAX { ", or others" } else { "" };
    states.truncate(STARTS_SHOWN_MAX);
    line(&mut out, format_args!("  state before: {}{more}", states.join(" or ")));
    let name = |place: &usize| format!("t{} #{}", calls[*place].0.thread, calls[*place].0.index);
    if let Some((refused, longest)) = end {
        let order: Vec<_> = longest.calls.iter().map(name).collect();
        let order = if order.is_empty() { "empty".to_owned() } else { order.join(", ") };
        line(
            &mut out,
            format_args!("  longest order that fits: {order}; state after it: {:?}", longest.state),
        );
        for (place, ret) in refused {
            line(&mut out, format_args!("  next, {} should have returned {ret:?}", name(&place)));
        }
    }
    out
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(out, "{text}").expect("a string takes all");
}

fn text<O: Debug, R: Debug>((call, mark): (&Call<O, R>, Mark)) -> String {
    let ret = match &call.ret {
        None => "never returned".to_owned(),
        Some(_) if mark == Mark::Pending => "any answer".to_owned(),
        Some(ret) => format!("{ret:?}"),
    };
    format!("t{} #{}  {:?} -> {ret}", call.thread, call.index, call.op)
}

/// Draws a bar per call over a common axis of events. Each call begins as early as possible; the call that
/// most others wait for returns first. If the known order is that of a time line, the bars show it exactly.
fn bars<O, R>(calls: &[&Call<O, R>]) -> (Vec<String>, bool) {
    let count = calls.len();
    let before = |a: usize, b: usize| calls[a].is_before(calls[b]);
    let (mut begins, mut ends) = (vec![None; count], vec![None; count]);
    let mut now = 0;
    loop {
        for (call, begin) in begins.iter_mut().enumerate() {
            let ready = (0..count).all(|other| !before(other, call) || ends[other].is_some());
            if begin.is_none() && ready {
                *begin = Some(now);
                now += 1;
            }
        }
        let open = (0..count).filter(|call| begins[*call].is_some() && ends[*call].is_none());
        let returning = open.filter(|call| calls[*call].ret.is_some());
        let waited_for = |call: &usize| (0..count).filter(|other| before(*call, *other)).count();
        let Some(call) = returning.max_by_key(|call| (waited_for(call), count - call)) else { break };
        ends[call] = Some(now);
        now += 1;
    }
    let of = |call: usize| (begins[call].unwrap_or(now), ends[call].unwrap_or(now));
    let exact = (0..count).all(|a| (0..count).all(|b| before(a, b) == (of(a).1 < of(b).0)));
    let bar = |call: usize| -> String {
        let (begin, end) = of(call);
        let at = |column: usize| match column {
            _ if column < begin || column > end => ' ',
            _ if column == begin => '[',
            _ if column == end && calls[call].ret.is_some() => ']',
            _ => '=',
        };
        (0..now).map(at).collect::<String>().trim_end().to_owned()
    };
    ((0..count).map(bar).collect(), exact)
}
