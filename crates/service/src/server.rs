//! The server's half of a call.

use crate::decode::Decoder;
use crate::encode::Encoder;
use crate::error::Refusal;
use crate::method::{Service, split};
use handfast_port::error::{ReceiveError, ReplyError};
use handfast_port::{Notice, ReceiveRight, Request};

/// Receives requests and answers each by `run`, which is given the method's number, until the port
/// tells that no sender is left, where it was asked to.
///
/// # Errors
/// [`ReceiveError`].
pub fn serve(
    port: &ReceiveRight,
    service: &Service,
    run: impl Fn(u16, &mut Decoder<'_>, &mut Encoder) -> Result<(), Refusal>,
) -> Result<(), ReceiveError> {
    let mut reply = Encoder::new();
    let mut request = port.receive()?;
    while request.notice() != Some(Notice::NoSenders) {
        answer(&mut request, service, &run, &mut reply);
        request = if !request.is_call() {
            // A message that is held keeps its link's memory.
            drop(request);
            port.receive()?
        } else if reply.has_rights() {
            // The caller hears of a right that cannot be sent as of a dropped call.
            let rights = reply.take_rights();
            let _ = request.reply_with(reply.bytes(), rights);
            port.receive()?
        } else {
            port.reply_and_receive(request, reply.bytes())?
        };
    }
    Ok(())
}

/// Answers one request by `run`.
///
/// # Errors
/// [`ReplyError`]; the caller, if it is there, then sees a dropped call.
pub fn dispatch(
    mut request: Request,
    service: &Service,
    run: impl Fn(u16, &mut Decoder<'_>, &mut Encoder) -> Result<(), Refusal>,
) -> Result<(), ReplyError> {
    let mut reply = Encoder::new();
    answer(&mut request, service, &run, &mut reply);
    if !request.is_call() {
        return Ok(());
    }
    if reply.has_rights() {
        let rights = reply.take_rights();
        let replied = request.reply_with(reply.bytes(), rights);
        return replied.map_err(|returned| returned.error);
    }
    request.reply(reply.bytes())
}

/// Makes the reply to a request.
#[inline]
fn answer(
    request: &mut Request,
    service: &Service,
    run: &impl Fn(u16, &mut Decoder<'_>, &mut Encoder) -> Result<(), Refusal>,
    reply: &mut Encoder,
) {
    if request.notice().is_some() {
        return;
    }
    reply.start_reply();
    let rights = request.take_rights();
    let is_call = request.is_call();
    let outcome = match request.bytes().split_first_chunk() {
        None => Err(other(service)),
        Some((word, values)) => match split(u64::from_le_bytes(*word)) {
            (print, _) if print != service.fingerprint() => Err(other(service)),
            (_, number) => match service.methods().get(usize::from(number)) {
                None => Err(Refusal::Method),
                Some(method) if method.is_one_way() == is_call => Err(Refusal::Form),
                Some(_) => run(number, &mut Decoder::new(values, rights), reply),
            },
        },
    };
    if let Err(why) = outcome.and_then(|()| reply.check().map_err(Refusal::Result)) {
        reply.refuse(why);
    }
}

#[cold]
const fn other(service: &Service) -> Refusal {
    Refusal::OtherService {
        serves: service.fingerprint(),
    }
}
