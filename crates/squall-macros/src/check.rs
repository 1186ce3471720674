//! Rejection of traits that cannot be interfaces, with advice.
//!
//! Problem: a call through a handle is one virtual call inside an operation that ends with it. Other threads
//! may replace or destroy the object during the call. Much that a trait can express does not fit, and the
//! compiler's errors about the expansion explain little. Idea: read the whole trait, collect every reason at
//! its own token, and report them together.
//!
//! - I1. Every message names the fault of the token it points at, and the fix.
//! - I2. A name or a position is a reason only if a generated name would collide with it.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, quote};
use syn::ext::IdentExt;
use syn::visit::Visit;
use syn::{
    Attribute, Error, FnArg, GenericParam, Generics, ItemTrait, Meta, PatType, Path, Receiver, ReceiverKind,
    ReturnType, Safety, Signature, TraitItem, TraitItemFn, Type, TypeParamBound, WherePredicate,
};

use crate::types::Selves;
use crate::{attrs, parse, types};

/// The greatest number of interfaces that one can extend: an object has at most 16 ids, its own and one for
/// each.
const SUPERS_MAX: usize = 15;

/// Methods of `Handle` and `Owned` themselves, which a call would find first.
const TAKEN: [&str; 3] = ["handle", "__call", "__call_blocking"];

/// Collects every reason to reject `item`. Advice for a remote interface names only types that can be sent.
pub(crate) fn check(item: &ItemTrait, is_remote: bool) -> syn::Result<()> {
    let mut reasons = Reasons { interface: item.ident.unraw().to_string(), is_remote, errors: Vec::new() };
    reasons.check_head(item);
    reasons.check_supers(item);
    reasons.check_threads(item);
    for item in &item.items {
        match item {
            TraitItem::Fn(method) => reasons.check_method(method),
            TraitItem::Const(constant) => reasons.add(
                constant.const_token,
                "an interface has methods only: the value of a constant would depend on the object behind \
                 the handle; make it a method",
            ),
            TraitItem::Type(associated) => reasons.add(
                associated.type_token,
                "an interface has methods only; make the type a parameter of the trait, as in `trait \
                 Map<Key, Value>`",
            ),
            TraitItem::Macro(call) => reasons.add(
                &call.mac.path,
                "an interface has methods only, and the attribute cannot see methods that a macro makes; \
                 write the methods out",
            ),
            other => reasons.add(other, "an interface has methods only"),
        }
    }
    reasons.check_names(item);
    parse::all(reasons.errors.into_iter().map(Some))
}

struct Reasons {
    /// The trait's name, for messages.
    interface: String,
    is_remote: bool,
    errors: Vec<Error>,
}

impl Reasons {
    fn add(&mut self, at: impl ToTokens, message: impl std::fmt::Display) {
        self.errors.push(Error::new_spanned(at, message));
    }

    /// Chooses between two pieces of advice.
    fn advice<'t>(&self, local: &'t str, remote: &'t str) -> &'t str {
        if self.is_remote { remote } else { local }
    }

    /// Checks the part before the braces, except the supertraits.
    fn check_head(&mut self, item: &ItemTrait) {
        if let Some(unsafety) = &item.unsafety {
            self.add(
                unsafety,
                "an interface cannot be an unsafe trait: a handle implements it for every object and \
                 cannot keep the trait's promise; remove `unsafe`",
            );
        }
        if let Some(auto) = &item.modifiers.auto_token {
            self.add(auto, "an interface cannot be an auto trait; remove `auto`");
        }
        for attribute in item.attrs.iter().filter(|attribute| attrs::is_blocking(attribute)) {
            self.add(attribute, "`#[blocking]` goes on methods; mark each method that may wait");
        }
        for parameter in &item.generics.params {
            if let GenericParam::Lifetime(lifetime) = parameter {
                self.add(
                    &lifetime.lifetime,
                    "an interface cannot have lifetime parameters, since its objects may outlive any \
                     borrow; own the value, or let the methods borrow it",
                );
            }
        }
        self.refuse_selves(|search| search.visit_generics(&without_self_bounds(&item.generics)));
        for predicate in bounds_of_self(&item.generics) {
            self.add(
                predicate,
                format!(
                    "write the supertraits of an interface after its name, as in `trait {}: Send + Sync`",
                    self.interface
                ),
            );
        }
    }

    fn check_supers(&mut self, item: &ItemTrait) {
        for bound in &item.supertraits {
            match bound {
                TypeParamBound::Lifetime(lifetime) if lifetime.ident == "static" => {}
                TypeParamBound::Lifetime(lifetime) => {
                    self.add(
                        lifetime,
                        "an object may outlive any borrow; remove this bound, or write `'static`",
                    );
                }
                TypeParamBound::Trait(bound) if names_sized(&bound.path) => self.add(
                    bound,
                    "an interface is called as `dyn Trait`, which is not `Sized`; remove this bound",
                ),
                TypeParamBound::Trait(bound) if bound.lifetimes.is_some() => {
                    let binder = &bound.lifetimes;
                    self.add(binder, "an interface has no lifetime parameters to bind; remove this");
                }
                TypeParamBound::Trait(bound) => self.refuse_selves(|search| search.visit_trait_bound(bound)),
                other => self.add(other, "an interface can extend only interfaces"),
            }
        }
        if let Some(beyond) = parse::extended(item).nth(SUPERS_MAX) {
            self.add(
                beyond,
                format!("an interface extends at most {SUPERS_MAX} others; group some of them into one"),
            );
        }
    }

    /// Checks for `Send + Sync`. Extended interfaces have them already; a trait that extends no interface
    /// must name them.
    fn check_threads(&mut self, item: &ItemTrait) {
        let named = |mark: &str| parse::marks(item).any(|name| name == mark);
        let mut extended = parse::extended(item).filter(|bound| !names_sized(&bound.path));
        let extends = extended.next().is_some() || !bounds_of_self(&item.generics).is_empty();
        let says_so = named("Send") && named("Sync");
        if !extends && !says_so {
            self.add(
                &item.ident,
                format!(
                    "an object is called by many threads, so an interface is `Send` and `Sync`; write `trait \
                     {}: Send + Sync`",
                    self.interface
                ),
            );
        }
    }

    fn check_method(&mut self, method: &TraitItemFn) {
        self.check_attributes(&method.attrs);
        let signature = &method.sig;
        self.check_qualifiers(signature);
        self.check_generics(signature);
        match signature.inputs.first() {
            Some(FnArg::Receiver(receiver)) => self.check_receiver(receiver),
            _ => self.add(
                &signature.ident,
                "a method of an interface takes `&self`; make this a free function, or a function of the \
                 implementing type",
            ),
        }
        for input in &signature.inputs {
            if let FnArg::Typed(argument) = input {
                self.check_argument(argument);
            }
        }
        if let ReturnType::Type(_, returned) = &signature.output {
            self.check_returned(returned, &signature.generics);
        }
    }

    fn check_attributes(&mut self, attributes: &[Attribute]) {
        let mut marked = false;
        for attribute in attributes {
            if attrs::hides_blocking(attribute) {
                self.add(
                    attribute,
                    "whether a method blocks cannot depend on a condition, since its callers rely on it; \
                     write `#[blocking]`",
                );
            }
            if !attrs::is_blocking(attribute) {
                continue;
            }
            if !matches!(attribute.meta, Meta::Path(_)) {
                self.add(attribute, "`#[blocking]` takes no arguments");
            } else if marked {
                self.add(attribute, "`#[blocking]` is repeated; remove one");
            }
            marked = true;
        }
    }

    fn check_qualifiers(&mut self, signature: &Signature) {
        if let Some(constness) = &signature.constness {
            self.add(
                constness,
                "a method of an interface cannot be `const`: the implementation is chosen when it is \
                 called; remove `const`",
            );
        }
        if let Some(asyncness) = &signature.asyncness {
            let advice = self.advice(
                "return a future that owns its data, as in `Pin<Box<dyn Future<Output = T> + Send>>`, or mark a \
                 method that waits `#[blocking]`",
                "remove `async`, since every method of a remote interface may wait",
            );
            self.add(
                asyncness,
                format!(
                    "a method of an interface cannot be `async`: its call ends before the future runs; {advice}"
                ),
            );
        }
        if let Safety::Unsafe(unsafety) = &signature.safety {
            self.add(
                unsafety,
                "a method of an interface cannot be `unsafe`: every holder of a handle may call it; check \
                 the conditions and return an error",
            );
        }
        if let Some(abi) = &signature.abi {
            self.add(abi, "a method of an interface has Rust's calling convention; remove this");
        }
        if let Some(variadic) = &signature.variadic {
            self.add(variadic, "a method of an interface has a fixed number of arguments; take a slice");
        }
    }

    fn check_generics(&mut self, signature: &Signature) {
        let parameters = signature.generics.params.iter().filter_map(|parameter| match parameter {
            GenericParam::Lifetime(_) => None,
            GenericParam::Type(parameter) => Some((parameter.to_token_stream(), &parameter.ident)),
            GenericParam::Const(parameter) => Some((parameter.to_token_stream(), &parameter.ident)),
        });
        for (parameter, name) in parameters {
            let local = format!(
                "take `&dyn Trait` or `&mut dyn FnMut(…)`, or make `{name}` a parameter of the trait"
            );
            let advice = self.advice(&local, "write a type that can be sent, or an enum of such types");
            self.add(
                parameter,
                format!(
                    "a method of an interface cannot be generic, since it is called through a table of \
                     functions; {advice}"
                ),
            );
        }
        for predicate in bounds_of_self(&signature.generics) {
            self.add(
                predicate,
                "a method with a condition on `Self` cannot be called through a handle; make it a free \
                 function, or put it into a trait of its own",
            );
        }
        self.refuse_selves(|search| search.visit_generics(&without_self_bounds(&signature.generics)));
    }

    fn check_receiver(&mut self, receiver: &Receiver) {
        let exclusive = "a method of an interface takes `&self`, since many threads call it at once; keep \
                         mutable state in atomics, cells or locks";
        let other = "a method of an interface takes `&self`, since all holders of a handle share its \
                     object; write `&self`";
        match &receiver.kind {
            ReceiverKind::Value => self.add(receiver, other),
            ReceiverKind::Reference(_, _, Some(_)) => self.add(receiver, exclusive),
            ReceiverKind::Reference(_, lifetime, None) => self.check_lifetime_of_self(lifetime.as_ref()),
            ReceiverKind::Typed(_, ty) => match &**ty {
                Type::Reference(reference) if !names_self(&reference.elem) => self.add(receiver, other),
                Type::Reference(reference) if reference.mutability.is_some() => self.add(receiver, exclusive),
                Type::Reference(reference) => self.check_lifetime_of_self(reference.lifetime.as_ref()),
                _ => self.add(receiver, other),
            },
            _ => self.add(receiver, other),
        }
    }

    fn check_lifetime_of_self(&mut self, lifetime: Option<&syn::Lifetime>) {
        if let Some(lifetime) = lifetime.filter(|lifetime| lifetime.ident != "_") {
            self.add(lifetime, "an object is borrowed only for one call; write `&self`");
        }
    }

    fn check_argument(&mut self, argument: &PatType) {
        for attribute in &argument.attrs {
            if attribute.path().is_ident("cfg") || attribute.path().is_ident("cfg_attr") {
                self.add(
                    attribute,
                    "an argument cannot depend on a condition; put the condition on the \
                     method, and write the method twice",
                );
            }
        }
        for implementation in types::opaque(&argument.ty) {
            let advice = self.advice(
                "take `&dyn Trait`, `&mut dyn FnMut(…)` or `Box<dyn Trait>`",
                "write a type that can be sent, or an enum of such types",
            );
            self.errors.push(Error::new(
                implementation,
                format!(
                    "`impl Trait` makes the method generic, and it is called through a table of functions; {advice}"
                ),
            ));
        }
        self.refuse_selves(|search| search.visit_type(&argument.ty));
    }

    fn check_returned(&mut self, returned: &Type, own: &Generics) {
        if let Type::Never(never) = returned {
            self.add(
                never,
                "a method of an interface must be able to return, for example when its object is gone; \
                 return `std::convert::Infallible`",
            );
        }
        let opaque = types::opaque(returned);
        for implementation in &opaque {
            let advice = self.advice("return `Box<dyn Trait>`", "return a type that can be sent");
            self.errors.push(Error::new(
                *implementation,
                format!(
                    "`impl Trait` is another type for each implementation, and a caller cannot know it; {advice}"
                ),
            ));
        }
        // The bounds of an `impl Trait` are reported with it.
        if let Some(borrow) = types::returned_borrow(returned, own).filter(|_| opaque.is_empty()) {
            let advice = self.advice(
                "return an owned value, or take a `&mut dyn FnMut(…)` and pass the borrowed value to it",
                "return an owned value, such as `String` or `Vec<T>`",
            );
            self.add(
                borrow,
                format!(
                    "a borrow cannot leave a call: the object may be destroyed or replaced as soon as the \
                     call ends; {advice}"
                ),
            );
        }
        self.refuse_selves(|search| search.visit_type(returned));
    }

    /// Rejects every `Self` in the syntax that `show` passes to the search.
    fn refuse_selves(&mut self, show: impl FnOnce(&mut Selves)) {
        let mut search = Selves::default();
        show(&mut search);
        for name in search.found {
            let local = format!("pass another object by its handle, as in `Handle<dyn {}>`", self.interface);
            let advice = self.advice(&local, "pass the name of an exported object");
            self.add(
                name,
                format!(
                    "`Self` is another type for each representative, and a caller cannot know it; {advice}"
                ),
            );
        }
    }

    /// Checks for names of generated methods, and of methods of handles.
    fn check_names(&mut self, item: &ItemTrait) {
        let names: Vec<&Ident> = item
            .items
            .iter()
            .filter_map(|item| match item {
                TraitItem::Fn(method) => Some(&method.sig.ident),
                _ => None,
            })
            .collect();
        for name in &names {
            let plain = name.unraw().to_string();
            if TAKEN.contains(&plain.as_str()) {
                self.add(
                    name,
                    format!(
                        "`Handle` or `Owned` has its own method `{plain}`, which callers would get; \
                         rename this method"
                    ),
                );
            }
            let base =
                plain.strip_prefix("try_").filter(|base| names.iter().any(|name| name.unraw() == base));
            if let Some(base) = base {
                self.add(
                    name,
                    format!(
                        "`{plain}` is the name of the checked form of `{base}`, made by `#[interface]`; \
                         rename one of them"
                    ),
                );
            }
        }
    }
}

fn names_sized(path: &Path) -> bool {
    path.segments.last().is_some_and(|last| last.ident == "Sized")
}

fn names_self(ty: &Type) -> bool {
    match ty {
        Type::Path(named) => named.qself.is_none() && named.path.is_ident("Self"),
        Type::Paren(inner) => names_self(&inner.elem),
        Type::Group(inner) => names_self(&inner.elem),
        _ => false,
    }
}

fn is_bound_of_self(predicate: &WherePredicate) -> bool {
    matches!(predicate, WherePredicate::Type(predicate) if names_self(&predicate.bounded_ty))
}

/// Returns the predicates of a `where` clause on `Self` itself.
fn bounds_of_self(generics: &Generics) -> Vec<TokenStream> {
    let predicates = generics.where_clause.iter().flat_map(|clause| &clause.predicates);
    predicates.filter(|predicate| is_bound_of_self(predicate)).map(|predicate| quote!(#predicate)).collect()
}

/// Returns `generics` without the predicates on `Self`.
fn without_self_bounds(generics: &Generics) -> Generics {
    let mut others = generics.clone();
    if let Some(clause) = &mut others.where_clause {
        clause.predicates =
            clause.predicates.iter().filter(|predicate| !is_bound_of_self(predicate)).cloned().collect();
    }
    others
}
