//! A pool of connections to a backend that closes a connection after some requests.
//!
//! - At most four connections are open. Threads that find all of them in use wait in turn.
//! - A connection that the backend will close is replaced by a new one (`check`).
//! - A connection that failed is taken out of the pool (`Pooled::detach`).
//!
//! `cargo run --release -p squall --example connection_pool`

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use squall::objects::bag::Bag;
use squall::objects::counter::{self, Counter};
use squall::objects::pool::{ObjectPool, Pooled};

/// Requests that the backend answers on one connection.
const ANSWERS_MAX: u32 = 100;
const CONNECTIONS: usize = 4;
const CLIENTS: u32 = 8;
const REQUESTS: u32 = 200;

struct Connection {
    stream: BufReader<TcpStream>,
    requests: u32,
}

impl Connection {
    fn open(backend: SocketAddr) -> Connection {
        let stream = TcpStream::connect(backend).expect("the backend runs");
        Connection { stream: BufReader::new(stream), requests: 0 }
    }

    fn request(&mut self, text: &str) -> std::io::Result<String> {
        self.requests += 1;
        self.stream.get_mut().write_all(format!("{text}\n").as_bytes())?;
        let mut answer = String::new();
        match self.stream.read_line(&mut answer)? {
            0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(answer),
        }
    }
}

/// Answers the requests of one client with the same text.
fn answer(stream: TcpStream) -> std::io::Result<()> {
    let mut writer = stream.try_clone()?;
    for line in BufReader::new(stream).lines().take(ANSWERS_MAX as usize) {
        writer.write_all(format!("{}\n", line?).as_bytes())?;
    }
    Ok(())
}

fn main() -> std::io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let backend = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || answer(stream));
        }
    });
    let opened = counter::adaptive();
    let count = opened.handle();
    let open = move || {
        count.inc();
        Connection::open(backend)
    };
    let pool = ObjectPool::builder(open)
        .max_size(CONNECTIONS)
        .check(|connection| connection.requests < ANSWERS_MAX)
        .build()
        .named("connections to the backend");
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let pool = &pool;
            scope.spawn(move || {
                for n in 0..REQUESTS {
                    let mut connection = pool.get();
                    match connection.request(&format!("client {client}, request {n}")) {
                        Ok(answer) => assert_eq!(answer, format!("client {client}, request {n}\n")),
                        Err(error) => {
                            drop(Pooled::detach(connection));
                            panic!("the backend does not answer: {error}");
                        }
                    }
                }
            });
        }
    });
    println!(
        "{} requests over {} connections, at most {CONNECTIONS} at once",
        CLIENTS * REQUESTS,
        opened.total()
    );
    assert!(opened.total() >= u64::from(CLIENTS * REQUESTS / ANSWERS_MAX));
    assert!(pool.handle().len() <= CONNECTIONS);
    Ok(())
}
