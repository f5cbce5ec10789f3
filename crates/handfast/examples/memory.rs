//! Memory and descriptors in messages: a picture that is rendered once and looked at by another
//! process where it is, and the pipe that it answers through.
//!
//! Two threads of one process play the two; in two processes nothing changes.

use handfast::{Memory, Right};
use std::io::{Read, Write};

const PICTURE_BYTES: usize = 8 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = format!("memory-{}", std::process::id());
    let port = handfast::bind(&name)?;
    let viewer = std::thread::spawn(move || view(&port).map_err(|error| error.to_string()));

    let mut picture = Memory::create(PICTURE_BYTES)?;
    for (at, pixel) in picture.iter_mut().enumerate() {
        *pixel = (at % 251) as u8;
    }
    let picture = picture.seal()?;
    // From here on nobody can change it, this process included.
    let (mut answers, writer) = std::io::pipe()?;
    let rights = [picture.into(), Right::Descriptor(writer.into())];
    handfast::connect(&name)?.with(rights).send(b"look")?;
    let mut answer = String::new();
    answers.read_to_string(&mut answer)?;
    println!("{answer}");
    viewer.join().map_err(|_| "the viewer panicked")??;
    Ok(())
}

fn view(port: &handfast::ReceiveRight) -> Result<(), Box<dyn std::error::Error>> {
    let mut request = port.receive()?;
    let mut picture = None;
    for right in request.take_rights() {
        match (right, &picture) {
            (Right::Memory(memory), _) => picture = Some(memory),
            (Right::Descriptor(fd), Some(picture)) => {
                let sum: u64 = picture.iter().copied().map(u64::from).sum();
                let bytes = picture.len();
                let mut pipe = std::fs::File::from(fd);
                write!(pipe, "{bytes} bytes, in all {sum}")?;
            }
            // Also `Right::Lost`: this process had no descriptor left.
            (other, _) => return Err(format!("{other:?} came").into()),
        }
    }
    Ok(())
}
