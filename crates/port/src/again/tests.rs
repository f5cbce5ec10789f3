use super::*;
use crate::descriptors::tests::{expect_let_go, link};
use crate::{link_end, links, send};
use handfast_sys::socket;

/// Messages to `peer` about kept rights.
fn told_of(peer: &handfast_sys::OwnedFd) -> Vec<ControlMessage<'static>> {
    socket::set_nonblocking(peer, true).unwrap();
    let mut bytes = [0; 256];
    let mut told = Vec::new();
    while let Ok((len_bytes, _)) = socket::receive(peer, &mut bytes, 0) {
        match ControlMessage::parse(&bytes[..len_bytes]).unwrap() {
            Some(ControlMessage::Kept { number }) => told.push(ControlMessage::Kept { number }),
            Some(ControlMessage::Leave { number, came }) => {
                told.push(ControlMessage::Leave { number, came });
            }
            _ => {}
        }
    }
    told
}

#[test]
fn a_right_that_is_kept_when_its_exporter_has_ended_leaves() {
    let (process, introducer, peer) = link();
    let (_, exporter, _other) = link();
    let (port, name, number) = (0x100, 1 << 31 | 7, 9);
    exporter.imports().arrive(name, port).unwrap();
    let right = send::of_handle(
        &process,
        exporter.clone(),
        port,
        name,
        process.defaults.waiting,
    );
    links::list(&process).push(Some(exporter.clone()));
    link_end::end_link(&process, &exporter);
    keep(&process, &introducer, number, &right);
    let told = told_of(&peer);
    let (kept, leave) = (
        ControlMessage::Kept { number },
        ControlMessage::Leave { number, came: 0 },
    );
    assert_eq!(told, [kept, leave]);
    drop(right);
    // However long the introducer goes on to name it.
    expect_let_go(&exporter);
    let again = take_again(&introducer, number);
    assert!(matches!(again, Ok(Right::Dead)), "{again:?}");
    let leave = ControlMessage::Leave { number, came: 1 };
    assert_eq!(told_of(&peer), [leave]);
    take_again_message(&introducer, ControlMessage::Left { number }).unwrap();
    assert!(take_again(&introducer, number).is_err());
    link_end::end_link(&process, &introducer);
}
