//! As `path`, with a right to a port of the caller's in each call, which the server has already. `plain`
//! leaves the right out.

use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let calls: u32 = arguments
        .next()
        .map_or(Ok(1_000_000), |calls| calls.parse())?;
    let is_plain = arguments.next().is_some();
    let name = format!("right-path-{}", std::process::id());
    let port = handfast::bind(&name)?;
    let to = handfast::connect(&name)?;
    let own = handfast::anonymous()?;
    let passed = own.mint(7);
    let start_call = || match is_plain {
        true => to.try_call(&[7; 24]),
        false => to
            .with([passed.clone().into()])
            .try_call(&[7; 24])
            .map_err(|returned| returned.error),
    };
    let mut call = start_call()?;
    let mut request = port.receive()?;
    let kept = request.take_rights();
    let start = Instant::now();
    for _ in 0..calls {
        let next = start_call()?;
        let mut message = request.take_message();
        drop(message.take_rights());
        request = port.reply_and_receive(request, &message)?;
        if call.wait()?.len() != 24 {
            return Err("a reply of another length".into());
        }
        call = next;
    }
    let took = start.elapsed().as_nanos() / u128::from(calls);
    println!("{took} ns a call, {} rights known", kept.len());
    Ok(())
}
