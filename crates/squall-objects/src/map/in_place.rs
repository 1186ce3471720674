//! `InPlace`: the message for code that would change values in place.

/// No type: the bound of methods that a map cannot have.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "the values of a map are not changed in place",
    label = "readers may be looking at them",
    note = "change a clone, which then replaces the value: `update_in_place`, `entry(..).and_modify(..)`, `alter_all`"
)]
pub trait InPlace {}
