//! Answers of calls that fail, for methods that call a method of another name.
//!
//! Problem: `MapExt::get` calls `Map::read`, so its error would name a method that the program never wrote.
//! Idea: the answer of the call puts the right name into the error. It is a type without size, so a call that
//! succeeds costs the same.

/// Makes an answer that panics, in the name of this method.
macro_rules! panics_in {
    ($method:literal) => {{
        struct Here;

        impl<R> squall_core::__macro::Answer<R> for Here {
            #[cold]
            #[inline(never)]
            #[track_caller]
            fn answer(self, error: squall_core::CallError) -> R {
                squall_core::__macro::Panic.answer(error.__in_method($method))
            }
        }
        Here
    }};
}

/// Makes an answer that returns the error, in the name of this method.
macro_rules! returns_in {
    ($method:literal) => {{
        struct Here;

        impl<R> squall_core::__macro::Answer<Result<R, squall_core::CallError>> for Here {
            #[cold]
            fn answer(self, error: squall_core::CallError) -> Result<R, squall_core::CallError> {
                Err(error.__in_method($method))
            }
        }
        Here
    }};
}

pub(crate) use {panics_in, returns_in};
