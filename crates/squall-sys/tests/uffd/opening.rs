//! Opening with fewer rights, in processes of their own.

use crate::support::{child, has_role, one_at_a_time};
use squall_sys::uffd::{Features, OpenError, Uffd};

/// Takes the rights of this thread, and returns false if it has no rights to take.
fn become_nobody() -> bool {
    const NOBODY: libc::c_long = 65534;
    // SAFETY: setresuid(2) of this thread alone, with numbers; the effective capabilities go with it.
    unsafe { libc::geteuid() == 0 && libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) == 0 }
}

/// Makes a system call fail in this thread, as a container's filter does.
fn forbid(number: libc::c_long, error: i32) -> bool {
    // 32-bit load of the number; jump if equal; return.
    let load = libc::sock_filter { code: 0x20, jt: 0, jf: 0, k: 0 };
    let equal = libc::sock_filter { code: 0x15, jt: 0, jf: 1, k: number as u32 };
    let refuse = libc::sock_filter { code: 6, jt: 0, jf: 0, k: libc::SECCOMP_RET_ERRNO | error as u32 };
    let allow = libc::sock_filter { code: 6, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW };
    let mut program = [load, equal, refuse, allow];
    let filter = libc::sock_fprog { len: 4, filter: program.as_mut_ptr() };
    // SAFETY: prctl(2) with numbers, and with a filter of our own.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) == 0
    }
}

#[test]
fn role_nobody() {
    if has_role("opening::role_nobody") {
        if !become_nobody() {
            println!("as before: nobody");
            return;
        }
        match Uffd::open(Features::EMPTY) {
            Ok(uffd) => {
                println!("user mode only: {:?}", uffd.user_mode_only());
                println!("forks: {}", Uffd::open(Features::EVENT_FORK).unwrap_err());
            }
            Err(error) => println!("refused: {error}"),
        }
    }
}

#[test]
fn role_filtered() {
    if has_role("opening::role_filtered") {
        let ready = become_nobody() && forbid(libc::SYS_userfaultfd, libc::EPERM);
        match Uffd::open(Features::EMPTY) {
            Err(OpenError::Denied(grants)) if ready => {
                assert!(grants.filtered && !grants.capability);
                assert_eq!(grants.call.raw_os_error(), Some(libc::EPERM));
                println!("refused: {grants}");
            }
            result => println!("as before: {result:?}"),
        }
    }
}

/// Runs a role, and returns its output.
fn output(role: &str) -> String {
    let output = child(role, None).wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    text.into_owned()
}

#[test]
fn a_thread_without_rights_gets_the_form_for_user_code() {
    let _one = one_at_a_time();
    let text = output("opening::role_nobody");
    println!("{text}");
    // Where the machine grants the full form to all, it is taken.
    let full = text.contains("user mode only: Some(false)");
    let user = text.contains("user mode only: Some(true)") && text.contains("without CAP_SYS_PTRACE");
    assert!(full || user || text.contains("refused: ") || text.contains("as before: "), "{text}");
}

#[test]
fn a_filter_is_named_as_the_cause() {
    let _one = one_at_a_time();
    let text = output("opening::role_filtered");
    println!("{text}");
    assert!(text.contains("seccomp profile") || text.contains("as before: "), "{text}");
}

#[test]
fn features_that_the_kernel_has_are_enabled_and_no_others() {
    let _one = one_at_a_time();
    let available = match Uffd::available() {
        Ok(available) => available,
        Err(error) => {
            println!("skipped: {error}");
            return;
        }
    };
    println!("available: {available}");
    let uffd = Uffd::open(available.without(Features::EVENT_FORK)).unwrap();
    assert_eq!(uffd.features(), available.without(Features::EVENT_FORK));
    assert!(Uffd::open(Features::EMPTY).unwrap().features().is_empty());
}
