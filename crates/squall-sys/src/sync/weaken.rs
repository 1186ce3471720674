//! Run-time switches that break one fence or ordering of a protocol, for the tests of the tests.
//!
//! A proof names its fences and orderings; each is a *site* with a number. In a model build (`--cfg loom` or
//! `--cfg squall_model`, which is used under Miri) a test can weaken one site, and the model check must then fail. In
//! every other build a site is a constant and costs nothing.

use std::sync::atomic::Ordering;

#[cfg(any(loom, squall_model))]
static WEAKENED: [std::sync::atomic::AtomicU64; 2] = [const { std::sync::atomic::AtomicU64::new(0) }; 2];

/// A named fence or ordering of a protocol: an index below 128, unique within the crate that checks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site(pub u32);

impl Site {
    /// Whether a test has weakened this site. Always false outside model builds.
    #[inline(always)]
    pub fn is_weak(self) -> bool {
        #[cfg(any(loom, squall_model))]
        return WEAKENED[self.0 as usize / 64].load(Ordering::Relaxed) & (1 << (self.0 % 64)) != 0;
        #[cfg(not(any(loom, squall_model)))]
        false
    }

    /// `strong`, or `Relaxed` where a test has weakened this site.
    #[inline(always)]
    pub fn order(self, strong: Ordering) -> Ordering {
        if self.is_weak() { Ordering::Relaxed } else { strong }
    }
}

/// Weakens exactly these sites until the next call. Only in model builds.
#[cfg(any(loom, squall_model))]
pub fn set(sites: &[Site]) {
    let mask = sites.iter().fold(0u128, |mask, site| mask | 1 << site.0);
    // SeqCst: the model that reads it starts after this; no partner is needed.
    WEAKENED[0].store(mask as u64, Ordering::SeqCst);
    WEAKENED[1].store((mask >> 64) as u64, Ordering::SeqCst);
}

/// The environment variable that names sites by number, separated by commas, for [`check`].
#[cfg(any(loom, squall_model))]
pub const ENVIRONMENT: &str = "SQUALL_WEAKEN";

/// The most times a thread is stopped in the middle, in one execution that loom tries. Four are what the twins of `squall-rcu` need.
/// `LOOM_MAX_PREEMPTIONS` says fewer for all models, or, if it is more than this, so many for all, also for those that ask for fewer.
#[cfg(loom)]
const PREEMPTIONS: usize = 4;

/// Runs a model with nothing weakened but what `SQUALL_WEAKEN` names: every execution under loom, one otherwise.
#[cfg(any(loom, squall_model))]
pub fn check(model: fn()) {
    #[cfg(loom)]
    check_within(PREEMPTIONS, model);
    #[cfg(not(loom))]
    check_within(0, model);
}

/// As [`check`], with at most so many preemptions in an execution: for models of three threads that do much.
#[cfg(any(loom, squall_model))]
pub fn check_within(preemptions: usize, model: fn()) {
    let asked = std::env::var(ENVIRONMENT).unwrap_or_default();
    let sites: Vec<Site> = asked.split(',').filter_map(|site| site.parse().ok()).map(Site).collect();
    set(&sites);
    #[cfg(loom)]
    {
        let mut builder = loom::model::Builder::new();
        // Twice as many as it has: a bucket of eight keys of one tag is looked at several times.
        builder.max_branches = 2000;
        let asked: Option<usize> =
            std::env::var("LOOM_MAX_PREEMPTIONS").ok().and_then(|bound| bound.parse().ok());
        builder.preemption_bound = Some(match asked {
            Some(more) if more > PREEMPTIONS => more,
            fewer => fewer.unwrap_or(PREEMPTIONS).min(preemptions),
        });
        builder.check(model);
    }
    #[cfg(not(loom))]
    {
        let _ = preemptions;
        model();
    }
}

/// Checks that the test of this name, which calls [`check`], fails once `site` is weakened, and holds without `masks`
/// alone: fences that the model does not need, but that hide the weakness from loom, for which all sequentially
/// consistent fences synchronise with each other.
///
/// Each runs in a process of its own: a deadlock that loom finds cannot be unwound from.
///
/// # Panics
/// If the test does not exist, fails without `masks`, or holds without `site`.
#[cfg(loom)]
pub fn twin(site: Site, masks: &[Site], test: &str) {
    let holds = |sites: &[Site]| {
        let names: Vec<String> = sites.iter().map(|site| site.0.to_string()).collect();
        let output = std::process::Command::new(std::env::current_exe().expect("this test has a path"))
            .args(["--exact", test])
            .env(ENVIRONMENT, names.join(","))
            .output()
            .expect("this test can be run again");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("running 1 test"), "{test} does not exist");
        output.status.success()
    };
    assert!(holds(masks), "{test} does not hold without {masks:?}");
    assert!(!holds(&[masks, &[site]].concat()), "{test} still holds without {site:?}");
}
