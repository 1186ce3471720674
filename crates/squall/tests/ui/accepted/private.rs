//! Private interfaces, and unused methods.

#![deny(warnings)]

mod inner {
    #[squall::interface]
    pub(super) trait Seen: Send + Sync {
        fn seen(&self) {}
    }

    #[squall::interface]
    pub(in crate::inner) trait Unseen: Seen {
        fn unseen(&self) {}
    }

    struct Rep;
    impl Seen for Rep {}
    impl Unseen for Rep {}

    pub(super) fn call() {
        let unseen: squall::Owned<dyn Unseen> = squall::shared(Rep);
        unseen.unseen();
        let seen = squall::Handle::upcast::<dyn Seen>(unseen.handle());
        super::call(seen);
    }
}

fn call(seen: squall::Handle<dyn inner::Seen>) {
    use inner::Seen;
    seen.seen();
}

fn main() {
    inner::call();
}
