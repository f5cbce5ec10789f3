//! Services at ports whose receiver others share.

use crate::common;
use handfast::error::{Gone, SendError};
use handfast::service::CallError;
use handfast::{MemberPort, ReceiveRight};
use std::time::{Duration, Instant};

#[handfast::service]
trait Counter {
    fn count(&self) -> u64;
}

struct Seven;

impl Counter for Seven {
    fn count(&self) -> u64 {
        7
    }
}

/// As long as the last right to a port may have ended before it is told.
const TOLD: Duration = Duration::from_millis(100);

/// One caller uses the port, another one its member, and goes.
fn call_both(port: &ReceiveRight, member: &MemberPort) {
    let own = CounterClient::new(port.mint(0).connect().unwrap()).with_timeout(common::PATIENCE);
    let beside = CounterClient::new(member.mint(7).connect().unwrap());
    let error = beside.with_timeout(common::PATIENCE).count().unwrap_err();
    assert!(
        matches!(error, CallError::Send(SendError::Gone(Gone::Reply))),
        "{error:?}"
    );
    let until = Instant::now() + TOLD;
    while Instant::now() < until {
        assert_eq!(own.count().unwrap(), 7);
    }
}

#[test]
fn a_service_takes_no_calls_of_others_at_its_receiver_and_does_not_end_with_them() {
    let port = handfast::anonymous().unwrap();
    let member = port.member().unwrap();
    std::thread::scope(|scope| {
        let right = port.mint(1);
        port.notify_no_senders();
        member.notify_no_senders();
        let served = scope.spawn(|| CounterServer::serve(&port, &Seven));
        call_both(&port, &member);
        drop(right);
        served.join().unwrap().unwrap();
    });
}

#[test]
fn nor_does_a_task_that_serves() {
    let port = handfast::anonymous().unwrap();
    let member = port.member().unwrap();
    std::thread::scope(|scope| {
        let right = port.mint(1);
        port.notify_no_senders();
        member.notify_no_senders();
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let served = scope.spawn(|| {
            runtime
                .unwrap()
                .block_on(CounterServer::serve_async(&port, &Seven))
        });
        call_both(&port, &member);
        drop(right);
        served.join().unwrap().unwrap();
    });
}
