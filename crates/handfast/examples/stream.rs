//! A market feed: a child process streams ticks, many in one operation; this one adds them up and
//! answers the child's last question.

use handfast::Batch;
use std::process::Command;

const TICKS: u64 = 1_000_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, name] = &arguments[..] {
        return feed(name);
    }
    let name = format!("ticks-{}", std::process::id());
    let port = handfast::bind(&name)?;
    let mut feeder = Command::new(&arguments[0]).arg(&name).spawn()?;
    let (mut batch, mut batches) = (Batch::new(), 0);
    let (mut ticks, mut sum) = (0u64, 0u64);
    loop {
        // The available messages: up to 64 of one sender, and the call that ended them, if one did.
        let call = port.receive_many(&mut batch)?;
        batches += 1;
        for tick in batch.messages() {
            let price = tick.first_chunk().ok_or("a short tick")?;
            sum += u64::from_le_bytes(*price);
            ticks += 1;
        }
        if let Some(question) = call {
            question.reply(&sum.to_le_bytes())?;
            break;
        }
    }
    println!("{ticks} ticks in {batches} batches");
    let status = feeder.wait()?;
    if !status.success() || ticks != TICKS {
        return Err("the feed broke off".into());
    }
    Ok(())
}

fn feed(name: &str) -> Result<(), Box<dyn std::error::Error>> {
    let right = handfast::connect(name)?;
    let mut ticks = Vec::new();
    for price in 1..=TICKS {
        ticks.push(price.to_le_bytes());
        if ticks.len() == 32 || price == TICKS {
            right.send_many(&ticks)?;
            ticks.clear();
        }
    }
    let sum = right.call(b"sum?")?;
    if *sum != (TICKS * (TICKS + 1) / 2).to_le_bytes() {
        return Err("a tick was lost".into());
    }
    Ok(())
}
