//! The limit and the counts of a pool by their names, for `squall top`, browsers and
//! [`control::set_attribute`](squall_adapt::control::set_attribute).

use squall_adapt::control::{register_reading, register_setting};
use squall_core::Handle;
use squall_policy::attribute::Attribute;
use std::sync::Once;

use super::PagePool;

static MAX_PAGES: Attribute<u64> =
    Attribute::<u64>::new("max-pages", u64::MAX).in_unit("pages").about("the limit of pages");
static USED: Attribute<u64> = Attribute::<u64>::new("used", 0)
    .in_unit("pages")
    .about("pages in use, and free pages in the pool's lists");
static FREE: Attribute<u64> =
    Attribute::<u64>::new("free", 0).in_unit("pages").about("free pages in the pool's lists");

/// Registers the attributes of pools, once.
pub(super) fn have() {
    static KNOWN: Once = Once::new();
    KNOWN.call_once(|| {
        register_setting(
            &MAX_PAGES,
            |pool: Handle<dyn PagePool>| pool.try_max_pages().ok().map(|pages| pages as u64),
            |pool, pages| pool.try_set_max_pages(usize::try_from(pages).unwrap_or(usize::MAX)).ok(),
        );
        register_reading(&USED, |pool: Handle<dyn PagePool>| pool.try_used().ok().map(|pages| pages as u64));
        register_reading(&FREE, |pool: Handle<dyn PagePool>| pool.try_free().ok().map(|pages| pages as u64));
    });
}
