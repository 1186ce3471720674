//! Searches inside types: borrows that would leave a call, `impl Trait`, and `Self`.
//!
//! Each search returns the tokens it found, so that an error can point at them. It sees only the written
//! tokens. A lifetime that a type hides (`std::slice::Iter<u8>`) is left to the compiler, which rejects it.

use proc_macro2::{Ident, Span, TokenStream};
use quote::ToTokens;
use syn::visit::{self, Visit};
use syn::{
    BoundLifetimes, GenericParam, Generics, Lifetime, ParenthesizedGenericArguments, Path, TraitBound, Type,
    TypeFnPtr, TypeImplTrait, TypeReference,
};

/// Returns the first borrow in a return type that could be a borrow of the object.
///
/// `&'static T` is not one. A borrow with one of the method's `own` lifetimes is not one either, since the
/// object cannot have that lifetime. Inside `fn(&T) -> &U` and `dyn Fn(&T) -> &U`, elided and bound lifetimes
/// belong to the function type.
pub(crate) fn returned_borrow(returned: &Type, own: &Generics) -> Option<TokenStream> {
    let bound = own.lifetimes().map(|own| own.lifetime.ident.clone()).collect();
    let mut search = Borrows { bound, ..Borrows::default() };
    search.visit_type(returned);
    search.found
}

/// Returns every `impl` of an `impl Trait` in a type.
pub(crate) fn opaque(within: &Type) -> Vec<Span> {
    let mut search = Opaque::default();
    search.visit_type(within);
    search.found
}

/// Collects every `Self` in the visited syntax.
#[derive(Default)]
pub(crate) struct Selves {
    /// The tokens found.
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
    /// The method's own lifetimes, and those bound by an enclosing `for<…>`.
    bound: Vec<Ident>,
    /// Nesting depth of function signatures. Lifetimes elided inside one belong to it, not to the method.
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

    /// Visits with the lifetimes that `lifetimes` binds.
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

    // The names in a `for<…>` are bound there, not used.
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
