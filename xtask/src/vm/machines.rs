//! The machines that can be built: their processors, caches, nodes and distances. These are arguments to
//! QEMU, and facts that Squall must find inside the machine.

use std::fmt;

use clap::ValueEnum;

/// An instruction set that QEMU emulates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Arch {
    /// x86-64, on a PC.
    #[value(name = "x86_64")]
    X86,
    /// 64-bit Arm, on QEMU's `virt` board.
    #[value(name = "aarch64")]
    Arm,
}

impl Arch {
    /// Its name as QEMU and Rust spell it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Arch::X86 => "x86_64",
            Arch::Arm => "aarch64",
        }
    }

    /// Its name as Debian spells it.
    pub(crate) fn debian(self) -> &'static str {
        match self {
            Arch::X86 => "amd64",
            Arch::Arm => "arm64",
        }
    }

    /// The emulator's program.
    pub(crate) fn qemu(self) -> &'static str {
        match self {
            Arch::X86 => "qemu-system-x86_64",
            Arch::Arm => "qemu-system-aarch64",
        }
    }

    /// The target that Rust builds for.
    pub(crate) fn target(self) -> &'static str {
        match self {
            Arch::X86 => "x86_64-unknown-linux-gnu",
            Arch::Arm => "aarch64-unknown-linux-gnu",
        }
    }

    /// The kernel's name for the first serial port.
    pub(crate) fn console(self) -> &'static str {
        match self {
            Arch::X86 => "ttyS0",
            Arch::Arm => "ttyAMA0",
        }
    }

    /// The kernel parameter for output before the kernel has found that port.
    pub(crate) fn early_console(self) -> &'static str {
        match self {
            Arch::X86 => "earlyprintk=ttyS0",
            Arch::Arm => "earlycon",
        }
    }
}

/// One machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    /// Its instruction set.
    pub(crate) arch: Arch,
    /// Sockets; on x86 each has one last-level cache.
    pub(crate) sockets: u32,
    /// Cores of a socket.
    pub(crate) cores: u32,
    /// Hardware threads of a core.
    pub(crate) threads: u32,
    /// NUMA nodes with processors. Each has the same number of processors, in order of their ids.
    pub(crate) nodes: u32,
    /// Further nodes, with memory only.
    pub(crate) bare_nodes: u32,
    /// The Debian suite of its kernel, if the emulator is recent enough for that kernel.
    pub(crate) suite: &'static str,
}

/// Memory of each node.
const NODE_MIB: u32 = 640;

/// All machines. Among them are kernels 6.1 and 6.12, a node without processors, and a node with two caches.
pub(crate) const MACHINES: &[Machine] = &[
    Machine { arch: Arch::X86, sockets: 2, cores: 2, threads: 2, nodes: 2, bare_nodes: 1, suite: NEW_SUITE },
    Machine { arch: Arch::X86, sockets: 4, cores: 2, threads: 2, nodes: 2, bare_nodes: 0, suite: OLD_SUITE },
    Machine { arch: Arch::X86, sockets: 4, cores: 4, threads: 2, nodes: 4, bare_nodes: 0, suite: OLD_SUITE },
    Machine { arch: Arch::Arm, sockets: 2, cores: 4, threads: 1, nodes: 2, bare_nodes: 0, suite: NEW_SUITE },
];

/// The suite of kernel 6.1, which runs under every known version of QEMU.
const OLD_SUITE: &str = "bookworm";
/// The suite of a newer kernel, 6.12 at the time of writing.
const NEW_SUITE: &str = "bookworm-backports";
/// The first QEMU that correctly translates x86 code while another processor patches it (its commit
/// deba78709a). With older versions, one boot of kernel 6.12 in five ends in a double fault or a lost thread.
/// Kernel 6.1 is not affected.
const QEMU_PATCHING: (u32, u32) = (8, 1);

impl Machine {
    /// Its processors.
    pub(crate) fn cpus(&self) -> u32 {
        self.sockets * self.cores * self.threads
    }

    /// The Debian suite to take its kernel from under this version of QEMU.
    pub(crate) fn suite(&self, qemu: (u32, u32)) -> &'static str {
        if self.arch == Arch::X86 && qemu < QEMU_PATCHING { OLD_SUITE } else { self.suite }
    }

    /// The facts that `squall info --json` must report: `vps`, the number of clusters of each level, and the
    /// mode of each primitive. All kernels here support the fast mode of both primitives, so a fallback would
    /// be an error.
    pub(crate) fn facts(&self) -> Vec<(&'static str, String)> {
        let mut facts = vec![
            ("vps", self.cpus().to_string()),
            ("core", (self.sockets * self.cores).to_string()),
            ("node", self.nodes.to_string()),
            ("rseq", "restartable".to_owned()),
            ("membarrier", "membarrier".to_owned()),
        ];
        if self.arch == Arch::X86 {
            // Without firmware, the Arm board does not describe its caches to the kernel.
            facts.push(("cache", self.sockets.to_string()));
        }
        facts
    }

    /// QEMU's arguments for processors, memory and nodes.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let (sockets, cores, threads) = (self.sockets, self.cores, self.threads);
        let nodes = self.nodes + self.bare_nodes;
        let mut list = match self.arch {
            Arch::X86 => words("-machine q35 -cpu Skylake-Server"),
            Arch::Arm => words("-machine virt,gic-version=3 -cpu max"),
        };
        list.extend(words("-accel tcg,thread=multi"));
        list.push("-smp".into());
        list.push(format!("cpus={},sockets={sockets},cores={cores},threads={threads}", self.cpus()));
        list.extend(["-m".into(), format!("{}M", nodes * NODE_MIB)]);
        let per_node = self.cpus() / self.nodes;
        for node in 0..nodes {
            list.push("-object".into());
            list.push(format!("memory-backend-ram,id=mem{node},size={NODE_MIB}M"));
            let first = node * per_node;
            let cpus = if node < self.nodes {
                format!(",cpus={first}-{}", first + per_node - 1)
            } else {
                String::new()
            };
            list.extend(["-numa".into(), format!("node,nodeid={node},memdev=mem{node}{cpus}")]);
        }
        for a in 0..nodes {
            for b in a + 1..nodes {
                list.extend(["-numa".into(), format!("dist,src={a},dst={b},val={}", distance(a, b))]);
            }
        }
        list
    }
}

/// The distance of two nodes on a line: neighbours are at 20, and each further step adds 10.
fn distance(a: u32, b: u32) -> u32 {
    10 + 10 * a.abs_diff(b)
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { arch, sockets, cores, threads, nodes, bare_nodes, suite: _ } = self;
        write!(
            f,
            "{} {} CPUs ({sockets} sockets, {cores} cores, {threads} threads; ",
            arch.name(),
            self.cpus()
        )?;
        write!(f, "{nodes} nodes, {bare_nodes} without processors)")
    }
}

#[cfg(test)]
mod tests {
    use super::{Arch, MACHINES};

    #[test]
    fn every_size_that_the_command_offers_can_be_built() {
        for cpus in [8, 16, 32] {
            assert!(MACHINES.iter().any(|m| m.arch == Arch::X86 && m.cpus() == cpus), "{cpus}");
        }
        assert!(MACHINES.iter().any(|m| m.arch == Arch::Arm));
    }

    #[test]
    fn each_processor_is_on_exactly_one_node() {
        for machine in MACHINES {
            let arguments = machine.arguments();
            let mut seen = Vec::new();
            for argument in arguments.iter().filter(|a| a.starts_with("node,")) {
                let Some((_, range)) = argument.split_once("cpus=") else { continue };
                let (first, last) = range.split_once('-').unwrap();
                seen.extend(first.parse::<u32>().unwrap()..=last.parse().unwrap());
            }
            assert_eq!(seen, (0..machine.cpus()).collect::<Vec<_>>(), "{machine}");
        }
    }

    #[test]
    fn a_newer_kernel_needs_a_newer_emulator() {
        let machine = MACHINES.iter().find(|m| m.arch == Arch::X86 && m.suite == super::NEW_SUITE).unwrap();
        assert_eq!(machine.suite((7, 2)), super::OLD_SUITE);
        assert_eq!(machine.suite((8, 1)), super::NEW_SUITE);
        assert_eq!(machine.suite((10, 0)), super::NEW_SUITE);
    }

    #[test]
    fn smt_several_nodes_and_a_node_without_processors_all_occur() {
        assert!(MACHINES.iter().all(|m| m.nodes > 1));
        assert!(MACHINES.iter().any(|m| m.threads > 1));
        assert!(MACHINES.iter().any(|m| m.bare_nodes > 0));
    }
}
