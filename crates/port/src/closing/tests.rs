use super::*;
use crate::configuration::Configuration;
use crate::descriptors::tests::link_in;
use crate::error::{Gone, SendError};
use crate::port::exported;
use crate::{Node, Right, lifecycle};
use handfast_layout::control::ControlMessage;
use handfast_layout::link::Side;
use handfast_proto::rights::Target;
use handfast_sys::socket;
use handfast_testing::Directory;

/// The threads of a node that is shut down drop their ports as soon as they see that, before the links end: callers found
/// [`Gone::Port`].
#[test]
fn calls_at_ports_that_are_dropped_in_a_shutdown_end_with_the_process() {
    let directory = Directory::new("closing");
    let [server, client] =
        [(); 2].map(|()| Node::builder().directory(&directory.0).start().unwrap());
    let port = server.bind("port").unwrap();
    let (beside, desk) = (port.member().unwrap(), server.anonymous().unwrap());
    let given = [beside.mint(1), desk.mint(2)].map(Right::Own);
    let right = client.connect("port").unwrap();
    let rights = std::thread::scope(|scope| {
        scope.spawn(|| port.receive().unwrap().reply_with(b"", given).unwrap());
        right.call(b"").unwrap().take_rights()
    });
    let mut rights: Vec<_> = rights.iter().filter_map(Right::to_send).collect();
    assert_eq!(rights.len(), 2);
    rights.push(&right);
    let calls = rights.iter().map(|right| right.try_call(b"").unwrap());
    let calls: Vec<_> = calls.collect();
    let node = port.port().process.clone();
    assert!(node.begins_shutdown());
    drop((beside, desk, port));
    lifecycle::end_node(&node);
    for call in calls {
        assert_eq!(call.wait().unwrap_err(), SendError::Gone(Gone::Process));
    }
    client.shutdown();
}

/// As above, of what the peer is told unasked, by a link that the control thread has just made, too.
#[test]
fn a_peer_is_told_of_no_port_that_ends_after_a_shutdown() {
    let node = lifecycle::start(Configuration::new()).ok().unwrap();
    let (link, peer) = link_in(&node, handfast_sys::process::uid(), Side::Connector);
    socket::set_nonblocking(&peer, true).unwrap();
    links::list(&node).push(Some(link.clone()));
    let told = || {
        let (mut told, mut bytes) = (0, [0; 1024]);
        while let Ok((len_bytes @ 1.., _)) = socket::receive(&peer, &mut bytes, 0) {
            let said = ControlMessage::parse(&bytes[..len_bytes]);
            told += usize::from(matches!(
                said,
                Ok(Some(
                    ControlMessage::Closed { .. } | ControlMessage::Revoked { .. }
                ))
            ));
        }
        told
    };
    let ports = || {
        let port = crate::binding::nameless(&node, crate::Options::new())
            .ok()
            .unwrap();
        let beside = port.member().unwrap();
        for (port, badge) in [(port.port(), 1), (beside.port(), 2)] {
            exported::export(&link, port, Target::full(port.id, badge)).unwrap();
        }
        (port, beside)
    };
    drop(ports());
    assert_eq!(told(), 2);
    let (port, beside) = ports();
    assert!(node.begins_shutdown());
    tell_closed(&link, port.port());
    drop((port, beside));
    assert_eq!(told(), 0);
    lifecycle::end_node(&node);
}
