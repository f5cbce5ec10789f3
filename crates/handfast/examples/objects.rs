//! Objects behind one port: a directory gives out a right to each, with the object's number as its
//! badge. Only a process that has the right can use the object; when the last right to any of
//! them is gone, the server is notified.
//!
//! Two threads of one process play server and client; in two processes nothing changes.

use handfast::{Notice, Right};
use std::collections::HashMap;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = format!("objects-{}", std::process::id());
    let port = handfast::bind(&name)?;
    let server = std::thread::spawn(move || serve(&port).map_err(|error| error.to_string()));

    let directory = handfast::connect(&name)?;
    let mut counters = Vec::new();
    for _ in 0..3 {
        let mut reply = directory.call(b"new")?;
        let Some(Right::Send(counter)) = reply.take_rights().pop() else {
            return Err("no right came".into());
        };
        counters.push(counter);
    }
    for (turn, counter) in counters.iter().enumerate() {
        for _ in 0..=turn {
            counter.call(b"add")?;
        }
    }
    for counter in &counters {
        println!(
            "counted {}",
            String::from_utf8_lossy(&counter.call(b"add")?)
        );
    }
    // Rights are values: a copy goes back home, and the server knows which object it is.
    let copy = counters[2].clone();
    let reply = directory.with([copy.into()]).call(b"which")?;
    println!("the third is number {}", String::from_utf8_lossy(&reply));

    drop(counters);
    drop(directory);
    println!("{}", server.join().map_err(|_| "the server panicked")??);
    Ok(())
}

fn serve(port: &handfast::ReceiveRight) -> Result<String, Box<dyn std::error::Error>> {
    let mut counts: HashMap<u64, u64> = HashMap::new();
    loop {
        let mut request = port.receive()?;
        if request.notice() == Some(Notice::NoSenders) {
            return Ok(format!(
                "{} objects, and nobody left to use them",
                counts.len()
            ));
        }
        match (request.badge(), request.bytes()) {
            (0, b"new") => {
                let number = counts.len() as u64 + 1;
                counts.insert(number, 0);
                request.reply_with(b"", [port.mint(number).into()])?;
                port.notify_no_senders();
            }
            (0, b"which") => {
                let badges = request.take_rights().into_iter().map(|right| match right {
                    Right::Own(own) if own.is_to(port) => own.badge().to_string(),
                    _ => "not mine".to_owned(),
                });
                let badges: String = badges.collect();
                request.reply(badges.as_bytes())?;
            }
            (number, b"add") => {
                let count = counts.entry(number).or_default();
                *count += 1;
                let count = count.to_string();
                request.reply(count.as_bytes())?;
            }
            _ => request.reply(b"what?")?,
        }
    }
}
