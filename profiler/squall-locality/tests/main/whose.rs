//! Lines of each kind of object, shared truly and falsely: the report gives each object's kind and name. If
//! there is no emulator, the tests print SKIP and pass.

use squall_locality::lines::Sharing;
use squall_locality::objects::Object;
use squall_locality::report::{LineReport, Report};
use squall_locality::run::Outcome;

use crate::common::{look, options};

const OPS: u64 = 300;

/// Offset of the line in the example's file.
const OFFSET: u64 = 4096 + 256;

/// Profiles the example with true and with false sharing and passes its only line to `check`. `path` is the
/// file to map.
fn each_sharing(object: &str, path: &str, check: impl Fn(&Report, &LineReport)) {
    for sharing in [Sharing::True, Sharing::False] {
        let is_true = (sharing == Sharing::True).to_string();
        let Some(options) = options("whose", &[object, &is_true, path, &OPS.to_string()]) else { return };
        let report = look(&options, Some(OPS), 10);
        assert_eq!((&report.outcome, report.threads), (&Outcome::Exited(0), 2), "{object}");
        let [line] = &report.lines[..] else { panic!("{object}: {:?}", report.lines) };
        assert_eq!((line.sharing, report.write_shared_accesses), (sharing, 2 * OPS), "{object}");
        let falsely = if sharing == Sharing::False { 2 * OPS } else { 0 };
        assert_eq!((line.falsely_shared, report.falsely_shared_accesses), (falsely, falsely), "{object}");
        // Touched words by offset.
        let places: Vec<_> = line.words.iter().map(|word| (word.offset, word.written_by.len())).collect();
        let wanted = if sharing == Sharing::True { vec![(0, 2)] } else { vec![(16, 1), (40, 1)] };
        assert_eq!(places, wanted, "{object}");
        check(&report, line);
    }
}

/// Name of the thread with this kernel id.
fn name_of(report: &Report, tid: u32) -> &str {
    report.thread_list.iter().find(|thread| thread.tid == tid).map_or("", |thread| &thread.name)
}

#[test]
fn whose_a_block_is_named_by_its_allocation_site() {
    each_sharing("heap", "", |report, line| {
        let Object::Heap { blocks } = &line.object else { panic!("{:?}", line.object) };
        let [block] = &blocks[..] else { panic!("{blocks:?}") };
        assert_eq!((format!("{:#x}", block.address), block.bytes), (line.address.clone(), 128));
        let asked = block.allocated_at().expect("a frame");
        assert!(asked.function.contains("boxed"), "{asked:?}");
        assert!(asked.file.as_deref().is_some_and(|file| file.ends_with("whose.rs")), "{asked:?}");
        let owner = report.thread_list.iter().find(|thread| thread.number == block.thread);
        assert_eq!(owner.map(|thread| thread.name.as_str()), Some("owner"));
    });
}

#[test]
fn whose_a_static_is_named_by_its_symbol() {
    each_sharing("static", "", |_, line| {
        let Object::Static { file, names } = &line.object else { panic!("{:?}", line.object) };
        assert!(file.ends_with("examples/whose"), "{file:?}");
        assert!(matches!(&names[..], [name] if name.ends_with("WORDS")), "{names:?}");
    });
}

#[test]
fn whose_a_stack_is_named_by_its_thread() {
    each_sharing("stack", "", |report, line| {
        let Object::Stack { tid } = line.object else { panic!("{:?}", line.object) };
        assert_eq!(name_of(report, tid), "owner");
    });
}

#[test]
fn whose_a_local_is_named_by_its_thread() {
    each_sharing("local", "", |report, line| {
        let Object::ThreadLocal { tid } = line.object else { panic!("{:?}", line.object) };
        assert_eq!(name_of(report, tid), "owner");
    });
}

#[test]
fn whose_a_mapped_file_is_named_by_its_path_and_offset() {
    let path = std::env::temp_dir().join(format!("squall-whose-{}", std::process::id()));
    each_sharing("file", path.to_str().expect("UTF-8"), |_, line| {
        let known = std::fs::canonicalize(&path).expect("the program made it");
        assert_eq!(line.object, Object::File { path: known, offset: OFFSET });
    });
    // The file does not exist if the program was not run.
    let _ = std::fs::remove_file(&path);
}
