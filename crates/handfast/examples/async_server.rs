//! A server of tasks on tokio: methods that wait do not hold up each other. `async_server [CALLERS]`.
//!
//! Its callers are threads here, which block; `tasks` has callers that are tasks.

use std::error::Error;
use std::time::{Duration, Instant};

#[handfast::service]
trait Kitchen {
    /// Takes as long as that.
    async fn cook(&self, dish: String, ms: u64) -> String;
}

struct Mine;

impl Kitchen for Mine {
    async fn cook(&self, dish: String, ms: u64) -> String {
        // Whatever tokio has to wait for; others are served meanwhile. Where the caller gives up, this is dropped here.
        tokio::time::sleep(Duration::from_millis(ms)).await;
        format!("{dish}, well done")
    }
}

const COOKED: Duration = Duration::from_millis(50);

fn main() -> Result<(), Box<dyn Error>> {
    let callers = std::env::args().nth(1);
    let callers: u32 = callers.map_or(Ok(12), |callers| callers.parse())?;
    let name = format!("async-server-{}", std::process::id());
    let port = handfast::bind(&name)?;
    // The server ends when nobody has a right to its port any more.
    port.notify_no_senders();
    let server = std::thread::spawn(move || -> Result<(), String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        // One task, up to 64 calls at work in it. For a task of its own for each: `KitchenServer::dispatch_async`.
        let served = runtime.block_on(KitchenServer::serve_async(&port, &Mine));
        served.map_err(|error| error.to_string())
    });

    let kitchen = KitchenClient::new(handfast::connect(&name)?);
    let start = Instant::now();
    std::thread::scope(|scope| {
        let ms = COOKED.as_millis() as u64;
        let order = |number| {
            let kitchen = &kitchen;
            move || kitchen.cook(format!("dish {number}"), ms)
        };
        let orders: Vec<_> = (0..callers)
            .map(|number| scope.spawn(order(number)))
            .collect();
        orders.into_iter().try_for_each(|order| {
            println!("{}", order.join().map_err(|_| "a caller panicked")??);
            Ok::<(), Box<dyn Error>>(())
        })
    })?;
    println!("{callers} dishes of {COOKED:?} in {:?}", start.elapsed());
    drop(kitchen);
    server.join().map_err(|_| "the server panicked")??;
    Ok(())
}
