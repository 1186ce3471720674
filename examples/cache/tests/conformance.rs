//! Each command and each error, byte for byte, for any cut of the bytes on their way.

mod common;

use common::dialogues::{DIALOGUES, META_DIALOGUES};
use common::{BEGAN, answers, cache, cache_with, say};
use squall_cache_example::Config;

fn all() -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    DIALOGUES.iter().chain(META_DIALOGUES)
}

#[test]
fn every_command_and_every_error_is_answered_as_memcached_does() {
    for (sent, expected) in all() {
        assert_eq!(say(&cache(), sent), *expected, "to {sent:?}");
    }
}

#[test]
fn answers_do_not_depend_on_how_the_bytes_are_cut() {
    for (sent, expected) in all() {
        for at in 0..sent.len() {
            let (first, second) = sent.split_at(at);
            let answers = answers(&cache(), [first, second]);
            assert_eq!(String::from_utf8_lossy(&answers), *expected, "to {first:?} and {second:?}");
        }
        let answers = answers(&cache(), sent.as_bytes().chunks(1));
        assert_eq!(String::from_utf8_lossy(&answers), *expected, "to {sent:?}, byte by byte");
    }
}

#[test]
fn all_in_one_conversation_is_answered_in_order() {
    // Each dialogue begins with an empty cache. Left out are dialogues that end the connection or return
    // numbers that continue.
    let leaves = ["quit", "HTTP/", "gets", "gats", "cas", "ab\r\nget", " c", " C"];
    let dialogues = || all().filter(|(sent, _)| !leaves.iter().any(|word| sent.contains(word)));
    let sent: String = dialogues().map(|(sent, _)| format!("{sent}flush_all\r\n")).collect();
    let expected: String = dialogues().map(|(_, expected)| format!("{expected}OK\r\n")).collect();
    assert_eq!(say(&cache(), &sent), expected);
}

/// Flags of memcached 1.6.40 that older ones lack, so that `real.rs` cannot compare them.
#[test]
fn the_newest_meta_flags_are_known() {
    for (sent, expected) in [
        // No value if the client has it.
        (
            "ms k 1 c\r\nx\r\nmg k C1 v t\r\nmg k v C2\r\nmg k C1 T50 v\r\nmg k t\r\n",
            "HD c1\r\nHD t-1\r\nVA 1\r\nx\r\nHD\r\nHD t50\r\n",
        ),
        // Numbers that the client gives.
        (
            "ms k 1 E900 c\r\nx\r\nms k 1 C900 E7 c\r\ny\r\nmd k C7 I E33\r\nmg k c\r\nma n N0 E5 c\r\nma n E6 c\r\n\
             mg new N0 E77 c\r\nmg k E44 c\r\n",
            "HD c900\r\nHD c7\r\nHD\r\nHD c33 X W\r\nHD c5\r\nHD c6\r\nHD c77 W\r\nHD c33 Z X\r\n",
        ),
        // 0 is no number to compare with, except for `md` and `mg`.
        (
            "ms k 1 E0\r\n1\r\nms k 1 C0\r\ny\r\ncas k 0 0 1 0\r\nz\r\nma k C0 E0 v\r\nmg k C0 v\r\nmd k C0\r\n",
            "HD\r\nEX\r\nEXISTS\r\nVA 1\r\n2\r\nHD\r\nHD\r\n",
        ),
        // Sizes.
        (
            "ms k 2 s\r\nab\r\nms k 3 MA s\r\ncde\r\nms k 9 ME s\r\n123456789\r\nms none 4 MR s\r\nabcd\r\n",
            "HD s2\r\nHD s5\r\nNS s9\r\nNS s4\r\n",
        ),
        // Appending to an absent key.
        (
            "ms k 1 MA N50 T9 F3\r\nx\r\nmg k v t f\r\nms k 1 MP N70\r\ny\r\nmg k v t f\r\nms o 1 MS N5\r\nx\r\nmg o t\r\n",
            "HD\r\nVA 1 t50 f3\r\nx\r\nHD\r\nVA 2 t50 f3\r\nyx\r\nHD\r\nHD t-1\r\n",
        ),
        // An item without its value.
        (
            "ms k 1 F3 T50\r\nx\r\nmd k x\r\nmg k v f t c\r\nmd k x F4 T60\r\nmg k v f t\r\nmd k x I C1\r\nmg k v c\r\nmd none x\r\n",
            "HD\r\nHD\r\nVA 0 f0 t-1 c1\r\n\r\nHD\r\nVA 0 f4 t60\r\n\r\nHD\r\nVA 0 c2 X W\r\n\r\nNF\r\n",
        ),
        // A made number is the usual case too.
        ("ma k N0 q\r\nma k N0 q v\r\nma k v\r\n", "VA 1\r\n2\r\n"),
        (
            "md k q q\r\nmd k z\r\nmd k Tx\r\n",
            "CLIENT_ERROR duplicate flag\r\nCLIENT_ERROR invalid flag\r\nCLIENT_ERROR bad token in command line format\r\n",
        ),
    ] {
        assert_eq!(say(&cache(), sent), expected, "to {sent:?}");
    }
    let debugged = say(&cache(), "ms Zm9v 1 b T70\r\nx\r\nme Zm9v b\r\nmg foo\r\nme foo\r\n");
    let lines: Vec<&str> = debugged.lines().map(|line| line.split(" size=").next().unwrap_or("")).collect();
    assert_eq!(
        lines,
        ["HD", "ME Zm9v exp=70 la=0 cas=1 fetch=no cls=1", "HD", "ME Zm9v exp=70 la=0 cas=1 fetch=yes cls=1"]
    );
}

#[test]
fn keys_can_be_dumped() {
    let cache = cache();
    let stored = "set a 0 0 3\r\nabc\r\nset b 0 100 1\r\nx\r\nms Zm9v 1 b\r\nx\r\nset dead 0 -1 1\r\nx\r\n";
    assert_eq!(say(&cache, stored), "STORED\r\nSTORED\r\nHD\r\nSTORED\r\n");
    let dumped = say(&cache, "stats cachedump 1 0\r\n");
    let mut lines: Vec<&str> = dumped.lines().collect();
    assert_eq!(lines.pop(), Some("END"));
    lines.sort_unstable();
    let b = format!("ITEM b [1 b; {} s]", BEGAN + 100);
    assert_eq!(lines, ["ITEM a [3 b; 0 s]", &b]);
    assert_eq!(say(&cache, "stats cachedump 1 1\r\n").lines().count(), 2);
    for (sent, answer) in [
        ("cachedump", "CLIENT_ERROR bad command line"),
        ("cachedump 1", "CLIENT_ERROR bad command line"),
        ("cachedump x 1", "CLIENT_ERROR bad command line format"),
        ("cachedump 1 -1", "CLIENT_ERROR bad command line format"),
        ("cachedump 64 0", "CLIENT_ERROR Illegal slab id"),
        ("cachedump 63 0", "END"),
    ] {
        assert_eq!(say(&cache, &format!("stats {sent}\r\n")), format!("{answer}\r\n"), "to {sent:?}");
    }
    // A dump ends at 1 MiB.
    let key = "k".repeat(200);
    let many: String = (0..20_000).map(|n| format!("set {key}{n} 0 0 1 noreply\r\nx\r\n")).collect();
    say(&cache, &many);
    let dumped = say(&cache, "stats cachedump 1 0\r\n");
    assert!((1 << 20..(1 << 20) + 1000).contains(&dumped.len()) && dumped.ends_with("END\r\n"));
}

#[test]
fn wrong_meta_commands_never_have_their_values_parsed_as_requests() {
    let many: String = ('a'..='z').map(|letter| format!(" {letter}")).collect();
    let long = "k".repeat(251);
    // 252 digits are no key, though the decoded ones would be.
    let digits = "Zm9v".repeat(63);
    let opaque = "O".repeat(33);
    for (line, error) in [
        (format!("ms k 9{many}"), "options flags are too long"),
        (format!("ms {long} 9"), "bad command line format"),
        (format!("ms {digits} 9 b"), "bad command line format"),
        (format!("ms k 9 {opaque}"), "opaque token too long"),
        (format!("ms k 9 {opaque} q"), "opaque token too long"),
        ("ms k 9 b q".into(), "error decoding key"),
        ("ms k 9 q q".into(), "duplicate flag"),
        ("ms k 9 \u{7f}".into(), "duplicate flag"),
        ("ms k 9 q T99999999999999999999".into(), "bad token in command line format"),
        ("ms k 9 q C-1".into(), "bad token in command line format"),
        ("ms k 9 q F4294967296".into(), "bad command line format"),
    ] {
        // The errors come in quiet mode too.
        let expected = format!("CLIENT_ERROR {error}\r\nMN\r\nEN\r\n");
        assert_eq!(say(&cache(), &format!("{line}\r\nflush_all\r\nmn\r\nmg k\r\n")), expected, "to {line:?}");
    }
    for line in ["mg K", "md K", "ma K", "me K", "mg K b", "me K b"] {
        let sent = format!("{}\r\n", line.replace('K', &long));
        assert_eq!(say(&cache(), &sent), "CLIENT_ERROR bad command line format\r\n", "to {line:?}");
    }
    for bytes in ["", "-1", "x", "2147483646", "99999999999", "1 Z"] {
        let answer = say(&cache(), &format!("ms k {bytes}\r\n"));
        assert!(answer.starts_with("CLIENT_ERROR "), "to {bytes:?}: {answer}");
    }
    let large = "x".repeat(1 << 20);
    let too_large = "SERVER_ERROR object too large for cache\r\n";
    let dialogue = format!("ms k 1\r\nx\r\nms k 1048576 q\r\n{large}\r\nmg k\r\nmn\r\n");
    assert_eq!(say(&cache(), &dialogue), format!("HD\r\n{too_large}EN\r\nMN\r\n"));
    // A decoded key is shorter, so its value may be longer.
    for (bytes, answer) in [(1_048_514, "HD\r\n"), (1_048_515, too_large)] {
        assert_eq!(say(&cache(), &format!("ms Zm9v {bytes} b\r\n{}\r\n", &large[..bytes])), answer);
    }
}

#[test]
fn keys_have_250_bytes_at_most() {
    let (most, more) = ("k".repeat(250), "k".repeat(251));
    let bad = "CLIENT_ERROR bad command line format\r\n";
    let dialogue = format!("set {most} 0 0 1\r\nx\r\nget {most}\r\n");
    assert_eq!(say(&cache(), &dialogue), format!("STORED\r\nVALUE {most} 0 1\r\nx\r\nEND\r\n"));
    for line in [
        "get K",
        "get a K",
        "gets K",
        "gat 0 K",
        "delete K",
        "incr K 1",
        "decr K 1",
        "touch K 1",
        "set K 0 0 7\r\nversion",
        "cas K 0 0 7 1\r\nversion",
    ] {
        assert_eq!(say(&cache(), &format!("{}\r\n", line.replace('K', &more))), bad, "{line}");
    }
    assert_eq!(say(&cache(), &format!("set {more} 0 0 7 noreply\r\nversion\r\n")), "");
}

#[test]
fn a_too_large_value_is_rejected_and_removes_the_old_value() {
    let too_large = "SERVER_ERROR object too large for cache\r\n";
    let large = "version\r\n".repeat(200_000);
    let bytes = large.len();
    let dialogue = format!("set k 0 0 1\r\nx\r\nset k 0 0 {bytes}\r\n{large}\r\nget k\r\n");
    assert_eq!(say(&cache(), &dialogue), format!("STORED\r\n{too_large}END\r\n"));
    let dialogue = format!(
        "set k 0 0 1\r\nx\r\nadd k 0 0 {bytes}\r\n{large}\r\ncas k 0 0 {bytes} 1 noreply\r\n{large}\r\nget k\r\n"
    );
    assert_eq!(say(&cache(), &dialogue), format!("STORED\r\n{too_large}VALUE k 0 1\r\nx\r\nEND\r\n"));
    // At once: the client need not send the value.
    assert_eq!(say(&cache(), "set k 0 0 2000000\r\n"), too_large);
    // The largest item, and one byte more by appending. memcached counts the key and its header.
    for (key, flags, most) in [("k", 0, 1_048_516), ("kk", 0, 1_048_515), ("k", 1, 1_048_512)] {
        let value = "x".repeat(most);
        let dialogue =
            format!("set {key} {flags} 0 {most}\r\n{value}\r\nappend {key} 0 0 1\r\ny\r\nget {key}\r\n");
        let expected = format!("STORED\r\nNOT_STORED\r\nVALUE {key} {flags} {most}\r\n{value}\r\nEND\r\n");
        assert!(say(&cache(), &dialogue) == expected, "{key} {flags}");
        let more = format!("set {key} {flags} 0 {}\r\n{value}y\r\nget {key}\r\n", most + 1);
        assert_eq!(say(&cache(), &more), format!("{too_large}END\r\n"));
    }
    // So a value of exactly 1 MiB is too large.
    assert_eq!(say(&cache(), "set k 0 0 1048576\r\n"), too_large);
}

#[test]
fn a_line_without_end_is_refused_and_the_next_is_served() {
    let dialogue = format!("delete {}\r\nverbosity 1\r\n", "key ".repeat(20_000));
    for pieces in [vec![dialogue.as_bytes()], dialogue.as_bytes().chunks(777).collect()] {
        assert_eq!(answers(&cache(), pieces), b"CLIENT_ERROR line too long\r\nOK\r\n");
    }
}

#[test]
fn a_line_may_have_any_number_of_keys() {
    const KEYS: usize = 50_000;
    let dialogue = format!("set key 7 0 1\r\nx\r\ngats 0 {}\r\nget none\r\n", "key ".repeat(KEYS));
    let expected = format!("STORED\r\n{}END\r\nEND\r\n", "VALUE key 7 1 1\r\nx\r\n".repeat(KEYS));
    for pieces in [vec![dialogue.as_bytes()], dialogue.as_bytes().chunks(777).collect()] {
        assert!(answers(&cache(), pieces) == expected.as_bytes());
    }
}

#[test]
fn without_memory_a_value_is_refused() {
    let (cache, _) = cache_with(Config { memory_bytes_max: 1000, ..Config::default() });
    let large = "x".repeat(1000);
    let dialogue = format!(
        "set k 0 0 1\r\nx\r\nadd l 0 0 1000\r\n{large}\r\nget k\r\nset k 0 0 1000\r\n{large}\r\nget k\r\n"
    );
    let refused = "SERVER_ERROR out of memory storing object\r\n";
    assert_eq!(
        say(&cache, &dialogue),
        format!("STORED\r\n{refused}VALUE k 0 1\r\nx\r\nEND\r\n{refused}END\r\n")
    );
}

#[test]
fn statistics_count_the_commands() {
    let cache = cache();
    assert_eq!(say(&cache, "version\r\n"), "VERSION 1.6.40\r\n");
    let done = "set a 0 0 1\r\n1\r\nset b 0 -1 1\r\nx\r\nget a b c\r\nincr a 1\r\nincr c 1\r\ndecr a 1\r\ndecr c 1\r\ntouch a 0\r\ntouch c 0\r\n\
                cas a 0 0 1 99\r\nx\r\ncas c 0 0 1 1\r\nx\r\ndelete a\r\ndelete c\r\nflush_all\r\nset d 0 0 3\r\nddd\r\nset e 0 0 2000000\r\n";
    say(&cache, done);
    let stats = say(&cache, "stats\r\n");
    let uptime = format!("STAT time {BEGAN}");
    for line in [
        "STAT uptime 0",
        "STAT version 1.6.40",
        concat!("STAT squall_version ", env!("CARGO_PKG_VERSION")),
        &uptime,
        "STAT cmd_get 3",
        "STAT get_hits 1",
        "STAT get_misses 2",
        "STAT get_expired 1",
        "STAT cmd_set 5",
        "STAT cmd_flush 1",
        "STAT cmd_touch 2",
        "STAT touch_hits 1",
        "STAT touch_misses 1",
        "STAT incr_hits 1",
        "STAT incr_misses 1",
        "STAT decr_hits 1",
        "STAT decr_misses 1",
        "STAT cas_hits 0",
        "STAT cas_badval 1",
        "STAT cas_misses 1",
        "STAT delete_hits 1",
        "STAT delete_misses 1",
        "STAT store_too_large 1",
        "STAT curr_items 1",
        "STAT total_items 3",
        "STAT reclaimed 1",
        "STAT limit_maxbytes 67108864",
        "STAT read_buf_bytes 0",
        "STAT evictions 0",
        "STAT accepting_conns 1",
    ] {
        assert!(stats.lines().any(|found| found == line), "{line} is not in {stats}");
    }
    assert!(stats.ends_with("END\r\n"));
    let bytes = cache.used_bytes();
    assert!((10..1000).contains(&bytes), "{bytes}");
    assert!(stats.contains(&format!("STAT bytes {bytes}\r\n")));
    let items = format!(
        "STAT items:1:number 1\r\nSTAT items:1:mem_requested {bytes}\r\nSTAT items:1:evicted 0\r\n\
         STAT items:1:outofmemory 0\r\nSTAT items:1:reclaimed 1\r\nEND\r\n"
    );
    assert_eq!(say(&cache, "stats items\r\n"), items);
    let slabs = say(&cache, "stats slabs\r\n");
    assert!(slabs.starts_with("STAT 1:get_hits 1\r\nSTAT 1:cmd_set 5\r\n"), "{slabs}");
    assert!(
        slabs.ends_with(&format!("STAT active_slabs 1\r\nSTAT total_malloced {bytes}\r\nEND\r\n")),
        "{slabs}"
    );
    assert_eq!(say(&cache, "stats sizes\r\n"), "STAT sizes_status disabled\r\nEND\r\n");
    assert_eq!(say(&cache, "stats reset\r\nstats nothing\r\n"), "RESET\r\nERROR\r\n");
    assert!(say(&cache, "stats\r\n").contains("STAT cmd_get 0\r\n"));
    assert!(say(&cache, "stats settings\r\n").contains("STAT item_size_max 1048576\r\n"));
}
