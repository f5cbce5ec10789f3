//! The attribute [`service`]. Its documentation, with examples that run, is in the module
//! `handfast::service`.
#![forbid(unsafe_code)]

mod client;
mod server;

mod trait_;

mod shape;
mod text;

use proc_macro::TokenStream;
use quote::quote;
use trait_::Trait;

/// Generates a client and a server from a trait.
///
/// From `trait Account` the attribute makes `AccountClient`, whose methods call through a send right,
/// `AccountAsyncClient`, whose methods do so for tasks, and `AccountServer`, which receives such calls and runs the methods of a type that implements `Account`.
/// See the module `handfast::service`.
///
/// Methods take `&self` and no generic parameters. Attributes of methods: `#[oneway]` for a method that is
/// sent and has no reply; `#[fixed]` for a method whose own types all have a fixed layout. A method may be `async`: then tasks
/// serve the trait, many calls at once.
#[proc_macro_attribute]
pub fn service(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let attribute = proc_macro2::TokenStream::from(attribute);
    let made = if attribute.is_empty() {
        syn::parse(item).and_then(make)
    } else {
        Err(syn::Error::new_spanned(
            attribute,
            "#[service] takes no arguments",
        ))
    };
    made.unwrap_or_else(|error| error.to_compile_error()).into()
}

fn make(mut item: syn::ItemTrait) -> syn::Result<proc_macro2::TokenStream> {
    let service = Trait::read(&mut item)?;
    if service.is_async() {
        let reason = "whether its futures are Send is known where the service is";
        item.attrs
            .push(syn::parse_quote!(#[allow(async_fn_in_trait, reason = #reason)]));
    }
    let (client, server) = (client::client(&service), server::server(&service));
    let async_client = client::async_client(&service);
    Ok(quote! { #item #client #async_client #server })
}
