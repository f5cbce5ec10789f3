//! Round trips: `rtt serve NAME` in one terminal, `rtt call NAME` in another.

use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let name = arguments.get(2).ok_or("usage: rtt serve|call NAME")?;
    if arguments[1] == "serve" {
        let port = handfast::bind(name)?;
        let mut request = port.receive()?;
        loop {
            let message = request.take_message();
            request = port.reply_and_receive(request, &message)?;
        }
    }
    let port = handfast::connect(name)?;
    for _ in 0..5 {
        let start = Instant::now();
        for _ in 0..1_000_000 {
            port.call(&[7; 24])?;
        }
        println!("{} ns a call", start.elapsed().as_nanos() / 1_000_000);
    }
    Ok(())
}
