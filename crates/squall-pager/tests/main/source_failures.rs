//! Failures of sources, by real causes.

use crate::common::TempFile;
use squall_core::swap::{Swap, SwapFailure, swap};
use squall_core::{CallErrorKind, Handle};
use squall_pager::source::{self, Filled, PAGE_BYTES, Source, SourceError, SourceErrorKind};
use std::error::Error;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

const PAGE: u64 = PAGE_BYTES as u64;

fn byte(source: Handle<dyn Source>, page: u64) -> Result<u8, SourceError> {
    let mut bytes = [0; PAGE_BYTES];
    let filled = source.fill(page, &mut bytes)?;
    assert!(filled == Filled::Read || bytes[0] == 0);
    Ok(bytes[0])
}

/// Returns the error of a swap, and checks that the source serves on.
fn failed_swap(source: Handle<dyn Source>, new: squall_core::swap::Replacement<dyn Source>) -> String {
    let (len, statistics) = (source.len(), source.statistics());
    let error = swap(source, new).unwrap_err();
    assert!(matches!(error.failure(), SwapFailure::TransferFailed), "{error}");
    assert_eq!((source.len(), source.statistics()), (len, statistics));
    error.to_string()
}

#[test]
fn a_file_that_another_program_cut_short_is_told_with_both_lengths() {
    let file = TempFile::new(&[1; 3 * PAGE_BYTES]);
    let source = source::file(file.open(), "shrinking").unwrap();
    let other = file.open();
    other.set_len(PAGE + 100).unwrap();

    assert_eq!(byte(source.handle(), 0).unwrap(), 1);
    for page in [1, 2] {
        let error = byte(source.handle(), page).unwrap_err();
        assert_eq!((error.name(), error.page()), ("shrinking", Some(page)));
        let SourceErrorKind::CutShort { expected, found } = *error.kind() else { panic!("{error}") };
        assert_eq!((expected, found), (3 * PAGE, PAGE + 100));
        assert!(error.to_string().contains("it has 4196 bytes instead of 12288"), "{error}");
    }
    // A write would hide the loss of the bytes before it.
    let error = source.write(2, &[2; PAGE_BYTES]).unwrap_err();
    assert!(matches!(error.kind(), SourceErrorKind::CutShort { .. }), "{error}");
    let error = source.set_len(5 * PAGE).unwrap_err();
    assert!(matches!(error.kind(), SourceErrorKind::CutShort { .. }), "{error}");
    assert_eq!((source.len(), other.metadata().unwrap().len()), (3 * PAGE, PAGE + 100));

    // The program accepts the loss.
    source.set_len(PAGE + 100).unwrap();
    source.set_len(3 * PAGE).unwrap();
    assert_eq!([0, 1, 2].map(|page| byte(source.handle(), page).unwrap()), [1, 1, 0]);
    source.write(2, &[2; PAGE_BYTES]).unwrap();
    assert_eq!(byte(source.handle(), 2).unwrap(), 2);
}

#[test]
fn the_base_of_a_swap_that_was_cut_short_is_told_by_its_name() {
    let file = TempFile::new(&[1; 3 * PAGE_BYTES]);
    let source = source::file(file.open(), "old").unwrap();
    swap(source.handle(), source::new_compressed(1 << 20)).unwrap();
    file.open().set_len(PAGE).unwrap();
    let error = source.migrate(10).unwrap_err();
    assert_eq!((error.name(), error.page()), ("old", Some(1)));
    assert_eq!(byte(source.handle(), 0).unwrap(), 1);
    // The page is replaced, and the next one too.
    (1..3).for_each(|page| source.write(page, &[2; PAGE_BYTES]).unwrap());
    assert_eq!(source.migrate(10).unwrap(), 0);
    assert_eq!([0, 1, 2].map(|page| byte(source.handle(), page).unwrap()), [1, 2, 2]);
}

#[test]
fn a_descriptor_without_the_right_to_read_or_write_is_an_io_error() {
    let file = TempFile::new(&[1; PAGE_BYTES]);
    let only_read = source::file(File::open(file.path()).unwrap(), "only read").unwrap();
    assert_eq!(byte(only_read.handle(), 0).unwrap(), 1);
    for error in [only_read.write(0, &[2; PAGE_BYTES]).unwrap_err(), only_read.set_len(1).unwrap_err()] {
        assert!(matches!(error.kind(), SourceErrorKind::Io { .. }), "{error}");
        assert!(error.source().is_some_and(|error| error.is::<std::io::Error>()));
    }
    assert_eq!(only_read.len(), PAGE);
    let only_written = File::options().write(true).open(file.path()).unwrap();
    let only_written = source::file(only_written, "only written").unwrap();
    let error = byte(only_written.handle(), 0).unwrap_err();
    assert!(error.to_string().starts_with("source only written, page 0: cannot read the page: "), "{error}");
}

#[test]
fn a_directory_or_device_is_no_source() {
    for path in [std::env::temp_dir(), PathBuf::from("/dev/zero")] {
        let Ok(file) = File::open(path) else { continue };
        let error = source::file(file.try_clone().unwrap(), "folder").err().unwrap();
        assert!(matches!(error.kind(), SourceErrorKind::NotAFile), "{error}");
        let source = source::zero_fill(PAGE);
        let error = failed_swap(source.handle(), source::new_file(file, "folder"));
        assert!(error.contains("it is no regular file"), "{error}");
    }
}

#[test]
fn a_swap_that_would_lose_bytes_fails_and_the_old_source_serves_on() {
    let source = source::compressed(4 * PAGE, 1 << 20);
    source.write(2, &[1; PAGE_BYTES]).unwrap();

    let file = TempFile::new(&[9; 10]);
    let error = failed_swap(source.handle(), source::new_file(file.open(), "full"));
    assert!(error.contains("the file for the swap has 10 bytes"), "{error}");
    assert_eq!(std::fs::read(file.path()).unwrap(), [9; 10]);

    let error = failed_swap(source.handle(), source::new_zero_fill());
    assert!(error.contains("this one cannot keep them"), "{error}");
    assert_eq!(byte(source.handle(), 2).unwrap(), 1);

    // Each source of a tower has a page of its own, else it would be left out.
    let mut swaps = 0;
    let error = loop {
        source.write(0, &[swaps + 2; PAGE_BYTES]).unwrap();
        if swaps == 7 {
            break failed_swap(source.handle(), source::new_compressed(1 << 20));
        }
        swap(source.handle(), source::new_compressed(1 << 20)).unwrap();
        swaps += 1;
    };
    assert!(error.contains("more than 8 sources"), "{error}");
    assert_eq!([0, 1, 2].map(|page| byte(source.handle(), page).unwrap()), [9, 0, 1]);
    assert_eq!(source.migrate(10).unwrap(), 0);
    swap(source.handle(), source::new_compressed(1 << 20)).unwrap();
    assert_eq!([0, 1, 2].map(|page| byte(source.handle(), page).unwrap()), [9, 0, 1]);
}

#[test]
fn sources_that_were_never_written_do_not_pile_up() {
    let source = source::compressed(4 * PAGE, 1 << 20);
    source.write(2, &[1; PAGE_BYTES]).unwrap();
    for _ in 0..30 {
        swap(source.handle(), source::new_compressed(1 << 20)).unwrap();
    }
    assert_eq!(byte(source.handle(), 2).unwrap(), 1);
}

#[test]
fn a_page_beyond_the_limit_of_compressed_memory_is_refused_with_numbers_and_the_old_one_stays() {
    let noise = |seed: usize| std::array::from_fn::<u8, PAGE_BYTES, _>(|n| (n * n * 31 / 7 + n * seed) as u8);
    let source = source::compressed(1 << 30, PAGE + 100);
    // A page that LZ4 cannot compress, by its own sum.
    let mut state = 1_u64;
    let random = std::array::from_fn::<u8, PAGE_BYTES, _>(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    });
    source.write(0, &random).unwrap();
    assert_eq!(source.statistics().stored_bytes, PAGE, "kept as it is");
    source.write(1, &[1; PAGE_BYTES]).unwrap();
    let stored = source.statistics().stored_bytes;
    assert!((PAGE + 1..PAGE + 50).contains(&stored), "{stored}");
    let error = source.write(1, &noise(3)).unwrap_err();
    let SourceErrorKind::Full { needed, stored: beside, limit } = *error.kind() else { panic!("{error}") };
    assert_eq!((error.page(), beside, limit), (Some(1), PAGE, PAGE + 100));
    assert!(needed > 100, "{error}");
    assert_eq!((byte(source.handle(), 1).unwrap(), source.statistics().stored_bytes), (1, stored));
    // A page that needs fewer bytes than before is taken.
    source.write(0, &[2; PAGE_BYTES]).unwrap();
    source.write(1, &noise(3)).unwrap();
    let mut bytes = [0; PAGE_BYTES];
    assert_eq!(source.fill(1, &mut bytes).unwrap(), Filled::Read);
    assert_eq!(bytes, noise(3));
}

#[test]
fn a_buffer_that_is_no_page_is_refused() {
    let source = source::compressed(PAGE, PAGE);
    for bytes in [0, PAGE_BYTES - 1, PAGE_BYTES + 1] {
        let read = source.fill(0, &mut vec![0; bytes]).unwrap_err();
        let written = source.write(0, &vec![0; bytes]).unwrap_err();
        for error in [read, written] {
            assert!(matches!(error.kind(), SourceErrorKind::WrongSize { bytes: told } if *told == bytes));
        }
    }
}

#[test]
fn calls_of_a_destroyed_source_and_of_one_without_contents_are_errors() {
    let source = source::compressed(PAGE, PAGE);
    Swap::new(source.handle()).without_state().run(source::new_compressed(PAGE)).unwrap();
    let error = byte(source.handle(), 0).unwrap_err();
    assert!(error.to_string().contains("repeat the swap with its state"), "{error}");
    let handle = source.handle();
    drop(source);
    let error = byte(handle, 0).unwrap_err();
    let SourceErrorKind::Call(reason) = error.kind() else { panic!("{error}") };
    assert!(matches!(reason.reason(), CallErrorKind::Destroyed), "{error}");
    assert!(handle.try_len().is_err() && handle.write(0, &[0; PAGE_BYTES]).is_err());
}

/// Runs in a file system of 64 KiB.
fn fill_the_disk(folder: &Path) {
    let file = TempFile::in_folder(folder, &[]);
    file.open().set_len(64 * PAGE).unwrap();
    let source = source::file(file.open(), "small disk").unwrap();
    let full = (0..64).find_map(|page| source.write(page, &[page as u8 + 1; PAGE_BYTES]).err());
    let error = full.expect("64 pages do not fit into 16");
    let SourceErrorKind::Io { error: reason, .. } = error.kind() else { panic!("{error}") };
    assert_eq!(reason.kind(), ErrorKind::StorageFull, "{error}");
    let page = error.page().unwrap();
    assert!(
        error.to_string().starts_with(&format!("source small disk, page {page}: cannot write the page: "))
    );
    for kept in 0..page {
        assert_eq!(byte(source.handle(), kept).unwrap(), kept as u8 + 1);
    }
    source.set_len(0).unwrap();

    // Pages that do not fit stay in the old source.
    let source = source::compressed(64 * PAGE, 1 << 20);
    (0..64).for_each(|page| source.write(page, &[page as u8 + 1; PAGE_BYTES]).unwrap());
    let small = TempFile::in_folder(folder, &[]);
    swap(source.handle(), source::new_file(small.open(), "small swap")).unwrap();
    let error = source.migrate(64).unwrap_err();
    assert_eq!(error.name(), "small swap");
    let first = error.page().unwrap();
    assert!(source.write(first, &[77; PAGE_BYTES]).is_err());
    for page in 0..64 {
        assert_eq!(byte(source.handle(), page).unwrap(), page as u8 + 1);
    }
    // They go back to memory.
    swap(source.handle(), source::new_compressed(1 << 20)).unwrap();
    assert_eq!(source.migrate(64).unwrap(), 0);
    for page in 0..64 {
        assert_eq!(byte(source.handle(), page).unwrap(), page as u8 + 1);
    }
}

/// Starts this test again in a mount namespace of its own, with a small file system.
#[test]
fn a_full_disk_is_told_with_the_page_and_loses_none() {
    const FOLDER: &str = "SQUALL_TEST_SMALL_DISK";
    if let Some(folder) = std::env::var_os(FOLDER) {
        return fill_the_disk(Path::new(&folder));
    }
    let folder = std::env::temp_dir().join(format!("squall-pager-disk-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let run = |script: &str| {
        let program = std::env::current_exe().unwrap();
        let name = "source_failures::a_full_disk_is_told_with_the_page_and_loses_none";
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", script, "sh"]).arg(program);
        command.args([name, "--exact", "--nocapture"]).env(FOLDER, &folder).output()
    };
    let mount = format!("mount -t tmpfs -o size=64k squall \"${FOLDER}\"");
    let tried = run(&mount);
    if tried.as_ref().is_ok_and(|tried| tried.status.success()) {
        let output = run(&format!("{mount} && exec \"$@\"")).unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat())
        );
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
    } else {
        println!("SKIP a full disk: this system allows no mount namespace: {tried:?}");
    }
    std::fs::remove_dir(&folder).unwrap();
}
