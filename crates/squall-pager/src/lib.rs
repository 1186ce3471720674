#![deny(unsafe_code)]
#![doc = include_str!("../README.md")]

pub mod source;
