//! Views of objects that are called between processes. Without the feature `call` the lists are empty.

pub(crate) use calls::{Between, disconnect, set_right};

#[cfg(all(feature = "call", target_os = "linux", not(miri)))]
mod calls {
    use std::collections::HashMap;

    use squall_call::{Caller, ExportInfo, ImportInfo};
    use squall_core::Id;

    use crate::protocol::{CallerView, ExportView, ImportView, ObjectView};

    /// Largest number of callers listed individually.
    const CALLERS_LISTED_MAX: usize = 256;

    /// Exports and imports of the program, as they are at one moment.
    #[derive(Debug)]
    pub(crate) struct Between {
        exports: HashMap<Id, Vec<ExportInfo>>,
        imports: HashMap<Id, ImportInfo>,
    }

    impl Between {
        /// Looks at all exports and imports. Their calls are not counted yet.
        pub(crate) fn now() -> Between {
            let mut exports: HashMap<Id, Vec<ExportInfo>> = HashMap::new();
            for info in squall_call::exports() {
                exports.entry(info.object).or_default().push(info);
            }
            let imports = squall_call::imports().into_iter().map(|info| (info.object, info)).collect();
            Between { exports, imports }
        }

        /// Adds to a row how its object is called between processes.
        pub(crate) fn add_to(&self, id: Id, row: &mut ObjectView) {
            if let Some(exports) = self.exports.get(&id) {
                row.exported_as = exports.iter().map(|export| export.name.clone()).collect();
                row.callers = exports.iter().map(|export| export.callers.len()).sum();
            }
            row.imported_as = self.imports.get(&id).map(|import| import.name.clone());
        }

        /// Describes the exports of an object.
        pub(crate) fn exports(&self, id: Id) -> Vec<ExportView> {
            self.exports.get(&id).map_or(Vec::new(), |exports| exports.iter().map(export).collect())
        }

        /// Describes the other end of an imported object.
        pub(crate) fn import(&self, id: Id) -> Option<ImportView> {
            self.imports.get(&id).map(import)
        }
    }

    fn owned(names: &[&'static str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn export(info: &ExportInfo) -> ExportView {
        let caller = |caller: &Caller| CallerView {
            number: caller.number(),
            pid: caller.pid(),
            uid: caller.uid(),
            calls: caller.calls(),
            denied: owned(&caller.denied()),
        };
        ExportView {
            name: info.name.clone(),
            denied: owned(&info.denied),
            callers: info.callers.iter().take(CALLERS_LISTED_MAX).map(caller).collect(),
            callers_count: info.callers.len(),
        }
    }

    fn import(info: &ImportInfo) -> ImportView {
        ImportView {
            name: info.name.clone(),
            pid: info.pid,
            uid: info.uid,
            is_connected: info.is_connected,
            calls: info.calls,
        }
    }

    /// Allows a method of an object's exports, or denies it.
    ///
    /// # Errors
    /// The reason, as a sentence.
    pub(crate) fn set_right(id: Id, method: &str, is_allowed: bool) -> Result<(), String> {
        let exports = exports_of(id)?;
        let set = |export: &ExportInfo| if is_allowed { export.allow(method) } else { export.deny(method) };
        exports.iter().try_for_each(set).map_err(|error| error.to_string())
    }

    /// Ends a connection to an object.
    ///
    /// # Errors
    /// The reason, as a sentence.
    pub(crate) fn disconnect(id: Id, number: u64) -> Result<(), String> {
        let exports = exports_of(id)?;
        let mut callers = exports.iter().flat_map(|export| &export.callers);
        let caller = callers.find(|caller| caller.number() == number);
        caller.map(Caller::disconnect).ok_or_else(|| {
            format!("object {id} has no caller {number}; \"object\" lists the callers with their numbers")
        })
    }

    fn exports_of(id: Id) -> Result<Vec<ExportInfo>, String> {
        let mut exports = squall_call::exports();
        exports.retain(|export| export.object == id);
        if exports.is_empty() {
            return Err(format!("object {id} is not exported, so no other process calls it"));
        }
        Ok(exports)
    }
}

#[cfg(not(all(feature = "call", target_os = "linux", not(miri))))]
mod calls {
    use squall_core::Id;

    use crate::protocol::{ExportView, ImportView, ObjectView};

    const NONE: &str = "the program is built without calls between processes (feature \"call\")";

    /// No exports and no imports.
    #[derive(Debug)]
    pub(crate) struct Between;

    impl Between {
        pub(crate) fn now() -> Between {
            Between
        }

        pub(crate) fn add_to(&self, _: Id, _: &mut ObjectView) {}

        pub(crate) fn exports(&self, _: Id) -> Vec<ExportView> {
            Vec::new()
        }

        pub(crate) fn import(&self, _: Id) -> Option<ImportView> {
            None
        }
    }

    pub(crate) fn set_right(_: Id, _: &str, _: bool) -> Result<(), String> {
        Err(NONE.to_owned())
    }

    pub(crate) fn disconnect(_: Id, _: u64) -> Result<(), String> {
        Err(NONE.to_owned())
    }
}
