//! `handfast echo`: the smallest server.

use handfast::{Options, Strategy};
use handfast_cli::temporary::{self, Temporary};
use handfast_cli::{Outcome, output};

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
    let going_on = temporary::goes_on();
    let port = handfast::bind_with(&args.name, options)?;
    // A server that is killed leaves it to the next one.
    let path = handfast::rendezvous::directory().join(&args.name);
    let _name = Temporary::new(move || drop(std::fs::remove_file(path)));
    drop(going_on);
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
