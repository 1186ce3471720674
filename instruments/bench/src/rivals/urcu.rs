//! `liburcu-memb` and `liburcu-qsbr`, if the feature `rivals` is on and the library was found at build time.
//!
//! The loops are in `shim/urcu.c`.

#[cfg(have_urcu)]
#[allow(unsafe_code)]
mod linked;

#[cfg(have_urcu)]
pub(crate) use linked::{memb_read, memb_retire, memb_wait, qsbr_read, qsbr_retire, qsbr_wait};

#[cfg(not(have_urcu))]
mod absent {
    use crate::case::{Missing, Setting, Subject};

    fn missing() -> Result<Box<dyn Subject>, Missing> {
        Err(Missing(
            if cfg!(feature = "rivals") {
                "liburcu was not found when squall was built (Debian: liburcu-dev)"
            } else {
                "squall was built without its feature `rivals`"
            }
            .to_owned(),
        ))
    }

    macro_rules! absent {
        ($($name:ident),*) => {
            $(pub(crate) fn $name(_: &Setting) -> Result<Box<dyn Subject>, Missing> { missing() })*
        };
    }
    absent!(memb_read, memb_wait, memb_retire, qsbr_read, qsbr_wait, qsbr_retire);
}

#[cfg(not(have_urcu))]
pub(crate) use absent::{memb_read, memb_retire, memb_wait, qsbr_read, qsbr_retire, qsbr_wait};
