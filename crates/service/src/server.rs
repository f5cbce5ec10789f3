//! The server's half of a call.

use crate::decode::Decoder;
use crate::encode::Encoder;
use crate::error::Refusal;
use crate::method::{Method, Service, WORD_BYTES, split, values};
use crate::within::Within;
use core::future::poll_fn;
use core::task::Poll;
use handfast_port::error::{ReceiveError, ReplyError};
use handfast_port::{MESSAGE_BYTES_MAX, NotReceived, Notice, ReceiveRight, Request, Right};

/// Whether it says that no sender of the port is left; not of one that shares its receiver.
pub(crate) fn is_last(request: &Request) -> bool {
    request.notice() == Some(Notice::NoSenders) && request.member().is_none()
}

/// Receives requests and answers each by `run`, which is given the method's number, until a notice
/// says that no sender is left (if the port was asked for it). Calls of ports that share the port's receiver are dropped: serve
/// them by [`dispatch`].
///
/// # Errors
/// [`ReceiveError`].
pub fn serve(
    port: &ReceiveRight,
    service: &Service,
    run: impl Fn(u16, &mut Decoder<'_>, &mut Encoder) -> Result<(), Refusal>,
) -> Result<(), ReceiveError> {
    let mut reply = Encoder::default();
    let mut request = port.receive()?;
    while !is_last(&request) {
        let is_here = request.member().is_none();
        if is_here {
            answer(&mut request, service, &run, &mut reply);
        }
        request = if !(is_here && request.is_call()) {
            // A message that is held keeps its link's memory.
            drop(request);
            port.receive()?
        } else if reply.is_large() {
            let rights = reply.take_rights();
            let _ = request.reply_with(reply.reply(), rights);
            // Its memory would be kept while this waits.
            reply = Encoder::default();
            port.receive()?
        } else if reply.has_rights() {
            let rights = reply.take_rights();
            match port.reply_with_and_receive(request, reply.reply(), rights) {
                Ok(request) => request,
                Err(NotReceived::Receive(error)) => return Err(error),
                // The caller hears of a right that cannot be sent as of a dropped call.
                Err(_) => port.receive()?,
            }
        } else {
            port.reply_and_receive(request, reply.reply())?
        };
    }
    Ok(())
}

/// Like [`serve`], for a task.
///
/// # Errors
/// [`ReceiveError`].
pub async fn serve_async(
    port: &ReceiveRight,
    service: &Service,
    run: impl Fn(u16, &mut Decoder<'_>, &mut Encoder) -> Result<(), Refusal>,
) -> Result<(), ReceiveError> {
    let mut count = 0u32;
    loop {
        let request = port.receive_async().await?;
        if is_last(&request) {
            return Ok(());
        }
        if request.member().is_none() {
            // Its caller may be gone, or hears of a right that cannot be sent as of a dropped call.
            let _ = dispatch(request, service, &run);
        }
        count = count.wrapping_add(1);
        if count.is_multiple_of(REQUESTS_PER_TURN) {
            let mut waited = false;
            poll_fn(|context| {
                context.waker().wake_by_ref();
                match core::mem::replace(&mut waited, true) {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }
            })
            .await;
        }
    }
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
    Encoder::with(|reply| {
        answer(&mut request, service, &run, reply);
        send(request, reply)
    })
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
    reply.start(request.reply_bytes_max());
    let outcome = begin(request, service).and_then(|(number, rights)| {
        let _within = Within::new(request);
        Decoder::read(values(request.bytes()), rights, |input| {
            run(number, input, reply)
        })
    });
    reply.end(outcome);
}

/// The number of the method that a request is for, and the rights for it.
///
/// # Errors
/// [`Refusal`], to be answered.
#[inline]
pub fn begin(request: &mut Request, service: &Service) -> Result<(u16, Vec<Right>), Refusal> {
    let (number, method) = method_for(service, request.bytes(), request.is_call())?;
    let rights = match method.has_rights() {
        true => request.take_rights_held(),
        false => Vec::new(),
    };
    Ok((number, rights))
}

/// The method of a message, which must wait for a reply, or not, as the method does.
#[inline]
fn method_for(
    service: &Service,
    bytes: &[u8],
    is_call: bool,
) -> Result<(u16, &'static Method), Refusal> {
    let (number, method) = method(service, bytes)?;
    match method.is_one_way() == is_call {
        true => Err(Refusal::Form),
        false => Ok((number, method)),
    }
}

/// Serves a message that is in a domain. `rights` are those that came with the message. `then` is given the bytes of the reply, and
/// the rights that go with it.
pub fn serve_message<T>(
    (bytes, is_call): (&[u8], bool),
    rights: Vec<Right>,
    service: &Service,
    run: impl Fn(u16, &mut Decoder<'_>, &mut Encoder) -> Result<(), Refusal>,
    then: impl FnOnce(&[u8], Vec<Right>) -> T,
) -> T {
    Encoder::with(|reply| {
        reply.start(MESSAGE_BYTES_MAX);
        let outcome = method_for(service, bytes, is_call).and_then(|(number, method)| {
            let rights = match method.has_rights() {
                true => rights,
                false => Vec::new(),
            };
            Decoder::read(values(bytes), rights, |input| run(number, input, reply))
        });
        reply.end(outcome);
        let rights = match reply.has_rights() {
            true => reply.take_rights(),
            false => Vec::new(),
        };
        then(reply.reply(), rights)
    })
}

/// Sends the result that a method has put into `reply`, or the reason that there is none.
///
/// # Errors
/// [`ReplyError`]; the caller, if it is there, then sees a dropped call.
pub fn finish(
    request: Request,
    outcome: Result<(), Refusal>,
    reply: &mut Encoder,
) -> Result<(), ReplyError> {
    reply.end(outcome);
    send(request, reply)
}

fn send(request: Request, reply: &mut Encoder) -> Result<(), ReplyError> {
    if !request.is_call() {
        return Ok(());
    }
    if reply.has_rights() {
        let rights = reply.take_rights();
        let replied = request.reply_with(reply.reply(), rights);
        return replied.map_err(|returned| returned.error);
    }
    request.reply(reply.reply())
}

/// The method that a request is for, with its number.
#[inline]
fn method(service: &Service, request: &[u8]) -> Result<(u16, &'static Method), Refusal> {
    let other = Refusal::OtherService {
        serves: service.fingerprint(),
    };
    let (word, _) = request.split_first_chunk::<WORD_BYTES>().ok_or(other)?;
    let (fingerprint, number) = split(u64::from_le_bytes(*word));
    if fingerprint != service.fingerprint() {
        return Err(other);
    }
    let method = service.methods().get(usize::from(number));
    Ok((number, method.ok_or(Refusal::Method)?))
}

/// Requests that a task answers before others of its executor get their turn: while there are more it does not
/// wait for anything.
const REQUESTS_PER_TURN: u32 = 64;
