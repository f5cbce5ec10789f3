//! The client of a service.

use crate::shape::{By, local};
use crate::trait_::{Method, Trait};
use proc_macro2::TokenStream;
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

fn method(service: &Trait, number: usize, method: &Method) -> TokenStream {
    let (vis, name, server) = (&service.vis, &method.name, service.server());
    let docs = &method.docs;
    let errors = "\n# Errors\n[`CallError`](::handfast::service::CallError).";
    let (output, input) = (local("output"), local("input"));
    let names = method.arguments.iter().map(|argument| &argument.name);
    let types = method
        .arguments
        .iter()
        .map(|argument| argument.client_type());
    let encode = method
        .arguments
        .iter()
        .map(|argument| argument.encode(&output));
    let result = method.result.result_type();
    let of = local("method");
    let of_value = quote! { &#server::SERVICE.methods()[#number] };
    let has_rights = method.rights() > 0 || method.result.rights() > 0;
    let request = match method.fixed_arguments() {
        Some(fixed) if !has_rights => quote! {
            ::handfast::service::FixedRequest::<{ 8 #(+ ::core::mem::size_of::<#fixed>())* }>
        },
        _ => quote! { ::handfast::service::Encoder },
    };
    let finish = format_ident!("{}", if has_rights { "parts" } else { "bytes" });
    let finish = quote! { #output.#finish(#of)? };
    let run = match (method.is_one_way, has_rights) {
        (true, false) => quote! { self.client.send(#finish) },
        (true, true) => quote! { self.client.send_with(#finish) },
        (false, has_rights) => {
            let call = format_ident!("{}", if has_rights { "call_with" } else { "call" });
            let decode = method.result.decode(By::Client, &input);
            quote! {
                self.client.#call(#of, #finish, |#input| {
                    let _ = &#input;
                    ::core::result::Result::Ok(#decode)
                })
            }
        }
    };
    quote! {
        #(#docs)*
        #[doc = #errors]
        #[inline]
        #vis fn #name(
            &self,
            #(#names: #types),*
        ) -> ::core::result::Result<#result, ::handfast::service::CallError> {
            let #of = #of_value;
            #request::request(#of, |#output| {
                #(#encode)*
                #run
            })
        }
    }
}
