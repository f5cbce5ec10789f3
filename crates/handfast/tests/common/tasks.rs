//! Tasks on tokio, and servers in other processes that they call.

use super::{Child, PATIENCE, name, start};
use handfast::SendRight;
use std::sync::Arc;
use tokio::runtime::{Builder, Runtime};

/// A runtime with so many threads.
pub(crate) fn runtime(threads: usize) -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(threads).enable_all();
    builder.build().unwrap()
}

/// The outcome of a future that must not hang.
pub(crate) async fn patiently<T>(future: impl Future<Output = T>) -> T {
    let ended = tokio::time::timeout(PATIENCE, future).await;
    ended.expect("it hangs")
}

/// A process that serves a port under a name of its own, and a right to the port.
pub(crate) fn serving(role: &'static str, what: &str) -> (Child, Arc<SendRight>) {
    let name = name(what);
    let server = start(role, &[&name]);
    server.expect("ready");
    (server, Arc::new(handfast::connect(&name).unwrap()))
}
