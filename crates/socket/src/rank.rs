//! The ranks of the locks, in rising order: see `spec/locks.md`.

handfast_sys::ranks! { 120: Outgoing, Incoming, Askers, Reason }
