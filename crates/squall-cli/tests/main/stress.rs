//! `squall stress` as scripts run it: every stress passes in every mode and catches every planned break.
//!
//! `stress!` declares the tests of one stress: its modes, and its planned breaks with a part of the expected
//! violation. Swaps also have a stress of memory.

use crate::common::stress::StressTest;
use crate::common::{run, squall, stderr, stdout};

/// Declares a module with the tests of a stress.
///
/// - `threads` is the number of threads unless a mode says otherwise.
/// - `done` lists the counts that must be positive in every mode, and `never` those that must be zero.
/// - A mode has arguments, environment variables, and perhaps the expected number of VPs.
/// - A planned break has a name, the seconds of its first run, and a part of its violation. If several checks
///   can be the first to find it, a part of the violation of each.
/// - `unknown` names a break that the error about an unknown break must list.
macro_rules! stress {
    ($name:ident {
        threads: $threads:literal,
        done: $done:expr,
        never: $never:expr,
        modes: { $($mode:ident: $more:expr, $variables:expr $(, vps = $vps:literal)?;)+ }
        breaks: { $($(#[$attribute:meta])* $caught:ident: $how:literal, $seconds:literal, $($clue:literal)|+;)+ }
        unknown: $known:literal
    }) => {
        mod $name {
            use super::*;

            const STRESS: StressTest =
                StressTest { name: stringify!($name), threads: $threads, done: &$done, never: &$never };

            $(
                #[test]
                fn $mode() {
                    STRESS.passes(&$more, &$variables)$(.expect("virtual processors", $vps))?;
                }
            )+

            mod breaks {
                use super::STRESS;

                $(
                    #[test]
                    $(#[$attribute])*
                    fn $caught() {
                        STRESS.fails($how, $seconds, &[$($clue),+]);
                    }
                )+
            }

            #[test]
            fn an_unknown_break_is_refused() {
                STRESS.refuses_an_unknown_break($known);
            }
        }
    };
}

stress! { rcu {
    threads: "5",
    done: [
        "operations",
        "grace periods",
        "by wait",
        "by wait_expedited",
        "by wait_until",
        "by a marker polled",
        "by a marker waited for",
        "by a marker kept",
        "by deferred calls",
        "by reclaim",
        "by barrier",
        "by quiescent-do, each",
        "by quiescent-do, any",
        "deferred calls",
        "blocks reused",
        "threads started",
        "seen in place (age 0)",
    ],
    never: ["seen older"],
    modes: {
        it_passes: [], [];
        it_passes_without_membarrier: [], [("SQUALL_MEMBARRIER", "off")];
        it_passes_without_restartable_sequences: [], [("SQUALL_RSEQ", "off")];
        it_passes_in_a_virtual_topology: [], [("SQUALL_TOPOLOGY", "nodes:2,caches:2,cores:4,threads:2")];
        it_passes_without_the_reclaimer: [], [("SQUALL_RECLAIMER", "off")];
    }
    breaks: {
        a_skipped_grace_period_is_caught: "skip-wait", 10, "at age 2";
        a_block_aged_before_its_deferred_call_ran_is_caught: "early-age", 10, "at age 2";
        a_block_reused_at_once_is_caught: "early-reuse", 10, "was poisoned or reused";
        a_reader_outside_every_operation_is_caught: "no-operation", 10, "a reader may see";
        a_lost_deferred_call_is_caught: "lose-callback", 10, "that were deferred before it";
        a_deferred_call_that_counts_twice_is_caught: "double-callback", 2, "calls were deferred, but";
        a_lost_block_is_caught: "lose-block", 4, "blocks are free or in place";
    }
    unknown: "skip-wait"
} }

stress! { objects {
    threads: "70",
    done: [
        "calls answered",
        "blocking calls",
        "upcast calls",
        "stale calls that failed",
        "stale calls that panicked",
        "calls refused by roots",
        "additions counted",
        "exact comparisons",
        "well-known object calls",
        "objects created",
        "objects destroyed",
        "destroyed in methods",
        "destructions awaited",
        "misses answered by roots",
        "tables discarded",
        "panics caught",
        "snapshots taken",
        "drops with side actions",
        "drops that panicked",
        "calls in exit hooks",
        "threads started",
    ],
    never: [],
    modes: {
        it_passes_on_64_virtual_processors: [], [], vps = 64;
        it_passes_on_the_real_machine: ["--real"], [];
        // With few threads, calls overlap on different processors. With many, threads are preempted.
        it_passes_with_few_threads: ["--threads", "3"], [];
        it_passes_with_few_threads_on_the_real_machine: ["--threads", "4", "--real"], [];
        it_passes_without_membarrier: [], [("SQUALL_MEMBARRIER", "off")];
        it_passes_without_restartable_sequences: ["--real"], [("SQUALL_RSEQ", "off")];
        it_passes_in_a_requested_topology: [], [("SQUALL_TOPOLOGY", "caches:2,cores:2,threads:2")], vps = 8;
        it_passes_without_the_reclaimer: [], [("SQUALL_RECLAIMER", "off")];
    }
    breaks: {
        a_drop_that_runs_twice_is_caught: "double-drop", 20, "object #";
        a_drop_that_never_runs_is_caught: "lose-drop", 20, "object #";
        an_object_that_is_never_destroyed_is_caught: "lose-object", 2, "objects are not accounted for";
        a_call_answered_after_destroy_returned_is_caught: "early-mark", 20, "was answered after destroy had returned";
        an_answer_of_another_object_is_caught: "wrong-object", 20, "was answered by #";
        an_answer_of_another_interface_is_caught: "wrong-type", 20, "was answered by a ";
        a_representative_that_dies_under_a_call_is_caught: "early-death", 20, "was dropped (0xdead";
        a_drop_while_a_call_is_inside_is_caught: "stay-inside", 20, "calls were inside it";
        a_root_dropped_before_its_representatives_is_caught: "root-first", 20, "before 1 of its representatives";
        a_lost_addition_is_caught: "lose-add", 20, "its callers have added";
        a_live_object_that_refuses_is_caught: "refuse-live", 20, "no thread has begun to destroy";
    }
    unknown: "double-drop"
} }

stress! { fork {
    threads: "4",
    done: ["children", "ended by exit", "ended by _exit", "calls refused", "calls done", "writes of the parent"],
    never: [],
    modes: {
        it_passes_on_64_virtual_processors: [], [];
        it_passes_on_the_real_machine: ["--real"], [];
        it_passes_without_membarrier: [], [("SQUALL_MEMBARRIER", "off")];
        it_passes_without_restartable_sequences: ["--real"], [("SQUALL_RSEQ", "off")];
        it_passes_without_the_reclaimer: [], [("SQUALL_RECLAIMER", "off")];
    }
    breaks: {
        a_call_that_hangs_is_caught: "hang", 20, "a forked child hung in ";
        an_exit_hook_that_hangs_is_caught: "hang-at-exit", 20, "a forked child hung in exit";
        a_wrong_result_is_caught: "wrong-result", 20, "in a forked child had a wrong result";
        a_child_that_aborts_is_caught: "abort", 20, "was ended by signal 6";
        a_lost_write_of_the_parent_is_caught: "lose-write", 2, "was changed by another thread";
    }
    unknown: "hang-at-exit"
} }

stress! { swap {
    threads: "8",
    done: [
        "calls",
        "nested calls",
        "blocking calls",
        "exact comparisons",
        "calls that panicked",
        "stale calls that failed",
        "calls refused by arbiters",
        "swaps completed",
        "swaps cancelled",
        "transfers that failed",
        "transfers that panicked",
        "swaps failed: destroyed",
        "swaps failed: busy",
        "forbidden swaps refused",
        "undisturbed swaps",
        "calls forwarded",
        "calls blocked",
        "factory upgrades",
        "arbiters attached",
        "objects made in methods",
        "objects created",
        "objects destroyed",
        "tables discarded",
        "threads started",
    ],
    never: [],
    modes: {
        it_passes_on_64_virtual_processors: [], [], vps = 64;
        it_passes_on_the_real_machine: ["--real"], [];
        it_passes_without_membarrier: [], [("SQUALL_MEMBARRIER", "off")];
        it_passes_without_restartable_sequences: ["--real"], [("SQUALL_RSEQ", "off")];
        it_passes_in_a_requested_topology: [], [("SQUALL_TOPOLOGY", "caches:2,cores:2,threads:2")], vps = 8;
        it_passes_without_the_reclaimer: [], [("SQUALL_RECLAIMER", "off")];
    }
    breaks: {
        a_call_that_counts_twice_is_caught: "double-call", 20, "a call ran twice, or out of order";
        a_lost_call_is_caught: "lose-call", 20, "lane ";
        calls_out_of_order_are_caught: "disorder", 20, "lane ";
        a_lost_part_of_the_state_is_caught: "lose-state", 20, "lane ";
        a_value_that_is_never_dropped_is_caught: "leak-value", 2, "objects are not accounted for";
        a_drop_that_runs_twice_is_caught: "double-drop", 20, "implementations were dropped with its state";
        a_call_answered_after_destroy_returned_is_caught: "early-mark", 20, "was answered after destroy had returned";
        a_swap_that_fails_without_a_reason_is_caught: "wrong-failure", 20, "failed without a valid reason";
        a_swap_that_succeeds_and_must_not_is_caught: "wrong-success", 20, "succeeded in spite of";
        a_call_that_misses_its_arbiter_is_caught: "miss-arbiter", 20, "met no arbiter";
        a_live_object_that_refuses_is_caught: "refuse-live", 20, "no thread has begun to destroy";
    }
    unknown: "lose-state"
} }

stress! { adapt {
    threads: "8",
    done: [
        "additions",
        "sums checked",
        "exact comparisons",
        "objects made",
        "objects destroyed",
        "invocations",
        "governed object calls",
        "threads started",
    ],
    never: [],
    modes: {
        it_passes_on_64_virtual_processors: [], [], vps = 64;
        it_passes_on_the_real_machine: ["--real"], [];
        it_passes_without_membarrier: [], [("SQUALL_MEMBARRIER", "off")];
        it_passes_without_restartable_sequences: ["--real"], [("SQUALL_RSEQ", "off")];
        it_passes_without_the_engine_thread: [], [("SQUALL_ADAPT", "off")];
        it_passes_without_the_reclaimer: [], [("SQUALL_RECLAIMER", "off")];
    }
    breaks: {
        a_lost_addition_is_caught: "lose-add", 20, "its sum is ";
        an_addition_made_twice_is_caught: "double-add", 20, "its sum is ";
        a_call_answered_after_destroy_returned_is_caught: "early-mark", 300, "after destroy had returned";
        a_swap_that_is_not_in_the_log_is_caught: "unlogged", 3, "are not in the log of decisions";
        a_decision_without_a_reason_is_caught: "unexplained", 20, "a decision without a reason";
        a_frozen_object_that_is_swapped_is_caught: "deaf-freeze", 300, "while it was frozen";
        two_swaps_within_a_cool_down_are_caught: "short-cooldown", 300, "but the cool-down is 5s";
        more_swaps_than_the_budget_allows_are_caught: "over-budget", 300, "per second are allowed";
        an_invalid_setting_that_is_accepted_is_caught: "wrong-setting", 20, "was accepted";
        a_payload_that_is_never_dropped_is_caught: "leak-payload", 1, "payloads of asynchronous calls are alive";
        a_lost_call_of_a_governed_object_is_caught: "lose-call", 20, "before it, not";
        an_object_that_does_not_shrink_is_caught: "keep-grown", 1, "do not return to their first form";
        an_engine_that_does_not_sleep_is_caught: "insomnia", 1, "was woken in each of";
    }
    unknown: "keep-grown"
} }

stress! { locks {
    threads: "12",
    // Counts that are positive even on the slowest machine.
    done: [
        "sections",
        "waits without a limit",
        "tries",
        "attributes changed",
        "requests",
        "rounds of duels",
        "threads started",
    ],
    never: [],
    modes: {
        it_passes_on_64_virtual_processors: [], [], vps = 64;
        it_passes_on_the_real_machine: ["--real"], [];
        it_passes_with_few_threads: ["--real", "--threads", "4"], [];
        it_passes_without_membarrier: [], [("SQUALL_MEMBARRIER", "off")];
        it_passes_without_restartable_sequences: ["--real"], [("SQUALL_RSEQ", "off")];
    }
    breaks: {
        a_section_without_its_lock_is_caught: "no-lock", 20, "inside";
        a_section_that_is_half_done_is_caught: "half-section", 20, "counted under the lock";
        a_section_reported_twice_is_caught: "tell-twice", 3, "sections counted";
        a_kept_lock_is_caught: "hold-on", 120, "a wake-up was lost";
        a_lost_wake_up_is_caught: "lose-wakeup", 120, "the forgetful lock: no thread is inside";
        a_wake_up_that_is_lost_in_a_duel_is_caught: "lose-in-duel", 300, "the forgetful lock: in a duel [Have";
        a_wait_that_ignores_its_cancellation_is_caught: "deaf-cancel", 120, "long after its cancellation";
        a_wait_that_outlasts_its_deadline_is_caught: "no-deadline", 120, "long after its deadline";
        a_wait_that_gives_up_before_its_deadline_is_caught: "early-timeout", 20, "before its deadline";
        a_reader_beside_a_writer_is_caught: "stray-reader", 20, "a writer and a reader are inside at once";
        a_request_that_enters_although_it_was_refused_is_caught: "enter-anyway", 20, "the counter is stopped";
        a_request_that_does_not_leave_is_caught: "keep-request", 120, "request counter: no thread is inside";
    }
    unknown: "lose-wakeup"
} }

stress! { alloc {
    threads: "5",
    done: ["rounds", "blocks allocated", "freed by the same thread", "freed by other threads"],
    never: [],
    modes: {
        it_passes: [], [];
        it_passes_without_restartable_sequences: [], [("SQUALL_RSEQ", "off")];
        it_passes_on_64_virtual_processors: [], [("SQUALL_TOPOLOGY", "nodes:2,caches:2,cores:8,threads:2")];
        it_passes_in_debug_mode: [], [("SQUALL_ALLOC_DEBUG", "1")];
    }
    breaks: {
        a_block_that_another_thread_wrote_to_is_caught: "alloc-scribble", 5, "byte 0 of";
        #[cfg_attr(
            squall_global_alloc,
            ignore = "the program's own blocks are counted, too, and are more or fewer by then"
        )]
        a_block_that_is_lost_is_caught: "alloc-lose", 5, "were not freed";
    }
    unknown: "alloc-lose"
} }

stress! { maps {
    threads: "8",
    // Counts that are positive even on the slowest machine.
    done: [
        "writes of own keys",
        "lookups of other keys",
        "additions",
        "walks checked",
        "panics in closures",
        "maps made",
        "cached maps made",
        "maps destroyed",
        "swaps",
        "threads started",
    ],
    never: [],
    modes: {
        it_passes_on_64_virtual_processors: [], [], vps = 64;
        it_passes_on_the_real_machine: ["--real", "--threads", "3"], [];
        it_passes_without_restartable_sequences_and_membarrier:
            [], [("SQUALL_RSEQ", "off"), ("SQUALL_MEMBARRIER", "off")];
    }
    // The violation is found by the first visitor of the key: its writer, another thread, or a walk.
    breaks: {
        a_lost_write_is_caught: "lose-write", 60, "key ";
        an_addition_made_twice_is_caught: "double-add", 60, "the sum is";
        a_stale_lookup_is_caught: "stale-look", 60, "was done before it";
        an_entry_that_a_walk_omits_is_caught: "skip-entry", 60, "that are always present";
        a_panic_that_changed_a_key_is_caught: "dirty-panic", 60, "key ";
        a_call_after_destroy_returned_is_caught: "early-mark", 60, "after destroy had returned";
        a_value_that_is_never_dropped_is_caught: "leak-value", 3, "were not dropped";
    }
    unknown: "stale-look"
} }

stress! { dhash {
    threads: "8",
    // Counts that are positive even on the slowest machine.
    done: [
        "entries made by closures",
        "reservations filled",
        "reservations handed over",
        "reservations failed",
        "reservations dropped",
        "uses",
        "lookups",
        "removals",
        "panics in closures",
        "directories made",
        "directories destroyed",
        "swaps",
        "threads started",
    ],
    never: [],
    modes: {
        it_passes_on_64_virtual_processors: [], [], vps = 64;
        it_passes_on_the_real_machine: ["--real", "--threads", "3"], [];
        it_passes_without_restartable_sequences_and_membarrier:
            [], [("SQUALL_RSEQ", "off"), ("SQUALL_MEMBARRIER", "off")];
    }
    // Some faults are found by the first visitor of the key, in one of several ways.
    breaks: {
        a_second_fill_of_a_present_key_is_caught: "double-fill", 60, "have not ended";
        a_lost_fill_is_caught: "lose-fill", 60, "key ";
        a_lost_use_is_caught: "lose-use", 60, "it was used";
        a_lookup_that_misses_an_entry_is_caught: "miss-entry", 60, "was present before it";
        a_removed_entry_in_use_is_caught: "keep-removed", 60, "key ";
        an_error_of_another_key_is_caught: "wrong-error", 60, "an error of another";
        a_call_after_destroy_returned_is_caught: "early-mark", 60, "after destroy had returned";
        an_entry_that_is_never_dropped_is_caught: "leak-entry", 3, "were not dropped";
    }
    unknown: "lose-fill"
} }

stress! { bags {
    threads: "8",
    // Counts that are positive even on the slowest machine.
    done: [
        "rounds",
        "tokens put",
        "tokens got",
        "batches",
        "idle events",
        "attributes changed",
        "panics in drops",
        "shards that left",
        "gathers",
        "waits",
        "waits cancelled",
        "rounds with an object",
        "swaps",
    ],
    never: [],
    modes: {
        it_passes: [], [];
        it_passes_with_few_threads: ["--threads", "2"], [];
        it_passes_on_64_virtual_processors: [], [("SQUALL_TOPOLOGY", "nodes:2,caches:2,cores:8,threads:2")];
        it_passes_without_restartable_sequences: [], [("SQUALL_RSEQ", "off")];
        it_passes_without_membarrier: [], [("SQUALL_MEMBARRIER", "off")];
    }
    breaks: {
        a_token_that_is_lost_is_caught: "lose-token", 20, "are in the bag after all were put back";
        a_token_that_is_got_twice_is_caught: "get-twice", 5, "although it was held by a thread";
        a_get_that_overlooks_a_token_is_caught: "say-empty", 20, "a get said empty although";
        a_wait_that_is_not_woken_is_caught: "forget-waiter", 20, "a wait was not woken";
        a_token_that_is_never_dropped_is_caught: "leak-token", 5, "tokens were dropped";
        a_token_that_a_swap_loses_is_caught: "lose-in-swap", 20, "tokens";
        a_token_that_a_swap_doubles_is_caught: "double-in-swap", 20, "token";
    }
    unknown: "say-empty"
} }

stress! { queue {
    threads: "8",
    // Counts that are positive even on the slowest machine.
    done: [
        "rounds",
        "elements put",
        "elements got",
        "elements taken",
        "gets that said empty",
        "changes of the form",
        "changes of the order",
        "attributes changed",
        "drains",
        "plentiful rounds",
        "waits",
        "waits cancelled",
        "searches",
        "waits ended by the end of the work",
        "elements got in order",
        "panics in drops",
    ],
    never: [],
    modes: {
        it_passes: [], [];
        it_passes_with_few_threads: ["--threads", "2"], [];
        it_passes_on_64_virtual_processors: [], [("SQUALL_TOPOLOGY", "nodes:2,caches:2,cores:8,threads:2")];
        it_passes_without_restartable_sequences: [], [("SQUALL_RSEQ", "off")];
        it_passes_without_membarrier: [], [("SQUALL_MEMBARRIER", "off")];
    }
    breaks: {
        an_element_that_is_lost_is_caught: "lose-element", 20, "are in the queue after all were put back";
        an_element_that_is_got_twice_is_caught: "get-twice", 5, "although it was held by a thread";
        a_get_that_overlooks_an_element_is_caught: "say-empty", 20, "a get said empty although";
        an_element_with_another_priority_is_caught: "wrong-priority", 5, "came out with priority";
        elements_in_the_wrong_order_are_caught: "wrong-order", 20, "returned an element after one that comes later";
        an_element_that_a_change_loses_is_caught:
            "lose-in-change", 20, "are in the queue after all were put back" | "a get said empty although";
        a_wait_that_is_not_woken_is_caught: "forget-waiter", 20, "a wait was not woken";
        a_closed_queue_that_accepts_an_element_is_caught: "accept-closed", 20, "a closed queue accepted";
        an_end_before_the_work_is_done_is_caught: "early-end", 20, "are not finished";
        an_end_that_is_missed_is_caught: "miss-end", 20, "the end of the work was not woken";
        an_element_that_is_never_dropped_is_caught: "leak-element", 5, "were never dropped";
    }
    unknown: "say-empty"
} }

stress! { pager {
    threads: "8",
    // Counts that are positive even on the slowest machine.
    done: [
        "rounds",
        "pages pinned",
        "pages pinned for writing",
        "pages compared with the books",
        "pages filled",
        "pages written to sources",
        "calls that sources refused",
        "faults beyond an end",
        "pages evicted",
        "syncs",
        "files shortened",
        "regions truncated",
        "regions copied",
        "regions unmapped",
        "swaps of caches",
        "swaps of regions",
        "swaps of lists",
        "frames dropped after their pool",
    ],
    never: [],
    modes: {
        it_passes: [], [];
        it_passes_with_one_thread: ["--threads", "1"], [];
        it_passes_on_64_virtual_processors: [], [("SQUALL_TOPOLOGY", "nodes:2,caches:2,cores:8,threads:2")];
        it_passes_without_restartable_sequences: [], [("SQUALL_RSEQ", "off")];
        it_passes_without_membarrier: [], [("SQUALL_MEMBARRIER", "off")];
    }
    breaks: {
        a_write_that_a_source_loses_is_caught: "lose-write", 5, "although the books say" | "a sync returned, but";
        a_torn_page_is_caught: "tear-page", 5, "is torn";
        a_page_with_former_contents_is_caught: "stale-fill", 5, "although the books say" | "after write";
        a_page_with_the_contents_of_another_is_caught: "wrong-page", 5, "shows page";
        bytes_that_come_back_after_a_cut_are_caught: "keep-cut", 5, "although the books say" | "after write";
        a_write_of_a_page_that_was_cut_off_is_caught: "write-cut", 5, "after it was cut off";
        an_error_without_a_page_is_caught: "unnamed-error", 5, "does not name the page";
        a_sync_that_does_nothing_is_caught: "skip-sync", 5, "a sync returned, but" | "after a sync";
        a_copy_that_is_shared_is_caught: "share-copy", 5,
            "although the books say" | "may not be written" | "is frozen" | "beyond the end"
                | "a sync returned, but" | "was destroyed";
        a_copied_file_that_is_written_is_caught: "thaw-parent", 5, "although the file is frozen";
        a_region_that_serves_on_is_caught: "ignore-unmap", 5, "after it was unmapped";
        a_page_that_changes_while_it_is_pinned_is_caught: "change-pinned", 5, "changed while it was pinned";
        a_page_that_is_never_unpinned_is_caught: "forget-frame", 5, "are in use after all was dropped";
        a_cache_that_remains_is_caught: "leak-cache", 5, "after all was dropped";
    }
    unknown: "lose-write"
} }

stress! { cache {
    threads: "8",
    // Counts that are positive even on the slowest machine.
    done: [
        "rounds",
        "lookups",
        "values found",
        "values inserted",
        "values loaded",
        "values of other loaders",
        "loads that failed",
        "changes by closures",
        "removals",
        "invalidations of all entries",
        "invalidations of some entries",
        "walks",
        "swaps of policies",
        "entries evicted or refused",
        "entries expired",
        "values replaced",
        "entries removed",
        "calls of listeners and loaders",
        "panics that reached callers",
        "values lost by a panic",
        "bounds checked",
        "values accounted for",
    ],
    never: [],
    modes: {
        it_passes: [], [];
        it_passes_with_few_threads: ["--threads", "2"], [];
        it_passes_on_64_virtual_processors: [], [("SQUALL_TOPOLOGY", "nodes:2,caches:2,cores:8,threads:2")];
        it_passes_without_restartable_sequences: [], [("SQUALL_RSEQ", "off")];
        it_passes_without_membarrier: [], [("SQUALL_MEMBARRIER", "off")];
    }
    // Some faults are found by the first call that meets them, in one of several ways.
    breaks: {
        an_insertion_that_is_lost_is_caught:
            "lose-insert", 5, "and the listener lacks it" | "its only writer left" | "had inserted value";
        an_older_value_is_caught: "stale-value", 5, "had inserted value" | "its only writer left";
        a_value_of_another_key_is_caught: "wrong-key", 5, "has a value of key";
        a_removal_that_does_nothing_is_caught: "ignore-remove", 5, "its only writer left";
        an_invalidation_of_all_entries_that_does_nothing_is_caught: "ignore-clear", 5, "its only writer left";
        an_invalidation_of_some_entries_that_does_nothing_is_caught: "ignore-sweep", 5, "its only writer left";
        an_entry_that_a_walk_omits_is_caught: "skip-entry", 5, "its only writer left";
        an_entry_that_a_walk_has_twice_is_caught: "walk-twice", 5, "twice";
        an_entry_that_serves_on_after_its_time_is_caught: "keep-expired", 5, "its only writer left";
        an_entry_that_the_listener_gets_twice_is_caught: "tell-twice", 5, "twice";
        an_entry_that_the_listener_lacks_is_caught: "lose-notice", 5, "and the listener lacks it";
        an_entry_that_the_listener_gets_early_is_caught:
            "tell-early", 5, "its only writer left" | "twice" | "which is still in the cache";
        more_than_the_bound_is_caught: "exceed-bound", 5, "and the bound is";
        a_wrong_count_of_the_bound_is_caught: "undercount", 5, "the cache counts";
        two_loaders_of_a_key_are_caught: "load-twice", 5, "run at one time";
        an_error_of_another_loader_is_caught: "wrong-error", 5, "of another";
        a_value_of_another_loader_is_caught: "wrong-load", 5, "returned value";
        a_value_that_is_never_dropped_is_caught: "leak-value", 5, "were not dropped";
    }
    unknown: "tell-early"
} }

stress! { ship {
    threads: "5",
    done: [
        "rounds",
        "calls sent",
        "full inboxes",
        "panics",
        "calls given up",
        "calls served on request",
        "calls to all clusters",
        "events",
    ],
    never: [],
    modes: {
        it_passes: [], [];
        it_passes_with_few_threads: ["--threads", "2"], [];
        it_passes_without_restartable_sequences: [], [("SQUALL_RSEQ", "off")];
    }
    breaks: {
        a_call_that_runs_twice_is_caught: "run-twice", 5, "ran twice";
        a_call_that_is_lost_is_caught: "lose-call", 20, "were never dropped";
        a_result_that_changes_is_caught: "wrong-result", 5, "ended with Ok";
        events_out_of_order_are_caught: "swap-events", 5, "was handled after a later one";
    }
    unknown: "lose-call"
} }

stress! { calls {
    threads: "5",
    done: [
        "clients",
        "servers",
        "killed",
        "hostile",
        "calls counted",
        "rights revoked",
        "nested levels counted",
        "forked children",
        "servers restarted",
        "renewals counted",
    ],
    never: [],
    modes: {
        it_passes: [], [];
        it_passes_with_two_threads: ["--threads", "2"], [];
        it_passes_on_64_virtual_processors: [], [("SQUALL_TOPOLOGY", "nodes:2,caches:2,cores:8,threads:2")];
        it_passes_without_restartable_sequences: [], [("SQUALL_RSEQ", "off")];
        it_passes_without_membarrier: [], [("SQUALL_MEMBARRIER", "off")];
    }
    breaks: {
        a_call_that_returns_but_does_not_run_is_caught: "lose-call", 20, "`enter` returned";
        a_call_that_runs_twice_is_caught: "run-twice", 20, "`enter` returned";
        a_result_of_other_arguments_is_caught: "wrong-echo", 20, "belongs to other arguments";
        a_revoked_right_that_holds_is_caught: "ignore-rights", 5, "without the right to it";
        a_descriptor_that_remains_is_caught: "leak-descriptor", 3, "remain after the run";
        a_mapping_that_remains_is_caught: "leak-import", 3, "remain after the run";
        a_thread_that_remains_is_caught: "leak-thread", 3, "remain after the run";
        a_process_that_remains_is_caught: "leak-process", 3, "remain after the run";
        a_level_that_runs_twice_is_caught: "nest-twice", 20, "`nest` returned";
        a_call_that_ran_although_it_says_not_is_caught: "forget-unsure", 20, "through a renewable import";
        an_import_that_is_not_renewed_is_caught: "lose-renewal", 20, "has not found its server again";
        a_call_of_a_forked_child_that_returns_is_caught: "answer-forked", 20, "returned a result or a wrong error";
        a_forked_child_that_ends_connections_is_caught: "end-in-fork", 20, "the server is gone";
        a_descriptor_that_remains_at_exec_is_caught: "keep-at-exec", 20, "remained when it executed a program";
    }
    unknown: "wrong-echo"
} }

stress! { fleets {
    threads: "5",
    done: [
        "joined",
        "left",
        "killed",
        "stopped",
        "healed",
        "shards lost",
        "calls done",
        "calls counted at the end",
        "calls unsure that ran",
        "calls unsure, not run",
    ],
    never: [],
    modes: {
        it_passes: [], [];
        it_passes_with_one_thread: ["--threads", "1"], [];
    }
    breaks: {
        a_call_that_runs_twice_is_caught: "run-twice", 20, "ran twice";
        a_lost_call_that_is_made_again_is_caught: "retry-lost", 20, "ran twice";
        a_call_that_ran_although_it_says_not_is_caught: "forget-unsure", 20, "although it was told as not run";
        a_call_that_ends_late_is_caught: "end-late", 20, "with a limit of";
        a_call_that_a_move_loses_is_caught: "lose-in-move", 20, " shard ";
        a_shard_that_begins_anew_is_caught: "begin-anew", 20, "have lost their state, although no member died";
        a_process_that_remains_is_caught: "leak-process", 3, "remain after the run";
        a_descriptor_that_remains_is_caught: "leak-descriptor", 3, "remain after the run";
        a_transport_that_remains_is_caught: "leak-transport", 3, "remain after the run";
    }
    unknown: "lose-in-move"
} }

stress! { pools {
    threads: "5",
    done: [
        "rounds",
        "joined",
        "left",
        "pools left",
        "killed",
        "stopped",
        "removed and back",
        "elements taken",
        "elements lost by deaths",
        "losses counted exactly",
        "found empty, compared",
        "adds refused",
    ],
    never: [],
    modes: {
        it_passes: [], [];
        it_passes_with_one_thread: ["--threads", "1"], [];
    }
    breaks: {
        an_element_that_goes_to_two_callers_is_caught: "add-twice", 20, "went to two callers";
        an_element_that_a_leaver_loses_is_caught: "lose-in-leave", 20, "deaths explain none of them" | "a get found";
        an_element_that_a_stopped_member_loses_is_caught: "lose-in-stop", 20,
            " elements, but 0 were lost with member" | "a get found";
        an_element_that_is_lost_beside_a_dead_member_is_caught: "lose-beside-death", 20,
            "were lost with member" | "a get found";
        a_pool_that_is_empty_in_error_is_caught: "false-empty", 20, "a get found" | "are gone";
        a_refused_add_that_took_effect_is_caught: "take-refused", 20, "was refused, and a get has it";
        a_get_that_is_given_up_with_an_element_is_caught: "keep-given-up", 20, "are gone" | "a get found";
        a_wrong_number_of_lost_elements_is_caught: "miscount-end", 20, "but its last member told";
        a_process_that_remains_is_caught: "leak-process", 3, "remain after the run";
        a_descriptor_that_remains_is_caught: "leak-descriptor", 3, "remain after the run";
    }
    unknown: "lose-in-leave"
} }

/// The part of the stress `calls` that only root can run, since its children become other users.
mod calls_of_other_users {
    use super::*;

    const STRESS: StressTest = StressTest {
        name: "calls",
        threads: "5",
        done: &["hoards", "largest hoard", "strangers refused"],
        never: &[],
    };

    /// Whether children of this process can become other users.
    fn is_root() -> bool {
        let counts = STRESS.run_for_a_moment();
        !counts.contains("only as root")
    }

    #[test]
    fn it_passes() {
        if is_root() {
            STRESS.passes(&[], &[]);
        }
    }

    #[test]
    fn a_user_with_more_than_its_share_is_caught() {
        if is_root() {
            STRESS.fails("ignore-shares", 20, &["more than its share"]);
        }
    }

    #[test]
    fn a_user_that_leaves_others_no_calls_is_caught() {
        if is_root() {
            STRESS.fails("starve-user", 20, &["those of another user are not served"]);
        }
    }
}

/// Whether this process can make the network namespaces of a stress.
#[cfg(feature = "hosts")]
fn makes_namespaces(stress: &StressTest) -> bool {
    !stress.run_for_a_moment().contains("skipped")
}

/// Groups between network namespaces, which only root can make.
#[cfg(feature = "hosts")]
mod hosts {
    use super::*;

    // Counts that are positive even on the slowest machine.
    const STRESS: StressTest = StressTest {
        name: "hosts",
        threads: "3",
        done: &[
            "rounds",
            "hosts cut",
            "healed without a host",
            "hosts vanished",
            "members killed",
            "members came back",
            "healed",
            "calls done",
            "calls counted at the end",
        ],
        never: &[],
    };

    #[test]
    fn it_passes() {
        if makes_namespaces(&STRESS) {
            STRESS.passes(&[], &[]);
        }
    }

    #[test]
    fn planned_breaks_are_caught() {
        if !makes_namespaces(&STRESS) {
            return;
        }
        for (how, clue) in [
            ("run-twice", "ran twice"),
            ("retry-lost", "ran twice"),
            ("forget-unsure", "although it was told as not run"),
            ("end-late", "with a limit of"),
            ("stay-cut", "the group has not healed within"),
            ("leak-process", "remain after the run"),
            ("leak-host", "remain after the run"),
        ] {
            STRESS.fails(how, 20, &[clue]);
        }
    }

    #[test]
    fn an_unknown_break_is_refused() {
        STRESS.refuses_an_unknown_break("stay-cut");
    }
}

/// Pools between network namespaces, which only root can make.
#[cfg(feature = "hosts")]
mod pool_hosts {
    use super::*;

    const STRESS: StressTest = StressTest {
        name: "pool-hosts",
        threads: "4",
        done: &[
            "rounds",
            "hosts cut",
            "pairs of hosts cut",
            "killed",
            "removed and back",
            "elements taken",
            "losses counted exactly",
            "found empty, compared",
        ],
        never: &[],
    };

    #[test]
    fn it_passes() {
        if makes_namespaces(&STRESS) {
            STRESS.passes(&[], &[]);
        }
    }

    #[test]
    fn planned_breaks_are_caught() {
        if !makes_namespaces(&STRESS) {
            return;
        }
        let breaks: [(&str, &[&str]); 4] = [
            ("add-twice", &["went to two callers"]),
            ("lose-in-stop", &[" elements, but 0 were lost with member", "a get found"]),
            ("lose-beside-death", &["were lost with member", "a get found"]),
            ("leak-process", &["remain after the run"]),
        ];
        for (how, clues) in breaks {
            STRESS.fails(how, 20, clues);
        }
    }
}

/// A single caller is rarely blocked, so this test only checks that the run passes.
#[test]
fn swap_passes_with_one_calling_thread() {
    let output = run(squall().args(["stress", "swap", "--seconds", "2", "--seed", "11", "--threads", "1"]));
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).ends_with("  no violation\n"), "{}", stdout(&output));
}

#[test]
fn memory_is_flat_after_a_hundred_thousand_swaps() {
    let output = run(squall().args(["stress", "swap-memory", "--seconds", "1", "--seed", "11"]));
    let (said, complaint) = (stdout(&output), stderr(&output));
    assert!(output.status.success() && said.ends_with("  no violation\n"), "{said}\n{complaint}");
    let swaps = said.lines().find_map(|line| line.trim().strip_prefix("swaps completed"));
    let swaps = swaps.and_then(|count| count.trim().parse::<u64>().ok());
    assert!(swaps.is_some_and(|count| count >= 100_000), "{said}");
}

#[test]
fn memory_that_grows_is_caught() {
    let mut command = squall();
    command.args(["stress", "swap-memory", "--seconds", "1", "--seed", "11"]);
    let output = run(command.env("SQUALL_STRESS_BREAK", "leak-value"));
    let complaint = stderr(&output);
    assert!(!output.status.success() && complaint.contains("memory grew from"), "{complaint}");
}
