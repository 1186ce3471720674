//! Tests of the page's server over HTTP.

mod common;
mod http;
