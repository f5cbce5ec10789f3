//! The protocols of a node, as its ports know them.

use crate::adopt::adopt_rest;
use crate::introduce::{self, provide};
use crate::link::Link;
use crate::link::introductions::Named;
use crate::message::{Message, Whom};
use crate::moving::home;
use crate::poller::{InLane, Protocols, clearing, idle};
use crate::port::Port;
use crate::port::ports::Ends;
use crate::process::Process;
use crate::request::Mark;
use crate::{closing, guest, polling, redirect, revoke, unbound};
use handfast_proto::rights::Handle;
use handfast_ring::Fault;
use handfast_ring::lane::{Consumer, Header};
use std::sync::Arc;

/// All of them.
pub(crate) struct All;

impl Protocols for All {
    fn adopt(
        &self,
        process: &Arc<Process>,
        (link, receiver): (&Arc<Link>, Option<u32>),
        message: &mut Message,
    ) -> Result<(), Fault> {
        // For a receiver all rights are known, or dead.
        adopt_rest(process, link, message, Whom::Receiver(receiver)).map(drop)
    }

    fn arrived_moved(&self, process: &Process, link: &Arc<Link>, name: Handle) {
        redirect::arrived_moved(link, process, name);
    }

    fn claimed(&self, link: &Arc<Link>, process: &Process, word: u32, now_ns: u64) -> Named {
        introduce::named(link, process, word, now_ns)
    }

    fn hear_said(
        &self,
        process: &Process,
        (link, header, bytes): InLane<'_>,
        now_ns: u64,
    ) -> Result<(), Fault> {
        provide::hear_said(link, process, (header, bytes), Some(now_ns))
    }

    fn marked(
        &self,
        process: &Process,
        (link, header, port): (&Arc<Link>, Header, u32),
        mark: (u32, u64),
    ) -> Result<Option<Mark>, Fault> {
        home::marked(link, process, (header, port), mark)
    }

    fn refuse_waiting(&self, process: &Arc<Process>, link: &Arc<Link>, consumer: &mut Consumer) {
        unbound::refuse_waiting(process, link, consumer);
    }
}

impl Ends for All {
    fn close(&self, port: &Port, is_quiet: bool) {
        // Callers of requests that were received wait on.
        guest::later(|| clearing::publish_heads(&mut polling::lock(&port.at), None));
        closing::close(port, is_quiet);
        guest::later(|| idle::close(&mut polling::lock(&port.at)));
    }

    fn revoke(&self, port: &Port, badge: u64) {
        revoke::revoke_those(port, badge, None);
    }

    fn end_member(&self, port: &Arc<Port>) {
        closing::end_those(&port.process, core::slice::from_ref(port));
    }

    fn clear_receiver(&self, process: &Arc<Process>, receiver: u32) {
        unbound::refuse_for(process, receiver);
    }
}
