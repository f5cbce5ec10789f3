//! The path of a call without its waiting: client and server are one thread, two calls are in
//! flight, nobody ever waits. `valgrind --tool=callgrind` counts its instructions exactly.

use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let calls: u32 = std::env::args()
        .nth(1)
        .map_or(Ok(1_000_000), |calls| calls.parse())?;
    let name = format!("path-{}", std::process::id());
    let port = handfast::bind(&name)?;
    let right = handfast::connect(&name)?;
    let mut call = right.try_call(&[0; 24])?;
    let mut request = port.receive()?;
    let start = Instant::now();
    for _ in 0..calls {
        let next = right.try_call(&[7; 24])?;
        let message = request.take_message();
        request = port.reply_and_receive(request, &message)?;
        if call.wait()?.len() != 24 {
            return Err("a reply of another length".into());
        }
        call = next;
    }
    println!(
        "{} ns a call",
        start.elapsed().as_nanos() / u128::from(calls)
    );
    Ok(())
}
