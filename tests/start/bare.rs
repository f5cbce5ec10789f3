//! The example of the README without handfast: what a start takes that has nothing of it.

use std::sync::mpsc::sync_channel;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (to_server, requests) = sync_channel::<Vec<u8>>(1);
    let (to_client, replies) = sync_channel::<Vec<u8>>(1);
    let server = std::thread::spawn(move || {
        let shout = requests.recv()?.to_ascii_uppercase();
        to_client.send(shout)?;
        Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    });
    to_server.send(b"hello".to_vec())?;
    println!("{}", String::from_utf8_lossy(&replies.recv()?));
    server
        .join()
        .map_err(|_| "the server panicked")?
        .map_err(|error| error.to_string())?;
    Ok(())
}
