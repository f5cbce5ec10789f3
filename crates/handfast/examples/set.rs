//! One thread, one wait: two ports and a socket that ends the server.

use handfast::{Event, Interest, WaitSet};
use std::io::Write;
use std::os::unix::net::UnixStream;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let names = ["upper", "lower"].map(|what| format!("{what}-{}", std::process::id()));
    let (stop, stopped) = UnixStream::pair()?;

    let mut set = WaitSet::new()?;
    let upper = set.add(handfast::bind(&names[0])?);
    let lower = set.add(handfast::bind(&names[1])?);
    let end = set.add_descriptor(&stopped, Interest::Read)?;

    let client =
        std::thread::spawn(move || clients(&names, stop).map_err(|error| error.to_string()));
    let mut event = set.receive()?;
    loop {
        event = match event {
            Event::Message(port, request) if port == upper => {
                let reply = request.bytes().to_ascii_uppercase();
                set.reply_and_receive(request, &reply)?
            }
            Event::Message(port, request) if port == lower => {
                let reply = request.bytes().to_ascii_lowercase();
                set.reply_and_receive(request, &reply)?
            }
            Event::Descriptor(token, _) if token == end => break,
            _ => set.receive()?,
        };
    }
    client.join().map_err(|_| "the client panicked")??;
    Ok(())
}

/// Usually another process.
fn clients(names: &[String], mut stop: UnixStream) -> Result<(), Box<dyn std::error::Error>> {
    for name in names {
        let port = handfast::connect(name)?;
        let reply = port.call(b"Hand Fast")?;
        println!("{name}: {}", String::from_utf8_lossy(&reply));
    }
    stop.write_all(b".")?;
    Ok(())
}
