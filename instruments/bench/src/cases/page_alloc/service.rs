//! The service of pages: a fleet of servers, and its clients.

use std::sync::Arc;
use std::time::{Duration, Instant};

use squall::fleet::{GroupKey, HostTransport, Name, Node, NodeBuilder};
use squall_pool::pages::{PageClient, PageLedger, PageMemory, PageNumber, PageServer};

use super::Client;

/// The longest time of a call or of a step.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a client frees its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frees {
    /// A call for each page.
    Single,
    /// A call for all pages, or for 1024 of them if it has more.
    Batch,
}

/// A fleet of page servers in this process, and its group.
pub(super) struct Fleet {
    key: GroupKey,
    seed: String,
    name: Name,
    memory: Arc<PageMemory>,
    nodes: Vec<(Node, PageServer)>,
}

fn failed<E: std::fmt::Display>(what: &'static str) -> impl Fn(E) -> String {
    move |error| format!("{what}: {error}")
}

impl Fleet {
    /// Starts so many servers, of so many pages in all. The first server fills the pool.
    pub(super) fn start(servers: usize, pages: usize) -> Result<Fleet, String> {
        let pages = u32::try_from(pages).map_err(failed("there are too many pages"))?;
        let (memory, _) = PageMemory::create(pages).map_err(failed("there is no shared memory"))?;
        // Makes the memory resident, so that no take is a page fault.
        (0..pages).for_each(|page| memory.zero(PageNumber(page)));
        let (ledger, file) = PageLedger::create(pages).map_err(failed("there is no shared memory"))?;
        let (key, name) = (GroupKey::random(), "/pages".parse::<Name>());
        let name = name.map_err(failed("the name of the fleet"))?;
        let bind = |number: usize| {
            let endpoint = format!("bench-pages-{}-{servers}-{number}", std::process::id());
            HostTransport::bind(&endpoint).map_err(failed("there is no transport")).map(|it| (endpoint, it))
        };
        let (endpoint, transport) = bind(0)?;
        let seed = format!("host/{endpoint}");
        let founded = NodeBuilder::new(key).found(transport, &[]);
        let (first, root) = founded.map_err(failed("the group cannot begin"))?;
        let server = PageServer::start(&first, &name, &root, ledger).map_err(failed("no page server"))?;
        let mut nodes = vec![(first, server)];
        for number in 1..servers {
            let node = NodeBuilder::new(key).join(bind(number)?.1, &[&seed]);
            let node = node.map_err(failed("a server cannot join"))?;
            node.wait_joined(PATIENCE).map_err(failed("a server has not joined"))?;
            let ledger = PageLedger::open(&file, pages).map_err(failed("the ledger cannot be opened"))?;
            let server = PageServer::start(&node, &name, &root, ledger).map_err(failed("no page server"))?;
            nodes.push((node, server));
        }
        Ok(Fleet { key, seed, name, memory: Arc::new(memory), nodes })
    }

    /// Makes so many clients, each at a node of its own that visits the group.
    pub(super) fn clients(&self, count: usize, frees: Frees) -> Result<Vec<Caller>, String> {
        let make = |_| {
            let transport = HostTransport::unnamed().map_err(failed("there is no transport"))?;
            let node = NodeBuilder::new(self.key).visit(transport, &[&self.seed]);
            let node = node.map_err(failed("a client cannot visit the group"))?;
            let client = PageClient::connect(Arc::new(node), &self.name, PATIENCE);
            let client = client.map_err(failed("a client has no server"))?;
            Ok(Caller { client, memory: self.memory.clone(), held: Vec::new(), frees })
        };
        (0..count).map(make).collect()
    }

    /// Ends the servers. All pages must be free.
    pub(super) fn end(self) -> Result<(), String> {
        let books = self.nodes[0].1.books();
        for (node, server) in self.nodes.into_iter().rev() {
            server.shutdown(&node, PATIENCE).map_err(failed("a server does not end"))?;
            drop(server);
            node.leave(PATIENCE).map_err(failed("a server cannot leave"))?;
        }
        if books.free == books.pages { Ok(()) } else { Err(format!("pages are lost: {books:?}")) }
    }
}

/// A client of the fleet.
pub(super) struct Caller {
    client: PageClient,
    memory: Arc<PageMemory>,
    held: Vec<PageNumber>,
    frees: Frees,
}

impl Client for Caller {
    fn take(&mut self, pages: usize, stamp: u8) -> Result<(), String> {
        for _ in 0..pages {
            let began = Instant::now();
            let page = loop {
                if let Some(page) = self.client.alloc(PATIENCE).map_err(|error| error.to_string())? {
                    break page;
                }
                // All free pages may be on their way between two servers for a moment.
                if began.elapsed() > PATIENCE {
                    return Err("the servers have too few pages".to_owned());
                }
            };
            self.memory.zero(page);
            self.memory.write(page, 0, &[stamp]);
            self.held.push(page);
        }
        Ok(())
    }

    fn stamped(&mut self, stamp: u8) -> usize {
        let first = |page: &PageNumber| {
            let mut byte = [0];
            self.memory.read(*page, 0, &mut byte);
            byte[0]
        };
        self.held.iter().filter(|page| first(page) == stamp).count()
    }

    fn free(&mut self) -> Result<(), String> {
        let pages = std::mem::take(&mut self.held);
        let batch = match self.frees {
            Frees::Single => 1,
            Frees::Batch => pages.len().max(1),
        };
        for some in pages.chunks(batch) {
            let refused = self.client.free_batch(some, PATIENCE).map_err(|error| error.to_string())?;
            if let Some(error) = refused.first() {
                return Err(error.to_string());
            }
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), String> {
        self.client.close(PATIENCE).map_err(|error| error.to_string())
    }
}
