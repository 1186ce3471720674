//! The floor: frames of a fixed length over a TCP socket, with one thread on each side.

use super::echo::say;
use std::io::{self, BufRead, Read, Write, stdin};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

/// Sends each frame back. A connection begins with the size of its frames.
pub(super) fn serve(listen: SocketAddr) -> io::Result<()> {
    let listener = TcpListener::bind(listen)?;
    say(&format!("ready {}", listener.local_addr()?))?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || answer(stream));
        }
    });
    // The threads end with the process.
    io::copy(&mut stdin(), &mut io::sink())?;
    Ok(())
}

fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut size = [0; 4];
    stream.read_exact(&mut size)?;
    let mut frame = vec![0; u32::from_le_bytes(size) as usize];
    loop {
        stream.read_exact(&mut frame)?;
        stream.write_all(&frame)?;
    }
}

/// Does round trips on command.
pub(super) fn client(to: SocketAddr, bytes: usize) -> io::Result<()> {
    let mut stream = TcpStream::connect(to)?;
    stream.set_nodelay(true)?;
    stream.write_all(&u32::try_from(bytes).map_err(io::Error::other)?.to_le_bytes())?;
    let (mut frame, mut number) = (vec![1; bytes.max(8)], 0_u64);
    obey(|| {
        number += 1;
        frame[..8].copy_from_slice(&number.to_le_bytes());
        stream.write_all(&frame)?;
        stream.read_exact(&mut frame)?;
        let came_back = frame[..8] == number.to_le_bytes();
        if came_back { Ok(()) } else { Err(io::Error::other("another frame came back")) }
    })
}

/// Prints `ready` after the first round trip. Then does as many as each line says, and prints `done`.
pub(super) fn obey(mut round_trip: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    round_trip()?;
    say("ready")?;
    for line in stdin().lock().lines() {
        let count: u64 = line?.parse().map_err(io::Error::other)?;
        for _ in 0..count {
            round_trip()?;
        }
        say("done")?;
    }
    Ok(())
}
