//! The forms of the queue compared, on a modelled machine of 15 processors.

use squall_tsp::{Costs, Form, Instance, Modelled, Queued, SearchError, modelled};

use crate::demo::laps::new_table;
use crate::output::{Failure, line};

/// Processors of KTK's table 3.
const SEARCHERS: usize = 15;

/// The times of KTK's table 3 on the BBN Butterfly, divided by that of the central queue.
fn paper(form: Form) -> &'static str {
    match form {
        Form::Central => "1.00",
        Form::Naive => "2.01",
        Form::Ring => "0.69",
        Form::Object => "0.79",
        _ => "-",
    }
}

/// Solves the instance in each form, and prints a row for each. `length` is the proven optimum.
pub(super) fn print(instance: &Instance, length: u64) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for form in Form::modelled(SEARCHERS) {
        match modelled(instance, &Queued::new(form, SEARCHERS), SEARCHERS, Costs::KSR1) {
            Ok(found) if found.length == length => rows.push((form, Ok(found))),
            Ok(found) => {
                return Err(Failure::new(format!(
                    "the form {} claims the optimum {}, and {length} is proven; report this as a bug",
                    form.name(),
                    found.length
                )));
            }
            Err(SearchError::TooManyOpen { open }) => rows.push((form, Err(open))),
            Err(error) => return Err(Failure::new(format!("the form {}: {error}", form.name()))),
        }
    }
    let central =
        rows.iter().find(|(form, _)| *form == Form::Central).and_then(|(_, found)| found.as_ref().ok());
    let header = ["form", "branched", "useless", "remote gets", "moved", "waits", "time / central", "KTK"];
    let mut table = new_table(&header);
    for (form, found) in &rows {
        match found {
            Ok(found) => table.add_row(row(*form, found, central)),
            Err(open) => table.add_row([form.name().to_owned(), format!("no proof: {open} open")]),
        };
    }
    line(format_args!("\nThe forms on a modelled machine of {SEARCHERS} processors:\n{table}"))?;
    line(
        "Branched subproblems, gets, moves and waits are counted, and equal in each run. Useless are those that the\n\
         central form does not branch. In the model, an access of another searcher's heap takes four times as long as\n\
         one of the own heap, and one heap serves one searcher at a time. The form naive has fragments in the order of\n\
         arrival. The last column has the times of KTK's table 3 on the BBN Butterfly (Gheith et al. 1994).",
    )?;
    if Form::Object.can_step(SEARCHERS) {
        return Ok(());
    }
    line(
        "An object knows its callers by their processors. For the row of the form object, set SQUALL_TOPOLOGY=cores:16.",
    )
}

fn row(form: Form, found: &Modelled, central: Option<&Modelled>) -> [String; 8] {
    let useless =
        central.map(|central| found.work.expanded.saturating_sub(central.work.expanded).to_string());
    let time = central.map(|central| format!("{:.2}", found.time as f64 / central.time as f64));
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    [
        form.name().to_owned(),
        found.work.expanded.to_string(),
        or_none(useless),
        or_none(found.frontier.remote_gets.map(|count| count.to_string())),
        found.frontier.moved.to_string(),
        found.work.waits.to_string(),
        or_none(time),
        paper(form).to_owned(),
    ]
}
