//! The expansion: the trait, its checked forms, and the impls that make it an interface.
//!
//! Problem: the expansion is compiled in the user's scope. It must keep its meaning with any names in scope
//! there, cause no warnings, and keep the positions that errors should point at.
//! Idea: paths begin with `::core` or with the path to `squall`. A method is called through its trait, never
//! by its name alone. Arguments without a plain name get a hygienic one.
//!
//! - I1. A generated method calls its original through exactly one `__call` or `Blocking`. The mark alone
//!   decides whether it may block, in its checked form too. The plain form of a method of a remote interface
//!   calls the checked form instead, so that an error of the transport panics at the caller's line.
//! - I2. Every method of the impl for handles is `#[track_caller]`, and so are the functions it calls. A
//!   panic because the object is gone reports the caller's line.
//! - I3. Every method of the impl for `Around`, and its checked form, goes through exactly one `Through`.
//!   Types alone decide whether another thread may run it.
//! - I4. The types of the trait's parameters are `'static` where `dyn Trait` is made an interface, and only
//!   there.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{GenericParam, Generics, Path, Token, TraitItem, parse_quote};

use crate::attrs::{self, On};
use crate::parse::{Interface, Method, Refused};
use crate::remote::remote_impls;

/// Runs the macro: expands the attribute and its item.
pub(crate) fn attribute(arguments: TokenStream, item: TokenStream) -> TokenStream {
    match Interface::parse(arguments, item) {
        Ok(interface) => Expansion::new(&interface).tokens(),
        Err(Refused { item, error }) => {
            let error = error.into_compile_error();
            quote!(#item #error)
        }
    }
}

pub(crate) struct Expansion<'a> {
    pub(crate) interface: &'a Interface,
    /// The trait with its parameters, as a bound.
    pub(crate) bound: TokenStream,
    /// The attributes of each impl.
    pub(crate) attributes: TokenStream,
    /// Generated type parameters, different from all of the user's.
    parameter: Ident,
    wrapper: Ident,
}

impl<'a> Expansion<'a> {
    fn new(interface: &'a Interface) -> Expansion<'a> {
        let (name, generics) = (&interface.item.ident, &interface.item.generics);
        let (_, parameters, _) = generics.split_for_impl();
        let repeated = attrs::repeated(&interface.item.attrs, On::Implementation);
        Expansion {
            interface,
            bound: quote!(#name #parameters),
            attributes: quote!(#repeated #[automatically_derived] #[allow(deprecated)]),
            parameter: unused("__I", generics, name),
            wrapper: unused("__W", generics, name),
        }
    }

    /// Returns the path to the hidden module, with the position of `written`.
    pub(crate) fn hidden(&self, written: &impl Spanned) -> TokenStream {
        let facade = &self.interface.facade;
        let path = quote!(#facade::__macro).into_iter().map(|mut token| {
            token.set_span(token.span().located_at(written.span()));
            token
        });
        path.collect()
    }

    fn tokens(&self) -> TokenStream {
        let item = self.item();
        let interface = self.interface_impl();
        let extends = self.interface.supers.iter().map(|base| self.extends_impl(base));
        let view = self.view_impl();
        let references = self.reference_impl();
        let around = self.around_impl();
        let remote = self.interface.remote.as_ref().map(|remote| remote_impls(self, remote));
        quote!(#item #interface #(#extends)* #view #references #around #remote)
    }

    /// Returns the trait, with a checked form after each method.
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
            format!(
                "The checked form of [`{0}`](Self::{0}): on a handle, it returns an error if the object \
                 is gone.",
                name.unraw()
            ),
            String::new(),
            "# Errors".into(),
            String::new(),
            "On a handle: the object was destroyed, is not installed, or refused the call, and the method \
             did not run. On a representative: never."
                .into(),
        ];
        quote_spanned! {here(name)=>
            #(#[doc = #docs])*
            #attributes
            #[allow(dead_code, deprecated, clippy::type_complexity)]
            #[inline]
            #signature {
                ::core::result::Result::Ok(<Self as #bound>::#name(self #(, #names)*))
            }
        }
    }

    /// Returns the signature of a generated method, without `;` or body.
    pub(crate) fn signature(&self, method: &Method, checked: bool) -> TokenStream {
        let signature = &method.item.sig;
        let hidden = self.hidden(&signature.ident);
        let (generics, returned) = (&signature.generics, &method.returned);
        let condition = &generics.where_clause;
        let arguments = method.arguments.iter().map(|argument| {
            let (name, ty) = (&argument.name, &argument.ty);
            quote!(#name: #ty)
        });
        if !checked {
            let (name, output) = (&signature.ident, &signature.output);
            return quote_spanned!(here(name)=> fn #name #generics(&self #(, #arguments)*) #output #condition);
        }
        let name = method.checked_name();
        quote_spanned! {here(&name)=>
            fn #name #generics(&self #(, #arguments)*)
                -> ::core::result::Result<#returned, #hidden::CallError> #condition
        }
    }

    /// Returns the impl that makes `dyn Trait` an interface.
    fn interface_impl(&self) -> TokenStream {
        let Expansion { bound, attributes, .. } = self;
        let item = &self.interface.item;
        let hidden = self.hidden(&item.ident);
        let name = item.ident.unraw().to_string();
        // At the trait's name: `line!()` would return the line of the attribute.
        let place = quote_spanned!(item.ident.span()=> ::core::panic::Location::caller());
        let methods = self.interface.methods.iter().map(|method| method.item.sig.ident.unraw().to_string());
        let blocking = self.interface.methods.iter().map(|method| method.blocking);
        let supers = self.interface.supers.iter().map(|base| {
            let (base, hidden) = (object(base), self.hidden(base));
            quote!(#hidden::Super::new::<#base>(|__sub| __sub))
        });
        let view = match &self.interface.view {
            None => quote!(()),
            Some(path) => {
                let types = item.generics.type_params().map(|parameter| &parameter.ident);
                let consts = item.generics.const_params().map(|parameter| &parameter.ident);
                quote!(#path<'__rep, #(#types,)* #(#consts,)*>)
            }
        };
        let generics = static_types(&item.generics);
        let (parameters, _, condition) = generics.split_for_impl();
        quote_spanned! {here(&item.ident)=>
            #attributes
            impl #parameters #hidden::Interface for dyn #bound #condition {
                const NAME: &'static ::core::primitive::str = #name;
                const SOURCE: #hidden::Source = {
                    let __here = #place;
                    #hidden::Source { file: __here.file(), line: __here.line() }
                };
                const SUPERS: &'static [#hidden::Super<Self>] = &[#(#supers),*];
                const METHODS: &'static [&'static ::core::primitive::str] = &[#(#methods),*];
                const BLOCKING: &'static [::core::primitive::bool] = &[#(#blocking),*];
                type View<'__rep> = #view;
                #[inline(always)]
                fn __shorten<'__short, '__long: '__short>(
                    __view: Self::View<'__long>,
                ) -> Self::View<'__short> {
                    __view
                }
            }
        }
    }

    /// Returns the impl for an interface that `dyn Trait` extends, at `path`.
    fn extends_impl(&self, path: &Path) -> TokenStream {
        let Expansion { bound, attributes, .. } = self;
        let (base, hidden) = (object(path), self.hidden(path));
        let generics = static_types(&self.interface.item.generics);
        let (parameters, _, condition) = generics.split_for_impl();
        quote_spanned! {here(path)=>
            #attributes
            impl #parameters #hidden::Extends<#base> for dyn #bound #condition {}
        }
    }

    /// Returns the impl that converts every implementing type to `dyn Trait`.
    fn view_impl(&self) -> TokenStream {
        let Expansion { bound, attributes, parameter, .. } = self;
        let item = &self.interface.item;
        let hidden = self.hidden(&item.ident);
        let mut generics = static_types(&item.generics);
        generics.params.push(parse_quote!(#parameter: #bound + 'static));
        let (parameters, _, condition) = generics.split_for_impl();
        quote_spanned! {here(&item.ident)=>
            #attributes
            impl #parameters #hidden::InterfaceOf<#parameter> for dyn #bound #condition {
                #[inline]
                fn view(__rep: &#parameter) -> &Self {
                    __rep
                }
            }
        }
    }

    /// Returns the impl of the trait for handles with this interface, or with one that extends it.
    fn reference_impl(&self) -> TokenStream {
        let Expansion { bound, attributes, parameter, .. } = self;
        let item = &self.interface.item;
        let hidden = self.hidden(&item.ident);
        let mut generics = item.generics.clone();
        generics.params.push(parse_quote!(#parameter: ?::core::marker::Sized + #hidden::Interface + #bound));
        let (parameters, _, condition) = generics.split_for_impl();
        let methods = self.interface.methods.iter().map(|method| {
            let (plain, checked) = (self.forwarded(method, false), self.forwarded(method, true));
            quote!(#plain #checked)
        });
        quote_spanned! {here(&item.ident)=>
            #attributes
            #[allow(clippy::type_complexity)]
            impl #parameters #bound for #hidden::Handle<#parameter> #condition {
                #(#methods)*
            }
        }
    }

    /// Returns the method `method` of the impl for handles, or its checked form.
    fn forwarded(&self, method: &Method, checked: bool) -> TokenStream {
        let parameter = &self.parameter;
        let name = &method.item.sig.ident;
        let hidden = self.hidden(name);
        let (target, result, gone) = self.inner_call(method, parameter, checked);
        let attributes = attrs::repeated(&method.item.attrs, On::Implementation);
        let signature = self.signature(method, checked);
        let plain_name = name.unraw().to_string();
        if self.interface.remote.is_some() && !checked {
            let call = self.through_checked(method);
            return quote_spanned! {here(name)=>
                #attributes
                #[inline(always)]
                #[track_caller]
                #signature { #call }
            };
        }
        let (call, way) = if method.blocking {
            (quote_spanned!(here(name)=> #hidden::Blocking::__squall_call), Some(self.way(method)))
        } else {
            (quote_spanned!(here(name)=> #hidden::Handle::<#parameter>::__call), None)
        };
        let way = way.into_iter();
        quote_spanned! {here(name)=>
            #attributes
            #[inline(always)]
            #[track_caller]
            #signature {
                #call(#(#way,)* *self, #plain_name, move |#target: &#parameter| #result, #gone)
            }
        }
    }

    /// Generates a call of the checked form on `self`, with the result of the plain form.
    pub(crate) fn through_checked(&self, method: &Method) -> TokenStream {
        let bound = &self.bound;
        let (name, checked) = (&method.item.sig.ident, method.checked_name());
        let (hidden, gone) = (self.hidden(name), self.gone(method));
        let names = method.arguments.iter().map(|argument| &argument.name);
        let [result, error] = ["__result", "__error"].map(|local| local_name(local, name));
        quote_spanned! {here(name)=>
            match <Self as #bound>::#checked(self #(, #names)*) {
                ::core::result::Result::Ok(#result) => #result,
                ::core::result::Result::Err(#error) => #hidden::Answer::answer(#gone, #error),
            }
        }
    }

    /// Generates a call of the method, or of its checked form, on a reference to an `of`. Returns the name of
    /// the reference, the call, and the `Answer` for an object that is gone.
    fn inner_call(&self, method: &Method, of: &Ident, checked: bool) -> (Ident, TokenStream, TokenStream) {
        let bound = &self.bound;
        let name = &method.item.sig.ident;
        let hidden = self.hidden(name);
        let names = method.arguments.iter().map(|argument| &argument.name);
        let target = local_name("__target", name);
        let (called, gone) = if checked {
            (method.checked_name(), quote!(#hidden::Checked))
        } else {
            (name.clone(), self.gone(method))
        };
        let result = quote_spanned!(here(name)=> <#of as #bound>::#called(#target #(, #names)*));
        (target, result, gone)
    }

    /// Returns the impl of the trait for representatives with a wrapper around each method.
    fn around_impl(&self) -> TokenStream {
        let Expansion { bound, attributes, parameter, wrapper, .. } = self;
        let item = &self.interface.item;
        let hidden = self.hidden(&item.ident);
        let mut generics = item.generics.clone();
        generics.params.push(parse_quote!(#wrapper: #hidden::Wrap));
        generics.params.push(parse_quote!(#parameter: #bound + 'static));
        let (parameters, _, condition) = generics.split_for_impl();
        let methods = self.interface.methods.iter().enumerate().map(|(index, method)| {
            let (plain, checked) = (self.wrapped(method, index, false), self.wrapped(method, index, true));
            quote!(#plain #checked)
        });
        quote_spanned! {here(&item.ident)=>
            #attributes
            #[allow(clippy::type_complexity)]
            impl #parameters #bound for #hidden::Around<#wrapper, #parameter> #condition {
                #(#methods)*
            }
        }
    }

    /// Returns the method `method` of the impl for wrapped representatives, or its checked form.
    fn wrapped(&self, method: &Method, index: usize, checked: bool) -> TokenStream {
        let parameter = &self.parameter;
        let name = &method.item.sig.ident;
        let hidden = self.hidden(name);
        let (target, result, gone) = self.inner_call(method, parameter, checked);
        let attributes = attrs::repeated(&method.item.attrs, On::Implementation);
        let signature = self.signature(method, checked);
        let interface = self.interface.item.ident.unraw().to_string();
        let (plain_name, blocking) = (name.unraw().to_string(), method.blocking);
        let (types, returned) = (method.arguments.iter().map(|argument| &argument.ty), &method.returned);
        quote_spanned! {here(name)=>
            #attributes
            #[inline]
            #[track_caller]
            #signature {
                #hidden::Through::__squall_around(
                    {
                        #[allow(unused_imports)]
                        use #hidden::{KeptArguments as _, SentArguments as _};
                        #hidden::Arguments::<(#(#types,)* #returned,)>::new().__squall_send()
                    },
                    self,
                    const { &#hidden::Invoked::__new(#interface, #plain_name, #index, #blocking) },
                    move |#target: &#parameter| #result,
                    #gone,
                )
            }
        }
    }

    /// Decides by the argument types whether a method that may block can be called again. The first of the
    /// two traits has the method if all arguments can be reused, the second always.
    fn way(&self, method: &Method) -> TokenStream {
        let name = &method.item.sig.ident;
        let hidden = self.hidden(name);
        let types = method.arguments.iter().map(|argument| &argument.ty);
        quote_spanned!(here(name)=> {
            #[allow(unused_imports)]
            use #hidden::{CopiedArguments as _, MovedArguments as _};
            #hidden::Arguments::<(#(#types,)*)>::new().__squall_issue()
        })
    }

    /// Decides by the return type how the plain form reports that the object is gone. The first of the two
    /// traits has the method if that type can carry the error, the second always.
    pub(crate) fn gone(&self, method: &Method) -> TokenStream {
        let name = &method.item.sig.ident;
        let (hidden, returned) = (self.hidden(name), &method.returned);
        quote_spanned!(here(name)=> {
            #[allow(unused_imports)]
            use #hidden::{Carries as _, Panics as _};
            #hidden::Gone::<#returned>::new().__squall_pick()
        })
    }
}

/// Returns a hygienic name of a local variable, with the position of `written`.
pub(crate) fn local_name(name: &str, written: &Ident) -> Ident {
    Ident::new(name, Span::mixed_site().located_at(written.span()))
}

/// A span for tokens generated because of `written`. The compiler's messages about them point there.
pub(crate) fn here(written: &impl Spanned) -> Span {
    Span::call_site().located_at(written.span())
}

/// Returns `dyn base`, with the position of `base`.
fn object(base: &Path) -> TokenStream {
    let object = Token![dyn](base.span());
    quote!(#object #base)
}

/// Returns these parameters, with a `'static` bound on the types.
fn static_types(generics: &Generics) -> Generics {
    let mut generics = generics.clone();
    let types: Vec<_> = generics.type_params().map(|parameter| parameter.ident.clone()).collect();
    if !types.is_empty() {
        let condition = generics.make_where_clause();
        condition
            .predicates
            .extend(types.iter().map(|name| -> syn::WherePredicate { parse_quote!(#name: 'static) }));
    }
    generics
}

/// Returns `name`, or a longer name if that is a parameter already, with the position of `written`.
fn unused(name: &str, generics: &Generics, written: &Ident) -> Ident {
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
    Ident::new(&name, here(written))
}
