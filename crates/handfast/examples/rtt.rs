//! Round trips: `rtt serve NAME` in one terminal, `rtt call NAME [CALLS]` in another.

use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let name = arguments
        .get(2)
        .ok_or("usage: rtt serve|call NAME [CALLS]")?;
    if arguments[1] == "serve" {
        let port = handfast::bind(name)?;
        let mut request = port.receive()?;
        loop {
            let message = request.take_message();
            request = port.reply_and_receive(request, &message)?;
        }
    }
    let calls: u32 = arguments
        .get(3)
        .map_or(Ok(1_000_000), |calls| calls.parse())?;
    let port = handfast::connect(name)?;
    for _ in 0..5 {
        let start = Instant::now();
        for _ in 0..calls {
            port.call(&[7; 24])?;
        }
        let ns = start.elapsed().as_nanos() / u128::from(calls);
        println!("{ns} ns a call");
    }
    Ok(())
}
