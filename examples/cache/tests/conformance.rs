//! Every command and every error, byte for byte; the same however the bytes are cut on their way.

mod common;

use common::{BEGAN, answers, cache, cache_with, say};
use squall_cache_example::Config;

/// What is sent to an empty cache, and what comes back.
const TALKS: &[(&str, &str)] = &[
    // Storing and reading.
    ("set k 7 0 5\r\nhello\r\nget k\r\n", "STORED\r\nVALUE k 7 5\r\nhello\r\nEND\r\n"),
    ("get k\r\n", "END\r\n"),
    ("set k 4294967295 0 0\r\n\r\nget k\r\n", "STORED\r\nVALUE k 4294967295 0\r\n\r\nEND\r\n"),
    ("set k 0 0 4\r\na\r\nb\r\nget k\r\n", "STORED\r\nVALUE k 0 4\r\na\r\nb\r\nEND\r\n"),
    (
        "set a 1 0 1\r\nA\r\nset b 2 0 1\r\nB\r\nget a x b a\r\n",
        "STORED\r\nSTORED\r\nVALUE a 1 1\r\nA\r\nVALUE b 2 1\r\nB\r\nVALUE a 1 1\r\nA\r\nEND\r\n",
    ),
    ("set k 0 0 1\r\nx\r\ngets k\r\n", "STORED\r\nVALUE k 0 1 1\r\nx\r\nEND\r\n"),
    (
        "add k 0 0 1\r\nx\r\nadd k 0 0 1\r\ny\r\nget k\r\n",
        "STORED\r\nNOT_STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\n",
    ),
    (
        "replace k 0 0 1\r\nx\r\nset k 0 0 1\r\nx\r\nreplace k 3 0 1\r\ny\r\nget k\r\n",
        "NOT_STORED\r\nSTORED\r\nSTORED\r\nVALUE k 3 1\r\ny\r\nEND\r\n",
    ),
    ("append k 0 0 1\r\nx\r\nprepend k 0 0 1\r\nx\r\n", "NOT_STORED\r\nNOT_STORED\r\n"),
    (
        "set k 5 0 1\r\nb\r\nappend k 9 0 1\r\nc\r\nprepend k 9 0 1\r\na\r\nget k\r\n",
        "STORED\r\nSTORED\r\nSTORED\r\nVALUE k 5 3\r\nabc\r\nEND\r\n",
    ),
    (
        "cas k 0 0 1 1\r\nx\r\nset k 0 0 1\r\nx\r\ncas k 1 0 1 2\r\ny\r\ngets k\r\n",
        "NOT_FOUND\r\nSTORED\r\nSTORED\r\nVALUE k 1 1 3\r\ny\r\nEND\r\n",
    ),
    (
        "set k 0 0 1\r\nx\r\ncas k 0 0 1 77\r\ny\r\nget k\r\n",
        "STORED\r\nEXISTS\r\nVALUE k 0 1\r\nx\r\nEND\r\n",
    ),
    // Changing.
    (
        "delete k\r\nset k 0 0 1\r\nx\r\ndelete k\r\nget k\r\ndelete k 0\r\n",
        "NOT_FOUND\r\nSTORED\r\nDELETED\r\nEND\r\nNOT_FOUND\r\n",
    ),
    (
        "incr k 1\r\ndecr k 1\r\nset k 3 0 2\r\n99\r\nincr k 1\r\nget k\r\ndecr k 1\r\nget k\r\ndecr k 1000\r\n",
        "NOT_FOUND\r\nNOT_FOUND\r\nSTORED\r\n100\r\nVALUE k 3 3\r\n100\r\nEND\r\n99\r\nVALUE k 3 2\r\n99\r\nEND\r\n0\r\n",
    ),
    ("set k 0 0 20\r\n18446744073709551615\r\nincr k 6\r\n", "STORED\r\n5\r\n"),
    ("set k 0 0 3\r\n 7 \r\nincr k 1\r\n", "STORED\r\n8\r\n"),
    (
        "set k 0 0 3\r\nabc\r\nincr k 1\r\ndecr k 1\r\n",
        "STORED\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n\
      CLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
    ),
    (
        "touch k 10\r\nset k 0 0 1\r\nx\r\ntouch k 10\r\ngat 20 k x\r\ngats 0 k\r\n",
        "NOT_FOUND\r\nSTORED\r\nTOUCHED\r\nVALUE k 0 1\r\nx\r\nEND\r\nVALUE k 0 1 1\r\nx\r\nEND\r\n",
    ),
    (
        "set k 0 0 1\r\nx\r\nflush_all\r\nget k\r\nset k 0 0 1\r\ny\r\nget k\r\n",
        "STORED\r\nOK\r\nEND\r\nSTORED\r\nVALUE k 0 1\r\ny\r\nEND\r\n",
    ),
    ("flush_all 10\r\nflush_all -1\r\nflush_all 0\r\n", "OK\r\nOK\r\nOK\r\n"),
    ("verbosity 1\r\nverbosity 0 noreply\r\ncache_memlimit 128\r\n", "OK\r\nOK\r\n"),
    // Without answers.
    (
        "set k 0 0 1 noreply\r\n1\r\nadd k 0 0 1 noreply\r\nx\r\nreplace k 0 0 1 noreply\r\n2\r\nappend k 0 0 1 noreply\r\n0\r\n\
      prepend k 0 0 1 noreply\r\n1\r\nincr k 5 noreply\r\ndecr k 1 noreply\r\ntouch k 9 noreply\r\nget k\r\n",
        "VALUE k 0 3\r\n124\r\nEND\r\n",
    ),
    (
        "set k 0 0 1 noreply\r\nx\r\ncas k 0 0 1 9 noreply\r\ny\r\ndelete k noreply\r\nget k\r\nflush_all noreply\r\nflush_all 5 noreply\r\n\
      delete k noreply\r\nincr k 1 noreply\r\nget k\r\n",
        "END\r\nEND\r\n",
    ),
    (
        "set k x 0 1 noreply\r\nx\r\nset k 0 0 1 noreply\r\nxyz\r\nincr k x noreply\r\nget k\r\n",
        "ERROR\r\nEND\r\n",
    ),
    // Lines.
    ("set k 0 0 1\nx\r\nget k\n", "STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\n"),
    ("  set   k  0 0   1  \r\nx\r\n get  k  \r\n", "STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\n"),
    (
        "\r\n\n \r\nGET k\r\nfoo\r\nfoo bar baz\r\ngets\r\nget\r\nget  \r\n",
        "ERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\n",
    ),
    ("quit\r\nversion\r\n", ""),
    ("verbosity 1\r\nquit now\r\nverbosity 1\r\n", "OK\r\n"),
    // Not so many words.
    ("set k 0 0\r\nset\r\n", "ERROR\r\nERROR\r\n"),
    (
        "set k 0 0 1 word\r\nx\r\nset k 0 0 1 word word\r\nx\r\ncas k 0 0 1\r\nx\r\ncas k 0 0 1 1 1\r\nx\r\nget k\r\n",
        "STORED\r\nERROR\r\nERROR\r\nERROR\r\nVALUE k 0 1\r\nx\r\nEND\r\n",
    ),
    (
        "incr\r\nincr k\r\nincr k 1 2 3\r\ndecr k\r\ntouch k\r\ntouch\r\ntouch k 1 2 3\r\nincr k 1 2\r\ntouch k 1 2\r\n",
        "ERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\nNOT_FOUND\r\nNOT_FOUND\r\n",
    ),
    (
        "gat\r\ngat 1\r\ngats\r\ndelete\r\ndelete k 0 0 0\r\ndelete k 0 0\r\nflush_all 1 2\r\nverbosity\r\nverbosity 1 2\r\ncache_memlimit\r\n",
        "ERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\n",
    ),
    // A key that looks like a word of the protocol; limits with which nothing could be stored; and a browser, which is not talked to.
    ("delete noreply\r\nset noreply 0 0 1\r\nx\r\ndelete noreply\r\n", "NOT_FOUND\r\nSTORED\r\nDELETED\r\n"),
    (
        "cache_memlimit 7\r\ncache_memlimit 0 noreply\r\nset k 0 0 1\r\nx\r\n",
        "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\nSTORED\r\n",
    ),
    ("set k 0 0 1\r\nx\r\nPOST / HTTP/1.1\r\nHost: localhost\r\n\r\nflush_all\r\n", "STORED\r\n"),
    // Words that are not what they ought to be. The values are no requests.
    (
        "set k x 0 7\r\nversion\r\nset k -1 0 7\r\nversion\r\nset k 4294967296 0 7\r\nversion\r\nset k 0 x 7\r\nversion\r\n\
      cas k 0 0 7 x\r\nversion\r\nget k\r\n",
        "CLIENT_ERROR bad command line format\r\nCLIENT_ERROR bad command line format\r\nCLIENT_ERROR bad command line format\r\n\
      CLIENT_ERROR bad command line format\r\nCLIENT_ERROR bad command line format\r\nEND\r\n",
    ),
    (
        "set k 0 0 x\r\nset k 0 0 -1\r\nset k 0 0 2147483646\r\n",
        "CLIENT_ERROR bad command line format\r\nCLIENT_ERROR bad command line format\r\nCLIENT_ERROR bad command line format\r\n",
    ),
    (
        "incr k x\r\nincr k -1\r\ndecr k 18446744073709551616\r\ntouch k x\r\ngat x k\r\nflush_all x\r\n",
        "CLIENT_ERROR invalid numeric delta argument\r\nCLIENT_ERROR invalid numeric delta argument\r\n\
      CLIENT_ERROR invalid numeric delta argument\r\nCLIENT_ERROR invalid exptime argument\r\n\
      CLIENT_ERROR invalid exptime argument\r\nCLIENT_ERROR invalid exptime argument\r\n",
    ),
    (
        "delete k 1\r\nverbosity x\r\ncache_memlimit x\r\n",
        "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n\
      CLIENT_ERROR bad command line format\r\nCLIENT_ERROR bad command line format\r\n",
    ),
    // Values that are not as long as they say: what is behind the length is a request again.
    ("set k 0 0 4\r\nlonger\r\nget k\r\n", "CLIENT_ERROR bad data chunk\r\nERROR\r\nEND\r\n"),
    ("set k 0 0 4\r\nab\r\nget k\r\n", "CLIENT_ERROR bad data chunk\r\nERROR\r\n"),
];

#[test]
fn every_command_and_every_error_is_answered_as_memcached_does() {
    for (sent, expected) in TALKS {
        assert_eq!(say(&cache(), sent), *expected, "to {sent:?}");
    }
}

#[test]
fn answers_do_not_depend_on_how_the_bytes_are_cut() {
    for (sent, expected) in TALKS {
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
    // Each begins with everything gone. Left out are those that end the conversation, or tell numbers that go on.
    let leaves = ["quit", "HTTP/", "gets", "gats", "cas", "ab\r\nget"];
    let talks = || TALKS.iter().filter(|(sent, _)| !leaves.iter().any(|word| sent.contains(word)));
    let sent: String = talks().map(|(sent, _)| format!("{sent}flush_all\r\n")).collect();
    let expected: String = talks().map(|(_, expected)| format!("{expected}OK\r\n")).collect();
    assert_eq!(say(&cache(), &sent), expected);
}

#[test]
fn keys_have_250_bytes_at_most() {
    let (most, more) = ("k".repeat(250), "k".repeat(251));
    let bad = "CLIENT_ERROR bad command line format\r\n";
    let talk = format!("set {most} 0 0 1\r\nx\r\nget {most}\r\n");
    assert_eq!(say(&cache(), &talk), format!("STORED\r\nVALUE {most} 0 1\r\nx\r\nEND\r\n"));
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
fn a_value_that_is_too_large_is_refused_and_swallowed_and_what_it_was_to_replace_goes() {
    let too_large = "SERVER_ERROR object too large for cache\r\n";
    let large = "version\r\n".repeat(200_000);
    let bytes = large.len();
    let talk = format!("set k 0 0 1\r\nx\r\nset k 0 0 {bytes}\r\n{large}\r\nget k\r\n");
    assert_eq!(say(&cache(), &talk), format!("STORED\r\n{too_large}END\r\n"));
    let talk = format!(
        "set k 0 0 1\r\nx\r\nadd k 0 0 {bytes}\r\n{large}\r\ncas k 0 0 {bytes} 1 noreply\r\n{large}\r\nget k\r\n"
    );
    assert_eq!(say(&cache(), &talk), format!("STORED\r\n{too_large}VALUE k 0 1\r\nx\r\nEND\r\n"));
    // At once: the client need not send it.
    assert_eq!(say(&cache(), "set k 0 0 2000000\r\n"), too_large);
    // The largest that there may be, and one byte more by appending.
    let most = "x".repeat(1 << 20);
    let talk = format!("set k 0 0 {}\r\n{most}\r\nappend k 0 0 1\r\ny\r\nget k\r\n", most.len());
    let expected = format!("STORED\r\n{too_large}VALUE k 0 {}\r\n{most}\r\nEND\r\n", most.len());
    assert!(say(&cache(), &talk) == expected);
}

#[test]
fn a_line_without_end_is_refused_and_the_next_is_served() {
    let talk = format!("get {}\r\nverbosity 1\r\n", "key ".repeat(20_000));
    for pieces in [vec![talk.as_bytes()], talk.as_bytes().chunks(777).collect()] {
        assert_eq!(answers(&cache(), pieces), b"CLIENT_ERROR line too long\r\nOK\r\n");
    }
    // Hundreds of keys are none.
    let talk = format!("set key 0 0 1\r\nx\r\nget {}\r\n", "key ".repeat(5_000));
    assert_eq!(say(&cache(), &talk), format!("STORED\r\n{}END\r\n", "VALUE key 0 1\r\nx\r\n".repeat(5_000)));
}

#[test]
fn without_memory_a_value_is_refused() {
    let (cache, _) = cache_with(Config { memory_bytes_max: 1000, ..Config::default() });
    let large = "x".repeat(1000);
    let talk = format!(
        "set k 0 0 1\r\nx\r\nadd l 0 0 1000\r\n{large}\r\nget k\r\nset k 0 0 1000\r\n{large}\r\nget k\r\n"
    );
    let refused = "SERVER_ERROR out of memory storing object\r\n";
    assert_eq!(say(&cache, &talk), format!("STORED\r\n{refused}VALUE k 0 1\r\nx\r\nEND\r\n{refused}END\r\n"));
}

#[test]
fn statistics_are_what_was_done() {
    let cache = cache();
    let version = concat!("VERSION ", env!("CARGO_PKG_VERSION"), "\r\n");
    assert_eq!(say(&cache, "version\r\n"), version);
    let done = "set a 0 0 1\r\n1\r\nset b 0 -1 1\r\nx\r\nget a b c\r\nincr a 1\r\nincr c 1\r\ndecr a 1\r\ndecr c 1\r\ntouch a 0\r\ntouch c 0\r\n\
                cas a 0 0 1 99\r\nx\r\ncas c 0 0 1 1\r\nx\r\ndelete a\r\ndelete c\r\nflush_all\r\nset d 0 0 3\r\nddd\r\nset e 0 0 2000000\r\n";
    say(&cache, done);
    let stats = say(&cache, "stats\r\n");
    let uptime = format!("STAT time {BEGAN}");
    for line in [
        "STAT uptime 0",
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
    assert_eq!(say(&cache, "stats reset\r\nstats nothing\r\n"), "RESET\r\nERROR\r\n");
    assert!(say(&cache, "stats\r\n").contains("STAT cmd_get 0\r\n"));
    assert!(say(&cache, "stats settings\r\n").contains("STAT item_size_max 1048576\r\n"));
}
