//! Tests of rings over private memory, with a peer that writes anything.

use super::*;
use std::cell::Cell;

/// Memory that checks its bounds.
struct Private {
    tail: AtomicU32,
    head: AtomicU32,
    bytes: Box<[Cell<u8>]>,
}

impl Private {
    fn new(bytes: usize) -> Private {
        Private {
            tail: AtomicU32::new(0),
            head: AtomicU32::new(0),
            bytes: (0..bytes).map(|_| Cell::new(0)).collect(),
        }
    }

    /// Writes random words to a random part of the memory.
    fn scribble(&self, random: &mut Random) {
        match random.below(4) {
            0 => self.tail.store(random.word(), Ordering::Relaxed),
            1 => self.head.store(random.word(), Ordering::Relaxed),
            // Near the right value, so that later checks are reached.
            2 => {
                let word = if random.below(2) == 0 { &self.tail } else { &self.head };
                word.fetch_add(random.below(64) << BITS | random.below(16), Ordering::Relaxed);
            }
            _ => {
                for _ in 0..random.below(16) {
                    let at = random.below(self.bytes.len() as u32) as usize;
                    self.bytes[at].set(random.word() as u8);
                }
            }
        }
    }
}

impl Memory for Private {
    fn tail(&self) -> &AtomicU32 {
        &self.tail
    }

    fn head(&self) -> &AtomicU32 {
        &self.head
    }

    fn bytes(&self) -> usize {
        self.bytes.len()
    }

    fn copy_in(&self, at: usize, bytes: &[u8]) {
        for (to, byte) in self.bytes[at..at + bytes.len()].iter().zip(bytes) {
            to.set(*byte);
        }
    }

    fn copy_out(&self, at: usize, bytes: &mut [u8]) {
        let end = at + bytes.len();
        for (byte, from) in bytes.iter_mut().zip(&self.bytes[at..end]) {
            *byte = from.get();
        }
    }

    fn sleep(&self, _: &AtomicU32, _: u32, _: Option<Duration>) {}
    fn wake(&self, _: &AtomicU32) {}
    fn ring(&self) {}
}

/// A generator of Marsaglia's kind. The seed is part of each failure's message.
struct Random(u64);

impl Random {
    fn word(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as u32
    }

    fn below(&mut self, limit: u32) -> u32 {
        self.word() % limit
    }
}

fn send(memory: &Private, writer: &mut Writer, message: &[u8]) {
    let marks = writer.send(memory, message).unwrap();
    tell(memory, memory.tail(), marks);
}

#[test]
fn every_size_arrives_whole_at_every_place_of_the_ring() {
    let memory = Private::new(64);
    let (mut writer, mut reader) = (Writer::default(), Reader::default());
    let mut buffer = Vec::new();
    for round in 0..8_u8 {
        for length in 0..=largest(64) {
            let message: Vec<u8> = (0..length).map(|at| at as u8 ^ round).collect();
            send(&memory, &mut writer, &message);
            assert_eq!(reader.receive(&memory, &mut buffer), Look::Message);
            assert_eq!(buffer, message, "{length} bytes in round {round}");
            assert_eq!(reader.receive(&memory, &mut buffer), Look::Nothing);
        }
    }
    assert_eq!(writer.send(&memory, &[0; 57]), Err(Refused::TooLarge));
}

#[test]
fn positions_wrap() {
    let memory = Private::new(64);
    let start = POSITIONS - 2;
    memory.tail.store(start << BITS, Ordering::Relaxed);
    memory.head.store(start << BITS, Ordering::Relaxed);
    let mut writer = Writer { at: start, freed: start, has_left: false };
    let mut reader = Reader { at: start, freed: start, published: start };
    let mut buffer = Vec::new();
    for byte in 0..16 {
        send(&memory, &mut writer, &[byte; 9]);
        assert_eq!(reader.receive(&memory, &mut buffer), Look::Message);
        assert_eq!(buffer, [byte; 9]);
        assert_eq!(reader.receive(&memory, &mut buffer), Look::Nothing);
    }
}

#[test]
fn a_full_ring_says_so_until_the_reader_looks() {
    let memory = Private::new(64);
    let (mut writer, mut reader) = (Writer::default(), Reader::default());
    (0..4).for_each(|byte| send(&memory, &mut writer, &[byte]));
    assert!(matches!(writer.send(&memory, &[4]), Err(Refused::Full(_))));
    let mut buffer = Vec::new();
    for byte in 0..4 {
        assert_eq!(reader.receive(&memory, &mut buffer), Look::Message);
        assert_eq!(buffer, [byte]);
    }
    assert_eq!(reader.receive(&memory, &mut buffer), Look::Nothing);
    send(&memory, &mut writer, &[7; 56]);
    assert_eq!(reader.receive(&memory, &mut buffer), Look::Message);
}

#[test]
fn each_broken_word_is_named() {
    let mut buffer = Vec::new();
    let memory = Private::new(64);
    memory.tail.store(9 << BITS, Ordering::Relaxed);
    assert_eq!(Reader::default().receive(&memory, &mut buffer), Look::Broken(Broken::Tail));
    // Behind the reader.
    memory.tail.store(POSITIONS << BITS, Ordering::Relaxed);
    assert_eq!(Reader::default().receive(&memory, &mut buffer), Look::Broken(Broken::Tail));
    memory.tail.store(2 << BITS, Ordering::Relaxed);
    for length in [9, 57, 1 << 32, u64::MAX] {
        memory.copy_in(0, &u64::to_le_bytes(length));
        assert_eq!(Reader::default().receive(&memory, &mut buffer), Look::Broken(Broken::Length), "{length}");
    }
    memory.copy_in(0, &u64::to_le_bytes(8));
    assert_eq!(Reader::default().receive(&memory, &mut buffer), Look::Message);
    for head in [8, POSITIONS] {
        let memory = Private::new(64);
        let mut writer = Writer::default();
        send(&memory, &mut writer, &[1; 48]);
        memory.head.store(head << BITS, Ordering::Relaxed);
        assert_eq!(writer.send(&memory, &[1]), Err(Refused::Broken(Broken::Head)), "{head}");
    }
}

#[test]
fn a_side_that_ends_is_noticed() {
    let memory = Private::new(64);
    let (mut writer, mut reader) = (Writer::default(), Reader::default());
    send(&memory, &mut writer, &[1]);
    let marks = writer.end(&memory);
    tell(&memory, memory.tail(), marks);
    let mut buffer = Vec::new();
    assert!(reader.has_news(&memory));
    assert_eq!(reader.receive(&memory, &mut buffer), Look::Message);
    assert_eq!(reader.receive(&memory, &mut buffer), Look::Ended);
    assert!(reader.has_news(&memory) && !reader.ask(&memory));
    let memory = Private::new(64);
    let mut writer = Writer::default();
    Reader::default().end(&memory);
    for _ in 0..2 {
        assert_eq!(writer.send(&memory, &[1]), Err(Refused::Left));
    }
    assert!(has_left(&memory));
}

/// The peer writes anything between any two steps. All accesses stay within the ring, which `Private` checks,
/// and each message fits it.
#[test]
fn a_peer_that_scribbles_breaks_only_the_ring() {
    let (seeds, steps) = if cfg!(miri) { (20, 100) } else { (2000, 300) };
    let mut broken = 0;
    for seed in 1..=seeds {
        let mut random = Random(u64::wrapping_mul(seed, 0x9E37_79B9_7F4A_7C15));
        let memory = Private::new(128);
        let (mut writer, mut reader) = (Writer::default(), Reader::default());
        let mut buffer = Vec::new();
        for _ in 0..steps {
            match random.below(6) {
                0 | 1 => memory.scribble(&mut random),
                2 => {
                    let length = random.below(140) as usize;
                    match writer.send(&memory, &vec![1; length]) {
                        Ok(marks) => tell(&memory, memory.tail(), marks),
                        Err(Refused::Full(seen)) => {
                            sleep_for_room(&memory, seen, None, || false);
                            ask_for_room(&memory, seen);
                        }
                        Err(Refused::TooLarge) => assert!(length > 120, "seed {seed}"),
                        Err(Refused::Left) => writer = Writer::default(),
                        Err(Refused::Broken(_)) => broken += 1,
                    }
                }
                _ => match reader.receive(&memory, &mut buffer) {
                    Look::Message => assert!(buffer.len() <= 120, "seed {seed}"),
                    Look::Nothing => reader.sleep(&memory, None, || false),
                    Look::Ended | Look::Gone => {}
                    Look::Broken(_) => broken += 1,
                },
            }
        }
    }
    assert!(broken > seeds, "the checks were reached {broken} times only");
}
