//! The server of a service.

use crate::shape::local;
use crate::trait_::{Method, Trait, decoded};
use proc_macro2::{Ident, Literal, TokenStream};
use quote::{format_ident, quote};
use syn::ext::IdentExt;

/// `AccountServer` of `trait Account`.
pub(crate) fn server(service: &Trait) -> TokenStream {
    let Trait { vis, name, .. } = service;
    let server = service.server();
    let fingerprint = service.fingerprint();
    let name_text = name.unraw().to_string();
    let entries = service.methods.iter().enumerate().map(|(number, method)| {
        let (of, is_one_way) = (method.name.unraw().to_string(), method.is_one_way);
        let has_rights = method.rights() > 0;
        let number = Literal::usize_unsuffixed(number);
        quote! {
            ::handfast::service::Method::new(
                (#name_text, Self::FINGERPRINT),
                (#of, #number),
                (#is_one_way, #has_rights),
            )
        }
    });
    let methods = service.methods.iter().enumerate();
    let methods = methods.map(|(number, method)| arm(service, number, method));
    let doc = format!("Receives calls of the methods of [`{name}`] and runs them.");
    let serving = match service.is_async() {
        true => served_by_tasks(vis, name, &methods.collect::<Vec<_>>()),
        false => served(vis, name, &methods.collect::<Vec<_>>()),
    };
    quote! {
        #[doc = #doc]
        #[derive(::core::clone::Clone, ::core::marker::Copy, ::core::fmt::Debug)]
        #vis struct #server;

        #[allow(dead_code, reason = "generated: not every process serves")]
        impl #server {
            const FINGERPRINT: u64 = #fingerprint;

            /// The service as its clients know it.
            #vis const SERVICE: &'static ::handfast::service::Service =
                &::handfast::service::Service::new(Self::FINGERPRINT, &[#(#entries),*]);

            #serving
        }
    }
}

/// By threads, and by tasks one after the other.
fn served(vis: &syn::Visibility, name: &Ident, methods: &[TokenStream]) -> TokenStream {
    let (run, entry) = (run(name, methods, false), entry(vis, name));
    quote! {
        /// Receives calls from `port` and answers them, one after the other, by the methods of
        /// `service`; several threads may do so at once. Sleeps while there are none.
        ///
        /// A method that panics unwinds through here; its caller sees a dropped call
        /// (`Gone::Reply`). Whatever a client sends, it gets a reply that says what was wrong, and
        /// the loop goes on.
        ///
        /// Returns when the port tells that nobody has a right to it any more, if it was asked to
        /// by `notify_no_senders`; other notices are passed over.
        ///
        /// # Errors
        /// As `ReceiveRight::receive`.
        #vis fn serve(
            port: &::handfast::ReceiveRight,
            service: &(impl #name + ?::core::marker::Sized),
        ) -> ::core::result::Result<(), ::handfast::error::ReceiveError> {
            ::handfast::service::serve(port, Self::SERVICE, |number, input, output| {
                Self::run(service, number, input, output)
            })
        }

        /// As `serve`, for a task: of any executor, beside others at the same port. The methods
        /// are run where the task is, and block it as they would a thread: what takes long is to
        /// be left to others, by a reply right or `dispatch`.
        ///
        /// Dropping the future between two requests loses none.
        ///
        /// # Errors
        /// As `ReceiveRight::receive`.
        #vis async fn serve_async(
            port: &::handfast::ReceiveRight,
            service: &(impl #name + ?::core::marker::Sized),
        ) -> ::core::result::Result<(), ::handfast::error::ReceiveError> {
            ::handfast::service::serve_async(port, Self::SERVICE, |number, input, output| {
                Self::run(service, number, input, output)
            })
            .await
        }

        /// Answers one request by a method of `service`: for a loop of one's own, which may
        /// choose the object by `Request::badge`, or wait for several ports. A notice is passed
        /// over. A method that panics unwinds through here; its caller sees a dropped call.
        ///
        /// # Errors
        /// As `Request::reply_with`; the caller, if it is there, sees a dropped call.
        #vis fn dispatch(
            request: ::handfast::Request,
            service: &(impl #name + ?::core::marker::Sized),
        ) -> ::core::result::Result<(), ::handfast::error::ReplyError> {
            ::handfast::service::dispatch(request, Self::SERVICE, |number, input, output| {
                Self::run(service, number, input, output)
            })
        }

        #entry

        #run
    }
}

/// For domains.
fn entry(vis: &syn::Visibility, name: &Ident) -> TokenStream {
    let served = served_type();
    quote! {
        ::handfast::__with_domain! {
            /// As `dispatch`, of a message that is in a domain: a function for a domain's table, whose value is `service`.
            /// Rights to ports that a request may bring and take are brought and taken here, too. With handfast's feature
            /// `domain`.
            #vis fn entry<#served: #name>(
                service: &#served,
                call: &mut ::handfast::domain::CallContext<'_>,
            ) {
                ::handfast::service::serve_in(call, Self::SERVICE, |number, input, output| {
                    Self::run(service, number, input, output)
                })
            }
        }
    }
}

/// By tasks, many at once.
fn served_by_tasks(vis: &syn::Visibility, name: &Ident, methods: &[TokenStream]) -> TokenStream {
    let run = run(name, methods, true);
    quote! {
        /// Receives calls from `port` and answers them, as a task of any executor: up to 64 at once, each when its
        /// method is done. More wait in the queue; for those, and for more than one processor, spawn
        /// `dispatch_async` for each request. One allocation a request. A wake-up polls all methods that are at work.
        ///
        /// A method whose caller has given up is dropped where it waits. Dropping this future drops the calls
        /// that are at work, whose callers see a dropped call (`Gone::Reply`), and loses no other.
        ///
        /// Returns when the port tells that nobody has a right to it any more, if it was asked to
        /// by `notify_no_senders`, and all are answered; other notices are passed over.
        ///
        /// # Errors
        /// As `ReceiveRight::receive`.
        #vis async fn serve_async(
            port: &::handfast::ReceiveRight,
            service: &(impl #name + ?::core::marker::Sized),
        ) -> ::core::result::Result<(), ::handfast::error::ReceiveError> {
            let answer = |request| Self::dispatch_async(request, service);
            ::handfast::service::serve_at_once(port, answer).await
        }

        /// Answers one request by a method of `service`, as a task; given up when its caller has given up. A notice
        /// is passed over.
        ///
        /// # Errors
        /// As `Request::reply_with`; the caller, if it is there, sees a dropped call.
        #vis async fn dispatch_async(
            mut request: ::handfast::Request,
            service: &(impl #name + ?::core::marker::Sized),
        ) -> ::core::result::Result<(), ::handfast::error::ReplyError> {
            use ::handfast::service::{Decoder, Encoder, begin, finish, unless_given_up};
            let mut output = Encoder::of_reply(request.reply_bytes_max());
            let outcome = match begin(&mut request, Self::SERVICE) {
                ::core::result::Result::Ok((number, rights)) => {
                    let mut input = Decoder::of_request(&request, rights);
                    let work = Self::run(service, number, &mut input, &mut output);
                    match unless_given_up(&request, work).await {
                        ::core::option::Option::Some(outcome) => outcome,
                        ::core::option::Option::None => return ::core::result::Result::Ok(()),
                    }
                }
                ::core::result::Result::Err(why) => ::core::result::Result::Err(why),
            };
            finish(request, outcome, &mut output)
        }

        #run
    }
}

/// Runs the method of a number.
fn run(name: &Ident, methods: &[TokenStream], is_async: bool) -> TokenStream {
    let (service, output, input) = (local("service"), local("output"), local("input"));
    let served = served_type();
    let kind = match is_async {
        true => quote!(async),
        false => quote!(#[inline]),
    };
    quote! {
        #[allow(deprecated, reason = "a server has all methods")]
        #kind fn run<#served: #name + ?::core::marker::Sized>(
            #service: &#served,
            number: u16,
            #input: &mut ::handfast::service::Decoder<'_>,
            #output: &mut ::handfast::service::Encoder,
        ) -> ::core::result::Result<(), ::handfast::service::Refusal> {
            let _ = (#service, &#input, &#output);
            match number {
                #(#methods)*
                _ => ::core::result::Result::Err(::handfast::service::Refusal::Method),
            }
        }
    }
}

/// The type parameter for what is served. Types have no names of their own in a macro's code: one that no trait has.
fn served_type() -> Ident {
    format_ident!("__Served")
}

fn arm(service: &Trait, number: usize, method: &Method) -> TokenStream {
    let (of, name) = (&service.name, &method.name);
    let number = Literal::usize_unsuffixed(number);
    let (run, output, input) = (local("service"), local("output"), local("input"));
    let (result, served) = (local("result"), served_type());
    let variables = (0..method.arguments.len()).map(decoded);
    let variables: Vec<_> = variables.collect();
    let arguments = method.arguments.iter();
    let values = arguments.clone().map(|argument| argument.decode(&input));
    let passed = arguments.zip(&variables);
    let passed = passed.map(|(argument, variable)| argument.pass(variable));
    let wait = method.is_async.then(|| quote!(.await));
    let encode = method.result.encode(&quote!(#result), &output);
    quote! {
        #number => {
            #(let #variables = #values;)*
            #input.end()?;
            let #result = <#served as #of>::#name(#run, #(#passed),*) #wait;
            #encode
            ::core::result::Result::Ok(())
        }
    }
}
