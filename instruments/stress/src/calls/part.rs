//! The parts that children play, and how they are told in arguments.

use std::time::Duration;

use squall::call::ImportOptions;

/// Longest time of a call with an honest peer. It takes microseconds on an idle machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);
/// Longest time of a call with a hostile peer, or of one.
pub(super) const HOSTILE_PATIENCE: Duration = Duration::from_millis(50);
/// The role of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Calls the object of the parent.
    Client,
    /// Exports an object.
    Server,
    /// Exports an object that tells its runs.
    Teller,
    /// Calls the object of the parent, which calls back.
    Nester,
    /// A client that forks.
    Forker,
    /// A program that a forked child of a client executes.
    Heir,
    /// Makes calls that do not end.
    Hoarder,
    /// A client of a user that may not connect.
    Stranger,
}

const ROLES: [(&str, Role); 8] = [
    ("client", Role::Client),
    ("server", Role::Server),
    ("teller", Role::Teller),
    ("nester", Role::Nester),
    ("forker", Role::Forker),
    ("heir", Role::Heir),
    ("hoarder", Role::Hoarder),
    ("stranger", Role::Stranger),
];

/// The part of a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) role: Role,
    pub(super) hostile: bool,
    /// Calling threads of a client, calls of a hoarder, or descriptors that an heir may have.
    pub(super) threads: u32,
    pub(super) seed: u64,
    /// The user that the child becomes, if it is another one than the parent's.
    pub(super) user: Option<u32>,
    /// The name of the exported object.
    pub(super) name: String,
}

impl Part {
    /// Returns an honest part.
    pub(super) fn new(role: Role, threads: u32, seed: u64, name: &str) -> Part {
        Part { role, hostile: false, threads, seed, user: None, name: name.to_owned() }
    }

    pub(super) fn arguments(&self) -> Vec<String> {
        let role = ROLES.iter().find(|(_, role)| *role == self.role).map_or("", |(name, _)| name);
        let manner = if self.hostile { "hostile" } else { "honest" };
        let user = self.user.map_or("same".to_owned(), |user| user.to_string());
        [role, manner]
            .map(str::to_owned)
            .into_iter()
            .chain([self.threads.to_string(), self.seed.to_string(), user, self.name.clone()])
            .collect()
    }

    pub(super) fn parse(arguments: &[String]) -> Option<Part> {
        let [role, manner, threads, seed, user, name] = arguments else { return None };
        Some(Part {
            role: ROLES.iter().find(|(name, _)| name == role)?.1,
            hostile: manner == "hostile",
            threads: threads.parse().ok()?,
            seed: seed.parse().ok()?,
            user: if user == "same" { None } else { Some(user.parse().ok()?) },
            name: name.clone(),
        })
    }

    /// Returns the options of this part's imports.
    pub(super) fn options(&self) -> ImportOptions {
        let options = ImportOptions::new().limit(if self.hostile { HOSTILE_PATIENCE } else { PATIENCE });
        // Only a child of root has another user.
        if self.user.is_some() { options.server_user(0) } else { options }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_told_in_arguments() {
        for (_, role) in ROLES {
            for user in [None, Some(7)] {
                let part = Part { user, hostile: user.is_some(), ..Part::new(role, 3, 9, "x") };
                assert_eq!(Part::parse(&part.arguments()), Some(part));
            }
        }
        assert_eq!(Part::parse(&[]), None);
    }
}
