//! Cut links and killed peers.

use super::hosts::Hosts;
use super::link::{Program, client, serve};
use super::program::{Engine, IROH, OURS, ZENOH};
use crate::case::{Missing, Setting};
use std::time::{Duration, Instant};

/// Bytes of a frame.
const BYTES: u32 = 64;
/// Runs of each engine, in a full and in a quick run. The median is reported.
const RUNS: (usize, usize) = (5, 1);
/// Time for the engine to settle before a fault.
const SETTLE: Duration = Duration::from_millis(500);

/// Measures all engines that are here.
pub(super) fn measure(_: &Setting, quick: bool) -> Result<Vec<(String, f64)>, String> {
    let runs = if quick { RUNS.1 } else { RUNS.0 };
    let mut metrics = Vec::new();
    for engine in [&OURS, &ZENOH, &IROH] {
        debug_assert!(engine.knows_connections);
        for (name, fault) in [("kill", kill as Fault), ("cut", cut)] {
            let mut noticed = Vec::new();
            let mut healed = Vec::new();
            for _ in 0..runs {
                match fault(engine) {
                    Ok((notice, heal)) => {
                        noticed.push(notice);
                        healed.extend(heal);
                    }
                    // The table has no place for a reason.
                    Err(Missing(why)) => {
                        eprintln!("squall: net-faults: {} {name} is skipped: {why}", engine.name);
                        break;
                    }
                }
            }
            for (what, times) in [("noticed", noticed), ("healed", healed)] {
                if let Some(time) = middle(times) {
                    metrics.push((format!("{}_{name}_{what}_ms", engine.name.replace('-', "_")), time));
                }
            }
        }
    }
    Ok(metrics)
}

/// Makes a fault. Returns the milliseconds until it was noticed, and those until frames passed after the
/// repair.
type Fault = fn(&Engine) -> Result<(f64, Option<f64>), Missing>;

fn kill(engine: &Engine) -> Result<(f64, Option<f64>), Missing> {
    let (mut server, endpoint) = serve(engine, None, "0")?;
    let mut client = client(engine, None, &endpoint, BYTES)?;
    std::thread::sleep(SETTLE);
    told(client.tell("lost"))?;
    let began = Instant::now();
    server.kill();
    told(client.hear("lost"))?;
    let noticed = millis(began);
    // A new server at the same address. One with a new key cannot be the same endpoint.
    let port = endpoint.rsplit(':').next().unwrap_or("0").to_owned();
    let (_server, again) = serve(engine, None, &port)?;
    if again != endpoint {
        return Ok((noticed, None));
    }
    Ok((noticed, Some(found(&mut client)?)))
}

fn cut(engine: &Engine) -> Result<(f64, Option<f64>), Missing> {
    engine.command()?;
    let hosts = Hosts::new().map_err(Missing)?;
    let (_server, endpoint) = serve(engine, Some(&hosts), "0")?;
    let mut client = client(engine, Some(&hosts), &endpoint, BYTES)?;
    std::thread::sleep(SETTLE);
    told(client.tell("lost"))?;
    let began = Instant::now();
    hosts.set_link(false).map_err(Missing)?;
    told(client.hear("lost"))?;
    let noticed = millis(began);
    hosts.set_link(true).map_err(Missing)?;
    let healed = found(&mut client)?;
    Ok((noticed, Some(healed)))
}

/// Waits until a frame comes back. Returns the milliseconds.
fn found(client: &mut Program) -> Result<f64, Missing> {
    let began = Instant::now();
    told(client.tell("found"))?;
    told(client.hear("found"))?;
    Ok(millis(began))
}

fn told<T>(result: std::io::Result<T>) -> Result<T, Missing> {
    result.map_err(|error| Missing(error.to_string()))
}

fn millis(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

fn middle(mut times: Vec<f64>) -> Option<f64> {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied()
}
