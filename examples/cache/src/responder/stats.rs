//! The answers to `stats`. Their names are memcached's, so that its monitors read them. A fact that this
//! server does not have, such as the number of a slab's pages, is left out.

use squall::objects::read_mostly::ReadMostlyExt;

use super::Responder;
use crate::VERSION;
use crate::output::Output;
use crate::protocol::{Keys, number};
use crate::stats::Fact;
use crate::store::Store;

/// Number of classes in memcached.
const CLASSES: u32 = 64;
/// Maximum number of entries that one dump looks at, and its size.
const DUMP_VISITED_MAX: usize = 100_000;
const DUMP_BYTES_MAX: usize = 1 << 20;

impl<S: Store> Responder<'_, S> {
    pub(super) fn stats(&mut self, of: Option<&[u8]>, words: Keys<'_>) {
        match of {
            None => self.general(),
            Some(b"settings") => self.settings(),
            Some(b"items") => self.items(),
            Some(b"slabs") => self.slabs(),
            Some(b"sizes") => self.output.stat("sizes_status", "disabled"),
            Some(b"cachedump") => {
                if let Err(refusal) = self.dump(words) {
                    return self.output.text(refusal);
                }
            }
            Some(b"reset") => {
                self.cache.reset_stats();
                return self.output.text(b"RESET\r\n");
            }
            Some(_) => return self.output.text(b"ERROR\r\n"),
        }
        self.output.text(b"END\r\n");
    }

    fn general(&mut self) {
        let (cache, output) = (self.cache, &mut self.output);
        let config = cache.config().get_cloned();
        output.stat("pid", std::process::id());
        output.stat("uptime", cache.uptime_s());
        output.stat("time", cache.now());
        output.stat("version", VERSION);
        output.stat("squall_version", env!("CARGO_PKG_VERSION"));
        output.stat("pointer_size", usize::BITS);
        if let Some([user, system]) = processor_time() {
            output.stat("rusage_user", user);
            output.stat("rusage_system", system);
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            output.stat("threads", runtime.metrics().num_workers());
        }
        output.stat("max_connections", config.connections_max);
        output.stat("curr_connections", cache.connections());
        output.stat("connection_structures", cache.connections());
        output.stat("accepting_conns", u8::from(cache.connections() < config.connections_max));
        // A server that is full refuses clients at once, and never stops to listen.
        output.stat("listen_disabled_num", 0);
        output.stat("conn_yields", 0);
        cache.stats().all().for_each(|(name, total)| output.stat(name, total));
        output.stat("evictions", cache.evictions());
        output.stat("curr_items", cache.store().len());
        output.stat("bytes", cache.used_bytes());
        output.stat("read_buf_bytes", cache.input_bytes());
        output.stat("limit_maxbytes", config.memory_bytes_max);
    }

    fn settings(&mut self) {
        let (config, output) = (self.cache.config().get_cloned(), &mut self.output);
        output.stat("maxbytes", config.memory_bytes_max);
        output.stat("maxconns", config.connections_max);
        output.stat("item_size_max", config.item_bytes_max);
        output.stat("default_ttl", config.default_ttl_s);
        output.stat("idle_timeout", config.idle_s_max);
        output.stat("verbosity", config.verbosity);
        output.stat("evictions", "on");
        output.stat("cas_enabled", "yes");
        output.stat("flush_enabled", "yes");
        output.stat("auth_enabled_sasl", "no");
        output.stat("auth_enabled_ascii", "no");
        output.stat("binding_protocol", "ascii");
        output.stat("detail_enabled", "no");
        output.stat("dump_enabled", "yes");
    }

    /// There is one table and there are no slabs. A tool that asks for each class is told of one class.
    fn items(&mut self) {
        let (cache, output) = (self.cache, &mut self.output);
        let (items, stats) = (cache.store().len(), cache.stats());
        if items == 0 {
            return;
        }
        output.stat("items:1:number", items);
        output.stat("items:1:mem_requested", cache.used_bytes());
        output.stat("items:1:evicted", cache.evictions());
        output.stat("items:1:outofmemory", stats.total(Fact::StoreNoMemory));
        output.stat("items:1:reclaimed", stats.total(Fact::Reclaimed));
    }

    /// Writes the keys of some entries. All are of class 1.
    fn dump(&mut self, mut words: Keys<'_>) -> Result<(), &'static [u8]> {
        let (Some(class), Some(count)) = (words.next(), words.next()) else {
            return Err(b"CLIENT_ERROR bad command line\r\n");
        };
        let (Some(class), Some(count)) = (number::<u32>(class), number::<usize>(count)) else {
            return Err(b"CLIENT_ERROR bad command line format\r\n");
        };
        match class {
            CLASSES.. => return Err(b"CLIENT_ERROR Illegal slab id\r\n"),
            1 => {}
            _ => return Ok(()),
        }
        let (output, mut shown) = (&mut self.output, 0);
        self.cache.look_through(DUMP_VISITED_MAX, |key, item| {
            // A key with any bytes could look like a line.
            if !item.has_binary_key() {
                let (bytes, expires) = (item.data.len(), item.expires());
                output.text(b"ITEM ");
                output.text(key);
                output.text(format!(" [{bytes} b; {expires} s]\r\n").as_bytes());
                shown += 1;
            }
            (count == 0 || shown < count) && output.len() < DUMP_BYTES_MAX
        });
        Ok(())
    }

    fn slabs(&mut self) {
        let (cache, output) = (self.cache, &mut self.output);
        if cache.store().is_empty() {
            output.stat("active_slabs", 0);
        } else {
            slab_counts(output, |fact| cache.stats().total(fact));
            output.stat("1:used_chunks", cache.store().len());
            output.stat("1:mem_requested", cache.used_bytes());
            output.stat("active_slabs", 1);
        }
        output.stat("total_malloced", cache.used_bytes());
    }
}

fn slab_counts(output: &mut Output, total: impl Fn(Fact) -> u64) {
    for (name, fact) in [
        ("1:get_hits", Fact::GetHits),
        ("1:cmd_set", Fact::CmdSet),
        ("1:delete_hits", Fact::DeleteHits),
        ("1:incr_hits", Fact::IncrHits),
        ("1:decr_hits", Fact::DecrHits),
        ("1:cas_hits", Fact::CasHits),
        ("1:cas_badval", Fact::CasBadval),
        ("1:touch_hits", Fact::TouchHits),
    ] {
        output.stat(name, total(fact));
    }
}

/// Returns the processor time of this process, of its own code and of the system's, as seconds with six
/// digits, if the system tells it.
fn processor_time() -> Option<[String; 2]> {
    seconds_in(&std::fs::read_to_string("/proc/self/stat").ok()?)
}

fn seconds_in(stat: &str) -> Option<[String; 2]> {
    /// Linux counts in hundredths of a second for programs.
    const TICKS_PER_S: u64 = 100;
    // The name of the program may have spaces, and ends at the last bracket.
    let mut words = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let mut next = || {
        let ticks: u64 = words.next()?.parse().ok()?;
        Some(format!("{}.{:06}", ticks / TICKS_PER_S, ticks % TICKS_PER_S * (1_000_000 / TICKS_PER_S)))
    };
    Some([next()?, next()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_behind_any_name() {
        let stat = "17 (a) b (c) S 1 17 17 0 -1 4194560 9 0 0 0 1234 5 0 0 20 0 8 0 99";
        assert_eq!(seconds_in(stat), Some(["12.340000".into(), "0.050000".into()]));
        assert_eq!(seconds_in("17 (a) S 1"), None);
        assert_eq!(seconds_in(""), None);
    }
}
