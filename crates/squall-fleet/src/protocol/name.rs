//! Names of services, and their aliases.

use super::{NameError, Refusal};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The longest name, in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 255;

/// The name of a service: a path such as `/shop/stock`.
///
/// It begins with `/`. The parts between slashes are not empty, and hold no `*` and no control characters. A
/// name has at most 255 bytes.
///
/// Source: Wentzlaff 2012, §3.2.3 (FO-08).
/// # Examples
/// ```
/// use squall::fleet::Name;
///
/// let name: Name = "/shop/stock".parse()?;
/// assert!(name.is_below(&"/shop".parse()?));
/// assert!("shop".parse::<Name>().is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(Box<str>);

impl Name {
    /// The root: every name is below it. It names no service itself.
    pub(crate) fn root() -> Name {
        Name("".into())
    }

    /// Returns the text. The root's is empty.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether this name is longer than `other`, and begins with its parts.
    pub fn is_below(&self, other: &Name) -> bool {
        self.0.strip_prefix(&*other.0).is_some_and(|rest| rest.starts_with('/'))
    }

    /// Returns the alias: a hash of 128 bits, which travels in place of the name.
    pub fn alias(&self) -> NameAlias {
        // FNV-1a. Names that clash are refused when they are registered, so the hash need not be secret.
        let mut hash = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128;
        for byte in self.0.bytes() {
            hash = (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
        NameAlias(hash)
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Name, NameError> {
        if text.len() > NAME_BYTES_MAX {
            return Err(NameError::TooLong { bytes: text.len() });
        }
        let refused = |reason| Err(NameError::Malformed { name: text.into(), reason });
        let Some(parts) = text.strip_prefix('/') else {
            return refused("it does not begin with a slash");
        };
        for part in parts.split('/') {
            if part.is_empty() {
                return refused("a part is empty");
            }
            if part.contains('*') {
                return refused("it holds an asterisk");
            }
            if part.chars().any(char::is_control) {
                return refused("it holds a control character");
            }
        }
        Ok(Name(text.into()))
    }
}

impl TryFrom<String> for Name {
    type Error = NameError;

    fn try_from(text: String) -> Result<Name, NameError> {
        if text.is_empty() { Ok(Name::root()) } else { text.parse() }
    }
}

impl From<Name> for String {
    fn from(name: Name) -> String {
        name.0.into()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "/" } else { &self.0 })
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The hash of a [`Name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NameAlias(pub(crate) u128);

/// The right to name services below a name, and to take that name back.
///
/// Its number is random, so a capability cannot be guessed. Give it away to let others name services there.
///
/// Source: Wentzlaff 2012, §3.2.3 (FO-09).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameCapability {
    pub(crate) name: Name,
    pub(crate) key: u128,
}

impl NameCapability {
    /// Returns the name that it stands for. That of a whole group is `/`.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Checks that this capability may stand above `name`.
    pub(crate) fn covers(&self, name: &Name) -> Result<(), Refusal> {
        if name.is_below(&self.name) { Ok(()) } else { Err(Refusal::NotBelow) }
    }
}

impl fmt::Display for NameCapability {
    /// Writes the secret, in a form that [`FromStr`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}{}", self.key, self.name.as_str())
    }
}

impl FromStr for NameCapability {
    type Err = NameError;

    fn from_str(text: &str) -> Result<NameCapability, NameError> {
        let malformed = || NameError::Malformed {
            name: text.chars().skip(32).take(64).collect(),
            reason: "a capability is 32 hexadecimal digits and a name",
        };
        let (key, name) = text.split_at_checked(32).ok_or_else(malformed)?;
        if !key.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(malformed());
        }
        let key = u128::from_str_radix(key, 16).map_err(|_| malformed())?;
        Ok(NameCapability { name: Name::try_from(name.to_owned())?, key })
    }
}

impl fmt::Debug for NameCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The key is a secret.
        write!(f, "NameCapability({})", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_paths() {
        let name = |text: &str| text.parse::<Name>();
        for good in ["/a", "/a/b", "/sys/fs.1", "/ü"] {
            assert_eq!(name(good).unwrap().as_str(), good);
        }
        for bad in ["", "a", "/", "/a/", "//a", "/a//b", "/a/*", "/a\n"] {
            assert!(name(bad).is_err(), "{bad:?}");
        }
        assert!(name(&format!("/{}", "a".repeat(NAME_BYTES_MAX - 1))).is_ok());
        assert_eq!(name(&format!("/{}", "a".repeat(65_535))), Err(NameError::TooLong { bytes: 65_536 }));
    }

    #[test]
    fn only_whole_parts_count_as_below() {
        let name = |text: &str| text.parse::<Name>().unwrap();
        assert!(name("/a/b").is_below(&name("/a")));
        assert!(name("/a").is_below(&Name::root()));
        assert!(!name("/ab").is_below(&name("/a")));
        assert!(!name("/a").is_below(&name("/a")));
        assert!(!name("/a").is_below(&name("/a/b")));
    }

    #[test]
    fn capabilities_survive_text_and_hide_in_debug() {
        for name in [Name::root(), "/a/b".parse().unwrap()] {
            let capability = NameCapability { name, key: 0x1234_5678_9abc };
            assert_eq!(capability.to_string().parse(), Ok(capability.clone()));
            assert!(!format!("{capability:?}").contains("5678"));
        }
        for bad in ["", "zz", "+0000000000000000000000000000001/a", "0123456789abcdef0123456789abcdefnope"] {
            assert!(bad.parse::<NameCapability>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn aliases_are_stable() {
        // FNV-1a of 128 bits, of "/a".
        let alias = "/a".parse::<Name>().unwrap().alias();
        assert_eq!(alias, "/a".parse::<Name>().unwrap().alias());
        assert_ne!(alias, "/b".parse::<Name>().unwrap().alias());
        assert_eq!(Name::root().alias().0, 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
    }
}
