//! Tests of calls between processes: the server as another thread of this process, or as a child.
#![cfg(all(target_os = "linux", not(miri), not(loom)))]

mod common;
mod errors;
mod hostile;
mod inside;
mod limits;
mod processes;
mod renewable;

/// The hidden modules of the façade, which the attribute `#[interface]` names.
mod facade {
    pub(crate) use squall_core::__macro;
    pub(crate) mod call {
        pub(crate) use squall_call::__macro;
    }
}
