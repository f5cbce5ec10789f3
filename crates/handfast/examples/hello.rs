//! The example of the README: a server and its client, here as two threads.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = format!("hello-{}", std::process::id());
    let port = handfast::bind(&name)?;
    let server = std::thread::spawn(move || {
        let request = port.receive()?;
        let shout = request.bytes().to_ascii_uppercase();
        request.reply(&shout)?;
        Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    });
    let right = handfast::connect(&name)?;
    println!("{}", String::from_utf8_lossy(&right.call(b"hello")?));
    server
        .join()
        .map_err(|_| "the server panicked")?
        .map_err(|error| error.to_string())?;
    Ok(())
}
