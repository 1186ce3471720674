//! Two hosts: this network namespace, and another one with a pair of virtual devices between them.

use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Pairs that this process has made.
static PAIRS: AtomicU32 = AtomicU32::new(0);

/// A network namespace. Dropping it removes it and its devices.
#[derive(Debug)]
pub(super) struct Hosts {
    /// The name of the other namespace.
    pub(super) other: String,
    /// Our device.
    device: String,
    /// The addresses of both sides.
    pub(super) here: Ipv4Addr,
    pub(super) there: Ipv4Addr,
}

impl Hosts {
    /// Makes the namespace and its devices. An error is a reason for people.
    pub(super) fn new() -> Result<Hosts, String> {
        // Relaxed: the count publishes no other data.
        let (process, pair) = (std::process::id(), PAIRS.fetch_add(1, Ordering::Relaxed));
        // A network of four addresses for each pair, in a range for benchmarks (RFC 2544).
        let place = (process.wrapping_mul(64).wrapping_add(pair % 64)) % (1 << 15);
        let network = u32::from(Ipv4Addr::new(198, 18, 0, 0)) + 4 * place;
        let hosts = Hosts {
            other: format!("squall-{process}-{pair}"),
            device: format!("sq{process:x}.{pair}"),
            here: Ipv4Addr::from(network + 1),
            there: Ipv4Addr::from(network + 2),
        };
        let Hosts { other, device, here, there } = &hosts;
        ip(&["netns", "add", other])?;
        ip(&["link", "add", device, "type", "veth", "peer", "name", "host", "netns", other])?;
        ip(&["address", "add", &format!("{here}/30"), "dev", device])?;
        ip(&["link", "set", device, "up"])?;
        ip(&["-n", other, "address", "add", &format!("{there}/30"), "dev", "host"])?;
        ip(&["-n", other, "link", "set", "host", "up"])?;
        ip(&["-n", other, "link", "set", "lo", "up"])?;
        Ok(hosts)
    }

    /// Cuts the link, or repairs it.
    pub(super) fn set_link(&self, up: bool) -> Result<(), String> {
        // The other side's device: ours keeps its address and route, as on a host that loses the network.
        ip(&["-n", &self.other, "link", "set", "host", if up { "up" } else { "down" }])
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        // Both fail only if they were not made.
        let _ = ip(&["link", "delete", &self.device]);
        let _ = ip(&["netns", "delete", &self.other]);
    }
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let told =
        |why: String| format!("two hosts need root and the program `ip`: ip {}: {why}", arguments.join(" "));
    let output = Command::new("ip")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| told(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(told(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}
