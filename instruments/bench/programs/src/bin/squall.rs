//! The programs with Squall's as their allocator.

#[global_allocator]
static GLOBAL: squall_alloc::LocalityAlloc = squall_alloc::LocalityAlloc;

fn main() -> std::process::ExitCode {
    squall_bench_programs::run()
}
