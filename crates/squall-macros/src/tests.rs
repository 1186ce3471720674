//! Each refusal: the token it points at, and what it says.

use proc_macro2::TokenStream;

use crate::parse::Interface;

/// What is said about `item` under `#[interface(arguments)]`: at which text, and what.
fn refusals(arguments: &str, item: &str) -> Vec<(String, String)> {
    let tokens = |text: &str| text.parse::<TokenStream>().expect("tokens");
    match Interface::parse(tokens(arguments), tokens(item)) {
        Ok(_) => Vec::new(),
        Err(refused) => {
            let error = refused.error.into_iter();
            error.map(|error| (error.span().source_text().unwrap_or_default(), error.to_string())).collect()
        }
    }
}
#[test]
fn show() {
    for (a, i) in [
        ("", "struct S;"), ("", "pub(crate) enum S {}"), ("", "fn f() {}"), ("", "#[doc = \"x\"] impl S {}"), ("", "unsafe impl S for T {}"),
        ("", ""), ("", "trait T {"), ("krate = x", "trait T {}"), ("crate", "trait T {}"), ("crate = a b", "trait T {}"), ("crate = 3", "trait T {}"), ("x", "struct S;"),
        ("", "unsafe trait T {}"), ("", "auto trait T {}"), ("", "trait T<'a> {}"), ("", "trait T: 'a {}"), ("", "trait T: Sized {}"), ("", "trait T: ?Sized {}"),
        ("", "trait T: for<'a> F<'a> {}"), ("", "trait T: PartialEq<Self> {}"), ("", "trait T where Self: Send {}"), ("", "trait T<K: Into<Self>> {}"),("", "trait T<K> where K: Into<Self> {}"),
        ("", "trait T: A0+A1+A2+A3+A4+A5+A6+A7+A8+A9+A10+A11+A12+A13+A14+Send+A15+A16 {}"),
        ("", "trait T { const C: u8 = 1; type A: Send; m!(); m! {} pub fn x(&self); fn a(&self); }"),
        ("", "trait T { fn m<X: Ord, const N: usize, 'a>(&self); }"),
        ("", "trait T { fn m(&self, f: impl Fn(), g: &dyn F<impl X>) -> impl X + '_; }"),
        ("", "trait T { fn m(&mut self); fn n(self); fn o(self: Box<Self>); fn p(self: &mut Self); fn q(mut self); fn r(); fn s(x: u8); fn t(&'a self); fn u(self: &'a Self); fn v(self: Pin<&Self>); fn w(&'_ self); fn x<'a>(&'a mut self); }"),
        ("", "trait T { fn m(&self) -> &u8; fn n(&self) -> Option<&mut u8>; fn o(&self) -> Cow<'_, str>; fn p(&self) -> Box<dyn FnMut() + '_>; fn q<'a>(&self, x: &'a str) -> &'a str; fn r(&self) -> &'static str; fn s(&self) -> fn(&u8) -> &u8; fn t(&self) -> (u8, [&u8; 3], Box<dyn for<'x> Fn(&'x u8, &'a u8)>); }"),
        ("", "trait T { async fn m(&self); unsafe fn n(&self); const fn o(&self); extern \"C\" fn p(&self); fn q(&self, ...); fn r(&self) -> !; }"),
        ("", "trait T { fn m(&self, o: Self); fn n(&self, o: &Self) -> Option<Self>; fn o(&self) -> Self where Self: Sized; fn p(&self) where u8: Into<Self>; }"),
        ("", "trait T { fn x(&self); fn try_x(&self); fn try_y(&self); fn id(&self); fn r#type(&self); fn try_type(&self); }"),
        ("", "#[blocking] trait T { #[blocking(x)] fn x(&self); #[blocking] #[blocking] fn y(&self); #[cfg_attr(a, blocking)] fn z(&self); #[blocking = 1] fn a(&self, #[cfg(x)] y: u8); }"),
    ] {
        println!("== {i}");
        for (t, m) in refusals(a, i) { println!("   {t:30} | {m}"); }
    }
}
