//! Analyses arbitrary bytes as the plugin's files.

use proptest::prelude::*;
use squall_locality::lines::Rules;
use squall_locality::model::Model;
use squall_locality::read::Source;
use squall_locality::report::{Request, page, report, table};
use squall_locality::run::Outcome;
use squall_locality_plugin::format::{ENTRY_BYTES, HEAD_BYTES, MAGIC, file, head, record};

fn request(line_bytes: u32, ops: Option<u64>) -> Request {
    let mut rules = Rules::new(ops, line_bytes);
    rules.with_main = true;
    let mut request = Request::new(rules, Model::preset("server").expect("a known preset"));
    request.command = vec!["program".into(), "<argument>".into()];
    request.outcome = Outcome::Signal(11);
    request.pid = 1;
    request.processors = vec![1, 2, 256];
    request
}

/// Analyses the files and formats the report in every way.
fn look(files: Vec<Vec<u8>>, line_bytes: u32, ops: Option<u64>) {
    let sources: Vec<Source> = files.into_iter().map(Source::Bytes).collect();
    let found = report(&sources, &request(line_bytes, ops));
    assert!(!table(&found).is_empty());
    assert!(page(&found).ends_with("</html>\n"));
    assert!(serde_json::to_string(&found).is_ok());
}

/// A file with a valid head, of the process with pid 1 and this process number.
fn with_head(kind: u32, process: u32, number: u32, window: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; HEAD_BYTES];
    bytes[head::MAGIC..][..8].copy_from_slice(&MAGIC.to_le_bytes());
    bytes[head::KIND..][..4].copy_from_slice(&kind.to_le_bytes());
    bytes[head::PID..][..4].copy_from_slice(&1u32.to_le_bytes());
    bytes[head::PROCESS..][..4].copy_from_slice(&process.to_le_bytes());
    bytes[head::NUMBER..][..4].copy_from_slice(&number.to_le_bytes());
    bytes[head::WINDOW..][..4].copy_from_slice(&window.to_le_bytes());
    bytes[head::ENTRIES..][..8].copy_from_slice(&u64::MAX.to_le_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// An entry with arbitrary numbers, on one of a few lines so that threads meet.
fn entry() -> impl Strategy<Value = Vec<u8>> {
    let number = prop_oneof![any::<u64>(), 0u64..4, Just(u64::MAX)];
    let line = prop_oneof![0u64..4, any::<u64>()];
    (line, proptest::collection::vec(number, 7)).prop_map(|(line, rest)| {
        let mut bytes = line.to_le_bytes().to_vec();
        bytes.extend(rest.iter().flat_map(|n| n.to_le_bytes()));
        bytes
    })
}

/// A record of a known kind, with an arbitrary payload and a correct or tripled length.
fn event() -> impl Strategy<Value = Vec<u8>> {
    let text = Just(b"\0\0\0\0\0\0\0\x00400000-401000 r-xp 00000000 00:00 1 /bin/sh\nx\n1-0 r".to_vec());
    let payload = prop_oneof![proptest::collection::vec(any::<u8>(), 0..80), text];
    (0u32..20, payload, any::<bool>()).prop_map(|(kind, payload, whole)| {
        let length = if whole { payload.len() as u32 } else { payload.len() as u32 * 3 };
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend(length.to_le_bytes());
        let padded = payload.len().next_multiple_of(8);
        bytes.extend(payload);
        bytes.resize(8 + padded, 0);
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_at_all(files in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..400), 0..4)) {
        look(files, 64, None);
    }

    #[test]
    fn any_bytes_after_a_head(
        kind in 1u32..3,
        process in 0u32..3,
        body in proptest::collection::vec(any::<u8>(), 0..600),
        other in proptest::collection::vec(any::<u8>(), 0..600),
    ) {
        look(vec![with_head(kind, process, 0, 0, &body), with_head(file::TABLE, process, 1, 0, &other), with_head(file::LOG, 0, 0, 0, &[])], 128, Some(1));
    }

    #[test]
    fn any_entries_of_several_threads(
        tables in proptest::collection::vec((0u32..4, 0u32..3, proptest::collection::vec(entry(), 0..20)), 1..5),
        logs in proptest::collection::vec(proptest::collection::vec(event(), 0..20), 1..4),
        forked in proptest::collection::vec((0u32..4, prop_oneof![0u64..600, any::<u64>()]), 3),
        ops in proptest::option::of(prop_oneof![Just(u64::MAX), 0u64..10]),
        cut in 0usize..ENTRY_BYTES,
        wide in any::<bool>(),
    ) {
        let mut files: Vec<Vec<u8>> = tables
            .into_iter()
            .map(|(number, window, entries)| {
                // The threads belong to the last process.
                let mut bytes = with_head(file::TABLE, logs.len() as u32 - 1, number, window, &entries.concat());
                let kept = bytes.len() - cut.min(bytes.len() - HEAD_BYTES);
                bytes.truncate(kept);
                bytes
            })
            .collect();
        for ((events, (parent, bytes)), process) in logs.iter().zip(forked).zip(0..) {
            let payload = [&parent.to_le_bytes()[..], &[0; 4], &bytes.to_le_bytes()].concat();
            let copied = [&record::FORKED.to_le_bytes()[..], &16u32.to_le_bytes(), &payload].concat();
            files.push(with_head(file::LOG, process, 0, 0, &[copied, events.concat()].concat()));
        }
        look(files, if wide { 128 } else { 64 }, ops);
    }
}
