//! What the table gives back, and when. A file of its own, so that nobody else retires meanwhile.

use squall_table::Table;

/// Entries whose drop is nothing but memory are freed by their own writers, which therefore never wait for the reclaimer.
#[test]
fn who_takes_out_strings_waits_for_nobody() {
    let rounds = if cfg!(miri) { 400 } else { 20_000 };
    let table: Table<String, u64> = Table::new();
    for round in 0..rounds {
        assert!(!table.set(format!("session:{round}"), round));
        assert!(table.discard(format!("session:{round}").as_str()));
    }
    let stats = squall_rcu::stats();
    assert_eq!(stats.throttled, 0, "{stats:?}");
    assert!(table.is_empty() && stats.pending_calls < rounds, "{stats:?}");
}
