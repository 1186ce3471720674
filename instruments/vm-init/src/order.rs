//! Orders on the kernel's command line: words of the form `squall.key=value`.

/// The expected machine, and the stresses and tests to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    /// Facts that `squall info --json` must report: a name and its value each.
    pub(crate) expect: Vec<(String, String)>,
    /// Length of each stress, in seconds.
    pub(crate) seconds: u64,
    /// Seed of each stress.
    pub(crate) seed: u64,
    /// Threads of each stress.
    pub(crate) threads: u64,
    /// Whether processors go offline and come back during the stresses.
    pub(crate) hotplug: bool,
    /// The stresses, in order. Each may have settings and switches: `rcu,SQUALL_RSEQ=off`, `objects,--real`.
    pub(crate) stresses: Vec<String>,
    /// Test programs, run in place of the stresses. Each must succeed.
    pub(crate) tests: Vec<String>,
}

impl Order {
    /// Reads the order from the running kernel's command line.
    ///
    /// # Errors
    /// If the command line cannot be read, and the errors of [`parse`](Order::parse).
    pub(crate) fn from_kernel() -> Result<Order, String> {
        let line = std::fs::read_to_string("/proc/cmdline").map_err(|e| format!("/proc/cmdline: {e}"))?;
        Order::parse(&line)
    }

    /// Reads the order from this command line. Skips words without the prefix `squall.`, which are for the
    /// kernel.
    ///
    /// # Errors
    /// If a word with the prefix has an unknown key or an invalid value.
    pub(crate) fn parse(line: &str) -> Result<Order, String> {
        let mut order = Order {
            expect: Vec::new(),
            seconds: 5,
            seed: 1,
            threads: 8,
            hotplug: true,
            stresses: Vec::new(),
            tests: Vec::new(),
        };
        for word in line.split_whitespace() {
            let Some(ours) = word.strip_prefix("squall.") else { continue };
            let (key, value) = ours.split_once('=').ok_or_else(|| format!("no value in {word}"))?;
            match key {
                "expect" => {
                    for fact in value.split(',') {
                        let (fact, value) =
                            fact.split_once(':').ok_or_else(|| format!("no value in {fact}"))?;
                        order.expect.push((fact.to_owned(), value.to_owned()));
                    }
                }
                "seconds" => order.seconds = number(value)?,
                "seed" => order.seed = number(value)?,
                "threads" => order.threads = number(value)?,
                "hotplug" => order.hotplug = number(value)? != 0,
                "stress" => order.stresses.push(value.to_owned()),
                "test" => order.tests.push(value.to_owned()),
                _ => return Err(format!("unknown word {word}")),
            }
        }
        Ok(order)
    }
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|e| format!("{text}: {e}"))
}

#[cfg(test)]
mod tests {
    use super::Order;

    #[test]
    fn words_with_the_prefix_are_read_and_others_skipped() {
        let order = Order::parse(
            "console=ttyS0 quiet squall.expect=vps:8,rseq:restartable squall.seconds=7 squall.threads=16 squall.hotplug=0 \
             squall.stress=percpu squall.stress=rcu,SQUALL_RSEQ=off squall.test=/deps/known-1\n",
        )
        .unwrap();
        assert_eq!(
            order.expect,
            [("vps", "8"), ("rseq", "restartable")].map(|(fact, value)| (fact.to_owned(), value.to_owned()))
        );
        assert_eq!((order.seconds, order.seed, order.threads, order.hotplug), (7, 1, 16, false));
        assert_eq!(order.stresses, ["percpu", "rcu,SQUALL_RSEQ=off"]);
        assert_eq!(order.tests, ["/deps/known-1"]);
    }

    #[test]
    fn invalid_words_are_refused() {
        for line in ["squall.seconds", "squall.seconds=x", "squall.expect=vps", "squall.unheard=1"] {
            assert!(Order::parse(line).is_err(), "{line}");
        }
    }
}
