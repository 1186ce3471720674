//! The registry: one file per experiment.

mod dpool;
mod ex_fo17;
mod ex_h1;
mod ex_h3;
mod ex_h4;
mod ex_h6;
mod ex_h7;
mod ex_k1;
mod ex_k13;
mod ex_k14;
mod ex_k1_process;
mod ex_k7;
mod ex_k9;
mod ex_q1;
mod ex_q2;
mod ex_q7;
mod ex_t1;
mod ex_t2;
mod ex_t3;
mod ex_t4;
mod ex_t7;
mod pager;
mod pool;
mod tsp;

use crate::Experiment;

/// All experiments, in the order of the report.
pub const ALL: &[&Experiment] = &[
    &ex_k1::EX_K1,
    &ex_k1_process::EX_K1_PROCESS,
    &pager::EX_K3,
    &pager::EX_K4,
    &pager::EX_K5,
    &pager::EX_K6,
    &ex_k7::EX_K7,
    &pager::EX_K7,
    &pager::EX_K8,
    &ex_k9::EX_K9,
    &ex_k13::EX_K13,
    &ex_k14::EX_K14,
    &ex_t1::EX_T1,
    &ex_t2::EX_T2,
    &pager::EX_T2,
    &ex_t3::EX_T3,
    &ex_t4::EX_T4,
    &ex_t7::EX_T7,
    &ex_q1::EX_Q1,
    &ex_q2::EX_Q2,
    &tsp::EX_Q3,
    &tsp::EX_Q4,
    &tsp::EX_Q5,
    &tsp::EX_Q6,
    &ex_q7::EX_Q7,
    &ex_h1::EX_H1,
    &ex_h3::EX_H3,
    &ex_h4::EX_H4,
    &pager::EX_H5,
    &ex_h6::EX_H6,
    &pager::EX_H6,
    &ex_h7::EX_H7,
    &dpool::EX_D3,
    &dpool::EX_D4,
    &dpool::EX_D5,
    &dpool::EX_D6,
    &dpool::EX_D7,
    &dpool::EX_D8,
    &dpool::EX_D9,
    &pool::EX_D1,
    &pool::EX_D2,
    &pool::EX_D3,
    &pool::EX_D4,
    &pool::EX_D5,
    &pool::EX_D6,
    &pool::EX_D7,
    &pool::EX_D8,
    &pool::EX_D9,
    &pool::EX_D10,
    &ex_fo17::EX_FO17,
];

/// Finds an experiment by its id, in either case.
#[must_use]
pub fn find(id: &str) -> Option<&'static Experiment> {
    ALL.iter().copied().find(|it| it.id.eq_ignore_ascii_case(id))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_verdict_tells_the_paper_s_shape_from_the_opposite() {
        for it in ALL {
            let (alike, opposite) = ((it.verdict)(&(it.alike)()), (it.verdict)(&(it.opposite)()));
            assert_eq!(alike.word(), "agrees", "{}: {}", it.id, alike.why());
            assert_eq!(opposite.word(), "differs", "{}: {}", it.id, opposite.why());
            let nothing = (it.verdict)(&crate::Found::default());
            assert_eq!(nothing.word(), "differs", "{} agrees without figures", it.id);
        }
    }

    /// The limit of a quick run of all, with at least ten plots.
    #[test]
    fn a_quick_run_takes_at_most_twenty_minutes_and_draws_ten_plots() {
        assert!(ALL.iter().map(|it| it.seconds.0).sum::<u32>() <= 20 * 60);
        assert!(ALL.iter().map(|it| (it.alike)().plots.len()).sum::<usize>() >= 10);
    }

    #[test]
    fn ids_are_unique_and_found() {
        let ids: BTreeSet<&str> = ALL.iter().map(|it| it.id).collect();
        assert_eq!(ids.len(), ALL.len());
        for it in ALL {
            assert!(it.id.starts_with("EX-"), "{}", it.id);
            assert_eq!(find(&it.id.to_lowercase()).map(|it| it.id), Some(it.id));
            assert!(it.command.starts_with("squall report "), "{}", it.command);
            assert!(it.question.ends_with('?') && it.paper.found.ends_with('.'), "{}", it.id);
        }
        assert!(find("EX-Z9").is_none());
    }
}
