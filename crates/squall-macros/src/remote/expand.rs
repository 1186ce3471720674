//! Both ends of a remote interface: its impl for `Port`, and `__serve`.
//!
//! Both are inside one anonymous constant, which imports the hidden module of `squall::call` once. A program
//! that lacks the feature `call` gets one error, at the word `remote`.
//!
//! - I1. A method of `Port` encodes its arguments in their order, and `__serve` decodes them in this order.
//! - I2. `__serve` calls a method only after all its arguments are decoded and no byte is left.

use proc_macro2::{Group, Ident, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::Type;
use syn::ext::IdentExt;

use super::signature::{fnv, signature};
use crate::attrs::{self, On};
use crate::expand::{Expansion, here, local_name};
use crate::parse::{Argument, Method, Remote};

/// Returns the impls that make an interface remote.
pub(crate) fn remote_impls(expansion: &Expansion<'_>, remote: &Remote) -> TokenStream {
    let ends = Ends { expansion };
    let (port, served) = (ends.port_impl(), ends.remote_impl(remote));
    let word = &remote.word;
    let facade = expansion.interface.facade.clone().into_iter().map(|mut token| {
        token.set_span(token.span().located_at(word.span()));
        token
    });
    let import = quote_spanned!(here(word)=> use #(#facade)*::call::__macro as __squall_remote;);
    let attributes = attrs::repeated(&expansion.interface.item.attrs, On::Implementation);
    let name = expansion.interface.item.ident.unraw().to_string();
    let text = signature(expansion.interface, remote.version);
    let fits = quote_spanned!(here(word)=> const _: () = __squall_remote::fits(#name, #text););
    quote! {
        #attributes
        const _: () = {
            #import
            #fits
            #port
            #served
        };
    }
}

struct Ends<'a> {
    expansion: &'a Expansion<'a>,
}

impl Ends<'_> {
    fn methods(&self) -> impl Iterator<Item = (u32, &Method)> {
        (0..).zip(&self.expansion.interface.methods)
    }

    /// Returns the impl of the trait for the representative of an imported object.
    fn port_impl(&self) -> TokenStream {
        let Expansion { bound, attributes, interface, .. } = self.expansion;
        let methods = self.methods().map(|(number, method)| self.sent(number, method));
        quote_spanned! {here(&interface.item.ident)=>
            #attributes
            #[allow(clippy::type_complexity)]
            impl #bound for __squall_remote::Port<dyn #bound> {
                #(#methods)*
            }
        }
    }

    /// Returns the method `method` of the impl for ports, and its checked form, which makes the call.
    fn sent(&self, number: u32, method: &Method) -> TokenStream {
        let Expansion { bound, .. } = self.expansion;
        let name = &method.item.sig.ident;
        let attributes = attrs::repeated(&method.item.attrs, On::Implementation);
        let [plain, checked] = [false, true].map(|checked| self.expansion.signature(method, checked));
        let answered = self.expansion.through_checked(method);
        let [writer, reader] = ["__writer", "__reader"].map(|local| local_name(local, name));
        let put = method.arguments.iter().map(|Argument { name, ty }| match borrowed(ty) {
            Some(of) => quote_spanned! {here(ty)=>
                (&__squall_remote::Borrowed::<#of>::new()).__squall_put(#name, #writer)?;
            },
            None => quote_spanned! {here(ty)=>
                (&__squall_remote::Field::<#ty>::new()).__squall_put(&#name, #writer)?;
            },
        });
        let (returned, use_traits) = (&method.returned, use_traits());
        let get = quote_spanned! {here(returned)=>
            (&&&__squall_remote::Field::<#returned>::new()).__squall_get(#reader)
        };
        quote_spanned! {here(name)=>
            #attributes
            #[track_caller]
            #plain { #answered }
            #attributes
            #checked {
                #use_traits
                __squall_remote::Port::<dyn #bound>::__call(
                    self,
                    #number,
                    |#writer| {
                        #(#put)*
                        ::core::result::Result::Ok(())
                    },
                    |#reader| #get,
                )
            }
        }
    }

    /// Returns the impl that describes and serves the interface.
    fn remote_impl(&self, remote: &Remote) -> TokenStream {
        let Expansion { bound, attributes, interface, .. } = self.expansion;
        let name = &interface.item.ident;
        let hidden = self.expansion.hidden(name);
        let text = signature(interface, remote.version);
        let (schema, use_traits) = (fnv(&text), use_traits());
        let [handle, number, input, output] =
            ["__handle", "__method", "__input", "__output"].map(|local| local_name(local, name));
        let arms =
            self.methods().map(|(number, method)| self.served(number, method, [&handle, &input, &output]));
        quote_spanned! {here(name)=>
            #attributes
            impl __squall_remote::Remote for dyn #bound {
                const SCHEMA: ::core::primitive::u64 = #schema;
                const SIGNATURE: &'static ::core::primitive::str = #text;
                #[allow(unused_variables, clippy::type_complexity)]
                fn __serve(
                    #handle: #hidden::Handle<Self>,
                    #number: ::core::primitive::u32,
                    #input: &mut __squall_remote::Reader<'_>,
                    #output: &mut __squall_remote::Writer<'_>,
                ) -> ::core::result::Result<(), __squall_remote::Unserved> {
                    #use_traits
                    match #number {
                        #(#arms)*
                        _ => ::core::result::Result::Err(__squall_remote::Unserved::NoSuchMethod),
                    }
                }
            }
        }
    }

    /// Returns the arm that serves the method `method`.
    fn served(&self, number: u32, method: &Method, [handle, input, output]: [&Ident; 3]) -> TokenStream {
        let Expansion { bound, .. } = self.expansion;
        let name = &method.item.sig.ident;
        let hidden = self.expansion.hidden(name);
        let attributes = attrs::repeated(&method.item.attrs, On::Implementation);
        let locals: Vec<Ident> = (0..method.arguments.len())
            .map(|index| local_name(&format!("__argument{index}"), name))
            .collect();
        let get = method.arguments.iter().zip(&locals).map(|(Argument { ty, .. }, local)| {
            let got = match borrowed(ty) {
                Some(of) => {
                    let of = with_elided(of);
                    quote_spanned!(here(ty)=> (&__squall_remote::Borrowed::<#of>::new()).__squall_get(#input))
                }
                None => {
                    let of = with_elided(ty);
                    quote_spanned!(here(ty)=> (&__squall_remote::Field::<#of>::new()).__squall_get(#input))
                }
            };
            quote_spanned!(here(ty)=> let #local = #got?;)
        });
        let passed = method.arguments.iter().zip(&locals).map(|(Argument { ty, .. }, local)| {
            if borrowed(ty).is_some() { quote!(&#local) } else { local.to_token_stream() }
        });
        let (checked, result) = (method.checked_name(), local_name("__result", name));
        let returned = &method.returned;
        let answer = quote_spanned! {here(returned)=>
            (&&&__squall_remote::Field::<#returned>::new()).__squall_answer(#result, #output)
        };
        quote_spanned! {here(name)=>
            #attributes
            #number => {
                #(#get)*
                __squall_remote::Reader::end(#input)?;
                let #result = <#hidden::Handle<Self> as #bound>::#checked(&#handle #(, #passed)*)?;
                #answer
            }
        }
    }
}

/// Returns the import of the traits that select the encoding of a type. Their methods have two names each.
fn use_traits() -> TokenStream {
    quote! {
        #[allow(unused_imports)]
        use __squall_remote::{
            InPlaceBorrowed as _, PackedField as _, PackedOrError as _, PlainField as _, SliceBorrowed as _,
            ValueBorrowed as _, ValueOrError as _,
        };
    }
}

/// Returns `T` of a type `&T`.
fn borrowed(ty: &Type) -> Option<&Type> {
    match ty {
        Type::Reference(reference) => Some(&reference.elem),
        Type::Paren(inner) => borrowed(&inner.elem),
        Type::Group(inner) => borrowed(&inner.elem),
        _ => None,
    }
}

/// Replaces the lifetimes of the method by `'_`, since `__serve` does not have them.
fn with_elided(ty: &Type) -> TokenStream {
    elide(ty.to_token_stream())
}

fn elide(tokens: TokenStream) -> TokenStream {
    let mut after_quote = false;
    let elided = tokens.into_iter().map(|token| {
        let is_name = std::mem::replace(&mut after_quote, is_quote(&token));
        match token {
            TokenTree::Ident(name) if is_name && name != "static" => Ident::new("_", name.span()).into(),
            TokenTree::Group(group) => {
                let mut elided = Group::new(group.delimiter(), elide(group.stream()));
                elided.set_span(group.span());
                elided.into()
            }
            other => other,
        }
    });
    elided.collect()
}

/// Returns whether this is the quote before the name of a lifetime.
fn is_quote(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == '\'')
}
