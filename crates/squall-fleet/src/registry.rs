//! The mailboxes of this process, by their aliases.

use crate::Alias;
use crate::post::Post;
use squall_sys::sync::{Arc, Mutex, MutexGuard, Weak, lock};
use std::collections::BTreeMap;

static MAILBOXES: Mutex<BTreeMap<Alias, Weak<Post>>> = Mutex::new(BTreeMap::new());

fn mailboxes() -> MutexGuard<'static, BTreeMap<Alias, Weak<Post>>> {
    lock(&MAILBOXES, "the list of mailboxes")
}

pub(crate) fn add(post: &Arc<Post>) {
    mailboxes().insert(post.alias, Arc::downgrade(post));
}

pub(crate) fn remove(alias: Alias) {
    mailboxes().remove(&alias);
}

pub(crate) fn find(alias: Alias) -> Option<Arc<Post>> {
    mailboxes().get(&alias)?.upgrade()
}
