//! Tests of the page's server over HTTP and in a real browser.

mod browser;
mod common;
mod connection;
mod http;
mod page;
mod scripted;
