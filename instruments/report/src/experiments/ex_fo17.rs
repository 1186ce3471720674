//! EX-FO17: replies before requests (fos, §3.3).

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Waker};

use squall_fleet::{Class, Dispatcher, Mailbox, Sender};

use crate::{Axis, Experiment, Found, Lab, Means, Missing, Paper, Plot, Series, Verdict};

pub(super) static EX_FO17: Experiment = Experiment {
    id: "EX-FO17",
    title: "The livelock of a server that takes requests before replies",
    question: "Does a server that always has requests ever get the replies that it waits for?",
    paper: Paper {
        source: "D. Wentzlaff, fos, 2012, §3.3.",
        found: "Only if replies come first. With requests first, a server starved the replies to its own calls, which \
                became thousands of times too slow.",
    },
    here: "One thread steps a dispatcher. Each request makes a call and, when it begins, is replaced by the next \
           request. The begun requests are counted until the first call has its reply. A third dispatcher takes \
           requests first, and has a limit of 64 requests without a reply.",
    agrees_if: "with replies first, at most two requests begin before the first reply, and with requests first all of \
                them. The limit bounds them too.",
    command: "squall report EX-FO17",
    seconds: (1, 2),
    run,
    verdict,
    alike: || found(|requests| [1.0, requests as f64, 64.0_f64.min(requests as f64)]),
    opposite: || found(|requests| [requests as f64, 1.0, 1.0]),
};

/// Numbers of requests, one after the other.
const REQUESTS: [u64; 4] = [16, 256, 1024, 4096];
const LIMIT: usize = 64;
const NAMES: [&str; 3] = ["replies first", "requests first", "requests first, limit 64"];

fn run(lab: &mut Lab<'_>) -> Result<Found, Missing> {
    lab.tell("count begun requests");
    Ok(found(|requests| {
        [(false, None), (true, None), (true, Some(LIMIT))].map(|(requests_first, limit)| {
            begun_before_the_first_reply(requests, requests_first, limit) as f64
        })
    }))
}

/// Returns the requests that begin before the first call of one of them has its reply.
fn begun_before_the_first_reply(requests: u64, requests_first: bool, limit: Option<usize>) -> u64 {
    let ((clients, to_clients), (inner, to_inner)) = (mailbox(), mailbox());
    let mut dispatcher = Dispatcher::new();
    dispatcher.limit_requests(limit.unwrap_or(usize::MAX));
    if requests_first {
        dispatcher.__requests_first();
    }
    let context = dispatcher.context();
    let (begun, first) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(None)));
    dispatcher.serve(inner, Class::FleetCall, |request| async move { request.reply(b"") });
    let (count, result) = (begun.clone(), first.clone());
    let next = to_clients.clone();
    let serve = context.clone();
    dispatcher.serve(clients, Class::External, move |request| {
        count.set(count.get() + 1);
        if count.get() < requests {
            // The next request is there before the reply to the call of this one.
            next.send(&EVENT).expect("there is room for one request");
        }
        let (context, to_inner, begun, first) =
            (serve.clone(), to_inner.clone(), count.clone(), result.clone());
        async move {
            // Held until the end of the call, so that the limit counts it.
            let _request = request;
            if context.call(&to_inner, 1, b"").await.is_ok() {
                first.set(first.get().or(Some(begun.get())));
            }
            if begun.get() == requests && context.stats().calls == 0 {
                context.stop();
            }
        }
    });
    to_clients.send(&EVENT).expect("there is room for one request");
    let mut run = pin!(dispatcher.run_async());
    let mut task = Context::from_waker(Waker::noop());
    while run.as_mut().poll(&mut task).is_pending() {}
    first.get().unwrap_or(begun.get())
}

/// A request without a reply, as it travels: its kind, the method and the token.
const EVENT: [u8; 24] = {
    let mut bytes = [0; 24];
    bytes[0] = 2;
    bytes
};

fn mailbox() -> (Mailbox, Sender) {
    // Room for all calls at a time.
    let mailbox = Mailbox::builder().lane_bytes(1 << 20).build();
    let capability = mailbox.add_capability().expect("a new mailbox has room for a capability");
    let sender = mailbox.sender(capability).expect("the capability is one of the mailbox");
    (mailbox, sender)
}

fn name(of: &str, requests: u64) -> String {
    format!("{of}: {requests} requests")
}

fn verdict(found: &Found) -> Verdict {
    let value = |of, requests| found.value(&name(of, requests));
    let holds = REQUESTS.iter().all(|&requests| {
        value(NAMES[0], requests) <= 2.0
            && value(NAMES[1], requests) >= requests as f64
            && value(NAMES[2], requests) <= LIMIT as f64
    });
    let most = REQUESTS[REQUESTS.len() - 1];
    let [replies, reversed, limited] = NAMES.map(|of| value(of, most));
    let why = format!(
        "of {most} requests, {replies:.0} began before the first reply with replies first, {reversed:.0} with requests \
         first, and {limited:.0} with a limit of {LIMIT}"
    );
    Verdict::of(holds, why)
}

fn found(values: impl Fn(u64) -> [f64; 3]) -> Found {
    let mut found = Found::default();
    let rows = REQUESTS.map(|requests| (requests, values(requests)));
    for (requests, values) in rows {
        for (of, value) in NAMES.iter().zip(values) {
            found.figure(name(of, requests), value, "requests", Means::Stepped);
        }
    }
    let series = NAMES.iter().enumerate().map(|(at, of)| Series {
        name: (*of).to_owned(),
        points: rows.iter().map(|(requests, values)| (*requests as f64, values[at])).collect(),
    });
    found.plots.push(Plot {
        name: "livelock",
        title: "Requests begun before the first reply",
        x: Axis::log("requests"),
        y: Axis::log("begun before the first reply"),
        means: Means::Stepped,
        series: series.collect(),
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_first_avoid_the_livelock_and_a_limit_bounds_it() {
        for requests in REQUESTS {
            assert_eq!(begun_before_the_first_reply(requests, false, None), 1);
            assert_eq!(begun_before_the_first_reply(requests, true, None), requests);
            let limited = begun_before_the_first_reply(requests, true, Some(LIMIT));
            assert_eq!(limited, requests.min(LIMIT as u64));
        }
    }
}
