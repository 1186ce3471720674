//! Tests of `uffd` and `fault`. They share the process's handler of faults, so one runs at a time.
//!
//! Each prints a line and passes if the kernel refuses userfaultfd or lacks a feature.
#![cfg(all(target_os = "linux", not(miri)))]

mod events;
mod handed;
mod handler;
mod opening;
mod pages;
mod support;
