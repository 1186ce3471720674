//! Hosts: network namespaces with a virtual cable each to one bridge.
//!
//! - I1. All names begin with a prefix that has the number of this process. So leftovers of a killed process
//!   are known, and the next network removes them.
//! - I2. A cut is made at the bridge's end of the cable. A host keeps its addresses and routes, and its
//!   frames vanish.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::run::lock;

/// The most hosts of a network.
pub(crate) const HOSTS_MAX: u32 = 4;
/// The most members of a host.
const SLOTS: u32 = 2;
/// The port of the first member of each host.
const PORT: u16 = 7447;
/// Begins the names of namespaces. The number of the process follows.
const NAMESPACE: &str = "squall-hosts-";
/// Begins the names of devices. The number of the process follows, in hexadecimal digits.
const DEVICE: &str = "sqh";
/// The folder of the named namespaces.
const NAMESPACES: &str = "/run/netns";
/// The folder of the devices.
const DEVICES: &str = "/sys/class/net";

/// Hosts that are joined by a bridge. Dropping it removes all of them.
#[derive(Debug)]
pub(crate) struct Network {
    /// The number of this network in this process.
    number: u32,
    hosts: u32,
}

impl Network {
    /// Makes a network of so many hosts. An error is a reason for people.
    pub(crate) fn new(hosts: u32) -> Result<Network, String> {
        static NETWORKS: AtomicU32 = AtomicU32::new(0);
        remove_leftovers();
        // Relaxed: the count publishes no other data.
        let network = Network { number: NETWORKS.fetch_add(1, Ordering::Relaxed), hosts };
        let bridge = network.bridge();
        ip(&["link", "add", &bridge, "type", "bridge"])?;
        ip(&["address", "add", &format!("{}/24", network.address(0)), "dev", &bridge])?;
        ip(&["link", "set", &bridge, "up"])?;
        for host in 1..=hosts {
            let (name, cable) = (network.namespace(host), network.cable(host));
            let address = format!("{}/24", network.address(host));
            ip(&["netns", "add", &name])?;
            ip(&["link", "add", &cable, "type", "veth", "peer", "name", "host", "netns", &name])?;
            ip(&["link", "set", &cable, "master", &bridge])?;
            ip(&["link", "set", &cable, "up"])?;
            ip(&["-n", &name, "address", "add", &address, "dev", "host"])?;
            ip(&["-n", &name, "link", "set", "host", "up"])?;
            ip(&["-n", &name, "link", "set", "lo", "up"])?;
        }
        Ok(network)
    }

    /// The numbers of the hosts.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = u32> {
        1..=self.hosts
    }

    /// Returns the number of a member, by its host and its place on it.
    pub(crate) fn member(host: u32, slot: u32) -> u32 {
        host * SLOTS + slot
    }

    /// Returns the host of a member.
    pub(crate) fn host_of(member: u32) -> u32 {
        member / SLOTS
    }

    fn bridge(&self) -> String {
        format!("{DEVICE}{:x}.{}", std::process::id(), self.number)
    }

    fn cable(&self, host: u32) -> String {
        format!("{}.{host}", self.bridge())
    }

    fn namespace(&self, host: u32) -> String {
        format!("{NAMESPACE}{}-{}-{host}", std::process::id(), self.number)
    }

    /// The address of a host. Host 0 is this namespace.
    fn address(&self, host: u32) -> Ipv4Addr {
        // A network of 256 addresses for each, in a range for benchmarks (RFC 2544).
        let place = std::process::id().wrapping_mul(8).wrapping_add(self.number % 8) % (1 << 9);
        Ipv4Addr::from(u32::from(Ipv4Addr::new(198, 18, 0, 0)) + 256 * place + 1 + host)
    }

    /// The address of this process in the network, with any free port.
    pub(in super::super) fn own_address(&self) -> SocketAddr {
        (self.address(0), 0).into()
    }

    /// Returns the endpoint of a member.
    pub(in super::super) fn endpoint(&self, member: u32) -> String {
        format!("tcp/{}:{}", self.address(Network::host_of(member)), PORT + (member % SLOTS) as u16)
    }

    /// Returns the words that execute a command on the host of a member.
    pub(in super::super) fn entry(&self, member: u32) -> Vec<String> {
        let namespace = self.namespace(Network::host_of(member));
        ["ip", "netns", "exec", &namespace].map(str::to_owned).to_vec()
    }

    /// Cuts the cable of a host, or repairs it.
    pub(crate) fn set_cable(&self, host: u32, up: bool) -> Result<(), String> {
        ip(&["link", "set", &self.cable(host), if up { "up" } else { "down" }])
    }

    /// Keeps the frames of a host from the other hosts that are kept apart, or not any more. This process
    /// still reaches it.
    pub(crate) fn set_apart(&self, host: u32, apart: bool) -> Result<(), String> {
        let state = if apart { "on" } else { "off" };
        ip(&["link", "set", &self.cable(host), "type", "bridge_slave", "isolated", state])
    }

    /// Delays the frames to a host, and loses some, or not any more. Returns false if the kernel cannot.
    pub(super) fn set_slow(&self, host: u32, slow: bool) -> Result<bool, String> {
        let cable = self.cable(host);
        if !slow {
            return run("tc", &["qdisc", "delete", "dev", &cable, "root"]).map(|()| true);
        }
        let netem = ["netem", "delay", "20ms", "10ms", "loss", "5%"];
        let added = run("tc", &[&["qdisc", "add", "dev", &cable, "root"], &netem[..]].concat());
        Ok(added.is_ok())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // Each fails only if it was not made. A namespace takes its cable along, in its own time.
        for host in 1..=self.hosts {
            let _ = ip(&["link", "delete", &self.cable(host)]);
            let _ = ip(&["netns", "delete", &self.namespace(host)]);
        }
        let _ = ip(&["link", "delete", &self.bridge()]);
    }
}

/// Returns the namespaces and devices of this process.
pub(crate) fn remains() -> Vec<String> {
    let (namespace, device) = (format!("{NAMESPACE}{}-", std::process::id()), bridge_prefix());
    let mut found = names(NAMESPACES, &namespace);
    found.extend(names(DEVICES, &device));
    found
}

fn bridge_prefix() -> String {
    format!("{DEVICE}{:x}.", std::process::id())
}

/// Returns the files of a folder with names that begin so.
fn names(folder: &str, prefix: &str) -> Vec<String> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = files.filter_map(|file| file.file_name().into_string().ok());
    names.filter(|name| name.starts_with(prefix)).collect()
}

/// Removes namespaces and devices of processes that were killed (I1).
fn remove_leftovers() {
    static REMOVING: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one = lock(&REMOVING);
    let lives = |process: u32| Path::new("/proc").join(process.to_string()).exists();
    for name in names(DEVICES, DEVICE) {
        let process =
            name[DEVICE.len()..].split('.').next().and_then(|hex| u32::from_str_radix(hex, 16).ok());
        if process.is_some_and(|process| !lives(process)) {
            // Fails only if another process was faster.
            let _ = ip(&["link", "delete", &name]);
        }
    }
    for name in names(NAMESPACES, NAMESPACE) {
        let process = name[NAMESPACE.len()..].split('-').next().and_then(|number| number.parse().ok());
        if process.is_some_and(|process| !lives(process)) {
            // Fails only if another process was faster.
            let _ = ip(&["netns", "delete", &name]);
        }
    }
}

/// Runs the program `ip`.
fn ip(arguments: &[&str]) -> Result<(), String> {
    run("ip", arguments)
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let told = |why: String| format!("{program} {}: {why}", arguments.join(" "));
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| told(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(told(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}
