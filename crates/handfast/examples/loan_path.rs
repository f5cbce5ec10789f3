//! As `path`, with a block lent in each call: `valgrind --tool=callgrind` counts what that adds. Nobody
//! touches the block's bytes.

use handfast::SharedArena;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let calls: u32 = std::env::args()
        .nth(1)
        .map_or(Ok(1_000_000), |calls| calls.parse())?;
    let name = format!("loan-path-{}", std::process::id());
    let port = handfast::bind(&name)?;
    let right = handfast::connect(&name)?;
    let arena = SharedArena::create(4096, 8)?;
    let start = std::time::Instant::now();
    let lend = || {
        right
            .with([arena.try_take(4096).unwrap().into()])
            .try_call(&[])
    };
    let mut call = lend()?;
    let mut request = port.receive()?;
    for _ in 0..calls {
        let next = lend()?;
        if request.take_loan().is_none_or(|loan| loan.len() != 4096) {
            return Err("a call without its loan".into());
        }
        request = port.reply_and_receive(request, &[7; 8])?;
        if call.wait()?.len() != 8 {
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
