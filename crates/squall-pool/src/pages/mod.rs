//! Pages of shared memory, allocated by a fleet.
//!
//! Processes of a machine share a segment of pages ([`PageMemory`]). A fleet of [`PageServer`]s gives them
//! out. Each server has a shard of a [`DistributedPool`](crate::DistributedPool) of free page numbers. A
//! program has a [`PageClient`], which talks to the nearest server.
//!
//! A pool alone forgets the numbers at a killed member, and cannot tell a second free from the first one. So
//! the servers share a *ledger*, a word for each page, which decides. The pool says only where to look.
//!
//! - A page has at most one holder, also after deaths of clients and servers.
//! - No page is lost. Free pages of a killed server are found again, once an allocation finds the pool empty.
//! - After a lost reply, the page of an allocation belongs to its client. The client learns that before its
//!   next call, or before a later one if a copy of an earlier request comes late. The page stays held until
//!   then.
//! - A second free, a free of another client's page, and a number out of range are errors of the caller. They
//!   have no effect.
//! - The pages of a process that died stay held, until a server [ends](PageServer::end_client) its client.
//!   The [books](PageLedger::books) name it.
//! - A server that dies at any moment loses no page. If it had taken a page for a call, the client finds the
//!   page at another server. A page whose number it had in its hands is found like its other free pages.
//! - A server that joins opens the ledger of the others. One with another ledger is refused. Once no server
//!   is left, a new ledger may begin under the old name. Then all earlier clients are ended.
//!
//! Not promised: protection from clients that write to pages of others, or that claim the place of others.
//! Callers are trusted, as in the thesis. The ledger needs shared memory, like the pages themselves, so all
//! servers of a fleet run on one machine.
//!
//! Cost: a call of the nearest server for each allocation, and for each batch of frees.
//!
//! Source: Wentzlaff, *fos*, 2012, §5.1, listing 5.1 (DP-18). [`PageClient::alloc`] is `physPageAlloc` there.
//! [`PageClient::free`] is `physPageFree`, and [`PageClient::free_batch`] is `physPageFreeBatch`.

#[cfg(all(target_os = "linux", not(miri), not(loom)))]
mod client;
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
mod error;
#[cfg_attr(not(all(target_os = "linux", not(miri), not(loom))), allow(dead_code))]
mod ledger;
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
mod memory;
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
mod server;
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
mod wire;

#[cfg(all(target_os = "linux", not(miri), not(loom)))]
pub use self::{
    client::PageClient,
    error::{PageError, PageErrorKind},
    memory::{PAGE_BYTES, PAGES_MAX, PageBooks, PageHolder, PageLedger, PageMemory, PageNumber},
    server::PageServer,
};
