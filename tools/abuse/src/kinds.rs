//! The kinds of faults, how often each comes, and how the table calls it.

/// The fault that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// `kill -9` of a client, at a stage.
    KillClient,
    /// `kill -9` of a server with callers.
    KillServer,
    /// SIGSTOP and SIGCONT, in turns.
    StopClient,
    StopServer,
    /// A short stop of a well-behaved process.
    StopSteady,
    MuteServer,
    ScribbleClient,
    ScribbleServer,
    Handshake,
    BadFile,
    FakeServer,
    Control,
    DescriptorFlood,
    ConnectFlood,
    SlowReader,
    Clock,
    FewDescriptors,
    LittleMemory,
    ForkStorm,
    SignalVictim,
    SignalSteady,
    Links,
    Visitor,
}

/// Each with how often it comes, of how it is called in the table.
pub(crate) const KINDS: [(Fault, u64, &str); 23] = {
    use Fault::*;
    [
        (KillClient, 30, "kill -9 of a client, at a stage"),
        (KillServer, 15, "kill -9 of a server"),
        (StopClient, 6, "SIGSTOP and SIGCONT of a client"),
        (StopServer, 4, "SIGSTOP and SIGCONT of a server"),
        (
            StopSteady,
            2,
            "SIGSTOP and SIGCONT of a well-behaved process",
        ),
        (MuteServer, 2, "server that never replies"),
        (ScribbleClient, 8, "scribbling client"),
        (ScribbleServer, 4, "scribbling server"),
        (Handshake, 3, "malformed handshakes"),
        (BadFile, 3, "truncated and unsealed memory files"),
        (FakeServer, 2, "server with malformed answers and bad files"),
        (Control, 3, "random control messages"),
        (DescriptorFlood, 2, "descriptor flood"),
        (ConnectFlood, 2, "connect flood"),
        (SlowReader, 3, "slow reader"),
        (Clock, 3, "clock that is off by up to years"),
        (FewDescriptors, 4, "descriptors run out"),
        (LittleMemory, 4, "memory runs out"),
        (ForkStorm, 2, "fork storm"),
        (SignalVictim, 3, "signal storm at a client"),
        (SignalSteady, 2, "signal storm at a well-behaved process"),
        (Links, 1, "flood of links"),
        (Visitor, 4, "well-behaved newcomer"),
    ]
};

/// How a fault is called in the table.
pub(crate) fn name_of(fault: Fault) -> &'static str {
    let found = KINDS.iter().find(|(kind, ..)| *kind == fault);
    found.map_or("", |(_, _, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_there_once() {
        for (number, (kind, weight, name)) in KINDS.iter().enumerate() {
            assert_eq!(*kind as usize, number);
            assert_eq!(name_of(*kind), *name);
            assert!(*weight > 0);
        }
    }
}
