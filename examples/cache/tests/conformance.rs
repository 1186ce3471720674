//! Each command and each error, byte for byte, for any cut of the bytes on their way.

mod common;

use common::dialogues::DIALOGUES;
use common::{BEGAN, answers, cache, cache_with, say};
use squall_cache_example::Config;

#[test]
fn every_command_and_every_error_is_answered_as_memcached_does() {
    for (sent, expected) in DIALOGUES {
        assert_eq!(say(&cache(), sent), *expected, "to {sent:?}");
    }
}

#[test]
fn answers_do_not_depend_on_how_the_bytes_are_cut() {
    for (sent, expected) in DIALOGUES {
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
    let leaves = ["quit", "HTTP/", "gets", "gats", "cas", "ab\r\nget"];
    let dialogues = || DIALOGUES.iter().filter(|(sent, _)| !leaves.iter().any(|word| sent.contains(word)));
    let sent: String = dialogues().map(|(sent, _)| format!("{sent}flush_all\r\n")).collect();
    let expected: String = dialogues().map(|(_, expected)| format!("{expected}OK\r\n")).collect();
    assert_eq!(say(&cache(), &sent), expected);
}

/// A server without meta commands would parse the value as requests.
#[test]
fn the_value_of_a_meta_command_is_swallowed() {
    let set = "set k 0 0 1\r\nx\r\n";
    for (meta, errors) in [
        ("ms m 14\r\nflush_all 99\r\n\r\n", 1),
        ("ms m S9\r\nflush_all\r\n", 1),
        ("ms m 9 T0 F7 I\r\nflush_all\r\n", 1),
        ("ms\r\nms m\r\nms m x\r\nmg k v\r\nmn\r\n", 5),
    ] {
        let expected = format!("STORED\r\n{}VALUE k 0 1\r\nx\r\nEND\r\n", "ERROR\r\n".repeat(errors));
        assert_eq!(say(&cache(), &format!("{set}{meta}get k\r\n")), expected, "to {meta:?}");
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
    // The largest value, and one byte more by appending.
    let most = "x".repeat(1 << 20);
    let dialogue = format!("set k 0 0 {}\r\n{most}\r\nappend k 0 0 1\r\ny\r\nget k\r\n", most.len());
    let expected = format!("STORED\r\n{too_large}VALUE k 0 {}\r\n{most}\r\nEND\r\n", most.len());
    assert!(say(&cache(), &dialogue) == expected);
}

#[test]
fn a_line_without_end_is_refused_and_the_next_is_served() {
    let dialogue = format!("get {}\r\nverbosity 1\r\n", "key ".repeat(20_000));
    for pieces in [vec![dialogue.as_bytes()], dialogue.as_bytes().chunks(777).collect()] {
        assert_eq!(answers(&cache(), pieces), b"CLIENT_ERROR line too long\r\nOK\r\n");
    }
    // Hundreds of keys are within the limit.
    let dialogue = format!("set key 0 0 1\r\nx\r\nget {}\r\n", "key ".repeat(5_000));
    assert_eq!(
        say(&cache(), &dialogue),
        format!("STORED\r\n{}END\r\n", "VALUE key 0 1\r\nx\r\n".repeat(5_000))
    );
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
    assert_eq!(say(&cache, "version\r\n"), "VERSION 1.5.22\r\n");
    let done = "set a 0 0 1\r\n1\r\nset b 0 -1 1\r\nx\r\nget a b c\r\nincr a 1\r\nincr c 1\r\ndecr a 1\r\ndecr c 1\r\ntouch a 0\r\ntouch c 0\r\n\
                cas a 0 0 1 99\r\nx\r\ncas c 0 0 1 1\r\nx\r\ndelete a\r\ndelete c\r\nflush_all\r\nset d 0 0 3\r\nddd\r\nset e 0 0 2000000\r\n";
    say(&cache, done);
    let stats = say(&cache, "stats\r\n");
    let uptime = format!("STAT time {BEGAN}");
    for line in [
        "STAT uptime 0",
        "STAT version 1.5.22",
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
        "STAT bytes 164",
    ] {
        assert!(stats.lines().any(|found| found == line), "{line} is not in {stats}");
    }
    assert!(stats.ends_with("END\r\n"));
    let items = "STAT items:1:number 1\r\nSTAT items:1:mem_requested 164\r\nSTAT items:1:evicted 0\r\nSTAT items:1:outofmemory 0\r\n\
                 STAT items:1:reclaimed 1\r\nEND\r\n";
    assert_eq!(say(&cache, "stats items\r\n"), items);
    assert_eq!(say(&cache, "stats slabs\r\n"), "STAT active_slabs 0\r\nSTAT total_malloced 164\r\nEND\r\n");
    assert_eq!(say(&cache, "stats reset\r\nstats nothing\r\n"), "RESET\r\nERROR\r\n");
    assert!(say(&cache, "stats\r\n").contains("STAT cmd_get 0\r\n"));
    assert!(say(&cache, "stats settings\r\n").contains("STAT item_size_max 1048576\r\n"));
}
