//! Tests of remote interfaces: each rejection with its token and message, the signature, and both ends.

use super::signature::{fnv, signature};
use crate::parse::Interface;
use crate::tests::{contains, count, expansion, refusals_with, tokens};

/// Asserts that exactly these texts are rejected in the remote interface `item`, each with `message`.
#[track_caller]
fn refused(item: &str, at: &[&str], message: &str) {
    let expected: Vec<_> = at.iter().map(|at| (at.to_string(), message.to_owned())).collect();
    assert_eq!(refusals_with("remote", item), expected, "{item}");
    assert_eq!(refusals_with("", item), [], "allowed in an interface of one process: {item}");
}

#[track_caller]
fn method_refused(method: &str, at: &str, message: &str) {
    refused(&format!("trait Hits: Send + Sync {{ {method} }}"), &[at], message);
}

#[test]
fn arguments_of_the_attribute() {
    let hits = "trait Hits: Send + Sync {}";
    for (arguments, at, message) in [
        (
            "crate = a, view = V, remote",
            "remote",
            "a remote interface has no view, since a view is an address in one process; remove one of them",
        ),
        (
            "version = 2",
            "version",
            "only a remote interface has a version; write `remote, version = …`, or remove this",
        ),
    ] {
        assert_eq!(refusals_with(arguments, hits), [(at.to_owned(), message.to_owned())], "{arguments}");
    }
}

#[test]
fn traits() {
    refused(
        "trait Map<K: Ord, const N: usize>: Send + Sync {}",
        &["K: Ord", "const N: usize"],
        "a remote interface has no parameters, since both processes must know its types; write the types into \
         the methods",
    );
    refused(
        "trait Hits: Base + Send + other::Base {}",
        &["Base", "other::Base"],
        "a remote interface cannot extend another one; write all methods into one trait",
    );
    let methods = |count| -> String { (0..count).map(|index| format!("fn m{index}(&self); ")).collect() };
    refused(
        &format!("trait Hits: Send + Sync {{ {} }}", methods(66)),
        &["m64"],
        "a remote interface has at most 64 methods; put some of them into another interface",
    );
    assert_eq!(refusals_with("remote", &format!("trait Hits: Send + Sync {{ {} }}", methods(64))), []);
}

#[test]
fn arguments_without_a_meaning_elsewhere() {
    let exclusive = "an argument of a remote method is a copy in the other process, so changes to it would be \
                     lost; return the new value";
    method_refused("fn add(&self, to: &mut u64);", "mut", exclusive);
    method_refused("fn add<'a>(&self, to: Option<&'a mut u64>);", "mut", exclusive);
    let closure = "a closure or another `dyn` value cannot be sent to another process; send plain \
             data, or the name of an exported object";
    method_refused("fn add(&self, f: &dyn Fn(u8) -> u8);", "dyn Fn(u8) -> u8", closure);
    method_refused("fn add(&self, f: Box<dyn FnMut() + Send>);", "dyn FnMut() + Send", closure);
    method_refused("fn add(&self, other: Handle<dyn Hits>);", "dyn Hits", closure);
    method_refused(
        "fn add(&self, f: fn(&mut u8) -> &u8);",
        "fn(&mut u8) -> &u8",
        "the address of a function has no meaning in another process; send an enum of the functions to call",
    );
    for pointer in ["*const u8", "*mut dyn Fn()"] {
        method_refused(
            &format!("fn add(&self, at: &[{pointer}]);"),
            pointer,
            "an address has no meaning in another process; send the data itself",
        );
    }
    let lasting =
        "an argument of a remote method is a copy that ends with the call; write `&` without `'static`";
    method_refused("fn add(&self, name: &'static str);", "'static", lasting);
    method_refused("fn add(&self, names: &[&'static str]);", "'static", lasting);
}

#[test]
fn results_without_a_meaning_elsewhere() {
    let borrowed = "the result of a remote method comes from another process and borrows nothing; return an owned \
                    value, such as `String` or `Vec<T>`";
    method_refused("fn get<'a>(&self, from: &'a str) -> &'a str;", "&", borrowed);
    method_refused("fn get(&self) -> Option<&'static str>;", "&", borrowed);
    method_refused("fn get<'a>(&self, from: &'a str) -> Cow<'a, str>;", "'a", borrowed);
    let closure = "a closure or another `dyn` value cannot be sent to another process; send plain \
             data, or the name of an exported object";
    method_refused("fn get(&self) -> Box<dyn Fn(&u8) -> &u8>;", "dyn Fn(&u8) -> &u8", closure);
    method_refused(
        "fn get(&self) -> for<'a> fn(&'a u8) -> &'a u8;",
        "for<'a> fn(&'a u8) -> &'a u8",
        "the address of a function has no meaning in another process; send an enum of the functions to call",
    );
}

/// Advice for remote interfaces would be wrong for traits that are no interfaces at all.
#[test]
fn other_rejections_come_first() {
    let item = "trait Hits<K>: Send { fn get(&self, f: &dyn Fn()) -> &u8; }";
    let at: Vec<_> = refusals_with("remote", item).into_iter().map(|(at, _)| at).collect();
    assert_eq!(at, ["Hits", "&"]);
}

#[test]
fn advice_for_remote_interfaces_names_only_types_that_can_be_sent() {
    let item = "trait Hits: Send + Sync {
        async fn a(&self);
        fn b<T>(&self);
        fn c(&self, x: impl Fn());
        fn d(&self) -> impl Fn();
        fn e(&self) -> &str;
        fn f(&self, x: Self);
    }";
    let texts: Vec<_> = refusals_with("remote", item).into_iter().map(|(_, text)| text).collect();
    assert_eq!(texts.len(), 6);
    for text in &texts {
        for rejected in ["dyn", "#[blocking]", "parameter of the trait", "Handle"] {
            assert!(!text.contains(rejected), "{text}");
        }
    }
}

#[test]
fn what_can_be_sent() {
    let item = "trait Hits: Send + Sync + std::panic::UnwindSafe + 'static {
        fn add<'a, 'b: 'a>(&self, a: &'a str, b: Cow<'b, str>, c: &[&str], d: (u8, [Option<Vec<K>>; 3]));
        fn get(&self) -> Result<Cow<'static, str>, Error<Box<u8>>>;
    }";
    assert_eq!(refusals_with("remote", item), []);
}

fn text(item: &str) -> String {
    let Ok(interface) = Interface::parse(tokens("remote"), tokens(item)) else { panic!("refused: {item}") };
    signature(&interface, 7)
}

#[test]
fn signatures_depend_on_types_alone() {
    let expected = "Hits{add(&'a str,Box<[u8;3]>,Cow<'a,str>)->();type((u8,))->a::B<3>};version=7";
    for item in [
        "trait Hits: Send + Sync { fn add<'a>(&self, x: &'a str, y: Box<[u8; 3]>, z: Cow<'a, str>); fn \
         r#type(&self, x: (u8,)) -> a::B<3>; }",
        "#[doc = \"x\"] pub trait r#Hits : Sync+Send{#[blocking]#[cfg(a)]fn add<'a>(&self,_:&'a str,mut q:Box< [ u8 \
         ;3 ] >, r : Cow<'a,str> , )->(){}\nfn r#type(self: &Self,x:(u8,))->a :: B<3>;}",
    ] {
        assert_eq!(text(item), expected);
    }
    assert_eq!(text("trait Hits: Send + Sync {}"), "Hits{};version=7");
}

/// Test vectors of the authors of FNV.
#[test]
fn hashes() {
    for (text, hash) in [("", 0xcbf29ce484222325), ("a", 0xaf63dc4c8601ec8c), ("foobar", 0x85944171f73967e8)]
    {
        assert_eq!(fnv(text), hash, "{text}");
    }
}

#[test]
fn to_15_both_ends_code_the_same_types_in_the_same_order() {
    let hits = expansion(
        "crate = crate::a, remote, version = 9",
        "#[cfg(unix)] trait Hits: Send + Sync {
            #[cfg(a)] #[allow(x)] #[deprecated] #[inline]
            fn add<'a>(&self, (a, b): &'a (u8, u8), c: Cow<'a, str>, d: &'a [Cow<'a, u8>]) -> u64 { 1 }
            fn get(&self);
        }",
    );
    contains(&hits, "#[cfg(unix)] const _: () = { use crate::a::call::__macro as __squall_remote;");
    contains(&hits, "impl Hits for __squall_remote::Port<dyn Hits>");
    contains(&hits, "impl __squall_remote::Remote for dyn Hits");
    contains(&hits, "const SIGNATURE: &'static ::core::primitive::str = \"Hits{");
    for (place, types) in [("Borrowed", "(u8, u8)"), ("Field", "Cow<'a, str>"), ("Borrowed", "[Cow<'a, u8>]")]
    {
        let put = format!("__squall_remote::{place}::<{types}>::new()).__squall_put(");
        assert_eq!(count(&hits, &put), 1, "{hits}");
        // The function has no lifetimes of the method.
        let get = format!("__squall_remote::{place}::<{}>::new()).__squall_get(", types.replace("'a", "'_"));
        assert_eq!(count(&hits, &get), 1, "{hits}");
    }
    contains(&hits, "Field::<u64>::new()).__squall_answer(__result, __output)");
    contains(&hits, "Field::<u64>::new()).__squall_get(__reader)");
    contains(&hits, "#[cfg(a)] #[allow(x)] 0u32 => {");
    contains(&hits, "1u32 => { __squall_remote::Reader::end(__input)?;");
    // The plain form of the handle calls its checked form, and so does the one of the port.
    assert_eq!(count(&hits, "match <Self as Hits>::try_add(self, arg0, c, d)"), 2, "{hits}");
    assert_eq!(count(&hits, "*self, \"add\", "), 1, "{hits}");
    assert_eq!(count(&hits, "unsafe"), 0, "{hits}");
    contains(&hits, "const BLOCKING: &'static [::core::primitive::bool] = &[true, true];");
}

#[test]
fn interfaces_of_one_process_have_no_ends() {
    let hits = expansion("", "trait Hits: Send + Sync { fn add(&self); }");
    assert_eq!(count(&hits, "__squall_remote"), 0, "{hits}");
}
