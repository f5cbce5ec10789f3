//! gRPC (tonic): a unary method of protocol buffers over HTTP/2 and a unix stream socket, on one thread a side, which spares
//! the hops between threads of its usual pool; one connection for all calls of a client. Windows are as large as a message needs them.
//! Its loop of events sleeps in `epoll_wait`; there is no variant that polls.

use bytes::Bytes;
use http::uri::PathAndQuery;
use peer::{Adapter, Calls, Result, Seat};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::server::Connected;
use tonic::transport::{Endpoint, Server};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

fn main() -> ExitCode {
    peer::run(&Adapter {
        version: || "gRPC (tonic 0.14.9)".to_owned(),
        serve,
        client,
    })
}

#[derive(Clone, PartialEq, prost::Message)]
struct Message {
    #[prost(bytes = "bytes", tag = "1")]
    bytes: Bytes,
}

const METHOD: &str = "/peer.Echo/Call";
/// More than the largest message.
const WINDOW: u32 = 1 << 20;

fn serve(seat: &Seat) -> Result {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let listener = UnixListener::bind(seat.path(".grpc"))?;
        seat.ready();
        let notice = seat.watches.then(|| seat.notice());
        let incoming = UnixListenerStream::new(listener).map(move |stream| {
            let notice = notice.clone();
            let ended = move || {
                if let Some(notice) = &notice {
                    notice();
                }
            };
            stream.map(|stream| Watched(stream, ended))
        });
        let served = seat.counter();
        let echo = tower::service_fn(move |request: http::Request<tonic::body::Body>| {
            let served = served.clone();
            let answer = tower::service_fn(move |request: Request<Message>| {
                served(COUNT.fetch_add(1, Relaxed) + 1);
                let message = request.into_inner();
                async { Ok::<_, Status>(Response::new(message)) }
            });
            async {
                let mut grpc = tonic::server::Grpc::new(ProstCodec::<Message, Message>::default());
                Ok::<_, std::convert::Infallible>(grpc.unary(answer, request).await)
            }
        });
        let mut server = Server::builder()
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW);
        Ok(server.serve_with_incoming(echo, incoming).await?)
    })
}

/// Requests served so far.
static COUNT: AtomicU64 = AtomicU64::new(0);

fn client(seat: &Seat) -> Result {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let endpoint = Endpoint::from_shared(format!("unix:{}", seat.path(".grpc")))?;
        let endpoint = endpoint
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW);
        let mut grpc = tonic::client::Grpc::new(endpoint.connect().await?);
        let mut bytes = vec![0x5a; seat.payload_bytes];
        let mut calls = Calls::new(seat)?;
        while let Some(number) = calls.next() {
            bytes[..8].copy_from_slice(&number.to_le_bytes());
            let request = Request::new(Message {
                bytes: Bytes::copy_from_slice(&bytes),
            });
            calls.check(grpc.ready().await)?;
            let codec = ProstCodec::<Message, Message>::default();
            let reply = calls.check(
                grpc.unary(request, PathAndQuery::from_static(METHOD), codec)
                    .await,
            )?;
            calls.done(&reply.into_inner().bytes)?;
        }
        calls.report()
    })
}

/// A connection that says when it ends.
struct Watched<F: Fn()>(UnixStream, F);

impl<F: Fn()> Drop for Watched<F> {
    fn drop(&mut self) {
        (self.1)();
    }
}

impl<F: Fn()> Connected for Watched<F> {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl<F: Fn() + Unpin> AsyncRead for Watched<F> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, into)
    }
}

impl<F: Fn() + Unpin> AsyncWrite for Watched<F> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
