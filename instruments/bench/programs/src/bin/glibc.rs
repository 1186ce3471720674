//! The programs with that of the C library as their allocator.

#[global_allocator]
static GLOBAL: std::alloc::System = std::alloc::System;

fn main() -> std::process::ExitCode {
    squall_bench_programs::run()
}
