//! Rejection of traits that cannot be remote interfaces, with advice.
//!
//! It runs after the checks that all interfaces need.

use quote::ToTokens;
use syn::visit::Visit;
use syn::{
    Error, FnArg, GenericParam, ItemTrait, Lifetime, ReturnType, TraitItem, TraitItemFn, TypeFnPtr, TypePtr,
    TypeReference, TypeTraitObject,
};

use crate::parse;

/// The greatest number of methods: a word has a bit for the right to call each of them.
const METHODS_MAX: usize = 64;

/// Collects every reason why the interface `item` cannot be remote.
pub(crate) fn check(item: &ItemTrait) -> syn::Result<()> {
    let mut errors = Vec::new();
    for parameter in &item.generics.params {
        if !matches!(parameter, GenericParam::Lifetime(_)) {
            errors.push(Error::new_spanned(
                parameter,
                "a remote interface has no parameters, since both processes must know its types; write the types \
                 into the methods",
            ));
        }
    }
    for base in parse::extended(item) {
        errors.push(Error::new_spanned(
            base,
            "a remote interface cannot extend another one; write all methods into one trait",
        ));
    }
    let methods = item.items.iter().filter_map(|item| match item {
        TraitItem::Fn(method) => Some(method),
        _ => None,
    });
    for (index, method) in methods.enumerate() {
        if index == METHODS_MAX {
            errors.push(Error::new_spanned(
                &method.sig.ident,
                format!(
                    "a remote interface has at most {METHODS_MAX} methods; put some of them into another interface"
                ),
            ));
        }
        check_method(method, &mut errors);
    }
    parse::all(errors.into_iter().map(Some))
}

fn check_method(method: &TraitItemFn, errors: &mut Vec<Error>) {
    for input in &method.sig.inputs {
        if let FnArg::Typed(argument) = input {
            Foreign { result: false, errors: &mut *errors }.visit_type(&argument.ty);
        }
    }
    if let ReturnType::Type(_, returned) = &method.sig.output {
        Foreign { result: true, errors }.visit_type(returned);
    }
}

/// Collects the types that have no meaning in another process.
struct Foreign<'a> {
    /// Whether this is a result, which cannot borrow.
    result: bool,
    errors: &'a mut Vec<Error>,
}

impl Foreign<'_> {
    fn add(&mut self, at: impl ToTokens, message: &str) {
        self.errors.push(Error::new_spanned(at, message));
    }
}

/// The advice for a result that borrows.
const BORROWED_RESULT: &str = "the result of a remote method comes from another process and borrows nothing; \
                               return an owned value, such as `String` or `Vec<T>`";

impl<'ast> Visit<'ast> for Foreign<'_> {
    fn visit_type_reference(&mut self, reference: &'ast TypeReference) {
        let and = &reference.and_token;
        let is_static = reference.lifetime.as_ref().filter(|lifetime| lifetime.ident == "static");
        if self.result {
            self.add(and, BORROWED_RESULT);
        } else if let Some(exclusive) = &reference.mutability {
            self.add(
                exclusive,
                "an argument of a remote method is a copy in the other process, so changes to it would be lost; \
                 return the new value",
            );
        } else if let Some(lifetime) = is_static {
            self.add(
                lifetime,
                "an argument of a remote method is a copy that ends with the call; write `&` without `'static`",
            );
        }
        // The lifetime has been reported with its `&`.
        self.visit_type(&reference.elem);
    }

    fn visit_lifetime(&mut self, lifetime: &'ast Lifetime) {
        if self.result && lifetime.ident != "static" {
            self.add(lifetime, BORROWED_RESULT);
        }
    }

    fn visit_type_trait_object(&mut self, object: &'ast TypeTraitObject) {
        self.add(
            object,
            "a closure or another `dyn` value cannot be sent to another process; send plain \
             data, or the name of an exported object",
        );
    }

    fn visit_type_fn_ptr(&mut self, function: &'ast TypeFnPtr) {
        self.add(
            function,
            "the address of a function has no meaning in another process; send an enum of the functions to call",
        );
    }

    fn visit_type_ptr(&mut self, pointer: &'ast TypePtr) {
        self.add(pointer, "an address has no meaning in another process; send the data itself");
    }
}
