//! A service's trait, parsed and checked.

use crate::shape::{By, RIGHTS_MAX, Shape, is_byte, local};
use crate::text::{has, text};
use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote};
use syn::ext::IdentExt;
use syn::{
    Attribute, Error, FnArg, ItemTrait, Pat, PatType, ReceiverKind, Result, ReturnType, Safety,
    TraitItem, TraitItemFn, Type, Visibility,
};

/// A service.
pub(crate) struct Trait {
    pub(crate) vis: Visibility,
    pub(crate) name: Ident,
    pub(crate) methods: Vec<Method>,
}

/// One of its methods.
pub(crate) struct Method {
    pub(crate) name: Ident,
    /// Attributes that its client's method has, too: documentation, and what is not to be warned of.
    pub(crate) docs: Vec<Attribute>,
    pub(crate) arguments: Vec<Argument>,
    pub(crate) result: Shape,
    pub(crate) is_one_way: bool,
    /// At the server; to its callers it is as any other.
    pub(crate) is_async: bool,
    /// The text that the fingerprint is made from.
    signature: String,
}

/// An argument of a method.
pub(crate) struct Argument {
    pub(crate) name: Ident,
    ty: Type,
    passed: Passed,
}

/// How an argument is passed to the method.
enum Passed {
    Value(Shape),
    /// A reference to a decoded value.
    Reference(Shape),
    /// `&str` or `&[u8]`, within the message.
    Within,
}

/// Functions that clients have anyway.
const RESERVED: [&str; 3] = ["new", "right", "with_timeout"];

impl Trait {
    /// Reads a trait, and takes out the attributes that are meant for this.
    pub(crate) fn read(item: &mut ItemTrait) -> Result<Self> {
        if !item.generics.params.is_empty() {
            let message =
                "a service has no generic parameters: its wire format would have them too";
            return Err(Error::new_spanned(&item.generics, message));
        }
        let mut methods = Vec::new();
        for item in &mut item.items {
            let TraitItem::Fn(method) = item else {
                return Err(Error::new_spanned(item, "a service has methods only"));
            };
            methods.push(Method::read(method)?);
        }
        if u16::try_from(methods.len()).is_err() {
            let message = "a service has at most 65535 methods; make two of it";
            return Err(Error::new_spanned(&item.ident, message));
        }
        Ok(Self {
            vis: item.vis.clone(),
            name: item.ident.clone(),
            methods,
        })
    }

    /// An expression for its fingerprint.
    pub(crate) fn fingerprint(&self) -> TokenStream {
        let signatures = self.methods.iter().map(|method| &*method.signature);
        let text = format!("{} {}", self.name, signatures.collect::<String>());
        let mut fixed = Vec::new();
        for method in &self.methods {
            for argument in &method.arguments {
                if let Passed::Value(shape) | Passed::Reference(shape) = &argument.passed {
                    shape.fixed(&mut fixed);
                }
            }
            method.result.fixed(&mut fixed);
        }
        quote! {
            ::handfast::service::fingerprint(#text, &[#(::core::mem::size_of::<#fixed>()),*])
        }
    }

    /// Whether tasks serve it, and nothing else can.
    pub(crate) fn is_async(&self) -> bool {
        self.methods.iter().any(|method| method.is_async)
    }

    pub(crate) fn server(&self) -> Ident {
        format_ident!("{}Server", self.name)
    }
}

/// Refuses what no method of a service has.
fn check(method: &TraitItemFn) -> Result<()> {
    let signature = &method.sig;
    if let Some(cfg) = method.attrs.iter().find(|attr| is_conditional(attr)) {
        let message = "a method that is not always there would change the others' numbers; make two traits of it";
        return Err(Error::new_spanned(cfg, message));
    }
    if !signature.generics.params.is_empty() {
        let message = "a method of a service has no generic parameters or named lifetimes: its \
                       caller is another program";
        return Err(Error::new_spanned(&signature.generics, message));
    }
    if let Some(clause) = &signature.generics.where_clause {
        let message = "a method of a service has no where clause, since it is called of whatever serves; put what it \
                       asks of that behind the trait's name: `trait Name: Sync`";
        return Err(Error::new_spanned(clause, message));
    }
    if let Safety::Unsafe(token) = &signature.safety {
        let message = "a method of a service is safe to call, since its caller is another program; leave `unsafe` out";
        return Err(Error::new_spanned(token, message));
    }
    if RESERVED.iter().any(|name| signature.ident.unraw() == name) {
        let message = "the client has a function of this name; take another one";
        return Err(Error::new_spanned(&signature.ident, message));
    }
    Ok(())
}

impl Method {
    fn read(method: &mut TraitItemFn) -> Result<Self> {
        let is_one_way = take_attribute(method, "oneway");
        let is_fixed = take_attribute(method, "fixed");
        let signature = &method.sig;
        check(method)?;
        let mut inputs = signature.inputs.iter();
        match inputs.next() {
            Some(FnArg::Receiver(receiver))
                if matches!(receiver.kind, ReceiverKind::Reference(_, None, None)) => {}
            _ => {
                let message = "a method of a service takes &self";
                return Err(Error::new_spanned(&signature.ident, message));
            }
        }
        let arguments = inputs.map(|input| match input {
            FnArg::Typed(argument) => Argument::read(argument, is_fixed),
            FnArg::Receiver(_) => Err(Error::new_spanned(input, "a second self")),
        });
        let arguments: Vec<_> = arguments.collect::<Result<_>>()?;
        let result = match &signature.output {
            ReturnType::Default => Shape::Tuple(Vec::new()),
            ReturnType::Type(_, ty) if is_one_way => {
                let message = "nothing comes back from a one-way method";
                return Err(Error::new_spanned(ty, message));
            }
            ReturnType::Type(_, ty) => {
                has_a_name(ty)?;
                if has(
                    ty.to_token_stream(),
                    &|token| matches!(token, TokenTree::Punct(it) if it.as_char() == '&'),
                ) {
                    let message = "a result owns what is in it, since it comes from another process: `String` and not \
                                   `&str`, `Vec<u8>` and not `&[u8]`";
                    return Err(Error::new_spanned(ty, message));
                }
                Shape::of(ty, is_fixed)?
            }
        };
        for count in [rights(&arguments), result.rights()] {
            if count > RIGHTS_MAX {
                let message = format!(
                    "a message carries at most {RIGHTS_MAX} rights, and this one has {count}; use \
                     several methods"
                );
                return Err(Error::new_spanned(signature, message));
            }
        }
        let is_async = signature.asyncness.is_some();
        let types = arguments.iter().map(|argument| &argument.ty);
        let output = &signature.output;
        let name = signature.ident.clone();
        let signature = text(quote! { #name(#(#types),*) #output });
        let docs = method.attrs.iter().filter(|attr| {
            ["doc", "allow", "deprecated"]
                .iter()
                .any(|name| attr.path().is_ident(name))
        });
        Ok(Self {
            docs: docs.cloned().collect(),
            signature: format!("{is_one_way} {is_fixed} {signature}"),
            name,
            arguments,
            result,
            is_one_way,
            is_async,
        })
    }

    /// How many rights its arguments have at the most.
    pub(crate) fn rights(&self) -> usize {
        rights(&self.arguments)
    }

    /// The types of its arguments, if all of them have a fixed layout.
    pub(crate) fn fixed_arguments(&self) -> Option<Vec<&Type>> {
        let types = self
            .arguments
            .iter()
            .map(|argument| match &argument.passed {
                Passed::Value(Shape::Fixed(ty)) | Passed::Reference(Shape::Fixed(ty)) => Some(ty),
                _ => None,
            });
        types.collect()
    }
}

fn rights(arguments: &[Argument]) -> usize {
    let rights = arguments.iter().map(|argument| argument.passed.rights());
    rights.sum()
}

impl Passed {
    fn rights(&self) -> usize {
        match self {
            Self::Value(shape) => shape.rights(),
            Self::Reference(_) | Self::Within => 0,
        }
    }
}

impl Argument {
    fn read(argument: &PatType, is_fixed: bool) -> Result<Self> {
        let Pat::Ident(name) = &*argument.pat else {
            let message =
                "an argument has a name, which is that of the client's argument, too: `name: Type`";
            return Err(Error::new_spanned(&argument.pat, message));
        };
        if let Some(cfg) = argument.attrs.iter().find(|attr| is_conditional(attr)) {
            let message = "an argument is always there, since its caller is another program; make two methods of it";
            return Err(Error::new_spanned(cfg, message));
        }
        has_a_name(&argument.ty)?;
        if matches!(bare(&argument.ty), Type::Path(_))
            && text(argument.ty.to_token_stream()).contains("& ' static")
        {
            let message =
                "what an argument leads to lives as long as its call: leave the lifetime out";
            return Err(Error::new_spanned(&argument.ty, message));
        }
        let passed = match bare(&argument.ty) {
            Type::Reference(reference) if reference.mutability.is_some() => {
                let message =
                    "an argument is a copy: what is changed in it is not seen by the caller";
                return Err(Error::new_spanned(reference, message));
            }
            Type::Reference(reference)
                if reference
                    .lifetime
                    .as_ref()
                    .is_some_and(|it| it.ident != "_") =>
            {
                let message = "an argument that is a reference lives as long as its call: leave the lifetime out";
                return Err(Error::new_spanned(&reference.lifetime, message));
            }
            Type::Reference(reference) if is_fixed && has_no_size(&reference.elem) => {
                let message = "a fixed method's arguments have a known length: leave #[fixed] out, or pass an array";
                return Err(Error::new_spanned(reference, message));
            }
            Type::Reference(reference) => match bare(&reference.elem) {
                Type::Path(path) if path.path.is_ident("str") && !is_fixed => Passed::Within,
                Type::Slice(slice) if is_byte(&slice.elem) && !is_fixed => Passed::Within,
                Type::Slice(slice) if !is_fixed => {
                    let elem = &slice.elem;
                    let owned = syn::parse_quote! { ::std::vec::Vec<#elem> };
                    Passed::Reference(Shape::leaf(&owned, false)?)
                }
                elem => Passed::Reference(Shape::leaf(elem, is_fixed)?),
            },
            ty => Passed::Value(Shape::of(ty, is_fixed)?),
        };
        Ok(Self {
            name: name.ident.clone(),
            ty: bare(&argument.ty).clone(),
            passed,
        })
    }

    /// Its type at a client.
    pub(crate) fn client_type(&self) -> TokenStream {
        match &self.passed {
            Passed::Value(Shape::Right(_)) => {
                quote! { impl ::core::convert::Into<::handfast::Right> }
            }
            Passed::Value(shape) if shape.rights() > 0 => shape.argument_type(),
            _ => self.ty.to_token_stream(),
        }
    }

    /// Code that puts it into `output`.
    pub(crate) fn encode(&self, output: &Ident) -> TokenStream {
        let name = &self.name;
        match &self.passed {
            Passed::Value(shape) => shape.encode(&quote!(#name), output),
            Passed::Reference(shape) => shape.encode(&quote!(*#name), output),
            Passed::Within if is_text(&self.ty) => quote! { #output.put(#name); },
            Passed::Within => quote! { #output.put_bytes(#name); },
        }
    }

    /// An expression that takes it out of `input`.
    pub(crate) fn decode(&self, input: &Ident) -> TokenStream {
        match &self.passed {
            Passed::Value(shape) | Passed::Reference(shape) => shape.decode(By::Server, input),
            Passed::Within => {
                let ty = &self.ty;
                quote! { #input.take::<#ty>()? }
            }
        }
    }

    /// The argument that the method is given, once it has been decoded into `value`.
    pub(crate) fn pass(&self, value: &Ident) -> TokenStream {
        match &self.passed {
            Passed::Reference(_) => quote!(&#value),
            Passed::Value(_) | Passed::Within => quote!(#value),
        }
    }
}

/// A type as it was written where a macro or parentheses are around it.
fn bare(ty: &Type) -> &Type {
    match ty {
        Type::Group(group) => bare(&group.elem),
        Type::Paren(paren) => bare(&paren.elem),
        ty => ty,
    }
}

/// Refuses what is another type, or none, where it is decoded.
fn has_a_name(ty: &Type) -> Result<()> {
    let message = if matches!(bare(ty), Type::Never(_)) {
        "a method returns: leave `-> !` out, and its caller sees a dropped call when it never does"
    } else if has(
        ty.to_token_stream(),
        &|token| matches!(token, TokenTree::Ident(it) if it == "Self"),
    ) {
        "`Self` is another type at each server and none at a client: name the type"
    } else if has(
        ty.to_token_stream(),
        &|token| matches!(token, TokenTree::Ident(it) if it == "impl" || it == "dyn"),
    ) {
        "a value is of one type, which the other program knows: name it, in place of `impl` or `dyn`"
    } else {
        return Ok(());
    };
    Err(Error::new_spanned(ty, message))
}

fn has_no_size(ty: &Type) -> bool {
    match bare(ty) {
        Type::Slice(_) => true,
        Type::Path(path) => path.path.is_ident("str"),
        _ => false,
    }
}

fn is_conditional(attr: &Attribute) -> bool {
    attr.path().is_ident("cfg")
}

fn is_text(ty: &Type) -> bool {
    matches!(ty, Type::Reference(reference) if matches!(bare(&reference.elem), Type::Path(_)))
}

fn take_attribute(method: &mut TraitItemFn, name: &str) -> bool {
    let before = method.attrs.len();
    method.attrs.retain(|attr| !attr.path().is_ident(name));
    method.attrs.len() < before
}

/// The variable of an argument at a server.
pub(crate) fn decoded(at: usize) -> Ident {
    local(&format!("argument{at}"))
}

#[cfg(test)]
mod tests;
