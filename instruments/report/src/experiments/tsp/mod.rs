//! EX-Q3 to EX-Q6: the travelling salesman over the distributed queue (KTK, tables 3 and 4, figures 2 to 4).
//!
//! The paper runs up to 25 processors of a BBN Butterfly and a KSR1, and measures times. Here the searches
//! are real, over the real queue, and one thread steps their searchers. The branched subproblems are counted.
//! A model gives each step a time: an access of another searcher's heap takes longer than one of the own
//! heap, and one heap serves one searcher at a time.

mod ex_q3;
mod ex_q4;
mod ex_q5;
mod ex_q6;

pub(super) use ex_q3::EX_Q3;
pub(super) use ex_q4::EX_Q4;
pub(super) use ex_q5::EX_Q5;
pub(super) use ex_q6::EX_Q6;

use squall_tsp::{Costs, Form, Instance, Modelled, Queued, modelled, shipped};

use crate::{Lab, Missing};

/// The instance of the experiments.
const INSTANCE: &str = "plane16";

fn instance() -> Result<Instance, Missing> {
    match shipped::find(INSTANCE) {
        Some(file) => Ok(file.instance()),
        None => Err(Missing(format!("there is no instance {INSTANCE}"))),
    }
}

/// Solves the instance on the modelled machine, and checks the optimum.
fn search(
    lab: &mut Lab<'_>,
    instance: &Instance,
    form: Form,
    searchers: usize,
    costs: Costs,
) -> Result<Modelled, Missing> {
    lab.tell(&format!("{}, {searchers} searchers", form.name()));
    let failed = |why: String| Missing(format!("the form {} with {searchers} searchers: {why}", form.name()));
    let found = modelled(instance, &Queued::new(form, searchers), searchers, costs)
        .map_err(|error| failed(error.to_string()))?;
    match instance.stated_optimum() {
        Some(optimum) if optimum == found.length => Ok(found),
        _ => Err(failed(format!("the optimum {} is wrong", found.length))),
    }
}
