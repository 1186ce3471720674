//! What stands in place of a trait: the trait, its checked forms, and the impls that make it an interface.
//!
//! Problem: the expansion stands in the user's code. It must mean the same whatever names are in scope there, warn about
//! nothing, and carry each position that the user should see.
//! Idea: paths begin with `::core` or with the path to `squall`; a method is called by its trait, never by its name
//! alone; arguments that have no plain name get one that is not the user's.
//!
//! - I1. A generated method calls its model through exactly one `__call` or `__call_blocking`: whether it may block is
//!   decided by the mark alone, in its checked form too.
//! - I2. Every method of the impl for references is `#[track_caller]`, and so is what it calls: a panic because the object
//!   is gone carries the caller's line.
//! - I3. The types of the trait's parameters are `'static` where `dyn Trait` is made an interface, and only there.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{GenericParam, Generics, Path, Token, TraitItem, parse_quote};

use crate::attrs::{self, On};
use crate::parse::{Interface, Method, Refused};

/// The whole macro: what the attribute and its item become.
pub(crate) fn attribute(arguments: TokenStream, item: TokenStream) -> TokenStream {
    match Interface::parse(arguments, item) {
        Ok(interface) => Expansion::new(&interface).tokens(),
        Err(Refused { item, error }) => {
            let error = error.into_compile_error();
            quote!(#item #error)
        }
    }
}

struct Expansion<'a> {
    interface: &'a Interface,
    /// The path to the module that holds what is named here.
    hidden: TokenStream,
    /// The trait with its parameters, as a bound.
    bound: TokenStream,
    /// The attributes of each impl.
    attributes: TokenStream,
    /// A type parameter of ours that is none of the user's.
    parameter: Ident,
}

impl<'a> Expansion<'a> {
    fn new(interface: &'a Interface) -> Expansion<'a> {
        let facade = &interface.facade;
        let (name, generics) = (&interface.item.ident, &interface.item.generics);
        let (_, parameters, _) = generics.split_for_impl();
        let repeated = attrs::repeated(&interface.item.attrs, On::Implementation);
        Expansion {
            interface,
            hidden: quote!(#facade::__macro),
            bound: quote!(#name #parameters),
            attributes: quote!(#repeated #[automatically_derived] #[allow(deprecated)]),
            parameter: unused("__I", generics),
        }
    }

    fn tokens(&self) -> TokenStream {
        let item = self.item();
        let interface = self.interface_impl();
        let extends = self.interface.supers.iter().map(|base| self.extends_impl(base));
        let view = self.view_impl();
        let references = self.reference_impl();
        quote!(#item #interface #(#extends)* #view #references)
    }

    /// The trait, with a checked form after each method.
    fn item(&self) -> TokenStream {
        let mut item = self.interface.item.clone();
        let with_checked = |method: &Method| [method.item.to_token_stream(), self.checked_form(method)];
        let items = self.interface.methods.iter().flat_map(with_checked);
        item.items = items.map(TraitItem::Verbatim).collect();
        item.into_token_stream()
    }

    fn checked_form(&self, method: &Method) -> TokenStream {
        let bound = &self.bound;
        let name = &method.item.sig.ident;
        let names = method.arguments.iter().map(|argument| &argument.name);
        let signature = self.signature(method, true);
        let attributes = attrs::repeated(&method.item.attrs, On::Checked);
        let docs = [
            format!("The checked form of [`{0}`](Self::{0}): on a reference to an object that is gone, an error.", name.unraw()),
            String::new(),
            "# Errors".into(),
            String::new(),
            "The object was destroyed, was never there, or refused the call; the method did not run. On anything but a \
             reference there is no error."
                .into(),
        ];
        quote! {
            #(#[doc = #docs])*
            #attributes
            #[allow(dead_code, deprecated, clippy::type_complexity)]
            #[inline]
            #signature {
                ::core::result::Result::Ok(<Self as #bound>::#name(self #(, #names)*))
            }
        }
    }

    /// The signature of a generated method, without `;` or body.
    fn signature(&self, method: &Method, checked: bool) -> TokenStream {
        let hidden = &self.hidden;
        let signature = &method.item.sig;
        let (generics, returned) = (&signature.generics, &method.returned);
        let condition = &generics.where_clause;
        let arguments = method.arguments.iter().map(|argument| {
            let (name, ty) = (&argument.name, &argument.ty);
            quote!(#name: #ty)
        });
        if !checked {
            let (name, output) = (&signature.ident, &signature.output);
            return quote!(fn #name #generics(&self #(, #arguments)*) #output #condition);
        }
        let name = method.checked_name();
        let mut generics = generics.clone();
        generics.make_where_clause().predicates.push(parse_quote!(Self: ::core::marker::Sized));
        let condition = &generics.where_clause;
        quote! {
            fn #name #generics(&self #(, #arguments)*)
                -> ::core::result::Result<#returned, #hidden::CallError> #condition
        }
    }

    /// `dyn Trait` is an interface.
    fn interface_impl(&self) -> TokenStream {
        let Expansion { hidden, bound, attributes, .. } = self;
        let item = &self.interface.item;
        let name = item.ident.unraw().to_string();
        // At the name of the trait: `line!()` would answer where the attribute stands.
        let here = quote_spanned!(item.ident.span()=> ::core::panic::Location::caller());
        let supers = self.interface.supers.iter().map(|base| {
            let base = object(base);
            quote!(#hidden::Super::new::<#base>(|interface| interface))
        });
        let generics = static_types(&item.generics);
        let (parameters, _, condition) = generics.split_for_impl();
        quote! {
            #attributes
            impl #parameters #hidden::Interface for dyn #bound #condition {
                const NAME: &'static ::core::primitive::str = #name;
                const SOURCE: #hidden::Source = {
                    let here = #here;
                    #hidden::Source { file: here.file(), line: here.line() }
                };
                const SUPERS: &'static [#hidden::Super<Self>] = &[#(#supers),*];
            }
        }
    }

    /// `dyn Trait` extends the interface `base`.
    fn extends_impl(&self, base: &Path) -> TokenStream {
        let Expansion { hidden, bound, attributes, .. } = self;
        let base = object(base);
        let generics = static_types(&self.interface.item.generics);
        let (parameters, _, condition) = generics.split_for_impl();
        quote! {
            #attributes
            impl #parameters #hidden::Extends<#base> for dyn #bound #condition {}
        }
    }

    /// Whatever implements the trait can be seen as `dyn Trait`.
    fn view_impl(&self) -> TokenStream {
        let Expansion { hidden, bound, attributes, parameter, .. } = self;
        let mut generics = static_types(&self.interface.item.generics);
        generics.params.push(parse_quote!(#parameter: #bound + 'static));
        let (parameters, _, condition) = generics.split_for_impl();
        quote! {
            #attributes
            impl #parameters #hidden::InterfaceOf<#parameter> for dyn #bound #condition {
                #[inline]
                fn view(rep: &#parameter) -> &Self {
                    rep
                }
            }
        }
    }

    /// A reference to an object with this interface, or one that extends it, implements the trait.
    fn reference_impl(&self) -> TokenStream {
        let Expansion { hidden, bound, attributes, parameter, .. } = self;
        let mut generics = self.interface.item.generics.clone();
        generics.params.push(parse_quote!(#parameter: ?::core::marker::Sized + #hidden::Interface + #bound));
        let (parameters, _, condition) = generics.split_for_impl();
        let methods = self.interface.methods.iter().map(|method| {
            let (plain, checked) = (self.forwarded(method), self.forwarded_checked(method));
            quote!(#plain #checked)
        });
        quote! {
            #attributes
            #[allow(clippy::type_complexity)]
            impl #parameters #bound for #hidden::CoRef<#parameter> #condition {
                #(#methods)*
            }
        }
    }

    fn forwarded(&self, method: &Method) -> TokenStream {
        let (hidden, returned) = (&self.hidden, &method.returned);
        // Which of the two traits has the method is decided by the type: the first, if the result can carry the error.
        let gone = quote!({
            #[allow(unused_imports)]
            use #hidden::{Carries as _, Panics as _};
            #hidden::Gone::<#returned>::new().__squall_pick()
        });
        self.forward(method, false, &gone, |call| call)
    }

    fn forwarded_checked(&self, method: &Method) -> TokenStream {
        let hidden = &self.hidden;
        self.forward(method, true, &quote!(#hidden::Checked), |call| quote!(::core::result::Result::Ok(#call)))
    }

    fn forward(
        &self,
        method: &Method,
        checked: bool,
        gone: &TokenStream,
        result: impl FnOnce(TokenStream) -> TokenStream,
    ) -> TokenStream {
        let Expansion { hidden, bound, parameter, .. } = self;
        let name = &method.item.sig.ident;
        let names = method.arguments.iter().map(|argument| &argument.name);
        let call = if method.blocking { format_ident!("__call_blocking") } else { format_ident!("__call") };
        let target = Ident::new("target", proc_macro2::Span::mixed_site());
        let result = result(quote!(<#parameter as #bound>::#name(#target #(, #names)*)));
        let attributes = attrs::repeated(&method.item.attrs, On::Implementation);
        let signature = self.signature(method, checked);
        let plain_name = name.unraw().to_string();
        quote! {
            #attributes
            #[inline(always)]
            #[track_caller]
            #signature {
                #hidden::CoRef::<#parameter>::#call(*self, #plain_name, move |#target: &#parameter| #result, #gone)
            }
        }
    }
}

/// `dyn base`, with the position of `base`.
fn object(base: &Path) -> TokenStream {
    let object = Token![dyn](base.span());
    quote!(#object #base)
}

/// These parameters, the types among them `'static`.
fn static_types(generics: &Generics) -> Generics {
    let mut generics = generics.clone();
    let types: Vec<_> = generics.type_params().map(|parameter| parameter.ident.clone()).collect();
    if !types.is_empty() {
        let condition = generics.make_where_clause();
        condition.predicates.extend(types.iter().map(|name| -> syn::WherePredicate { parse_quote!(#name: 'static) }));
    }
    generics
}

/// `name`, or a longer one if it is a parameter already.
fn unused(name: &str, generics: &Generics) -> Ident {
    let taken = |name: &str| {
        generics.params.iter().any(|parameter| match parameter {
            GenericParam::Type(parameter) => parameter.ident == name,
            GenericParam::Const(parameter) => parameter.ident == name,
            GenericParam::Lifetime(_) => false,
        })
    };
    let mut name = name.to_owned();
    while taken(&name) {
        name.push('_');
    }
    format_ident!("{name}")
}

