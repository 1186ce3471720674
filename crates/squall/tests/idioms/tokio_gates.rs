//! Gates in tasks of Tokio, on one thread: a wait that blocks the thread holds up the requests it waits for.

use std::future::Future;
use std::time::Duration;

use squall::objects::gate::{self, Gate, GateError, GateExt, GateState};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Longer than any test.
const LONG: Duration = Duration::from_secs(60);

#[path = "../../examples/graceful_shutdown.rs"]
mod graceful_shutdown;

/// Runs a test on one thread, with both forms.
fn both<F: Future<Output = ()>>(test: impl Fn(squall::Owned<dyn Gate>) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(test(gate::shared()));
    runtime.block_on(test(gate::distributed()));
}

#[test]
fn a_server_answers_its_last_requests() {
    graceful_shutdown::main().expect("the server and its clients run");
}

#[test]
fn a_task_shuts_down_the_gate_of_a_request_on_its_thread() {
    both(|owned| async move {
        let gate = owned.handle();
        let (answer, answered) = oneshot::channel();
        let request = tokio::spawn(async move {
            let _request = gate.request_async().await.expect("the gate is open");
            answered.await.expect("the test answers")
        });
        while gate.inside() == 0 {
            tokio::task::yield_now().await;
        }
        answer.send(42).expect("the request waits");
        // The thread is blocked, so the request cannot leave.
        assert_eq!(gate.shutdown_for(Duration::from_millis(1)), Err(GateError::TimedOut));
        assert_eq!(timeout(LONG, gate.drained_async()).await, Ok(Ok(())));
        assert_eq!(request.await.expect("it does not panic"), 42);
    });
}

#[test]
fn a_timer_of_the_runtime_limits_a_wait() {
    both(|owned| async move {
        let gate = owned.handle();
        let request = gate.request_async().await.expect("the gate is open");
        timeout(Duration::ZERO, gate.stop_async()).await.expect_err("a request is inside");
        assert_eq!((gate.state(), gate.inside()), (GateState::Normal, 1));
        timeout(Duration::ZERO, gate.shutdown_async()).await.expect_err("a request is inside");
        assert_eq!((gate.state(), gate.inside()), (GateState::ShutDown, 1));
        drop(request);
        assert_eq!(timeout(LONG, gate.drained_async()).await, Ok(Ok(())));
    });
}

#[test]
fn aborted_tasks_leave_the_gate() {
    both(|owned| async move {
        let gate = owned.handle();
        let enter = || {
            tokio::spawn(async move {
                let _request = gate.request_async().await.expect("the gate is open");
                std::future::pending::<()>().await
            })
        };
        let inside = enter();
        while gate.inside() == 0 {
            tokio::task::yield_now().await;
        }
        let stop = tokio::spawn(gate.stop_async());
        while gate.state() == GateState::Normal {
            tokio::task::yield_now().await;
        }
        let waiting = enter();
        tokio::task::yield_now().await;
        waiting.abort();
        assert!(waiting.await.is_err_and(|error| error.is_cancelled()));
        inside.abort();
        assert_eq!(stop.await.expect("it does not panic"), Ok(()));
        assert_eq!((gate.state(), gate.inside()), (GateState::Stopped, 0));
    });
}
