//! Expiry, by a clock that the tests move.

mod common;

use common::{BEGAN, TestCache, cache_with, say};
use squall_cache_example::{Config, Store};

fn is_there(cache: &TestCache, key: &str) -> bool {
    say(cache, &format!("get {key}\r\n")) != "END\r\n"
}

#[test]
fn seconds_up_to_thirty_days_are_counted_from_now_and_more_is_a_date() {
    let (cache, hand) = cache_with(Config::default());
    let date = BEGAN + 50;
    let month = 60 * 60 * 24 * 30;
    say(
        &cache,
        &format!(
            "set never 0 0 1\r\nx\r\nset soon 0 10 1\r\nx\r\nset date 0 {date} 1\r\nx\r\nset month 0 {month} 1\r\nx\r\n"
        ),
    );
    say(
        &cache,
        &format!(
            "set past 0 {} 1\r\nx\r\nset long-ago 0 {} 1\r\nx\r\nset negative 0 -1 1\r\nx\r\n",
            BEGAN - 1,
            month + 1
        ),
    );
    let there = || {
        let keys = ["never", "soon", "date", "month", "past", "long-ago", "negative"];
        keys.map(|key| u8::from(is_there(&cache, key)))
    };
    assert_eq!(there(), [1, 1, 1, 1, 0, 0, 0]);
    hand.advance(9);
    assert_eq!(there(), [1, 1, 1, 1, 0, 0, 0]);
    hand.advance(1);
    assert_eq!(there(), [1, 0, 1, 1, 0, 0, 0]);
    hand.advance(40);
    assert_eq!(there(), [1, 0, 0, 1, 0, 0, 0]);
    hand.advance(month - 50);
    assert_eq!(there(), [1, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn expired_items_are_absent_to_every_command() {
    let (cache, hand) = cache_with(Config::default());
    for (command, answer) in [
        ("add k 0 0 1\r\ny", "STORED"),
        ("replace k 0 0 1\r\ny", "NOT_STORED"),
        ("append k 0 0 1\r\ny", "NOT_STORED"),
        ("prepend k 0 0 1\r\ny", "NOT_STORED"),
        ("cas k 0 0 1 1\r\ny", "NOT_FOUND"),
        ("delete k", "NOT_FOUND"),
        ("incr k 1", "NOT_FOUND"),
        ("decr k 1", "NOT_FOUND"),
        ("touch k 10", "NOT_FOUND"),
        ("gat 10 k", "END"),
        ("gets k", "END"),
    ] {
        assert_eq!(say(&cache, "set k 0 5 1\r\n1\r\n"), "STORED\r\n");
        hand.advance(5);
        assert_eq!(say(&cache, &format!("{command}\r\n")), format!("{answer}\r\n"), "{command}");
        say(&cache, "delete k\r\n");
        assert_eq!(cache.used_bytes(), 0, "after {command}");
    }
}

#[test]
fn touching_sets_another_time_and_other_changes_keep_it() {
    let (cache, hand) = cache_with(Config::default());
    say(&cache, "set k 0 10 1\r\n1\r\nincr k 1\r\nappend k 0 0 1\r\n0\r\n");
    hand.advance(9);
    assert_eq!(say(&cache, "touch k 10\r\n"), "TOUCHED\r\n");
    hand.advance(9);
    assert_eq!(say(&cache, "gat 10 k\r\n"), "VALUE k 0 2\r\n20\r\nEND\r\n");
    say(&cache, "incr k 1\r\nappend k 0 0 1\r\n0\r\n");
    hand.advance(9);
    assert!(is_there(&cache, "k"));
    hand.advance(1);
    assert!(!is_there(&cache, "k"));
    assert_eq!(say(&cache, "set k 0 10 1\r\n1\r\ntouch k -1\r\nget k\r\n"), "STORED\r\nTOUCHED\r\nEND\r\n");
}

#[test]
fn a_due_flush_removes_the_entries_present_then() {
    let (cache, hand) = cache_with(Config::default());
    assert_eq!(say(&cache, "set before 0 0 1\r\nx\r\nflush_all 10\r\n"), "STORED\r\nOK\r\n");
    hand.advance(9);
    assert_eq!(say(&cache, "set between 0 0 1\r\nx\r\n"), "STORED\r\n");
    assert!(is_there(&cache, "before") && is_there(&cache, "between"));
    hand.advance(1);
    assert_eq!(say(&cache, "set after 0 0 1\r\nx\r\n"), "STORED\r\n");
    hand.advance(100);
    assert!(!is_there(&cache, "before") && !is_there(&cache, "between") && is_there(&cache, "after"));
    // A later flush replaces the first one.
    say(&cache, "flush_all 10\r\nflush_all 1000\r\n");
    hand.advance(500);
    assert!(is_there(&cache, "after"));
}

#[test]
fn the_default_is_for_clients_that_say_never() {
    let (cache, hand) = cache_with(Config { default_ttl_s: 5, ..Config::default() });
    say(&cache, "set default 0 0 1\r\nx\r\nset longer 0 10 1\r\nx\r\n");
    cache.configure(|config| config.default_ttl_s = 0);
    say(&cache, "set never 0 0 1\r\nx\r\n");
    hand.advance(5);
    assert!(!is_there(&cache, "default") && is_there(&cache, "longer") && is_there(&cache, "never"));
}

#[test]
fn the_sweeper_removes_unrequested_items() {
    let (cache, hand) = cache_with(Config::default());
    for i in 0..3000 {
        say(&cache, &format!("set short-{i} 0 5 1 noreply\r\nx\r\nset long-{i} 0 500 1 noreply\r\nx\r\n"));
    }
    hand.advance(5);
    assert_eq!(cache.store().len(), 6000);
    let (mut from, mut steps) = (Some(0), 0);
    while let Some(at) = from {
        (from, steps) = (cache.sweep(at).0, steps + 1);
    }
    assert_eq!(cache.store().len(), 3000);
    assert!(steps >= 6000 / 1024, "{steps} steps: it looked at too many at once");
    assert!((0..3000).all(|i| is_there(&cache, &format!("long-{i}"))));
}

#[test]
fn flushed_entries_leave_the_statistics_before_the_answer() {
    let (cache, hand) = cache_with(Config::default());
    for i in 0..2000 {
        say(&cache, &format!("set k{i} 0 0 1 noreply\r\nx\r\n"));
    }
    assert_eq!(say(&cache, "flush_all 10\r\nget k0\r\n"), "OK\r\nVALUE k0 0 1\r\nx\r\nEND\r\n");
    assert_eq!(cache.store().len(), 2000);
    let stats = say(&cache, "flush_all\r\nstats\r\n");
    assert!(stats.contains("STAT curr_items 0\r\n") && stats.contains("STAT bytes 0\r\n"), "{stats}");
    // The delayed one was replaced.
    say(&cache, "set k 0 0 1\r\nx\r\n");
    hand.advance(100);
    assert!(is_there(&cache, "k"));
}

#[test]
fn a_due_flush_empties_a_server_that_no_client_uses() {
    let served = common::Served::new(Config::default());
    let mut client = served.client();
    assert_eq!(client.set("k", "v"), "STORED");
    assert_eq!(client.ask("flush_all 10"), "OK");
    served.hand.advance(10);
    let begun = std::time::Instant::now();
    // An entry gives its room back after it has left.
    while served.cache.used_bytes() != 0 {
        assert!(begun.elapsed() < common::TIMEOUT, "the entry is still there");
        std::thread::yield_now();
    }
    assert!(served.cache.store().is_empty());
}
