//! Tests of each rejection: its token and its message. Accepted traits must stay unchanged.

use proc_macro2::TokenStream;

use crate::expand;
use crate::parse::Interface;

pub(crate) fn tokens(text: &str) -> TokenStream {
    text.parse().expect("tokens")
}

/// Returns the rejections of `item` under `#[interface(arguments)]`: the text of each token, and the message.
pub(crate) fn refusals_with(arguments: &str, item: &str) -> Vec<(String, String)> {
    match Interface::parse(tokens(arguments), tokens(item)) {
        Ok(_) => Vec::new(),
        Err(refused) => {
            let errors = refused.error.into_iter();
            errors.map(|error| (error.span().source_text().unwrap_or_default(), error.to_string())).collect()
        }
    }
}

fn refusals(item: &str) -> Vec<(String, String)> {
    refusals_with("", item)
}

/// Asserts that exactly these texts are rejected in `item` with `message`, in this order.
#[track_caller]
fn refused(item: &str, at: &[&str], message: &str) {
    let expected: Vec<_> = at.iter().map(|at| (at.to_string(), message.to_owned())).collect();
    assert_eq!(refusals(item), expected, "{item}");
}

/// Asserts that `method` alone is rejected at `at`.
#[track_caller]
fn method_refused(method: &str, at: &str, message: &str) {
    refused(&format!("trait Hits: Send + Sync {{ {method} }}"), &[at], message);
}

#[track_caller]
fn accepted(item: &str) {
    assert_eq!(refusals(item), [], "{item}");
}

#[test]
fn arguments_of_the_attribute() {
    let message = "`#[interface]` takes no arguments, or some of `crate = path` with the path of the crate \
                   `squall`, `remote`, and `version = number`";
    for (arguments, at) in [
        ("krate = x", "krate"),
        ("crate: x", ":"),
        ("crate = a b", "b"),
        ("crate = 3", "3"),
        ("crate", ""),
        ("crate = ", ""),
        ("crate = a<u8>", "<"),
        ("view = V", "view"),
        ("crate = a,", ""),
        ("crate = a, gives", "gives"),
        ("crate = a, view", ""),
        ("crate = a, view = V, view = V", "view"),
        ("crate = a, crate = a", "crate"),
        ("remote, remote", "remote"),
        ("remote, version = 1, version = 2", "version"),
        ("remote = true", "="),
        ("remote, version", ""),
        ("remote, version = -1", "-1"),
        ("remote, version = \"1\"", "\"1\""),
        ("remote, version = 18446744073709551616", "18446744073709551616"),
    ] {
        assert_eq!(
            refusals_with(arguments, "trait Hits: Send + Sync {}"),
            [(at.to_owned(), message.to_owned())],
            "{arguments}"
        );
    }
    for arguments in [
        "",
        "crate = a, view = b::V",
        "crate = crate",
        "crate = ::a::b",
        "crate = self::a",
        "remote",
        "remote, version = 0x10",
        "version = 2, crate = a, remote",
    ] {
        assert_eq!(refusals_with(arguments, "trait Hits: Send + Sync {}"), [], "{arguments}");
    }
}

#[test]
fn other_items() {
    let message = "`#[interface]` goes on a trait, and this is not a trait";
    for (item, at) in [
        ("struct S;", "struct"),
        ("#[doc = \"an enum\"] pub(crate) enum S {}", "enum"),
        ("fn f() {}", "fn"),
        ("impl S {}", "impl"),
        ("unsafe impl S for u8 {}", "unsafe"),
        ("", ""),
    ] {
        refused(item, &[at], message);
    }
}

#[test]
fn kinds_of_trait() {
    refused(
        "pub unsafe trait Hits: Send + Sync {}",
        &["unsafe"],
        "an interface cannot be an unsafe trait: a handle implements it for every object and cannot keep \
         the trait's promise; remove `unsafe`",
    );
    refused(
        "auto trait Hits: Send + Sync {}",
        &["auto"],
        "an interface cannot be an auto trait; remove `auto`",
    );
    refused(
        "trait Hits<'a, K, 'b>: Send + Sync {}",
        &["'a", "'b"],
        "an interface cannot have lifetime parameters, since its objects may outlive any borrow; own the \
         value, or let the methods borrow it",
    );
    refused(
        "#[blocking] trait Hits: Send + Sync {}",
        &["#[blocking]"],
        "`#[blocking]` goes on methods; mark each method that may wait",
    );
}

#[test]
fn supertraits() {
    refused(
        "trait Hits: 'a + Send + Sync {}",
        &["'a"],
        "an object may outlive any borrow; remove this bound, or write `'static`",
    );
    let sized = "an interface is called as `dyn Trait`, which is not `Sized`; remove this bound";
    refused("trait Hits: Base + Sized {}", &["Sized"], sized);
    refused(
        "trait Hits: Base + ::core::marker::Sized + ?Sized {}",
        &["::core::marker::Sized", "?Sized"],
        sized,
    );
    refused(
        "trait Hits: for<'a> Base<'a> {}",
        &["for<'a>"],
        "an interface has no lifetime parameters to bind; remove this",
    );
    refused(
        "trait Hits where Self: Send, u8: Copy, Self: Sync {}",
        &["Self: Send", "Self: Sync"],
        "write the supertraits of an interface after its name, as in `trait Hits: Send + Sync`",
    );
    refused(
        "trait Hits: A0 + A1 + A2 + A3 + A4 + A5 + A6 + A7 + A8 + A9 + A10 + A11 + A12 + A13 + A14 + Send + \
         A15 {}",
        &["A15"],
        "an interface extends at most 15 others; group some of them into one",
    );
    accepted(
        "trait Hits: A<u8> + A<u16> + b::C + ::core::marker::Send + Sync + Unpin + UnwindSafe + 'static {}",
    );
}

#[test]
fn threads() {
    let message = "an object is called by many threads, so an interface is `Send` and `Sync`; write `trait Hits: \
                   Send + Sync`";
    for item in
        ["trait Hits {}", "trait Hits<K>: Send {}", "trait Hits: Sync + Unpin + 'static where u8: Copy {}"]
    {
        refused(item, &["Hits"], message);
    }
    for item in
        ["trait Hits: std::marker::Sync + Send {}", "trait Hits: Base {}", "trait Hits: Send + Base<u8> {}"]
    {
        accepted(item);
    }
}

#[test]
fn only_marks_are_no_interfaces() {
    let text = "trait Hits: A<u8> + b::C + ::core::marker::Send + std::panic::RefUnwindSafe + 'static {}";
    let Ok(interface) = Interface::parse(tokens(""), tokens(text)) else { panic!("refused: {text}") };
    let supers: Vec<_> = interface.supers.iter().map(|path| quote::quote!(#path).to_string()).collect();
    assert_eq!(supers, ["A < u8 >", "b :: C"]);
}

#[test]
fn items_that_are_no_methods() {
    method_refused(
        "const MAX: u8 = 1;",
        "const",
        "an interface has methods only: the value of a constant would depend on the object behind the \
         handle; make it a method",
    );
    method_refused(
        "type Item: Send;",
        "type",
        "an interface has methods only; make the type a parameter of the trait, as in `trait Map<Key, \
         Value>`",
    );
    method_refused(
        "some::methods!();",
        "some::methods",
        "an interface has methods only, and the attribute cannot see methods that a macro makes; write \
         the methods out",
    );
    method_refused("pub fn add(&self);", "pub fn add(&self);", "an interface has methods only");
}

#[test]
fn generic_methods() {
    for (parameter, name) in [("X", "X"), ("X: Ord", "X"), ("const N: usize", "N")] {
        method_refused(
            &format!("fn add<'a, {parameter}>(&self);"),
            parameter,
            &format!(
                "a method of an interface cannot be generic, since it is called through a table of \
                 functions; take `&dyn Trait` or `&mut dyn FnMut(…)`, or make `{name}` a parameter of the \
                 trait"
            ),
        );
    }
    accepted("trait Hits: Send + Sync { fn add<'a, 'b: 'a>(&self, one: &'a u8, other: &'b mut u8); }");
    let argument = "`impl Trait` makes the method generic, and it is called through a table of functions; \
                    take `&dyn Trait`, `&mut dyn FnMut(…)` or `Box<dyn Trait>`";
    method_refused("fn add(&self, f: impl Fn());", "impl", argument);
    method_refused("fn add(&self, f: &mut Vec<impl Fn()>);", "impl", argument);
    let returned = "`impl Trait` is another type for each implementation, and a caller cannot know it; \
                    return `Box<dyn Trait>`";
    method_refused("fn add(&self) -> impl Fn();", "impl", returned);
    method_refused("fn add(&self) -> Option<impl Iterator<Item = u8> + '_>;", "impl", returned);
}

#[test]
fn receivers() {
    let exclusive = "a method of an interface takes `&self`, since many threads call it at once; keep \
                     mutable state in atomics, cells or locks";
    for receiver in ["&mut self", "&'a mut self", "self: &mut Self"] {
        method_refused(&format!("fn add({receiver});"), receiver, exclusive);
    }
    let other = "a method of an interface takes `&self`, since all holders of a handle share its object; \
                 write `&self`";
    for receiver in
        ["self", "mut self", "self: Self", "self: Box<Self>", "self: &Arc<Self>", "self: Pin<&Self>"]
    {
        method_refused(&format!("fn add({receiver});"), receiver, other);
    }
    let none = "a method of an interface takes `&self`; make this a free function, or a function of the \
                implementing type";
    method_refused("fn new();", "new", none);
    method_refused("fn of(value: u8);", "of", none);
    let named = "an object is borrowed only for one call; write `&self`";
    method_refused("fn add<'a>(&'a self, to: &mut Vec<&'a u8>);", "'a", named);
    method_refused("fn add(self: &'static Self);", "'static", named);
    accepted(
        "trait Hits: Send + Sync { fn add(&self); fn sub(&'_ self); fn more(self: &Self); fn less(self: &(Self)); }",
    );
}

#[test]
fn returned_borrows() {
    let message = "a borrow cannot leave a call: the object may be destroyed or replaced as soon as the \
                   call ends; return an owned value, or take a `&mut dyn FnMut(…)` and pass the borrowed \
                   value to it";
    for (returned, at) in [
        ("&u8", "&"),
        ("&mut u8", "&"),
        ("Option<&str>", "&"),
        ("(u8, [&u8; 3])", "&"),
        ("&'a str", "&'a"),
        ("Cow<'_, str>", "'_"),
        ("std::slice::Iter<'a, u8>", "'a"),
        ("Box<dyn FnMut() + '_>", "'_"),
        ("Box<dyn Fn(&'a u8)>", "&'a"),
        ("Box<dyn for<'x> Fn(&'x u8) -> &'a u8>", "&'a"),
        ("Vec<for<'x> fn(&'x u8, &'a u8)>", "&'a"),
        ("(Box<dyn for<'x> Fn(&'x u8)>, &'x u8)", "&'x"),
    ] {
        method_refused(&format!("fn get(&self, from: &str) -> {returned};"), at, message);
    }
    for returned in ["&'a str", "Option<std::slice::Iter<'a, u8>>", "Box<dyn for<'x> Fn(&'x u8) -> &'a u8>"] {
        accepted(&format!("trait Hits: Send + Sync {{ fn get<'a>(&self, from: &'a str) -> {returned}; }}"));
    }
    method_refused("fn get<'a>(&self, from: &'a str) -> (&'a str, &str);", "&", message);
    for returned in [
        "&'static str",
        "Cow<'static, str>",
        "Vec<&'static dyn Fn(&u8) -> &u8>",
        "fn(&u8) -> &u8",
        "for<'a> fn(&'a u8, Cow<'_, str>) -> &'a u8",
        "Box<dyn for<'a> Fn(&'a u8) -> &'a u8 + Send>",
    ] {
        accepted(&format!("trait Hits: Send + Sync {{ fn get(&self) -> {returned}; }}"));
    }
}

#[test]
fn qualifiers() {
    method_refused(
        "async fn add(&self);",
        "async",
        "a method of an interface cannot be `async`: its call ends before the future runs; return a \
         future that owns its data, as in `Pin<Box<dyn Future<Output = T> + Send>>`, or mark a method \
         that waits `#[blocking]`",
    );
    method_refused(
        "unsafe fn add(&self);",
        "unsafe",
        "a method of an interface cannot be `unsafe`: every holder of a handle may call it; check the \
         conditions and return an error",
    );
    method_refused(
        "const fn add(&self);",
        "const",
        "a method of an interface cannot be `const`: the implementation is chosen when it is called; \
         remove `const`",
    );
    let abi = "a method of an interface has Rust's calling convention; remove this";
    method_refused("extern \"C\" fn add(&self);", "extern \"C\"", abi);
    method_refused("extern fn add(&self);", "extern", abi);
    method_refused(
        "fn add(&self, ...);",
        "...",
        "a method of an interface has a fixed number of arguments; take a slice",
    );
    method_refused(
        "fn stop(&self) -> !;",
        "!",
        "a method of an interface must be able to return, for example when its object is gone; return \
         `std::convert::Infallible`",
    );
}

#[test]
fn the_type_of_the_object() {
    let message = "`Self` is another type for each representative, and a caller cannot know it; pass \
                   another object by its handle, as in `Handle<dyn Hits>`";
    for method in [
        "fn add(&self, other: Self);",
        "fn add(&self, other: &[&Self]);",
        "fn add(&self) -> Option<Self>;",
        "fn add(&self, other: Self::Item);",
        "fn add<'a>(&self) where u8: Into<Self>;",
    ] {
        method_refused(method, "Self", message);
    }
    refused("trait Hits: PartialEq<Self> {}", &["Self"], message);
    refused("trait Hits<K: Into<Self>, V>: Send + Sync where V: From<Self> {}", &["Self", "Self"], message);
    method_refused(
        "fn add(&self) where Self: Sized;",
        "Self: Sized",
        "a method with a condition on `Self` cannot be called through a handle; make it a free function, \
         or put it into a trait of its own",
    );
    accepted("trait Hits: Send + Sync { fn add(&self) { fn of<S: ?Sized>(_: &S) {} of::<Self>(self) } }");
}

#[test]
fn names() {
    let base =
        "`try_add` is the name of the checked form of `add`, made by `#[interface]`; rename one of them";
    refused("trait Hits: Send + Sync { fn try_add(&self); fn add(&self); }", &["try_add"], base);
    let raw =
        "`try_type` is the name of the checked form of `type`, made by `#[interface]`; rename one of them";
    refused("trait Hits: Send + Sync { fn r#type(&self); fn try_type(&self); }", &["try_type"], raw);
    accepted("trait Hits: Send + Sync { fn try_add(&self); fn sub(&self); fn try_(&self); }");
    method_refused(
        "fn handle(&self);",
        "handle",
        "`Handle` or `Owned` has its own method `handle`, which callers would get; rename this method",
    );
}

#[test]
fn marks() {
    method_refused(
        "#[blocking(always)] fn add(&self);",
        "#[blocking(always)]",
        "`#[blocking]` takes no arguments",
    );
    method_refused(
        "#[blocking = \"yes\"] fn add(&self);",
        "#[blocking = \"yes\"]",
        "`#[blocking]` takes no arguments",
    );
    method_refused(
        "#[blocking] #[blocking] fn add(&self);",
        "#[blocking]",
        "`#[blocking]` is repeated; remove one",
    );
    let condition = "whether a method blocks cannot depend on a condition, since its callers rely on it; \
                     write `#[blocking]`";
    for attribute in ["#[cfg_attr(unix, blocking)]", "#[cfg_attr(unix, cfg_attr(test, inline, blocking))]"] {
        method_refused(&format!("{attribute} fn add(&self);"), attribute, condition);
    }
    method_refused(
        "fn add(&self, #[cfg(unix)] n: u8);",
        "#[cfg(unix)]",
        "an argument cannot depend on a condition; put the condition on the method, and write the method \
         twice",
    );
}

#[test]
fn all_at_once_and_in_order() {
    let item =
        "unsafe trait Hits<'a>: Sized + Send { const C: u8; fn new(); fn add<X>(&mut self, x: &X) -> &X; }";
    let at: Vec<_> = refusals_with("crate", item).into_iter().map(|(at, _)| at).collect();
    assert_eq!(at, ["", "unsafe", "'a", "Sized", "Hits", "const", "new", "X", "&mut self", "&"]);
}

/// A rejected item is kept, without marks.
#[test]
fn a_refused_item_stays() {
    let left = |item: &str| match Interface::parse(tokens(""), tokens(item)) {
        Ok(_) => panic!("accepted: {item}"),
        Err(refused) => refused.item.to_string(),
    };
    assert_eq!(
        left("#[a] trait Hits: Send + Sync { #[blocking] #[b] fn new(); }"),
        tokens("#[a] trait Hits: Send + Sync { #[b] fn new(); }").to_string()
    );
    assert_eq!(left("struct S;"), tokens("struct S;").to_string());
    let whole = expand::attribute(tokens(""), tokens("struct S;")).to_string();
    assert!(whole.starts_with("struct S ; :: core :: compile_error"), "{whole}");
}

/// Returns the expansion of an accepted trait, without white space.
pub(crate) fn expansion(arguments: &str, item: &str) -> String {
    squeezed(&expand::attribute(tokens(arguments), tokens(item)).to_string())
}

fn squeezed(text: &str) -> String {
    text.split_whitespace().collect()
}

pub(crate) fn count(expansion: &str, part: &str) -> usize {
    expansion.matches(&squeezed(part)).count()
}

#[track_caller]
pub(crate) fn contains(expansion: &str, part: &str) {
    assert_ne!(count(expansion, part), 0, "no `{part}` in `{expansion}`");
}

#[test]
fn the_path_to_the_crate() {
    contains(&expansion("", "trait Hits: Send + Sync {}"), "impl ::squall::__macro::Interface for dyn Hits");
    let renamed = expansion("crate = crate::a", "trait Hits: Base { fn add(&self); }");
    contains(&renamed, "impl crate::a::__macro::Extends<dyn Base> for dyn Hits");
    assert_eq!(count(&renamed, "squall::"), 0, "{renamed}");
}

#[test]
fn marked_methods_take_the_other_call_in_both_forms() {
    let mixed = expansion("", "trait Hits: Send + Sync { fn add(&self); #[blocking] fn wait(&self); }");
    assert_eq!(count(&mixed, "__call(*self, \"add\", "), 2, "{mixed}");
    assert_eq!(count(&mixed, "*self, \"wait\", "), 2, "{mixed}");
    assert_eq!(count(&mixed, "#[blocking]"), 0, "{mixed}");
}

#[test]
fn kt_08_each_method_and_its_checked_form_go_through_the_wrapper_once() {
    let mixed = expansion(
        "",
        "trait Hits<__W>: Send + Sync { fn add(&self); #[blocking] fn wait(&self, n: u8) -> u8; }",
    );
    contains(
        &mixed,
        "impl<__W, __W_: ::squall::__macro::Wrap, __I: Hits<__W> + 'static> Hits<__W> for \
         ::squall::__macro::Around<__W_, __I>",
    );
    for (method, index, blocking, types) in [("add", 0, false, "((),)"), ("wait", 1, true, "(u8, u8,)")] {
        let invoked = format!("Invoked::__new(\"Hits\", \"{method}\", {index}usize, {blocking})");
        assert_eq!(count(&mixed, &invoked), 2, "{mixed}");
        let way = format!("Arguments::<{types}>::new().__squall_send()");
        assert_eq!(count(&mixed, &way), 2, "{mixed}");
    }
    assert_eq!(count(&mixed, "Through::__squall_around("), 4, "{mixed}");
    contains(&mixed, "type View<'__rep> = ();");
    let viewed =
        expansion("crate = crate::a, view = b::V", "trait Hits<T: Send + 'static>: Base { fn add(&self); }");
    contains(&viewed, "type View<'__rep> = b::V<'__rep, T,>;");
    contains(&mixed, "const BLOCKING: &'static [::core::primitive::bool] = &[false, true];");
}

#[test]
fn parameters_are_static_where_the_interface_is_made() {
    let map = expansion("", "trait Map<K: Ord = u8, const N: usize = 3>: Send + Sync where K: Clone {}");
    contains(
        &map,
        "impl<K: Ord, const N: usize> ::squall::__macro::Interface for dyn Map<K, N> where K: Clone, K: \
         'static",
    );
    contains(
        &map,
        "impl<K: Ord, const N: usize, __I: ?::core::marker::Sized + ::squall::__macro::Interface + Map<K, \
         N> > Map<K, N> for ::squall::__macro::Handle<__I> where K: Clone",
    );
    contains(&expansion("", "trait Map<__I>: Base {}"), "::squall::__macro::Handle<__I_>");
}

#[test]
fn attributes_that_are_repeated() {
    let hits = expansion(
        "",
        "#[cfg(unix)] trait Hits: Send + Sync {
            #[cfg(a)] #[cfg_attr(b, cfg(c), inline, deprecated)] #[must_use] #[inline]
            #[expect(dead_code)] #[doc(hidden)]
            fn add(&self);
        }",
    );
    assert_eq!(count(&hits, "#[cfg(unix)]"), 5, "the trait, and four impls: {hits}");
    assert_eq!(count(&hits, "#[cfg(a)]"), 6, "the method, its checked form, and both in two impls: {hits}");
    contains(&hits, "#[cfg_attr(b, cfg(c), deprecated)] #[allow(dead_code)] #[doc(hidden)]");
    contains(&hits, "#[cfg_attr(b, cfg(c))] #[allow(dead_code)] #[inline(always)]");
    assert_eq!(count(&hits, "must_use"), 1, "{hits}");
}

#[test]
fn nothing_unsafe_is_written() {
    let hits = expansion(
        "",
        "pub trait Hits<K>: Base<K> + Send { #[blocking] fn add(&self, (a, b): (K, u8)) -> u8 { b } }",
    );
    assert_eq!(count(&hits, "unsafe"), 0, "{hits}");
}
