//! What stands inside types: borrows that would leave a call, `impl Trait`, and `Self`.
//!
//! Each search answers the tokens it found, for an error to point at. They see what is written, so a
//! lifetime that a type hides (`std::slice::Iter<u8>`) is left to the compiler, which refuses it.

use proc_macro2::{Ident, Span, TokenStream};
use quote::ToTokens;
use syn::visit::{self, Visit};
use syn::{
    BoundLifetimes, GenericParam, Generics, Lifetime, ParenthesizedGenericArguments, Path, TraitBound, Type,
    TypeFnPtr, TypeImplTrait, TypeReference,
};

/// The first borrow in a returned type that could be one of the object.
///
/// `&'static T` is none, nor is what has one of the method's `own` lifetimes, which the object cannot have. Inside `fn(&T) -> &U` and `dyn Fn(&T) -> &U`, what is elided or bound there is none
/// either.
pub(crate) fn returned_borrow(returned: &Type, own: &Generics) -> Option<TokenStream> {
    let bound = own.lifetimes().map(|own| own.lifetime.ident.clone()).collect();
    let mut search = Borrows { bound, ..Borrows::default() };
    search.visit_type(returned);
    search.found
}

/// Every `impl` of an `impl Trait` in a type.
pub(crate) fn opaque(within: &Type) -> Vec<Span> {
    let mut search = Opaque::default();
    search.visit_type(within);
    search.found
}

/// Every `Self` that `search` is shown.
#[derive(Default)]
pub(crate) struct Selves {
    /// Where they stand.
    pub(crate) found: Vec<Ident>,
}

impl<'ast> Visit<'ast> for Selves {
    fn visit_path(&mut self, path: &'ast Path) {
        if let Some(first) = path.segments.first().filter(|first| first.ident == "Self") {
            self.found.push(first.ident.clone());
        }
        visit::visit_path(self, path);
    }
}

#[derive(Default)]
struct Borrows {
    found: Option<TokenStream>,
    /// Lifetimes of the method's own, and those bound by a `for<…>` around here.
    bound: Vec<Ident>,
    /// How many function signatures are around here: what they elide is theirs.
    signatures: usize,
}

impl Borrows {
    fn is_borrow(&self, lifetime: &Lifetime) -> bool {
        match lifetime.ident.to_string().as_str() {
            "static" => false,
            "_" => self.signatures == 0,
            _ => !self.bound.contains(&lifetime.ident),
        }
    }

    /// Visits with what `lifetimes` binds.
    fn under(&mut self, lifetimes: Option<&BoundLifetimes>, visit: impl FnOnce(&mut Self)) {
        let before = self.bound.len();
        for parameter in lifetimes.iter().flat_map(|bound| &bound.lifetimes) {
            if let GenericParam::Lifetime(parameter) = parameter {
                self.bound.push(parameter.lifetime.ident.clone());
            }
        }
        visit(self);
        self.bound.truncate(before);
    }
}

impl<'ast> Visit<'ast> for Borrows {
    fn visit_type_reference(&mut self, reference: &'ast TypeReference) {
        let borrow = match &reference.lifetime {
            Some(lifetime) => self.is_borrow(lifetime),
            None => self.signatures == 0,
        };
        if borrow && self.found.is_none() {
            let (and, lifetime) = (&reference.and_token, &reference.lifetime);
            self.found = Some(quote::quote!(#and #lifetime));
        }
        visit::visit_type_reference(self, reference);
    }

    fn visit_lifetime(&mut self, lifetime: &'ast Lifetime) {
        if self.is_borrow(lifetime) && self.found.is_none() {
            self.found = Some(lifetime.to_token_stream());
        }
    }

    // What a `for<…>` names is bound there, not used.
    fn visit_bound_lifetimes(&mut self, _: &'ast BoundLifetimes) {}

    fn visit_trait_bound(&mut self, bound: &'ast TraitBound) {
        self.under(bound.lifetimes.as_ref(), |search| visit::visit_trait_bound(search, bound));
    }

    fn visit_type_fn_ptr(&mut self, function: &'ast TypeFnPtr) {
        self.signatures += 1;
        self.under(function.lifetimes.as_ref(), |search| visit::visit_type_fn_ptr(search, function));
        self.signatures -= 1;
    }

    fn visit_parenthesized_generic_arguments(&mut self, signature: &'ast ParenthesizedGenericArguments) {
        self.signatures += 1;
        visit::visit_parenthesized_generic_arguments(self, signature);
        self.signatures -= 1;
    }
}

#[derive(Default)]
struct Opaque {
    found: Vec<Span>,
}

impl<'ast> Visit<'ast> for Opaque {
    fn visit_type_impl_trait(&mut self, opaque: &'ast TypeImplTrait) {
        self.found.push(opaque.impl_token.span);
    }
}
