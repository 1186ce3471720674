//! A service of tarpc that sends each frame back. The encoding is postcard, behind a length.

use super::echo::say;
use super::plain::obey;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use tarpc::server::{BaseChannel, Channel};
use tarpc::tokio_serde::{Deserializer, Serializer};
use tarpc::tokio_util::bytes::{Bytes, BytesMut};
use tarpc::tokio_util::codec::LengthDelimitedCodec;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

/// Generated code has no documentation.
#[allow(missing_docs)]
mod service {
    /// The service.
    #[tarpc::service]
    pub(super) trait Echo {
        /// Returns the frame.
        async fn echo(frame: Vec<u8>) -> Vec<u8>;
    }
}

use service::{Echo, EchoClient};

/// The encoding.
#[derive(Clone, Copy, Debug)]
struct Postcard;

impl<T: Serialize> Serializer<T> for Postcard {
    type Error = io::Error;

    fn serialize(self: Pin<&mut Self>, item: &T) -> io::Result<Bytes> {
        postcard::to_allocvec(item).map(Bytes::from).map_err(io::Error::other)
    }
}

impl<T: for<'a> Deserialize<'a>> Deserializer<T> for Postcard {
    type Error = io::Error;

    fn deserialize(self: Pin<&mut Self>, bytes: &BytesMut) -> io::Result<T> {
        postcard::from_bytes(bytes).map_err(io::Error::other)
    }
}

#[derive(Clone)]
struct Server;

impl Echo for Server {
    async fn echo(self, _: tarpc::context::Context, frame: Vec<u8>) -> Vec<u8> {
        frame
    }
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// Serves until the standard input ends.
pub(super) fn serve(listen: SocketAddr) -> io::Result<()> {
    std::thread::spawn(move || {
        // The error of a thread has no other way out.
        if let Err(error) = runtime().and_then(|runtime| runtime.block_on(accept(listen))) {
            eprintln!("squall: the server of tarpc failed: {error}");
        }
    });
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(())
}

async fn accept(listen: SocketAddr) -> io::Result<()> {
    let listener = TcpListener::bind(listen).await?;
    say(&format!("ready {}", listener.local_addr()?))?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let transport =
            tarpc::serde_transport::new(LengthDelimitedCodec::builder().new_framed(stream), Postcard);
        let requests = BaseChannel::with_defaults(transport).execute(Server.serve());
        tokio::spawn(each(requests));
    }
}

/// Serves the requests of a connection, each in its turn.
async fn each<S: futures_core::Stream<Item: Future>>(requests: S) {
    let mut requests = std::pin::pin!(requests);
    while let Some(request) = std::future::poll_fn(|context| requests.as_mut().poll_next(context)).await {
        request.await;
    }
}

/// Does round trips on command.
pub(super) fn client(to: SocketAddr, bytes: usize) -> io::Result<()> {
    let runtime = runtime()?;
    let client = runtime.block_on(async {
        let stream = TcpStream::connect(to).await?;
        stream.set_nodelay(true)?;
        let transport =
            tarpc::serde_transport::new(LengthDelimitedCodec::builder().new_framed(stream), Postcard);
        Ok::<_, io::Error>(EchoClient::new(tarpc::client::Config::default(), transport).spawn())
    })?;
    let mut number = 0_u64;
    obey(|| {
        number += 1;
        let mut frame = vec![1; bytes.max(8)];
        frame[..8].copy_from_slice(&number.to_le_bytes());
        let back =
            runtime.block_on(client.echo(tarpc::context::current(), frame)).map_err(io::Error::other)?;
        let came_back = back.len() == bytes.max(8) && back[..8] == number.to_le_bytes();
        if came_back { Ok(()) } else { Err(io::Error::other("another frame came back")) }
    })
}
