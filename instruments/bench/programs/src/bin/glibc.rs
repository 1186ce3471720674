//! The programs with the C library's allocator.

#[global_allocator]
static GLOBAL: std::alloc::System = std::alloc::System;

fn main() -> std::process::ExitCode {
    squall_bench_programs::run()
}
