//! Two threads, one process: the thinnest path.

use std::time::Duration;

fn name(what: &str) -> String {
    format!("smoke-{what}-{}", std::process::id())
}

#[test]
fn a_call_is_answered() {
    let name = name("call");
    let port = handfast::bind(&name).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut request = port.receive().unwrap();
            for _ in 0..1000 {
                let reply = request.bytes().to_vec();
                request = port.reply_and_receive(request, &reply).unwrap();
            }
            request.reply(b"end").unwrap();
        });
        let right = handfast::connect(&name).unwrap();
        for i in 0..1000u32 {
            assert_eq!(&*right.call(&i.to_le_bytes()).unwrap(), i.to_le_bytes());
        }
        assert_eq!(&*right.call(b"x").unwrap(), b"end");
    });
}

#[test]
fn a_dropped_request_and_a_deadline_end_the_call() {
    let name = name("drop");
    let port = handfast::bind(&name).unwrap();
    let right = handfast::connect(&name).unwrap();
    let timed_out = right.call_timeout(b"x", Duration::from_millis(5));
    assert_eq!(timed_out.unwrap_err(), handfast::error::SendError::TimedOut);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            drop(port.receive().unwrap());
            drop(port.receive().unwrap());
        });
        let dropped = right.call(b"y").unwrap_err();
        assert_eq!(
            dropped,
            handfast::error::SendError::Gone(handfast::error::Gone::Reply)
        );
    });
}
