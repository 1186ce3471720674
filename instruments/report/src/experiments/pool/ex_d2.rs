//! EX-D2: the kernel's own allocator beside servers of pages (fos, §6.2.2, figure 6-7).

use crate::{Axis, Experiment, Found, Lab, Means, Missing, Paper, Plot, Series, Verdict};

pub(in crate::experiments) static EX_D2: Experiment = Experiment {
    id: "EX-D2",
    title: "Pages of the kernel, and of servers",
    question: "How many pages per second does the kernel give, and how many do servers of pages?",
    paper: Paper {
        source: "D. Wentzlaff, fos, PhD thesis 2012, §6.2.2 and §6.3.1, pages 119 to 121, figures 6-7 and 6-8.",
        found: "Linux gives more pages with each processor up to six. There it peaks at 436 per million cycles, which are \
                828 per ms at 1.9 GHz. With more processors it falls a little, and then stays near the peak. A pool in one \
                server is slower than Linux with any number of clients.",
    },
    here: "The load is the uniform one: each client takes 63 of 64 pages of its share, all at once, and then frees them. It \
           writes the first byte of each page. A rate is the sum of all pages divided by the time of the slowest client, \
           without the frees. From the kernel, a client takes its pages by page faults in anonymous memory, without huge \
           pages. From the page service, it takes each page by a call of a server on this machine. There is no call for \
           several pages, so the batches are those of frees. The pool of `squall::objects::pages` has pages that the \
           process keeps. All three fill pages with zeros. The pages of the service and the pool are in memory already, \
           those of the kernel are not. Clients and servers are threads of one process, not processes. They talk over \
           the transport of processes, and share all processors, where the thesis has a processor for each. There are \
           as many clients as processors at most, so fewer than six show no peak.",
    agrees_if: "with all processors, or six of more, the kernel gives at least 1.2 times as many pages as with one, and one server \
                gives fewer than the kernel with each number of clients.",
    command: "squall report EX-D2",
    seconds: (10, 60),
    run,
    verdict,
    alike: || found(&[1, 2, 4, 6, 8], planted([300.0, 500.0, 800.0, 828.0, 780.0], 100.0)),
    opposite: || found(&[1, 2, 4, 6, 8], planted([300.0, 290.0, 280.0, 250.0, 200.0], 900.0)),
};

/// The subjects of `squall bench page-alloc` that the plot shows, with their names.
const LINES: [(&str, &str); 4] = [
    (KERNEL, "kernel"),
    ("squall-pool", "pool of the process"),
    (SERVICE, "one server"),
    ("squall-service-2", "two servers"),
];
const KERNEL: &str = "kernel";
const SERVICE: &str = "squall-service";
const BATCH: &str = "squall-service-batch";
const PLOT: &str = "ex-d2";
/// Processors at the peak of the thesis.
const PEAK: f64 = 6.0;

fn run(lab: &mut Lab<'_>) -> Result<Found, Missing> {
    let mut threads = lab.threads();
    // The peak of the thesis.
    if threads.last().is_some_and(|last| *last > PEAK as usize) {
        threads.push(PEAK as usize);
        threads.sort_unstable();
        threads.dedup();
    }
    let times = lab.bench("page-alloc", "", &threads)?;
    Ok(found(&threads, |subject, column, threads| times.metric(&format!("{subject}/{column}"), threads)))
}

/// The figures, from the columns of the bench by subject and number of clients.
fn found(threads: &[usize], of: impl Fn(&str, &str, usize) -> f64) -> Found {
    let line = |(subject, name): (&str, &str)| Series {
        name: name.to_owned(),
        points: threads.iter().map(|&it| (it as f64, of(subject, "takes_per_ms", it))).collect(),
    };
    let plot = Plot {
        name: PLOT,
        title: "Pages taken and touched, uniform load",
        x: Axis::linear("clients"),
        y: Axis::log("pages per ms, all clients"),
        means: Means::Timed,
        series: LINES.map(line).to_vec(),
    };
    let mut found = Found { plots: vec![plot], ..Found::default() };
    for &clients in threads {
        let at = |what: &str, name: &str| format!("{what}, {name}, {}", clients_name(clients));
        for (subject, name) in LINES {
            let each = of(subject, "takes_per_ms", clients) * 1e3 / clients as f64;
            found.figure(at("pages taken by each client", name), each, "per second", Means::Timed);
            let spread = of(subject, "takes_spread", clients) * 100.0;
            found.figure(at("spread over the rounds", name), spread, "% of the median", Means::Timed);
            if subject != KERNEL {
                let ratio = of(subject, "takes_of_kernel", clients);
                found.figure(at("pages taken", name), ratio, "of the kernel's", Means::Timed);
            }
        }
        for (subject, name) in [(KERNEL, "kernel"), (SERVICE, "one server"), (BATCH, "one server, batches")] {
            let each = of(subject, "frees_per_ms", clients) * 1e3 / clients as f64;
            found.figure(at("pages freed by each client", name), each, "per second", Means::Timed);
        }
    }
    found
}

fn clients_name(clients: usize) -> String {
    if clients == 1 { "1 client".to_owned() } else { format!("{clients} clients") }
}

fn verdict(found: &Found) -> Verdict {
    let [kernel, _, one, two] = LINES.map(|(_, name)| found.series(PLOT, name));
    let top = kernel.last_x().min(PEAK);
    let grows = kernel.at(top) / kernel.first();
    let is_below = kernel.points.iter().all(|(clients, rate)| one.at(*clients) < *rate);
    let part = |line: &Series| line.first() / kernel.first();
    let why = format!(
        "the kernel gives {} pages per ms to one client, and {grows:.2} times as many to {top}; one server gives one client \
         {:.4} of the kernel's pages, two servers give it {:.4}, and a server has {} the kernel's with each number of clients",
        crate::page::digits(kernel.first()),
        part(&one),
        part(&two),
        if is_below { "fewer than" } else { "not fewer than" },
    );
    if kernel.last_x() < 2.0 {
        return Verdict::Part(format!("{why}; growth needs two processors"));
    }
    Verdict::of(grows >= 1.2 && is_below, why)
}

/// Columns of a bench with these rates of the kernel, and this one of the servers.
fn planted(kernel: [f64; 5], servers: f64) -> impl Fn(&str, &str, usize) -> f64 {
    move |subject, column, threads| {
        let kernel = kernel[[1, 2, 4, 6, 8].iter().position(|it| *it == threads).unwrap_or(0)];
        match (subject, column) {
            (_, "takes_spread") => 0.05,
            (KERNEL, _) => kernel,
            (_, "takes_of_kernel") => servers / kernel,
            _ => servers,
        }
    }
}
