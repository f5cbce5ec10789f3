//! One client, and the same service in a domain of this process and behind a link: what goes wrong in there is the error of
//! one call, and the next is served.

use handfast::SendRight;
use handfast::domain::{Domain, DomainOptions, Port, Table};
use std::sync::atomic::{AtomicU64, Ordering};

#[handfast::service]
trait Counter {
    fn add(&self, number: u64) -> u64;
    fn ratio(&self, to: u64) -> u64;
}

/// Lies in the domain's memory, where nobody else can touch it.
struct Sum(AtomicU64);

impl Counter for Sum {
    fn add(&self, number: u64) -> u64 {
        self.0.fetch_add(number, Ordering::Relaxed) + number
    }
    fn ratio(&self, to: u64) -> u64 {
        self.0.load(Ordering::Relaxed) / to
    }
}

fn client(right: SendRight) -> Result<(), Box<dyn std::error::Error>> {
    let counter = CounterClient::new(right);
    println!("the sum is {}", counter.add(20)?);
    println!("a fifth of it is {}", counter.ratio(5)?);
    if let Err(error) = counter.ratio(0) {
        println!("nothing of it: {error}");
    }
    println!("made anew it is {}", counter.add(1)?);
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let table = Table::new(|_| Sum(AtomicU64::new(0))).entry(CounterServer::entry);
    // SAFETY: the methods lend nothing to other threads, and touch nothing outside of the domain.
    let domain = unsafe { Domain::new(&table, DomainOptions::new()) }?;
    println!("the domain is kept apart by: {:?}", domain.isolation());
    let name = format!("counter-{}", std::process::id());
    let port = Port::new(handfast::bind(&name)?, &domain, 0)?;
    println!("by a right of this process:");
    client(port.mint(1).connect()?)?;
    println!("as another process calls it, by its name:");
    client(handfast::connect(&name)?)
}
