#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]

mod accept;
mod access;
mod assets;
mod http;
mod poll;
mod rows;
mod site;

pub use site::{End, Options, Print, Site, WebError};
