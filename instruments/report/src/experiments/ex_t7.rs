//! EX-T7: the list of small costs (Tornado, §3 to §6).

use crate::lab::Loop;
use crate::{Experiment, Found, Lab, Means, Missing, Paper, Verdict};

pub(super) static EX_T7: Experiment = Experiment {
    id: "EX-T7",
    title: "The list of small costs",
    question: "What does each step in the life of an object cost?",
    paper: Paper {
        source: "B. Gamsa et al., Tornado, OSDI 1999, §3 to §6.",
        found: "A call takes one instruction more than a call of a C++ object, a lock and an unlock take 20, malloc and \
                free 37, a miss in the object table about 150. Creating and destroying an object that is called \
                through this table takes 300 more than one that is not. A call of another address space takes 372, the most \
                of all.",
    },
    here: "Loads and stores are counted instead of instructions. A call includes the begin and the end of its \
           operation, which keep the object alive. The emulator lacks restartable sequences, short code that the kernel \
           restarts after an interruption, so the allocator runs its fallback. A miss includes its call. A call of another process consists mostly of the \
           kernel's part, so it is timed, beside the life of an object.",
    agrees_if: "a call costs less than a lock and an unlock, and a miss more than a call, a lock or an allocation, and \
                less than an object's life. In time, a call of another process costs more than an object's life.",
    command: "squall report EX-T7",
    seconds: (20, 60),
    run,
    verdict,
    alike: || found([1.0, 20.0, 37.0, 150.0, 300.0], [300.0, 372.0]),
    opposite: || found([300.0, 150.0, 37.0, 20.0, 1.0], [372.0, 300.0]),
};

const CALL: &str = "a call";
const LOCK: &str = "a lock and an unlock";
const ALLOC: &str = "malloc and free";
const MISS: &str = "a miss in the object table";
const LIFE: &str = "create, call and destroy";
const LIFE_NS: &str = "create, call and destroy, timed";
const PROCESS_NS: &str = "a call of another process, timed";

/// Name, and the case, variant and subject of the loop.
const COSTS: [(&str, &str, &str, &str); 5] = [
    (CALL, "call", "", "squall"),
    (LOCK, "lock", "free", "squall"),
    (ALLOC, "alloc", "tight-64", "squall"),
    (MISS, "miss", "cached", "squall"),
    (LIFE, "lifecycle", "", "squall"),
];

fn run(lab: &mut Lab<'_>) -> Result<Found, Missing> {
    let mut found = Found::default();
    for (name, case, variant, subject) in COSTS {
        let counts = lab.count(Loop { case, subject, variant, threads: 1, ops: 2000 })?;
        found.figure(name, counts.accesses, "accesses", Means::Counted);
    }
    found.figure(LIFE_NS, lab.bench("lifecycle", "", &[1])?.ns("squall", 1), "ns", Means::Timed);
    let process = lab.bench("call-process", "same-core", &[1])?.ns("squall", 1);
    found.figure(PROCESS_NS, process, "ns", Means::Timed);
    Ok(found)
}

fn verdict(found: &Found) -> Verdict {
    let [call, lock, alloc, miss, life] = [CALL, LOCK, ALLOC, MISS, LIFE].map(|name| found.value(name));
    let [life_ns, process_ns] = [LIFE_NS, PROCESS_NS].map(|name| found.value(name));
    let why = format!(
        "loads and stores: a call {call:.0}, a lock and an unlock {lock:.0}, malloc and free {alloc:.0}, a miss \
         {miss:.0}, create, call and destroy {life:.0}; in time, create, call and destroy {life_ns:.0} ns, and a call \
         of another process {process_ns:.0} ns"
    );
    // The paper's lock and allocator are close to each other; their order is left open.
    let counted = call < lock && lock < miss && alloc < miss && miss < life;
    Verdict::of(counted && life_ns < process_ns, why)
}

fn found(values: [f64; 5], [life_ns, process_ns]: [f64; 2]) -> Found {
    let mut found = Found::default();
    for ((name, ..), value) in COSTS.iter().zip(values) {
        found.figure(*name, value, "accesses", Means::Counted);
    }
    found.figure(LIFE_NS, life_ns, "ns", Means::Timed);
    found.figure(PROCESS_NS, process_ns, "ns", Means::Timed);
    found
}
