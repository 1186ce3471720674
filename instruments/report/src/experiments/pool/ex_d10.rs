//! EX-D10 over messages: placement of servers and clients (fos, figures 6-33 to 6-37).

use squall_bench::pool::{Load, Placement, Strategy};

use super::{MESSAGES, RATE, Values, at, method, run_at, told};
use crate::{Experiment, Found, Means, Paper, Verdict};

pub(in crate::experiments) static EX_D10: Experiment = Experiment {
    id: "EX-D10-messages",
    title: "Servers beside their clients, or beside each other",
    question: "Which matters more: a short way from the client to its server, or from server to server?",
    paper: Paper {
        source: "D. Wentzlaff, fos, PhD thesis 2012, §6.3.8, pages 143 to 146, figures 6-33 to 6-37.",
        found: "Servers beside their clients are slightly better, with estimated pushes and with bulk transfers. Messages between \
                servers matter less, since few gets wait for one.",
    },
    here: method!(
        "Near means 2 us and far 4 us, for each message. So the times follow from the numbers of messages: a get takes two \
         between client and server, and those counted here between servers."
    ),
    agrees_if: "with 8 servers and 8 and 16 clients, under all four loads and with both strategies, the rate is higher near the \
                clients, by at most 15 %; and fewer messages go between servers than between clients and servers.",
    command: "squall report EX-D10-messages",
    seconds: (4, 40),
    run: |lab| {
        Ok(found(&mut |strategy, load, clients, placement| {
            run_at(lab, strategy, load, (8, clients), placement)
        }))
    },
    verdict,
    alike: || found(&mut |_, _, _, placement| planted(placement == Placement::NearClients, 0.2)),
    opposite: || found(&mut |_, _, _, placement| planted(placement == Placement::Together, 5.0)),
};

fn planted(better: bool, messages: f64) -> Values {
    Values { messages, rate: if better { 109.0 } else { 100.0 }, ..Values::default() }
}

const CLIENTS: [usize; 2] = [8, 16];
const KINDS: [(&str, Strategy); 2] =
    [("estimated pushes", Strategy::EstimatedPush), ("bulk transfers", Strategy::BulkTransfer)];
const PLACES: [(&str, Placement); 2] =
    [("near clients", Placement::NearClients), ("servers together", Placement::Together)];

fn found(of: &mut dyn FnMut(Strategy, Load, usize, Placement) -> Values) -> Found {
    let mut found = Found::default();
    each(|kind, strategy, load, clients| {
        for (place, placement) in PLACES {
            let values = of(strategy, load, clients, placement);
            let name = |part: &str| at(&format!("{part}, {kind}, {place}"), load, 8, clients);
            found.figure(name("rate"), values.rate, RATE, Means::Stepped);
            found.figure(name("messages"), values.messages, MESSAGES, Means::Stepped);
        }
    });
    found
}

fn each(mut act: impl FnMut(&str, Strategy, Load, usize)) {
    for (kind, strategy) in KINDS {
        for load in Load::ALL {
            CLIENTS.into_iter().for_each(|clients| act(kind, strategy, load, clients));
        }
    }
}

fn verdict(found: &Found) -> Verdict {
    let (mut least, mut most, mut messages) = (f64::INFINITY, 0.0_f64, 0.0_f64);
    let mut complete = true;
    each(|kind, _, load, clients| {
        let [near, together] = PLACES.map(|(place, _)| {
            ["rate", "messages"]
                .map(|part| found.value(&at(&format!("{part}, {kind}, {place}"), load, 8, clients)))
        });
        let gain = near[0] / together[0];
        complete &= !gain.is_nan();
        (least, most) = (least.min(gain), most.max(gain));
        messages = messages.max(near[1]).max(together[1]);
    });
    let why = format!(
        "near the clients the rate is {} times as high; at most {} messages per get go between servers, and 2 between the \
         client and its server",
        told(&[least, most]),
        told(&[messages])
    );
    Verdict::of(complete && least > 1.0 && most <= 1.15 && messages < 2.0, why)
}
