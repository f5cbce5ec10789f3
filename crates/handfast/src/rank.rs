//! The ranks of the locks, in rising order: see `spec/locks.md`.

handfast_sys::ranks! { 1: OpenQueues, Rests }
