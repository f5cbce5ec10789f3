//! The client of a service.

use crate::shape::{By, local};
use crate::trait_::{Method, Trait};
use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};

/// `AccountClient` of `trait Account`.
pub(crate) fn client(service: &Trait) -> TokenStream {
    let Trait { vis, name, .. } = service;
    let client = format_ident!("{name}Client");
    let methods = service.methods.iter().enumerate();
    let methods = methods.map(|(number, of)| method(service, number, of));
    let doc = format!(
        "Calls the methods of [`{name}`] through a right to send. Any number of threads may use it \
         at once."
    );
    quote! {
        #[doc = #doc]
        #[derive(::core::clone::Clone, ::core::fmt::Debug)]
        #vis struct #client {
            client: ::handfast::service::Client,
        }

        #[allow(dead_code, reason = "generated: not every client calls every method")]
        impl #client {
            /// Calls through `right`, without a deadline. No system call: that the server is another
            /// one shows at the first call.
            #[must_use]
            #vis const fn new(right: ::handfast::SendRight) -> Self {
                Self { client: ::handfast::service::Client::new(right) }
            }

            /// The same with a deadline: each call ends by `timeout` after its start.
            #[must_use]
            #vis fn with_timeout(self, timeout: ::core::time::Duration) -> Self {
                Self { client: self.client.with_timeout(timeout) }
            }

            /// The right it calls through.
            #[must_use]
            #vis const fn right(&self) -> &::handfast::SendRight {
                self.client.right()
            }

            #(#methods)*
        }

        impl ::core::convert::From<::handfast::SendRight> for #client {
            fn from(right: ::handfast::SendRight) -> Self {
                Self::new(right)
            }
        }

        impl ::core::convert::From<#client> for ::handfast::SendRight {
            fn from(client: #client) -> Self {
                client.client.into_right()
            }
        }

        impl ::core::convert::From<#client> for ::handfast::Right {
            fn from(client: #client) -> Self {
                Self::Send(client.client.into_right())
            }
        }
    }
}

/// `AccountAsyncClient` of `trait Account`.
pub(crate) fn async_client(service: &Trait) -> TokenStream {
    let Trait { vis, name, .. } = service;
    let client = format_ident!("{name}AsyncClient");
    let methods = service.methods.iter().enumerate();
    let methods = methods.map(|(number, of)| async_method(service, number, of));
    let doc = format!(
        "Calls the methods of [`{name}`] through a right to send, for tasks of any executor. A future \
         that is dropped gives its call up."
    );
    quote! {
        #[doc = #doc]
        #[derive(::core::clone::Clone, ::core::fmt::Debug)]
        #vis struct #client {
            client: ::handfast::service::Client,
        }

        #[allow(dead_code, reason = "generated: not every client calls every method")]
        impl #client {
            /// Calls through `right`. No system call: that the server is another one shows at the
            /// first call.
            #[must_use]
            #vis const fn new(right: ::handfast::SendRight) -> Self {
                Self { client: ::handfast::service::Client::new(right) }
            }

            /// The right it calls through.
            #[must_use]
            #vis const fn right(&self) -> &::handfast::SendRight {
                self.client.right()
            }

            #(#methods)*
        }
    }
}

fn method(service: &Trait, number: usize, method: &Method) -> TokenStream {
    let Parts {
        head,
        tail,
        of,
        of_value,
        request,
        finish,
        encode,
        decode,
        output,
        has_rights,
    } = Parts::of(service, number, method);
    let run = match (method.is_one_way, has_rights) {
        (true, false) => quote! { self.client.send(#finish) },
        (true, true) => quote! { self.client.send_with(#finish) },
        (false, false) => quote! { self.client.call(#of, #finish, #decode) },
        (false, true) => quote! { self.client.call_with(#of, #finish, #decode) },
    };
    quote! {
        #head
        #[inline]
        #tail {
            let #of = #of_value;
            #request::request(#of, |#output| {
                #encode
                #run
            })
        }
    }
}

fn async_method(service: &Trait, number: usize, method: &Method) -> TokenStream {
    let Parts {
        head,
        tail,
        of,
        of_value,
        request,
        finish,
        encode,
        decode,
        output,
        has_rights,
    } = Parts::of_async(service, number, method);
    let start = match (method.is_one_way, has_rights) {
        (true, false) => quote! { self.client.try_send(#finish) },
        (true, true) => quote! { self.client.try_send_with(#finish) },
        (false, false) => quote! { self.client.start(#finish) },
        (false, true) => quote! { self.client.start_with(#finish) },
    };
    let start = if method.is_one_way {
        start
    } else {
        quote! { ::core::result::Result::<_, ::handfast::service::CallError>::Ok(#start) }
    };
    let start = quote! { #request::request(#of, |#output| { #encode #start }) };
    let run = if method.is_one_way {
        start
    } else {
        let reply = local("reply");
        quote! {
            let #reply = #start?;
            ::handfast::service::Client::finish(#of, #reply.await, #decode)
        }
    };
    quote! {
        #head
        #tail {
            let #of = #of_value;
            #run
        }
    }
}

/// The parts of a method's functions.
struct Parts {
    /// Documentation.
    head: TokenStream,
    /// From the visibility to the type of the result.
    tail: TokenStream,
    /// The variable of the method, and its value.
    of: Ident,
    of_value: TokenStream,
    /// The type that makes its requests, and how one is finished.
    request: TokenStream,
    finish: TokenStream,
    encode: TokenStream,
    decode: TokenStream,
    output: Ident,
    /// There are rights in the request or the reply.
    has_rights: bool,
}

impl Parts {
    fn of(service: &Trait, number: usize, method: &Method) -> Self {
        Self::with(service, number, method, &TokenStream::new())
    }

    fn of_async(service: &Trait, number: usize, method: &Method) -> Self {
        Self::with(service, number, method, &quote! { async })
    }

    fn with(service: &Trait, number: usize, method: &Method, is_async: &TokenStream) -> Self {
        let (vis, name, server) = (&service.vis, &method.name, service.server());
        let docs = &method.docs;
        let errors = "\n# Errors\n[`CallError`](::handfast::service::CallError).";
        let (of, output, input) = (local("method"), local("output"), local("input"));
        let arguments = method.arguments.iter();
        let names = arguments.clone().map(|argument| &argument.name);
        let types = arguments.clone().map(|argument| argument.client_type());
        let encode = arguments.map(|argument| argument.encode(&output));
        let (result, decode) = (
            method.result.result_type(),
            method.result.decode(By::Client, &input),
        );
        let has_rights = method.rights() > 0 || method.result.rights() > 0;
        let request = match method.fixed_arguments() {
            Some(fixed) if !has_rights => quote! {
                ::handfast::service::FixedRequest::<{ 8 #(+ ::core::mem::size_of::<#fixed>())* }>
            },
            _ => quote! { ::handfast::service::Encoder },
        };
        let finish = format_ident!("{}", if has_rights { "parts" } else { "bytes" });
        Self {
            head: quote! { #(#docs)* #[doc = #errors] },
            tail: quote! {
                #vis #is_async fn #name(
                    &self,
                    #(#names: #types),*
                ) -> ::core::result::Result<#result, ::handfast::service::CallError>
            },
            of_value: quote! { &#server::SERVICE.methods()[#number] },
            request,
            finish: quote! { #output.#finish(#of)? },
            encode: quote! { #(#encode)* },
            decode: quote! {
                |#input| {
                    let _ = &#input;
                    ::core::result::Result::Ok(#decode)
                }
            },
            of,
            output,
            has_rights,
        }
    }
}
