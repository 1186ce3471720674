//! The fuzzer's analysis: reads bytes as the files of a run, whole or piece by piece, and formats the report
//! in every way.

use squall_locality::lines::Rules;
use squall_locality::model::Model;
use squall_locality::read::Source;
use squall_locality::report::{Report, Request, page, report, table};
use squall_locality::run::Outcome;
use squall_locality_plugin::format::{ENTRY_BYTES, HEAD_BYTES, MAGIC, entry, file, head, record};

/// Mode bit: the bytes are files. After two bytes of options, each file has its length as `u32` and its
/// contents.
const AS_THEY_ARE: u8 = 0x80;
/// Maximum number of files of one run.
const FILES_MAX: usize = 24;

struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn take(&mut self, bytes: usize) -> &[u8] {
        let (taken, rest) = self.0.split_at(bytes.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// A number: mostly small, sometimes at the limits of arithmetic.
    fn number(&mut self) -> u64 {
        match self.byte() {
            small @ 0..200 => u64::from(small),
            200..210 => u64::MAX,
            210..220 => u64::MAX - u64::from(self.byte()),
            220..230 => 1 << (self.byte() & 63),
            230..240 => u64::from(u32::MAX),
            _ => {
                let mut word = [0; 8];
                let taken = self.take(8);
                word[..taken.len()].copy_from_slice(taken);
                u64::from_le_bytes(word)
            }
        }
    }
}

/// Analyses the files in these bytes.
///
/// # Panics
///
/// If the analysis panics or its result is impossible.
pub(crate) fn analyse(bytes: &[u8]) {
    let mut bytes = Bytes(bytes);
    let (options, ops) = (bytes.byte(), bytes.byte());
    let request = request(options, ops);
    let mut files = Vec::new();
    while !bytes.0.is_empty() && files.len() < FILES_MAX {
        files.push(if options & AS_THEY_ARE == 0 {
            piece_by_piece(&mut bytes)
        } else {
            as_it_is(&mut bytes)
        });
    }
    let sources: Vec<Source> = files.into_iter().map(Source::Bytes).collect();
    check(&report(&sources, &request));
}

fn request(options: u8, ops: u8) -> Request {
    let line_bytes = if options & 1 == 0 { 64 } else { 128 };
    let ops = match ops {
        0 => None,
        250.. => Some(u64::MAX),
        ops => Some(u64::from(ops)),
    };
    let mut rules = Rules::new(ops, line_bytes);
    rules.with_main = options & 8 != 0;
    let model =
        Model::preset(if options & 16 == 0 { "server" } else { "numa-1999" }).expect("a known preset");
    let mut request = Request::new(rules, model);
    request.command = vec!["program".into(), "<argument>".into()];
    request.outcome = if options & 2 == 0 { Outcome::Exited(0) } else { Outcome::Signal(i32::MIN) };
    request.pid = 1;
    request.function = (options & 4 != 0).then(|| "work".into());
    request.processors = vec![1, 2, 256, u32::MAX];
    request.lines_max = usize::from(options & 32 == 0) * 20;
    request
}

fn as_it_is(bytes: &mut Bytes<'_>) -> Vec<u8> {
    let mut length = [0; 4];
    let taken = bytes.take(4);
    length[..taken.len()].copy_from_slice(taken);
    bytes.take(u32::from_le_bytes(length) as usize).to_vec()
}

/// A file with a valid head and arbitrary contents.
fn piece_by_piece(bytes: &mut Bytes<'_>) -> Vec<u8> {
    let kind = if bytes.byte() & 3 == 0 { file::LOG } else { file::TABLE };
    let mut made = vec![0; HEAD_BYTES];
    made[head::MAGIC..][..8].copy_from_slice(&MAGIC.to_le_bytes());
    made[head::KIND..][..4].copy_from_slice(&kind.to_le_bytes());
    let pid = 1 + u32::from(bytes.byte() == 255);
    made[head::PID..][..4].copy_from_slice(&pid.to_le_bytes());
    made[head::ENTRIES..][..8].copy_from_slice(&u64::MAX.to_le_bytes());
    // Few processes, so that forks happen.
    let process = (bytes.number() % 4) as u32;
    made[head::PROCESS..][..4].copy_from_slice(&process.to_le_bytes());
    for at in [head::TID, head::NUMBER, head::WINDOW, head::SAMPLE, head::STARTED, head::ENDED, head::ROWS] {
        let value = bytes.number() as u32;
        made[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    for at in [head::LOST, head::ACCESSES] {
        let value = bytes.number();
        made[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    let count = bytes.byte() & 31;
    for _ in 0..count {
        match kind {
            file::TABLE => made.extend(entry_of(bytes)),
            _ => made.extend(record_of(bytes)),
        }
    }
    made
}

fn entry_of(bytes: &mut Bytes<'_>) -> Vec<u8> {
    let mut made = vec![0; ENTRY_BYTES];
    for at in [entry::LINE, entry::SITE, entry::READS, entry::WRITES, entry::READ_BYTES, entry::WRITTEN_BYTES]
    {
        let value = bytes.number();
        // Few lines, so that threads meet, and all kinds of instructions.
        let value = match at {
            entry::LINE if value < 200 => value % 4,
            entry::SITE if value < 200 => value | 0x1000 | (value & 3) << 56 | (value & 4) << 61,
            _ => value,
        };
        made[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    for at in [entry::FIRST, entry::LAST, entry::FIRST_WRITE, entry::LAST_WRITE] {
        let value = bytes.number() as u32;
        made[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    made
}

fn record_of(bytes: &mut Bytes<'_>) -> Vec<u8> {
    let kind = u32::from(bytes.byte() % 20);
    let mut payload = Vec::new();
    if kind == record::FORKED {
        // One of the few processes; otherwise a fork would hardly ever match.
        payload.extend(u64::from(bytes.byte() % 4).to_le_bytes());
    }
    for _ in 0..bytes.byte() % 7 {
        payload.extend(bytes.number().to_le_bytes());
    }
    let text: &[u8] = match bytes.byte() % 6 {
        0 => b"/bin/true",
        1 => b"00000000-7fffffffffff r-xp 00000000 00:00 1 /bin/true\nx\n1-0 r\nffffffffffffff00-ffffffffffffffff rw-p 0 0 0",
        2 => b"/dev/zero",
        3 => b"\xff\0\n",
        _ => b"",
    };
    payload.extend_from_slice(text);
    let said = if bytes.byte() < 250 { payload.len() as u32 } else { u32::MAX };
    let mut made = [kind.to_le_bytes(), said.to_le_bytes()].concat();
    made.extend(payload);
    made.resize(made.len().next_multiple_of(8), 0);
    made
}

/// Invariants of any report.
fn check(found: &Report) {
    assert!(!table(found).is_empty());
    assert!(page(found).ends_with("</html>\n"));
    assert!(serde_json::to_string(found).is_ok());
    assert!(found.falsely_shared_accesses <= found.write_shared_accesses);
    for line in &found.lines {
        let accesses = line.reads.saturating_add(line.writes);
        assert!(line.falsely_shared <= line.write_shared && line.write_shared <= accesses, "{line:?}");
        assert!(line.threads.len() >= 2 && line.writes > 0, "{line:?}");
        assert!(line.transfers_at_most <= accesses, "{line:?}");
        assert!(line.transfers_by_model <= line.transfers_at_most as f64 * 1.000_001, "{line:?}");
        assert!(line.cost_ms_by_model.is_finite(), "{line:?}");
    }
}
