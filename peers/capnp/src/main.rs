//! Cap'n Proto RPC: its two-party protocol over a unix stream socket, on one thread a side as it is made for; calls one after
//! another, each awaited. Its loop of events sleeps in `epoll_wait`; there is no variant that polls.

use capnp_rpc::{RpcSystem, new_client, rpc_twoparty_capnp::Side, twoparty::VatNetwork};
use echo_capnp::echo;
use futures::AsyncReadExt;
use peer::{Adapter, Calls, Result, Seat};
use std::cell::Cell;
use std::process::ExitCode;
use std::rc::Rc;
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime;
use tokio::task::{LocalSet, spawn_local};
use tokio_util::compat::TokioAsyncReadCompatExt;

#[allow(
    missing_docs,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    reason = "generated"
)]
mod echo_capnp {
    include!(concat!(env!("OUT_DIR"), "/echo_capnp.rs"));
}

fn main() -> ExitCode {
    let version = || "Cap'n Proto RPC 0.27.3 (capnp-rpc)".to_owned();
    peer::run(&Adapter {
        version,
        serve,
        client,
    })
}

struct Echo {
    count: Cell<u64>,
    served: Box<dyn Fn(u64)>,
}

impl echo::Server for Echo {
    async fn call(
        self: Rc<Self>,
        params: echo::CallParams,
        mut results: echo::CallResults,
    ) -> std::result::Result<(), capnp::Error> {
        results.get().set_bytes(params.get()?.get_bytes()?);
        self.count.set(self.count.get() + 1);
        (self.served)(self.count.get());
        Ok(())
    }
}

fn network(
    stream: UnixStream,
    side: Side,
) -> Box<VatNetwork<impl futures::AsyncRead + Unpin + 'static>> {
    let (reader, writer) = stream.compat().split();
    Box::new(VatNetwork::new(
        reader,
        writer,
        side,
        capnp::message::ReaderOptions::default(),
    ))
}

fn serve(seat: &Seat) -> Result {
    let runtime = runtime::Builder::new_current_thread().enable_io().build()?;
    LocalSet::new().block_on(&runtime, async {
        let listener = UnixListener::bind(seat.path(".capnp"))?;
        seat.ready();
        let echo = Echo {
            count: Cell::new(0),
            served: Box::new(seat.counter()),
        };
        let echo: echo::Client = new_client(echo);
        loop {
            let (stream, _) = listener.accept().await?;
            let system = RpcSystem::new(network(stream, Side::Server), Some(echo.clone().client));
            let notice = seat.watches.then(|| seat.notice());
            spawn_local(async move {
                let _ = system.await;
                if let Some(notice) = notice {
                    notice();
                }
            });
        }
    })
}

fn client(seat: &Seat) -> Result {
    let runtime = runtime::Builder::new_current_thread().enable_io().build()?;
    LocalSet::new().block_on(&runtime, async {
        let stream = UnixStream::connect(seat.path(".capnp")).await?;
        let mut system = RpcSystem::new(network(stream, Side::Client), None);
        let echo: echo::Client = system.bootstrap(Side::Server);
        spawn_local(system);
        let mut bytes = vec![0x5a; seat.payload_bytes];
        let mut calls = Calls::new(seat)?;
        while let Some(number) = calls.next() {
            bytes[..8].copy_from_slice(&number.to_le_bytes());
            let mut request = echo.call_request();
            request.get().set_bytes(&bytes);
            let reply = calls.check(request.send().promise.await)?;
            calls.done(reply.get()?.get_bytes()?)?;
        }
        calls.report()
    })
}
