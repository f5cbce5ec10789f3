//! `handfast echo`: the smallest server.

use crate::{Outcome, output};
use handfast::{Options, Strategy};

/// Arguments of `echo`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The name to bind.
    name: String,
    /// How to wait: adaptive, spin, sched, block, notify, spin-sched[:US], spin-block[:US], spin-notify[:US],
    /// bss, bsw, bswy, bsls[:LOOKS] [default: $HANDFAST_STRATEGY, else adaptive].
    #[arg(long)]
    strategy: Option<Strategy>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let options = args
        .strategy
        .map_or_else(Options::new, |s| Options::new().strategy(s));
    if args.strategy.is_some_and(Strategy::notifies) {
        handfast::notify::notify(|| {})?;
    }
    let port = handfast::bind_with(&args.name, options)?;
    output::note(format_args!(
        "serving {:?} in {}",
        args.name,
        handfast::rendezvous::directory().display()
    ));
    serve(&port)
}

/// Echoes until the process ends.
pub(crate) fn serve(port: &handfast::ReceiveRight) -> Outcome {
    let mut request = port.receive()?;
    loop {
        let message = request.take_message();
        request = port.reply_and_receive(request, &message)?;
    }
}
