//! How the values of a type travel, as far as its name tells.

use crate::text::has;
use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote};
use syn::{Error, GenericArgument, PathArguments, PathSegment, Result, Type};

/// How a value travels.
pub(crate) enum Shape {
    /// As it lies in memory.
    Fixed(Type),
    /// By serde.
    Serde(Type),
    /// A vector of bytes: as by serde, but not one by one.
    Bytes(Type),
    /// Beside the bytes.
    Right(Kind),
    /// One byte says whether there is one.
    Option(Box<Self>),
    /// One byte says which.
    Result(Box<Self>, Box<Self>),
    /// One behind the other.
    Tuple(Vec<Self>),
}

/// Kinds of rights, as a server names them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Send,
    SendOnce,
    Own,
    Reply,
    Receive,
    Memory,
    Descriptor,
    Loan,
    Any,
}

/// The side that decodes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    Server,
    Client,
}

/// Rights that a message can carry.
pub(crate) const RIGHTS_MAX: usize = 4;

/// Types that never travel among the bytes.
const RIGHTS: [&str; 6] = [
    "SendRight",
    "SendOnceRight",
    "OwnRight",
    "ReplyRight",
    "ReceiveRight",
    "OwnedFd",
];

const FIXED: [&str; 13] = [
    "u8", "u16", "u32", "u64", "u128", "i8", "i16", "i32", "i64", "i128", "f32", "f64", "bool",
];

impl Shape {
    /// The shape of a type; of a method that is marked as fixed or not.
    pub(crate) fn of(ty: &Type, is_fixed: bool) -> Result<Self> {
        Ok(match ty {
            Type::Group(group) => return Self::of(&group.elem, is_fixed),
            Type::Paren(paren) => return Self::of(&paren.elem, is_fixed),
            Type::Tuple(tuple) => {
                let shapes = tuple.elems.iter().map(|elem| Self::of(elem, is_fixed));
                Self::Tuple(shapes.collect::<Result<_>>()?)
            }
            Type::Path(path) if path.qself.is_none() => {
                let Some(last) = path.path.segments.last() else {
                    return Err(Error::new_spanned(ty, "a type without a name"));
                };
                match (last.ident.to_string().as_str(), &*arguments(last)) {
                    ("SendRight", []) => Self::Right(Kind::Send),
                    ("SendOnceRight", []) => Self::Right(Kind::SendOnce),
                    ("OwnRight", []) => Self::Right(Kind::Own),
                    ("ReplyRight", []) => Self::Right(Kind::Reply),
                    ("ReceiveRight", []) => Self::Right(Kind::Receive),
                    ("Memory", []) => Self::Right(Kind::Memory),
                    ("OwnedFd", []) => Self::Right(Kind::Descriptor),
                    ("Loan", []) => Self::Right(Kind::Loan),
                    ("Right", []) => Self::Right(Kind::Any),
                    ("Option", [some]) => Self::Option(Box::new(Self::of(some, is_fixed)?)),
                    ("Result", [ok, err]) => Self::Result(
                        Box::new(Self::of(ok, is_fixed)?),
                        Box::new(Self::of(err, is_fixed)?),
                    ),
                    ("Vec", [item]) if is_byte(item) && !is_fixed => Self::Bytes(ty.clone()),
                    _ => Self::leaf(ty, is_fixed)?,
                }
            }
            Type::Reference(_) => {
                return Err(Error::new_spanned(
                    ty,
                    "a reference to nothing that lives there: only whole arguments may be references",
                ));
            }
            _ => Self::leaf(ty, is_fixed)?,
        })
    }

    /// The shape of a type that is not looked into.
    pub(crate) fn leaf(ty: &Type, is_fixed: bool) -> Result<Self> {
        if names_right(ty.to_token_stream()) {
            return Err(Error::new_spanned(
                ty,
                "a right travels by value: alone, or in Option, Result and tuples of at most 4",
            ));
        }
        Ok(if is_fixed || is_fixed_by_name(ty) {
            Self::Fixed(ty.clone())
        } else {
            Self::Serde(ty.clone())
        })
    }

    /// How many rights there are at the most.
    pub(crate) fn rights(&self) -> usize {
        match self {
            Self::Fixed(_) | Self::Serde(_) | Self::Bytes(_) => 0,
            Self::Right(_) => 1,
            Self::Option(some) => some.rights(),
            Self::Result(ok, err) => ok.rights().max(err.rights()),
            Self::Tuple(shapes) => shapes.iter().map(Self::rights).sum(),
        }
    }

    /// Fixed-layout types in it, in order.
    pub(crate) fn fixed<'a>(&'a self, found: &mut Vec<&'a Type>) {
        match self {
            Self::Fixed(ty) => found.push(ty),
            Self::Serde(_) | Self::Bytes(_) | Self::Right(_) => {}
            Self::Option(some) => some.fixed(found),
            Self::Result(ok, err) => [ok, err].iter().for_each(|shape| shape.fixed(found)),
            Self::Tuple(shapes) => shapes.iter().for_each(|shape| shape.fixed(found)),
        }
    }

    /// Code that puts `value` into `output`.
    pub(crate) fn encode(&self, value: &TokenStream, output: &Ident) -> TokenStream {
        let inner = local("inner");
        let inner = &quote!(#inner);
        match self {
            Self::Fixed(_) => quote! { #output.put_fixed(&#value); },
            Self::Serde(_) => quote! { #output.put(&#value); },
            Self::Bytes(_) => quote! { #output.put_bytes(&#value); },
            Self::Right(_) => quote! { #output.put_right(#value); },
            Self::Option(some) => {
                let some = some.encode(inner, output);
                quote! {
                    match #value {
                        ::core::option::Option::Some(#inner) => { #output.put_fixed(&true); #some }
                        ::core::option::Option::None => { #output.put_fixed(&false); }
                    }
                }
            }
            Self::Result(ok, err) => {
                let (ok, err) = (ok.encode(inner, output), err.encode(inner, output));
                quote! {
                    match #value {
                        ::core::result::Result::Ok(#inner) => { #output.put_fixed(&true); #ok }
                        ::core::result::Result::Err(#inner) => { #output.put_fixed(&false); #err }
                    }
                }
            }
            Self::Tuple(shapes) => {
                let names = (0..shapes.len()).map(|at| local(&format!("part{at}")));
                let names: Vec<_> = names.collect();
                let parts = shapes.iter().zip(&names);
                let parts = parts.map(|(shape, name)| shape.encode(&quote!(#name), output));
                quote! { { let (#(#names,)*) = #value; #(#parts)* } }
            }
        }
    }

    /// An expression that takes a value out of `input`, or returns what is wrong with it.
    pub(crate) fn decode(&self, by: By, input: &Ident) -> TokenStream {
        match self {
            Self::Fixed(ty) => quote! { #input.take_fixed::<#ty>()? },
            Self::Serde(ty) => quote! { #input.take::<#ty>()? },
            Self::Bytes(_) => quote! { #input.take::<&[u8]>()?.to_vec() },
            Self::Right(kind) => {
                let take = match kind.at(by) {
                    Kind::Send => "take_send_right",
                    Kind::SendOnce => "take_send_once_right",
                    Kind::Own => "take_own_right",
                    Kind::Reply => "take_reply_right",
                    Kind::Receive => "take_receive_right",
                    Kind::Memory => "take_memory",
                    Kind::Descriptor => "take_descriptor",
                    Kind::Loan => "take_loan",
                    Kind::Any => "take_right",
                };
                let take = Ident::new(take, Span::call_site());
                quote! { #input.#take()? }
            }
            Self::Option(some) => {
                let some = some.decode(by, input);
                quote! {
                    if #input.take_choice()? {
                        ::core::option::Option::Some(#some)
                    } else {
                        ::core::option::Option::None
                    }
                }
            }
            Self::Result(ok, err) => {
                let (ok, err) = (ok.decode(by, input), err.decode(by, input));
                quote! {
                    if #input.take_choice()? {
                        ::core::result::Result::Ok(#ok)
                    } else {
                        ::core::result::Result::Err(#err)
                    }
                }
            }
            Self::Tuple(shapes) => {
                let parts = shapes.iter().map(|shape| shape.decode(by, input));
                quote! { (#(#parts,)*) }
            }
        }
    }

    /// The type that a client gets back: the trait's type, but for rights.
    pub(crate) fn result_type(&self) -> TokenStream {
        self.client_type(&|kind| match kind.at(By::Client) {
            Kind::Send => quote! { ::handfast::SendRight },
            Kind::Reply => quote! { ::handfast::ReplyRight },
            kind => kind
                .itself()
                .unwrap_or_else(|| quote! { ::handfast::Right }),
        })
    }

    /// The type that a client passes: any kind of right where there is one to a port, or to answer.
    pub(crate) fn argument_type(&self) -> TokenStream {
        self.client_type(&|kind| match kind {
            Kind::Loan => quote! { ::handfast::Block },
            kind => kind
                .itself()
                .unwrap_or_else(|| quote! { ::handfast::Right }),
        })
    }

    fn client_type(&self, right: &impl Fn(Kind) -> TokenStream) -> TokenStream {
        match self {
            Self::Fixed(ty) | Self::Serde(ty) | Self::Bytes(ty) => ty.to_token_stream(),
            Self::Right(kind) => right(*kind),
            Self::Option(some) => {
                let some = some.client_type(right);
                quote! { ::core::option::Option<#some> }
            }
            Self::Result(ok, err) => {
                let (ok, err) = (ok.client_type(right), err.client_type(right));
                quote! { ::core::result::Result<#ok, #err> }
            }
            Self::Tuple(shapes) => {
                let parts = shapes.iter().map(|shape| shape.client_type(right));
                quote! { (#(#parts,)*) }
            }
        }
    }
}

impl Kind {
    /// A right that a server mints is one to send at its client; what else it returns may be
    /// anybody's.
    const fn at(self, by: By) -> Self {
        match (by, self) {
            (By::Server, kind) => kind,
            (By::Client, Self::Own) => Self::Send,
            (By::Client, Self::Reply) => Self::Reply,
            (By::Client, Self::Send | Self::Any) => Self::Any,
            (By::Client, kind) => kind,
        }
    }

    /// Its type, where it is the same at both sides.
    fn itself(self) -> Option<TokenStream> {
        match self {
            Self::SendOnce => Some(quote! { ::handfast::SendOnceRight }),
            Self::Receive => Some(quote! { ::handfast::ReceiveRight }),
            Self::Memory => Some(quote! { ::handfast::Memory }),
            Self::Descriptor => Some(quote! { ::std::os::fd::OwnedFd }),
            Self::Loan => Some(quote! { ::handfast::Loan }),
            Self::Send | Self::Own | Self::Reply | Self::Any => None,
        }
    }
}

/// A name that meets none of the trait's.
pub(crate) fn local(name: &str) -> Ident {
    format_ident!("{name}", span = Span::mixed_site())
}

/// Types in angle brackets.
fn arguments(segment: &PathSegment) -> Vec<&Type> {
    let PathArguments::AngleBracketed(arguments) = &segment.arguments else {
        return Vec::new();
    };
    let types = arguments.args.iter().filter_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    });
    types.collect()
}

pub(crate) fn is_byte(ty: &Type) -> bool {
    matches!(ty, Type::Path(path) if path.path.is_ident("u8"))
}

fn is_fixed_by_name(ty: &Type) -> bool {
    match ty {
        Type::Array(array) => is_fixed_by_name(&array.elem),
        Type::Path(path) => FIXED.iter().any(|name| path.path.is_ident(name)),
        _ => false,
    }
}

fn names_right(tokens: TokenStream) -> bool {
    has(
        tokens,
        &|token| matches!(token, TokenTree::Ident(name) if RIGHTS.iter().any(|right| name == right)),
    )
}
