//! The attribute's arguments and the trait, in the form that the expansion needs.
//!
//! - I1. The trait kept here is the user's, without `#[blocking]`. Each method records whether it had the
//!   mark. Every method of a remote interface counts as marked.
//! - I2. Each argument of a method has a name for passing it on: the user's, if there is one.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::spanned::Spanned;
use syn::{
    Attribute, Error, FnArg, ItemTrait, LitInt, Pat, Path, ReturnType, Token, TraitBound, TraitItem,
    TraitItemFn, Type, TypeParamBound, Visibility,
};

use crate::{attrs, check, remote};

/// Supertraits without methods. They are not interfaces.
const MARKS: [&str; 5] = ["Send", "Sync", "Unpin", "UnwindSafe", "RefUnwindSafe"];

/// A trait that was accepted.
pub(crate) struct Interface {
    /// The path to the crate `squall`.
    pub(crate) facade: TokenStream,
    /// The view that representatives may publish.
    pub(crate) view: Option<Path>,
    /// Set if objects of other processes can be called through it.
    pub(crate) remote: Option<Remote>,
    /// The trait, without `#[blocking]`.
    pub(crate) item: ItemTrait,
    /// The interfaces that it extends.
    pub(crate) supers: Vec<Path>,
    /// Its methods, in the order of `item.items`, which contains only methods.
    pub(crate) methods: Vec<Method>,
}

/// A method of an accepted trait.
pub(crate) struct Method {
    /// The trait's item, without `#[blocking]`.
    pub(crate) item: TraitItemFn,
    /// Whether it was marked `#[blocking]`, or its interface is remote.
    pub(crate) blocking: bool,
    /// The arguments after `self`.
    pub(crate) arguments: Vec<Argument>,
    /// The return type, written out.
    pub(crate) returned: Type,
}

/// An argument after `self`.
pub(crate) struct Argument {
    /// A name for the argument.
    pub(crate) name: Ident,
    /// Its type.
    pub(crate) ty: Type,
}

/// A trait that was rejected.
pub(crate) struct Refused {
    /// The item to leave in its place.
    pub(crate) item: TokenStream,
    /// The errors, one for each reason.
    pub(crate) error: Error,
}

impl Interface {
    /// Parses the arguments of the attribute and the item under it.
    pub(crate) fn parse(arguments: TokenStream, item: TokenStream) -> Result<Interface, Refused> {
        let arguments = Arguments::parse.parse2(arguments);
        let parsed = trait_keyword(&item).and_then(|()| syn::parse2::<ItemTrait>(item.clone()));
        let mut item = match parsed {
            Ok(parsed) => parsed,
            Err(error) => {
                return Err(Refused { item, error: all([arguments.err(), Some(error)]).unwrap_err() });
            }
        };
        let is_remote = matches!(&arguments, Ok(Arguments { remote: Some(_), .. }));
        // Advice for remote interfaces assumes a trait that is an interface.
        let checked = check::check(&item, is_remote);
        let checked = checked.and_then(|()| if is_remote { remote::check(&item) } else { Ok(()) });
        let marks = take_marks(&mut item);
        match (arguments, checked) {
            (Ok(arguments), Ok(())) => Ok(Interface::accepted(arguments, item, &marks)),
            (arguments, checked) => {
                let error = all([arguments.err(), checked.err()]).unwrap_err();
                Err(Refused { item: item.into_token_stream(), error })
            }
        }
    }

    fn accepted(arguments: Arguments, item: ItemTrait, marks: &[bool]) -> Interface {
        let supers = extended(&item).map(|bound| bound.path.clone()).collect();
        let functions = item.items.iter().filter_map(|item| match item {
            TraitItem::Fn(function) => Some(function.clone()),
            _ => None,
        });
        let Arguments { facade, view, remote } = arguments;
        let blocking = marks.iter().map(|marked| *marked || remote.is_some());
        let methods = functions.zip(blocking).map(|(item, blocking)| Method::new(item, blocking)).collect();
        Interface { facade, view, remote, item, supers, methods }
    }
}

impl Method {
    fn new(item: TraitItemFn, blocking: bool) -> Method {
        let typed = item.sig.inputs.iter().filter_map(|input| match input {
            FnArg::Typed(typed) => Some(typed),
            FnArg::Receiver(_) => None,
        });
        let named = typed.enumerate().map(|(index, typed)| Argument {
            name: match &*typed.pat {
                Pat::Ident(plain) if plain.by_ref.is_none() && plain.subpat.is_none() => plain.ident.clone(),
                // Hygienic: differs from an `arg0` of the user.
                pattern => format_ident!("arg{index}", span = Span::mixed_site().located_at(pattern.span())),
            },
            ty: (*typed.ty).clone(),
        });
        let arguments = named.collect();
        let returned = match &item.sig.output {
            ReturnType::Default => Type::Verbatim(quote!(())),
            ReturnType::Type(_, returned) => (**returned).clone(),
        };
        Method { item, blocking, arguments, returned }
    }

    /// Returns the name of the checked form.
    pub(crate) fn checked_name(&self) -> Ident {
        let name = &self.item.sig.ident;
        Ident::new(&format!("try_{}", name.unraw()), name.span())
    }
}

/// Returns the supertraits that must be interfaces.
pub(crate) fn extended(item: &ItemTrait) -> impl Iterator<Item = &TraitBound> {
    supertraits(item).filter(|bound| mark(bound).is_none())
}

/// Returns the supertraits that are marks.
pub(crate) fn marks(item: &ItemTrait) -> impl Iterator<Item = &Ident> {
    supertraits(item).filter_map(mark)
}

fn supertraits(item: &ItemTrait) -> impl Iterator<Item = &TraitBound> {
    item.supertraits.iter().filter_map(|bound| match bound {
        TypeParamBound::Trait(bound) => Some(bound),
        _ => None,
    })
}

fn mark(bound: &TraitBound) -> Option<&Ident> {
    let name = &bound.path.segments.last()?.ident;
    MARKS.iter().any(|mark| name == mark).then_some(name)
}

/// The argument `remote` of the attribute, and the version after it.
pub(crate) struct Remote {
    /// The word `remote`.
    pub(crate) word: Ident,
    /// The version, or 1.
    pub(crate) version: u64,
}

/// The arguments of the attribute, separated by commas: `crate = path`, the path to the crate `squall`;
/// `remote`; and `version = number`. Squall's own interfaces may add `view = path`, with a type of one
/// lifetime and the parameters of the trait.
struct Arguments {
    facade: TokenStream,
    view: Option<Path>,
    remote: Option<Remote>,
}

const EXPECTED: &str = "`#[interface]` takes no arguments, or some of `crate = path` with the path of the crate \
                        `squall`, `remote`, and `version = number`";

/// The arguments as written.
#[derive(Default)]
struct Written {
    facade: Option<Path>,
    view: Option<(Ident, Path)>,
    remote: Option<Ident>,
    version: Option<(Ident, u64)>,
}

impl Written {
    /// Parses one argument. Rejects it if it is a repetition.
    fn add(&mut self, input: ParseStream<'_>) -> syn::Result<()> {
        let word = input.call(Ident::parse_any)?;
        let once = |repeated: bool| {
            if repeated { Err(Error::new(word.span(), EXPECTED)) } else { Ok(()) }
        };
        match word.to_string().as_str() {
            "crate" => {
                once(self.facade.is_some())?;
                input.parse::<Token![=]>()?;
                self.facade = Some(input.call(Path::parse_mod_style)?);
            }
            "view" => {
                once(self.view.is_some())?;
                input.parse::<Token![=]>()?;
                self.view = Some((word, input.call(Path::parse_mod_style)?));
            }
            "remote" => {
                once(self.remote.is_some())?;
                self.remote = Some(word);
            }
            "version" => {
                once(self.version.is_some())?;
                input.parse::<Token![=]>()?;
                self.version = Some((word, input.parse::<LitInt>()?.base10_parse()?));
            }
            _ => return Err(Error::new(word.span(), EXPECTED)),
        }
        Ok(())
    }
}

impl Parse for Arguments {
    fn parse(input: ParseStream<'_>) -> syn::Result<Arguments> {
        let mut written = Written::default();
        let mut parse_all = || {
            while !input.is_empty() {
                written.add(input)?;
                if input.is_empty() {
                    break;
                }
                input.parse::<Token![,]>()?;
                if input.is_empty() {
                    return Err(input.error(EXPECTED));
                }
            }
            Ok(())
        };
        parse_all().map_err(|error: Error| Error::new(error.span(), EXPECTED))?;
        let Written { facade, view, remote, version } = written;
        if let (Some((word, _)), None) = (&view, &facade) {
            return Err(Error::new(word.span(), EXPECTED));
        }
        if let (Some(word), Some(_)) = (&remote, &view) {
            return Err(Error::new(
                word.span(),
                "a remote interface has no view, since a view is an address in one process; remove one of them",
            ));
        }
        if let (Some((word, _)), None) = (&version, &remote) {
            return Err(Error::new(
                word.span(),
                "only a remote interface has a version; write `remote, version = …`, or remove this",
            ));
        }
        Ok(Arguments {
            facade: facade.map_or_else(|| quote!(::squall), ToTokens::into_token_stream),
            view: view.map(|(_, path)| path),
            remote: remote.map(|word| Remote { word, version: version.map_or(1, |(_, number)| number) }),
        })
    }
}

/// Rejects an item other than a trait, at its keyword.
fn trait_keyword(item: &TokenStream) -> syn::Result<()> {
    let keyword = |input: ParseStream<'_>| {
        input.call(Attribute::parse_outer)?;
        input.parse::<Visibility>()?;
        let ahead = input.fork();
        let _ = ahead.parse::<Option<Token![unsafe]>>();
        let _ = ahead.parse::<Option<Token![auto]>>();
        let is_trait = ahead.peek(Token![trait]);
        let first = input.span();
        input.parse::<TokenStream>()?;
        if is_trait {
            Ok(())
        } else {
            Err(Error::new(first, "`#[interface]` goes on a trait, and this is not a trait"))
        }
    };
    keyword.parse2(item.clone())
}

/// Removes `#[blocking]`, also where it is rejected. Returns, for each method, whether it had the mark.
fn take_marks(item: &mut ItemTrait) -> Vec<bool> {
    let take = |attributes: &mut Vec<Attribute>| {
        let before = attributes.len();
        attributes.retain(|attribute| !attrs::is_blocking(attribute) && !attrs::hides_blocking(attribute));
        attributes.len() < before
    };
    take(&mut item.attrs);
    let functions = item.items.iter_mut().filter_map(|item| match item {
        TraitItem::Fn(function) => Some(function),
        _ => None,
    });
    functions.map(|function| take(&mut function.attrs)).collect()
}

/// Combines errors into one.
pub(crate) fn all(errors: impl IntoIterator<Item = Option<Error>>) -> syn::Result<()> {
    let first_then_others = |mut first: Error, other| {
        first.combine(other);
        first
    };
    errors.into_iter().flatten().reduce(first_then_others).map_or(Ok(()), Err)
}
