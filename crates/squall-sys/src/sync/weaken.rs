//! Switches that break one fence or ordering of a protocol at run time, to prove that a model notices.
//!
//! A proof names its fences and orderings; each is a *site* with a number. In a model build (`--cfg loom`, or
//! `--cfg squall_model` for Miri) a test can weaken one site; the model must then fail. In every other build
//! a site is a constant without cost at run time.

use std::sync::atomic::Ordering;

#[cfg(any(loom, squall_model))]
static WEAKENED: [std::sync::atomic::AtomicU64; 4] = [const { std::sync::atomic::AtomicU64::new(0) }; 4];

/// A named fence or ordering of a protocol: an index below 256, unique within the crate that checks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site(pub u32);

impl Site {
    /// True if a test has weakened this site. Always false outside model builds.
    #[inline(always)]
    pub fn is_weak(self) -> bool {
        #[cfg(any(loom, squall_model))]
        return WEAKENED[self.0 as usize / 64].load(Ordering::Relaxed) & (1 << (self.0 % 64)) != 0;
        #[cfg(not(any(loom, squall_model)))]
        false
    }

    /// Returns `strong`, or `Relaxed` if a test has weakened this site.
    #[inline(always)]
    pub fn order(self, strong: Ordering) -> Ordering {
        if self.is_weak() { Ordering::Relaxed } else { strong }
    }
}

/// Weakens exactly the given sites until the next call. Model builds only.
#[cfg(any(loom, squall_model))]
pub fn set(sites: &[Site]) {
    for (first, word) in (0..).step_by(64).zip(&WEAKENED) {
        let within = sites.iter().filter_map(|site| site.0.checked_sub(first)).filter(|bit| *bit < 64);
        // SeqCst: the model that reads it starts after this; no partner is needed.
        word.store(within.fold(0, |mask, bit| mask | 1 << bit), Ordering::SeqCst);
    }
}

/// Environment variable that lists sites by number, separated by commas, for [`check`].
#[cfg(any(loom, squall_model))]
pub const ENVIRONMENT: &str = "SQUALL_WEAKEN";

/// Largest number of preemptions in one execution that loom tries. The twins of `squall-rcu` need four. A
/// smaller `LOOM_MAX_PREEMPTIONS` lowers the bound of all models. A larger one becomes the bound of all
/// models, even of those that ask for fewer.
#[cfg(loom)]
const PREEMPTIONS: usize = 4;

/// Runs a model with the sites in `SQUALL_WEAKEN` weakened. Loom runs every execution; other builds run one.
#[cfg(any(loom, squall_model))]
pub fn check(model: fn()) {
    #[cfg(loom)]
    check_within(PREEMPTIONS, model);
    #[cfg(not(loom))]
    check_within(0, model);
}

/// Runs a model like [`check`], with at most `preemptions` preemptions per execution. Meant for long models
/// of three threads.
#[cfg(any(loom, squall_model))]
pub fn check_within(preemptions: usize, model: fn()) {
    let asked = std::env::var(ENVIRONMENT).unwrap_or_default();
    let sites: Vec<Site> = asked.split(',').filter_map(|site| site.parse().ok()).map(Site).collect();
    set(&sites);
    #[cfg(loom)]
    {
        let mut builder = loom::model::Builder::new();
        // Twice loom's default: a bucket with eight keys of one tag is read several times.
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

/// Checks that a model fails without `site`. `test` names the model's test, which calls [`check`].
///
/// The test must pass with `masks` weakened, and fail with `masks` and `site` weakened. `masks` are fences
/// that the model does not need, but that hide the weakness from loom, because loom synchronises all SeqCst
/// fences with each other.
///
/// Each run has its own process, because a deadlock that loom finds cannot be unwound.
/// # Panics
/// If the test does not exist, if it fails with `masks` weakened, or if it passes with `site` weakened too.
#[cfg(loom)]
pub fn twin(site: Site, masks: &[Site], test: &str) {
    let holds = |sites: &[Site]| {
        let names: Vec<String> = sites.iter().map(|site| site.0.to_string()).collect();
        let output =
            std::process::Command::new(std::env::current_exe().expect("the test binary has no path"))
                .args(["--exact", test])
                .env(ENVIRONMENT, names.join(","))
                .output()
                .expect("the test binary could not be started again");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("running 1 test"), "{test} does not exist");
        output.status.success()
    };
    assert!(holds(masks), "{test} fails although only the masks {masks:?} are weakened");
    assert!(!holds(&[masks, &[site]].concat()), "{test} still passes although {site:?} is weakened");
}

/// Not public: makes a test `MODEL::holds` of each of these models. With `within N:` an execution has at
/// most N preemptions. The last form takes the path of the module, and for each model sites of its `sites`;
/// a test `MODEL::fails_when_weakened` checks the [`twin`] of each site. In a build without models, the
/// tests of that form run each model once.
#[doc(hidden)]
#[macro_export]
macro_rules! models {
    (within $preemptions:literal: $($model:ident $(,)?)*) => {$(
        mod $model {
            #[test]
            fn holds() {
                $crate::sync::weaken::check_within($preemptions, super::$model);
            }
        }
    )*};
    ($module:literal: $($model:ident: $($site:ident),*;)*) => {$(
        mod $model {
            #[test]
            fn holds() {
                #[cfg(any(loom, squall_model))]
                $crate::sync::weaken::check(super::$model);
                #[cfg(not(any(loom, squall_model)))]
                super::$model();
            }

            #[cfg(loom)]
            #[test]
            fn fails_when_weakened() {
                let test = concat!($module, "::", stringify!($model), "::holds");
                $($crate::sync::weaken::twin(super::sites::$site, &[], test);)*
            }
        }
    )*};
    ($($model:ident $(,)?)*) => {$(
        mod $model {
            #[test]
            fn holds() {
                $crate::sync::weaken::check(super::$model);
            }
        }
    )*};
}
