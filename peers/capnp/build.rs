//! Compiles the interface; wants the `capnp` tool.

fn main() {
    if let Err(error) = capnpc::CompilerCommand::new().file("echo.capnp").run() {
        eprintln!("echo.capnp: {error}");
        std::process::exit(1);
    }
}
