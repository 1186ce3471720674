//! From addresses to names: functions, files and lines, with what was inlined, and static data.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use addr2line::Loader;
use object::{Object, ObjectSegment, ObjectSymbol, SymbolKind};

use crate::Error;

/// One frame of a place in the code: a function, or one that was inlined there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, serde::Serialize)]
pub struct Frame {
    /// The function's name, without its hash.
    pub function: String,
    /// The source file, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

impl Frame {
    /// Whether it is of the standard library, or an allocator's: not where a reader wants to look first.
    #[must_use]
    pub fn is_library(&self) -> bool {
        const CRATES: &[&str] = &[
            "core::",
            "std::",
            "alloc::",
            "<core::",
            "<std::",
            "<alloc::",
            "__rust",
            "__rdl",
            "hashbrown::",
            "<hashbrown::",
        ];
        let file = self.file.as_deref().unwrap_or("");
        file.starts_with("/rustc/")
            || file.starts_with("/rust/deps/")
            || file.contains("/rustlib/src/rust/library/")
            || CRATES.iter().any(|name| self.function.starts_with(name))
            || ["malloc", "calloc", "realloc", "free", "posix_memalign", "aligned_alloc", "??"]
                .contains(&self.function.as_str())
    }
}

/// A function whose calls can be a window.
#[derive(Clone, Debug)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Its first instruction, as an offset into the file.
    pub offset: u64,
}

/// The functions of `program` that are called `name`: by their full name, mangled or not, or the end of a path.
///
/// # Errors
/// When the program cannot be read or has no such function; the error names some that are alike.
pub fn functions(program: &Path, name: &str) -> Result<Vec<Function>, Error> {
    let bytes = std::fs::read(program).map_err(|e| Error(format!("{}: {e}", program.display())))?;
    let file = object::File::parse(&*bytes).map_err(|e| Error(format!("{}: {e}", program.display())))?;
    let segments: Vec<(u64, u64, u64)> = file
        .segments()
        .map(|segment| {
            let (offset, length) = segment.file_range();
            (segment.address(), offset, length)
        })
        .collect();
    let (mut found, mut alike) = (Vec::new(), Vec::new());
    let last = name.rsplit("::").next().unwrap_or(name);
    for symbol in file.symbols().chain(file.dynamic_symbols()) {
        let Ok(raw) = symbol.name() else { continue };
        if symbol.kind() != SymbolKind::Text || symbol.address() == 0 {
            continue;
        }
        let plain = demangle(raw);
        let offset = segments.iter().find_map(|(address, offset, length)| {
            let into = symbol.address().checked_sub(*address)?;
            (into < *length).then_some(offset + into)
        });
        let Some(offset) = offset else { continue };
        let bare = without_arguments(&plain);
        let wanted = [&*plain, bare].iter().any(|full| *full == name || full.ends_with(&format!("::{name}")));
        if raw == name || wanted {
            if !found.iter().any(|known: &Function| known.offset == offset) {
                found.push(Function { name: plain, offset });
            }
        } else if plain.contains(last) && alike.len() < 5 {
            alike.push(plain);
        }
    }
    if found.is_empty() {
        let alike =
            if alike.is_empty() { String::new() } else { format!("; there are {}", alike.join(", ")) };
        let program = program.display();
        return Err(Error(format!("{program} has no function {name} (or all its calls are inlined){alike}")));
    }
    Ok(found)
}

/// A function's name without the generic arguments at its end.
fn without_arguments(name: &str) -> &str {
    let mut depth = 0;
    for (at, letter) in name.char_indices().rev() {
        match letter {
            // Of `->` in the type of a function.
            '>' if name[..at].ends_with('-') => {}
            '>' => depth += 1,
            '<' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return if letter == '<' { name[..at].strip_suffix("::").unwrap_or(name) } else { name };
        }
    }
    name
}

/// The name as it is written in the source, without a hash.
#[must_use]
pub fn demangle(raw: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(raw) {
        return format!("{rust:#}");
    }
    match cpp_demangle::Symbol::new(raw).ok().and_then(|symbol| symbol.demangle().ok()) {
        Some(name) => name,
        None => raw.to_owned(),
    }
}

/// A static variable.
#[derive(Clone, Debug)]
struct Datum {
    address: u64,
    size: u64,
    name: String,
}

/// What is known of one file that is mapped into the program.
struct Module {
    loader: Option<Loader>,
    /// Addresses as the file counts them: start, offset in the file, length in the file, length in memory.
    segments: Vec<(u64, u64, u64, u64)>,
    /// Sorted by address.
    data: Vec<Datum>,
}

impl Module {
    fn open(path: &Path) -> Module {
        let mut module = Module { loader: Loader::new(path).ok(), segments: Vec::new(), data: Vec::new() };
        let Ok(bytes) = std::fs::read(path) else { return module };
        let Ok(file) = object::File::parse(&*bytes) else { return module };
        for segment in file.segments() {
            let (offset, length) = segment.file_range();
            module.segments.push((segment.address(), offset, length, segment.size()));
        }
        for symbol in file.symbols().chain(file.dynamic_symbols()) {
            if symbol.kind() == SymbolKind::Data && symbol.size() > 0 {
                let name = symbol.name().map(demangle).unwrap_or_default();
                module.data.push(Datum { address: symbol.address(), size: symbol.size(), name });
            }
        }
        module.data.sort_by_key(|datum| datum.address);
        module
    }

    /// The address as the file counts it, of what lies at this offset of the file.
    fn own_address(&self, offset: u64) -> Option<u64> {
        self.segments.iter().find_map(|(address, start, length, _)| {
            let into = offset.checked_sub(*start)?;
            (into < *length).then(|| address.wrapping_add(into))
        })
    }
}

/// The files that the program has mapped, read when they are first asked about.
#[derive(Default)]
pub struct Symbols {
    modules: HashMap<PathBuf, Module>,
    frames: HashMap<(PathBuf, u64), Vec<Frame>>,
}

impl Symbols {
    fn module(&mut self, path: &Path) -> &Module {
        self.modules.entry(path.to_path_buf()).or_insert_with(|| Module::open(path))
    }

    /// The frames of the instruction at this offset of the file, innermost first.
    pub fn frames(&mut self, path: &Path, offset: u64) -> Vec<Frame> {
        if let Some(known) = self.frames.get(&(path.to_path_buf(), offset)) {
            return known.clone();
        }
        let frames = find_frames(self.module(path), offset);
        self.frames.insert((path.to_path_buf(), offset), frames.clone());
        frames
    }

    /// The static variable at an address of a file that was loaded with its first byte at `base`: name and offset in it.
    pub fn datum(&mut self, path: &Path, base: u64, address: u64) -> Option<(String, u64)> {
        let module = self.module(path);
        let first =
            module.segments.iter().map(|(address, offset, ..)| address.wrapping_sub(*offset)).min()?;
        let own = address.wrapping_sub(base).wrapping_add(first);
        let at = module.data.partition_point(|datum| datum.address <= own);
        // Names may be several, and nested: the last that reaches so far.
        let found = module.data[..at]
            .iter()
            .rev()
            .take(8)
            .find(|datum| own < datum.address.saturating_add(datum.size))?;
        Some((found.name.clone(), own - found.address))
    }

    /// Names of all static variables that overlap these bytes.
    pub fn data_in(&mut self, path: &Path, base: u64, start: u64, bytes: u64) -> Vec<String> {
        let module = self.module(path);
        let Some(first) =
            module.segments.iter().map(|(address, offset, ..)| address.wrapping_sub(*offset)).min()
        else {
            return Vec::new();
        };
        let own = start.wrapping_sub(base).wrapping_add(first);
        let at = module.data.partition_point(|datum| datum.address < own.saturating_add(bytes));
        let overlaps = |datum: &&Datum| datum.address.saturating_add(datum.size) > own;
        let mut names: Vec<String> = module.data[..at]
            .iter()
            .rev()
            .take(32)
            .filter(overlaps)
            .map(|datum| datum.name.clone())
            .collect();
        names.reverse();
        names.dedup();
        names
    }

    /// Whether an address that lies beyond what is mapped of the file is still in one of its segments (zeroed data).
    pub fn reaches(&mut self, path: &Path, base: u64, address: u64) -> bool {
        let module = self.module(path);
        let Some(first) =
            module.segments.iter().map(|(address, offset, ..)| address.wrapping_sub(*offset)).min()
        else {
            return false;
        };
        let own = address.wrapping_sub(base).wrapping_add(first);
        module
            .segments
            .iter()
            .any(|(start, _, _, size)| own.checked_sub(*start).is_some_and(|into| into < *size))
    }
}

fn find_frames(module: &Module, offset: u64) -> Vec<Frame> {
    let (Some(loader), Some(address)) = (&module.loader, module.own_address(offset)) else {
        return Vec::new();
    };
    let mut frames = Vec::new();
    if let Ok(mut found) = loader.find_frames(address) {
        while let Ok(Some(frame)) = found.next() {
            let name =
                frame.function.as_ref().and_then(|name| name.raw_name().ok().map(|raw| demangle(&raw)));
            let (file, line) = match &frame.location {
                Some(location) => (location.file.map(str::to_owned), location.line),
                None => (None, None),
            };
            frames.push(Frame { function: name.unwrap_or_default(), file, line });
        }
    }
    if let Some(last) = frames.last_mut()
        && last.function.is_empty()
    {
        last.function = loader.find_symbol(address).map(demangle).unwrap_or_default();
    }
    if frames.is_empty()
        && let Some(symbol) = loader.find_symbol(address)
    {
        frames.push(Frame { function: demangle(symbol), ..Frame::default() });
    }
    for frame in &mut frames {
        if frame.function.is_empty() {
            frame.function = "??".to_owned();
        }
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generic_arguments_at_the_end_are_no_part_of_a_name() {
        assert_eq!(without_arguments("known::work"), "known::work");
        assert_eq!(without_arguments("known::work::<known::run::{closure#0}>"), "known::work");
        assert_eq!(without_arguments("a::f::<fn(u8) -> Vec<u8>>"), "a::f");
        assert_eq!(without_arguments("<a::B<u8> as C>::f"), "<a::B<u8> as C>::f");
        assert_eq!(without_arguments("<a::B<u8> as C>"), "<a::B<u8> as C>");
        assert_eq!(without_arguments(""), "");
    }
}
