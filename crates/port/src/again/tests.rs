use super::*;
use crate::descriptors::tests::{expect_let_go, link};
use handfast_sys::socket;

/// What `peer` has been told about kept rights: kind and number.
fn told_of(peer: &handfast_sys::OwnedFd) -> Vec<(u8, u64)> {
    socket::set_nonblocking(peer, true).unwrap();
    let mut bytes = [0; 256];
    let mut told = Vec::new();
    while let Ok((len_bytes, _)) = socket::receive(peer, &mut bytes, 0) {
        if let [kind @ control::KEPT..=control::LEFT, _, ref rest @ ..] = bytes[..len_bytes] {
            told.push((kind, u64::from_le_bytes(*rest.first_chunk().unwrap())));
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
    let right = SendRight::of_handle(&process, exporter.clone(), port, name, process.waiting);
    process.links.lock().unwrap().push(Some(exporter.clone()));
    process.end_link(&exporter);
    keep(&process, &introducer, number, &right);
    let told = told_of(&peer);
    assert_eq!(told, [(control::KEPT, number), (control::LEAVE, number)]);
    process
        .take_again_message(&introducer, control::LEFT, &number.to_le_bytes())
        .unwrap();
    drop(right);
    expect_let_go(&exporter);
    process.end_link(&introducer);
}
