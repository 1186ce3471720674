//! The initial file system: an uncompressed `cpio` archive of the `newc` format, which the kernel unpacks.
//!
//! Source: the kernel's Documentation/driver-api/early-userspace/buffer-format.rst. Each entry is a header of
//! ASCII hexadecimal, the name and the data, each padded to four bytes. The last entry is named `TRAILER!!!`.

use std::collections::HashSet;

/// Permissions and kind of a folder, a program, a symbolic link and a character device.
const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_777;
const DEVICE: u32 = 0o020_600;

/// An archive under construction.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
    folders: HashSet<String>,
}

impl Archive {
    /// Adds a folder and its parents, except those that the archive has already.
    pub(crate) fn folder(&mut self, name: &str) {
        let ends = name.match_indices('/').map(|(at, _)| at).chain([name.len()]);
        for folder in ends.map(|end| &name[..end]) {
            if self.folders.insert(folder.to_owned()) {
                self.entry(folder, FOLDER, (0, 0), &[]);
            }
        }
    }

    /// Adds the parent folders of this name.
    fn parents(&mut self, name: &str) {
        if let Some((parent, _)) = name.rsplit_once('/') {
            self.folder(parent);
        }
    }

    /// Adds a program and its parent folders.
    pub(crate) fn program(&mut self, name: &str, data: &[u8]) {
        self.parents(name);
        self.entry(name, PROGRAM, (0, 0), data);
    }

    /// Adds a symbolic link and its parent folders.
    pub(crate) fn link(&mut self, name: &str, target: &str) {
        self.parents(name);
        self.entry(name, LINK, (0, 0), target.as_bytes());
    }

    /// Adds a character device. The kernel opens `dev/console` before the first process could make it.
    pub(crate) fn device(&mut self, name: &str, major: u32, minor: u32) {
        self.entry(name, DEVICE, (major, minor), &[]);
    }

    /// Ends the archive and returns its bytes.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), data: &[u8]) {
        self.entries += 1;
        let size = u32::try_from(data.len()).expect("a file of an initial file system is smaller than 4 GiB");
        let name_size = name.len() as u32 + 1;
        // ino, mode, uid, gid, nlink, mtime, size, device of the file (2), device number (2), name size,
        // check
        let fields = [self.entries, mode, 0, 0, 1, 0, size, 0, 0, device.0, device.1, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(data);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::Archive;

    /// Reads an archive back: the name, mode and data of each entry.
    fn read(mut bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut entries = Vec::new();
        let total = bytes.len();
        while !bytes.is_empty() {
            assert_eq!(&bytes[..6], b"070701");
            let field = |i: usize| {
                let text = std::str::from_utf8(&bytes[6 + 8 * i..14 + 8 * i]).unwrap();
                u32::from_str_radix(text, 16).unwrap()
            };
            let (mode, size, name_size) = (field(1), field(6) as usize, field(11) as usize);
            let name = String::from_utf8(bytes[110..110 + name_size - 1].to_vec()).unwrap();
            let data = (110 + name_size).next_multiple_of(4);
            entries.push((name, mode, bytes[data..data + size].to_vec()));
            bytes = &bytes[(data + size).next_multiple_of(4)..];
            assert_eq!((total - bytes.len()) % 4, 0);
        }
        entries
    }

    #[test]
    fn an_archive_reads_back_as_it_was_written() {
        let mut archive = Archive::default();
        archive.folder("dev");
        archive.device("dev/console", 5, 1);
        archive.program("init", b"seven b");
        archive.link("usr/lib/ld.so", "ld-2.36.so");
        archive.program("usr/lib/ld-2.36.so", b"");
        let entries = read(&archive.finish());
        let names: Vec<&str> = entries.iter().map(|(name, ..)| name.as_str()).collect();
        let ours = ["dev", "dev/console", "init", "usr", "usr/lib", "usr/lib/ld.so", "usr/lib/ld-2.36.so"];
        assert_eq!((&names[..7], &names[7..]), (&ours[..], &["TRAILER!!!"][..]));
        assert_eq!(entries[2].2, b"seven b");
        assert_eq!(entries[1].1 & 0o170_000, 0o020_000);
        assert_eq!((entries[5].1 & 0o170_000, &entries[5].2[..]), (0o120_000, &b"ld-2.36.so"[..]));
    }
}
