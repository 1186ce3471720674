//! Borrowed arguments, patterns and unnamed arguments.

use super::*;

/// Takes arguments of many kinds.
#[interface]
pub trait Taker: Send + Sync {
    /// A slice, and a text.
    fn slice(&self, bytes: &[u8], text: &str) -> usize;
    /// A buffer to write to.
    fn fill(&self, into: &mut Vec<u64>);
    /// Two arguments of one declared lifetime.
    fn longer<'a>(&self, one: &'a str, other: &'a str, show: &mut dyn FnMut(&'a str));
    /// A result that borrows from an argument, by its lifetime's name.
    fn shorter<'a>(&self, one: &'a str, other: &'a str) -> Option<&'a str>;
    /// A closure to call once.
    fn once(&self, call: Box<dyn FnOnce(u64) -> u64 + '_>) -> u64;
    /// Patterns.
    fn patterns(
        &self,
        (one, two): (u64, u64),
        [three, ..]: &[u64; 3],
        mut four: u64,
        _: u64,
        arg0: u64,
    ) -> u64 {
        four += one + two + *three;
        four + arg0
    }
    /// A result with borrows in its own signature.
    #[allow(clippy::type_complexity, reason = "for the test")]
    fn callback(&self) -> Box<dyn for<'a> Fn(&'a str, &u8) -> &'a str + Send>;
    /// A `'static` result.
    fn forever(&self) -> &'static str {
        "forever"
    }
    /// A receiver written in full.
    #[expect(clippy::needless_arbitrary_self_type, reason = "for the test")]
    fn typed(self: &Self, n: u64) -> u64 {
        n
    }
}

impl Taker for Count {
    fn slice(&self, bytes: &[u8], text: &str) -> usize {
        bytes.len() + text.len()
    }
    fn fill(&self, into: &mut Vec<u64>) {
        into.push(7);
    }
    fn shorter<'a>(&self, one: &'a str, other: &'a str) -> Option<&'a str> {
        [one, other].into_iter().min_by_key(|text| text.len()).filter(|text| !text.is_empty())
    }
    fn longer<'a>(&self, one: &'a str, other: &'a str, show: &mut dyn FnMut(&'a str)) {
        show(if one.len() > other.len() { one } else { other });
    }
    fn once(&self, call: Box<dyn FnOnce(u64) -> u64 + '_>) -> u64 {
        call(1)
    }
    fn callback(&self) -> Box<dyn for<'a> Fn(&'a str, &u8) -> &'a str + Send> {
        Box::new(|text, from| &text[usize::from(*from)..])
    }
}

#[test]
fn borrowed() {
    let taker: Owned<dyn Taker> = shared(Count::default());
    assert_eq!(taker.slice(&[1, 2], "three"), 7);
    let mut filled = vec![1];
    taker.fill(&mut filled);
    taker.try_fill(&mut filled).unwrap();
    assert_eq!(filled, [1, 7, 7]);
    let (text, mut longest) = (String::from("longest"), "");
    taker.longer(&text, "short", &mut |longer| longest = longer);
    assert_eq!(longest, "longest");
    let shorter = |taker: &dyn Taker| taker.shorter(&text, "short").map(str::len);
    assert_eq!((shorter(&taker.handle()), shorter(&Count::default())), (Some(5), Some(5)));
    assert_eq!(taker.try_shorter(&text, "").unwrap(), None);
    let local = 5;
    assert_eq!(taker.once(Box::new(|n| n + local)), 6);
    assert_eq!(taker.callback()("text", &1), "ext");
    assert_eq!((taker.forever(), taker.typed(3)), ("forever", 3));
}

#[test]
fn patterns() {
    let taker: Owned<dyn Taker> = shared(Count::default());
    assert_eq!(taker.patterns((1, 2), &[4, 0, 0], 8, 100, 16), 31);
    assert_eq!(taker.try_patterns((1, 2), &[4, 0, 0], 8, 100, 16).unwrap(), 31);
}

#[test]
fn arguments_of_a_refused_call_are_dropped() {
    let taker: Owned<dyn Taker> = shared(Count::default());
    let handle = taker.handle();
    drop(taker);
    let kept = Arc::new(1);
    let held = Arc::clone(&kept);
    assert!(handle.try_once(Box::new(move |n| n + *held)).is_err());
    assert_eq!(Arc::strong_count(&kept), 1);
    let held = Arc::clone(&kept);
    panic_of(|| _ = handle.once(Box::new(move |n| n + *held)));
    assert_eq!(Arc::strong_count(&kept), 1);
}
