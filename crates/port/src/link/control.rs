//! Messages of the control socket; one byte, then an argument byte.

/// Wake this receiver, which sleeps in a descriptor; or [`NOBODY`], and who waits for an outcome.
pub(crate) const RING: u8 = 1;
/// In the place of a receiver.
pub(crate) const NOBODY: u8 = u8::MAX;
/// Send your counters.
pub(crate) const STAT: u8 = 2;
/// Here are my counters (one descriptor).
pub(crate) const COUNTERS: u8 = 3;
/// A port has been dropped: its index follows in four bytes.
pub(crate) const CLOSED: u8 = 4;
/// Rights are given back: handles and how often each was received, four bytes each.
pub(crate) const RELEASE: u8 = 5;
/// About return paths; four bytes each of what `handfast_proto::paths` says, a process (incarnation and process
/// number) in 20.
/// Replier, a path is asked for: number, caller, index of the link there, set.
pub(crate) const PATH_ASK: u8 = 6;
/// Caller, a path is wanted: token, forwarder, index of the link there, set.
pub(crate) const PATH_WANT: u8 = 7;
/// Replier, it is granted: token, path, set.
pub(crate) const PATH_GRANTED: u8 = 8;
/// Replier, it is not: token.
pub(crate) const PATH_DENIED: u8 = 9;
/// Forwarder, it is there: number, path.
pub(crate) const PATH_READY: u8 = 10;
/// Forwarder, it is not there, or not any more: number.
pub(crate) const PATH_REFUSED: u8 = 11;
/// Caller, nothing more comes by it: path.
pub(crate) const PATH_OVER: u8 = 12;
/// Replier, it is not needed any more: number.
pub(crate) const PATH_DROP: u8 = 13;
/// About introductions. Exporter, what was provided is void: the introducer's number in 8 bytes.
pub(crate) const PROVISION_VOID: u8 = 14;
/// Introducer, what was provided will not be claimed: its number in 8 bytes, exporter in 20.
pub(crate) const DECLINED: u8 = 15;
/// Introducer, where is its door: exporter.
pub(crate) const DOOR_WHERE: u8 = 17;
/// Exporter, show your door: token.
pub(crate) const DOOR_ASK: u8 = 18;
/// Introducer, here it is, with a descriptor, or there is none: token.
pub(crate) const DOOR: u8 = 19;
/// Recipient, likewise: exporter.
pub(crate) const DOOR_OF: u8 = 20;
/// About rights that come again, by the introducer's number in 8 bytes. Introducer, what was provided is kept.
pub(crate) const KEPT: u8 = 21;
/// Introducer, there is no use for it any more: how often it has come again, in 4 bytes.
pub(crate) const LEAVE: u8 = 22;
/// Recipient, it does not come again any more.
pub(crate) const LEFT: u8 = 23;
/// Rights to the sender's ports are revoked: handles, or words of claims, four bytes each.
pub(crate) const REVOKED: u8 = 24;
/// A port has a receiver for each CPU: its number in four bytes, then for each of them a CPU in two bytes, its
/// receiver in one, and zero.
pub(crate) const SPREAD: u8 = 25;
/// A lane is wanted: say of all what has been taken.
pub(crate) const LANE_WANTED: u8 = 31;
/// Lane (the argument), its sender does not use it any more: everything in it has been taken.
pub(crate) const LANE_FREE: u8 = 29;
/// Sender, it may lead to any receiver from now on.
pub(crate) const LANE_BACK: u8 = 30;
/// About ports that move. Old home, yours has arrived: token, port, handle.
pub(crate) const ARRIVED: u8 = 40;
/// Old home, there is no room for it: token.
pub(crate) const NOT_ARRIVED: u8 = 41;
/// Sender, the port of a right has moved: its name, port there, number in 8 bytes, new home in 20.
pub(crate) const MOVED: u8 = 42;
/// About the end of a link, see [`crate::unused`]. Acceptor, its connector does not use it any more.
pub(crate) const UNUSED: u8 = 26;
/// Connector, it stays: it is used here.
pub(crate) const USED: u8 = 27;
/// Connector, it is not any more.
pub(crate) const FREE: u8 = 28;
/// Acceptor, the connector has mapped and sealed the link region; connector, so there is a link: the first messages after the
/// welcome.
pub(crate) const SEALED: u8 = 43;
