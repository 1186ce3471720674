//! Runs the fuzzer's analysis on random bytes and on modified valid files, see the directory `fuzz`.

use crate::files::{self, Access, WRITES, log, table, whole_log};
use crate::stream_common;
use squall_locality_plugin::format::{HEAD_BYTES, head, insn, record};

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.draw() % n as u64) as usize
    }
}

/// Valid files of a run in which threads share lines in all ways.
fn right_files(rng: &mut Rng) -> Vec<u8> {
    let number = 0u64.to_le_bytes();
    let mmap =
        [&[0u8; 16][..], &0x1000u64.to_le_bytes(), &0x4000u64.to_le_bytes(), &number, b"/bin/true"].concat();
    let alloc = [&[0u8; 16][..], &0x40u64.to_le_bytes(), &48u64.to_le_bytes()].concat();
    let site = [&number[..], &0x1010u64.to_le_bytes()].concat();
    let log = log(
        1,
        &[
            (record::INFO, b"\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0x86_64"),
            (record::MAPS, b"\x01\0\0\0\0\0\0\x001000-5000 r-xp 00000000 00:00 1 /bin/true\n"),
            (record::MMAP, &mmap),
            (record::ALLOC, &alloc),
            (record::SITE, &site),
            (record::FUTEX, &0x40u64.to_le_bytes()),
            (record::STACK, &alloc[8..24]),
            (record::EXIT, &number),
        ],
    );
    let kinds = [insn::PLAIN, insn::ATOMIC, insn::EXCHANGE, insn::CROSSES, insn::EXCHANGE | insn::CROSSES];
    let mut all = vec![rng.draw() as u8 | 0x80, rng.draw() as u8];
    let mut put = |file: Vec<u8>| {
        all.extend((file.len() as u32).to_le_bytes());
        all.extend(file);
    };
    // In half of the runs the threads belong to a child, forked somewhere in this log.
    let process = rng.below(2) as u32;
    if process == 1 {
        let bytes = rng.below(log.len() - HEAD_BYTES + 1) as u64;
        let forked = [&0u64.to_le_bytes()[..], &bytes.to_le_bytes()].concat();
        let mut copy = files::log(
            2,
            &[(record::FORKED, &forked), (record::FREE, &alloc[..16]), (record::EXIT, &number)],
        );
        files::set(&mut copy, head::PROCESS, process);
        put(copy);
    }
    put(log);
    for thread in 0..2 + rng.below(3) as u32 {
        let accesses: Vec<Access> = (0..1 + rng.below(12))
            .map(|place| Access {
                line: rng.below(4) as u64,
                pc: 0x1000 + place as u64 * 4,
                kind: kinds[rng.below(kinds.len())],
                reads: rng.below(300) as u64,
                writes: rng.below(300) as u64,
                bytes: 0xff << (rng.below(8) * 8),
                epochs: (rng.below(50) as u32, 40 + rng.below(50) as u32),
            })
            .collect();
        let mut table = table(1 + process, thread, &accesses);
        files::set(&mut table, head::PROCESS, process);
        files::set(&mut table, head::ROWS, rng.below(4) as u32);
        put(table);
    }
    if rng.below(4) == 0 {
        put(whole_log(2));
    }
    all
}

fn change(bytes: &mut Vec<u8>, rng: &mut Rng) {
    // Keeps the two bytes of options.
    let at = 2 + rng.below(bytes.len() - 2);
    match rng.below(6) {
        0 => bytes[at] = rng.draw() as u8,
        1 => bytes[at] ^= 1 << rng.below(8),
        2 => bytes[at] = 0xff,
        3 => {
            let end = (at + 8).min(bytes.len());
            bytes[at..end].fill(if rng.below(2) == 0 { 0xff } else { 0 });
        }
        4 => bytes.truncate(at.max(8)),
        _ => {
            let end = (at + 1 + rng.below(64)).min(bytes.len());
            let again = bytes[at..end].to_vec();
            bytes.splice(at..at, again);
        }
    }
}

#[test]
fn no_bytes_make_the_analysis_panic() {
    let number = |name: &str, otherwise: u64| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
    };
    let first = number("SQUALL_SEED", 1);
    let mut rounds = 0u64;
    for seed in first..first + number("SQUALL_STREAMS", 20_000) {
        let replay = Replay(seed);
        let mut rng = Rng(seed);
        let bytes = if seed % 2 == 0 {
            let mut bytes = right_files(&mut rng);
            for _ in 0..rng.below(12) {
                change(&mut bytes, &mut rng);
            }
            bytes
        } else {
            let mut bytes: Vec<u8> = (0..rng.below(600)).map(|_| rng.draw() as u8).collect();
            if let Some(options) = bytes.first_mut().filter(|_| seed % 16 != 1) {
                *options &= 0x7f;
            }
            bytes
        };
        stream_common::analyse(&bytes);
        rounds += 1;
        std::mem::forget(replay);
    }
    assert!(rounds > 0);
}

/// Prints how to replay, if the analysis panics.
struct Replay(u64);

impl Drop for Replay {
    fn drop(&mut self) {
        eprintln!("SQUALL_SEED={} SQUALL_STREAMS=1 repeats it", self.0);
    }
}

#[test]
fn extreme_heads_are_accepted() {
    let mut all = vec![0x80, 0];
    for number in 0..3 {
        let mut file = table(1, number, &[WRITES]);
        for at in [head::LOST, head::ACCESSES] {
            file[at..at + 8].copy_from_slice(&u64::MAX.to_le_bytes());
        }
        files::set(&mut file, head::SAMPLE, u32::MAX);
        files::set(&mut file, head::NUMBER, u32::MAX - number);
        all.extend((file.len() as u32).to_le_bytes());
        all.extend(file);
    }
    let log = whole_log(1);
    all.extend((log.len() as u32).to_le_bytes());
    all.extend(log);
    stream_common::analyse(&all);
    // More accesses than a sum can hold.
    let most = Access { reads: u64::MAX, writes: u64::MAX, ..WRITES };
    let found = files::look(&[&vec![most; 40_000], &vec![most; 40_000]], 64, None);
    assert_eq!((found.accesses, found.lines[0].writes), (u64::MAX, u64::MAX));
}
