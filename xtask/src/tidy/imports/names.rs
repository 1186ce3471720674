//! The modules of a crate and the names that each of them binds.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::Span;
use syn::visit::{self, Visit};
use syn::{Item, ItemUse, UseTree, Visibility};

use crate::tidy::tree::{Tree, module_files};

/// A module: a file, or a part of one.
#[derive(Debug)]
pub(super) struct Module {
    /// The file of the module.
    pub(super) file: String,
    /// The index of the parent module. The crate's root is its own parent.
    parent: usize,
    /// Items that are defined here.
    items: BTreeSet<String>,
    /// Modules that are declared here, by index.
    children: BTreeMap<String, usize>,
    /// Names that a `use` binds here, with their paths.
    uses: BTreeMap<String, Vec<String>>,
    /// Paths of glob imports (`use x::*`).
    globs: Vec<Vec<String>>,
}

/// The target of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A module, by index.
    Module(usize),
    /// An item, or part of an item, that the module of this index defines.
    Item(usize),
}

/// A file, its syntax tree and its module.
pub(super) struct ParsedFile {
    pub(super) path: String,
    pub(super) module: usize,
    pub(super) syntax: syn::File,
}

/// All names of a crate's modules.
#[derive(Default)]
pub(super) struct Names {
    pub(super) modules: Vec<Module>,
    pub(super) files: Vec<ParsedFile>,
    /// The name by which the crate may call itself.
    own_name: String,
    /// The modules that define a macro of this name by `macro_rules!`.
    macros: BTreeMap<String, Vec<usize>>,
    /// Files that could not be parsed, and why.
    pub(super) unread: Vec<(String, String)>,
}

impl Names {
    /// Adds the modules below the crate root `root`; `own_name` is the name by which the crate may call
    /// itself.
    pub(super) fn add_crate(&mut self, tree: &Tree, own_name: &str, root: &str) {
        self.own_name = own_name.to_owned();
        let index = self.modules.len();
        self.add_module(root, index);
        self.add_file(tree, root, index);
    }

    fn add_module(&mut self, file: &str, parent: usize) -> usize {
        self.modules.push(Module {
            file: file.to_owned(),
            parent,
            items: BTreeSet::new(),
            children: BTreeMap::new(),
            uses: BTreeMap::new(),
            globs: Vec::new(),
        });
        self.modules.len() - 1
    }

    /// Parses a file and adds its names to the module `index`, and the modules below it.
    fn add_file(&mut self, tree: &Tree, path: &str, index: usize) {
        let syntax = match syn::parse_file(tree.text(path).unwrap_or_default()) {
            Ok(syntax) => syntax,
            Err(error) => {
                self.unread.push((path.to_owned(), format!("line {}: {error}", error.span().start().line)));
                return;
            }
        };
        Collect { names: self, tree, path, module: index }.items(&syntax.items);
        self.files.push(ParsedFile { path: path.to_owned(), module: index, syntax });
    }

    /// The module that `name` declares in the module `within`.
    pub(super) fn child(&self, within: usize, name: &str) -> Option<usize> {
        self.modules[within].children.get(name).copied()
    }

    /// The target of `path` in the module `from`; `None` if the path leads out of the crate.
    pub(super) fn resolve(&self, from: usize, path: &[String]) -> Option<Target> {
        self.resolve_within(from, path, 0)
    }

    /// The target of a macro's `path` in the module `from`. A macro without a path is also found by its
    /// textual scope, if the crate defines only one of that name.
    pub(super) fn resolve_macro(&self, from: usize, path: &[String]) -> Option<Target> {
        self.resolve(from, path).or_else(|| match path {
            [name] => match self.macros.get(name)?[..] {
                [only] => Some(Target::Item(only)),
                _ => None,
            },
            _ => None,
        })
    }

    fn resolve_within(&self, from: usize, path: &[String], depth: usize) -> Option<Target> {
        /// The most re-exports that are followed; a longer chain is a circle of names.
        const DEPTH_MAX: usize = 24;
        if depth > DEPTH_MAX {
            return None;
        }
        let (first, rest) = path.split_first()?;
        let mut target = match first.as_str() {
            "self" => Target::Module(from),
            "super" => Target::Module(self.modules[from].parent),
            "crate" => Target::Module(self.root(from)),
            name => match self.lookup(from, name, rest.is_empty(), depth) {
                Some(target) => target,
                None if name == self.own_name => Target::Module(self.root(from)),
                None => return None,
            },
        };
        for (at, name) in rest.iter().enumerate() {
            let Target::Module(module) = target else { break };
            let last = at + 1 == rest.len();
            target = match name.as_str() {
                "self" => target,
                "super" => Target::Module(self.modules[module].parent),
                // An unknown name comes from a macro expansion in this module.
                _ => self.lookup(module, name, last, depth).unwrap_or(Target::Item(module)),
            };
        }
        Some(target)
    }

    /// The target of `name` in `module`. If a module and an item share a name, the end of a path means the
    /// item.
    fn lookup(&self, module: usize, name: &str, last: bool, depth: usize) -> Option<Target> {
        let here = &self.modules[module];
        if last && here.items.contains(name) {
            return Some(Target::Item(module));
        }
        if let Some(child) = here.children.get(name) {
            return Some(Target::Module(*child));
        }
        if here.items.contains(name) {
            return Some(Target::Item(module));
        }
        if let Some(path) = here.uses.get(name) {
            // `use name;` binds an external crate or a macro.
            let same = path.first().is_some_and(|first| first == name);
            return if same { None } else { self.resolve_within(module, path, depth + 1) };
        }
        here.globs.iter().find_map(|glob| match self.resolve_within(module, glob, depth + 1)? {
            Target::Module(other) if other != module && depth < 8 => {
                self.lookup(other, name, last, depth + 1)
            }
            _ => None,
        })
    }

    fn root(&self, mut module: usize) -> usize {
        while self.modules[module].parent != module {
            module = self.modules[module].parent;
        }
        module
    }
}

/// Collects the names of one file.
struct Collect<'n> {
    names: &'n mut Names,
    tree: &'n Tree,
    path: &'n str,
    module: usize,
}

impl Collect<'_> {
    fn items(&mut self, items: &[Item]) {
        for item in items {
            self.visit_item(item);
        }
    }

    fn is_test(&self, span: Span) -> bool {
        is_test_line(self.tree, self.path, span)
    }

    fn define(&mut self, name: &syn::Ident) {
        if !self.is_test(name.span()) {
            self.names.modules[self.module].items.insert(name.to_string());
        }
    }

    fn declare(&mut self, item: &syn::ItemMod) {
        let name = item.ident.to_string();
        let Some((_, items)) = &item.content else {
            let around = self.names.modules[self.module].file.clone();
            let given = path_attribute(item).map(|given| {
                let folder = around.rsplit_once('/').map_or("", |(folder, _)| folder);
                format!("{folder}/{given}")
            });
            let files = given.into_iter().chain(module_files(&around, &name));
            let Some(file) = files.into_iter().find(|file| self.tree.text(file).is_some()) else { return };
            let child = self.names.add_module(&file, self.module);
            self.names.modules[self.module].children.insert(name, child);
            self.names.add_file(self.tree, &file, child);
            return;
        };
        let child = self.names.add_module(self.path, self.module);
        self.names.modules[self.module].children.insert(name, child);
        Collect { names: self.names, tree: self.tree, path: self.path, module: child }.items(items);
    }
}

impl<'ast> Visit<'ast> for Collect<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        match item {
            Item::Mod(item) if self.is_test(item.mod_token.span) => return,
            Item::Mod(item) => return self.declare(item),
            Item::Use(item) if self.is_test(item.use_token.span) => return,
            Item::Use(item) => {
                for import in imports(item) {
                    let here = &mut self.names.modules[self.module];
                    match import.name {
                        // An import of the module precedes an import of the same name within a function.
                        Some(name) => drop(here.uses.entry(name).or_insert(import.path)),
                        None => here.globs.push(import.path),
                    }
                }
            }
            Item::Macro(item) => {
                if let Some(name) = item.ident.as_ref().filter(|_| item.mac.path.is_ident("macro_rules")) {
                    self.define(name);
                    self.names.macros.entry(name.to_string()).or_default().push(self.module);
                }
            }
            Item::Const(syn::ItemConst { ident, .. })
            | Item::Enum(syn::ItemEnum { ident, .. })
            | Item::Static(syn::ItemStatic { ident, .. })
            | Item::Struct(syn::ItemStruct { ident, .. })
            | Item::Trait(syn::ItemTrait { ident, .. })
            | Item::TraitAlias(syn::ItemTraitAlias { ident, .. })
            | Item::Type(syn::ItemType { ident, .. })
            | Item::Union(syn::ItemUnion { ident, .. }) => self.define(ident),
            Item::Fn(item) => self.define(&item.sig.ident),
            _ => {}
        }
        visit::visit_item(self, item);
    }
}

/// A name that a `use` binds, and its path.
pub(super) struct Import {
    pub(super) path: Vec<String>,
    /// Absent for a glob.
    pub(super) name: Option<String>,
}

/// The names that a `use` binds. A name bound as `_` is represented by its path.
pub(super) fn imports(item: &ItemUse) -> Vec<Import> {
    let mut found = Vec::new();
    if item.leading_colon.is_none() {
        flatten(&item.tree, Vec::new(), &mut found);
    }
    found
}

/// Whether a `use` is a re-export: it has a visibility of its own.
pub(super) fn is_re_export(item: &ItemUse) -> bool {
    !matches!(item.vis, Visibility::Inherited)
}

fn flatten(tree: &UseTree, mut path: Vec<String>, found: &mut Vec<Import>) {
    match tree {
        UseTree::Path(part) => {
            path.push(part.ident.to_string());
            flatten(&part.tree, path, found);
        }
        UseTree::Name(part) => {
            let name = part.ident.to_string();
            if name == "self" {
                let name = path.last().cloned();
                found.push(Import { path, name });
            } else {
                path.push(name.clone());
                found.push(Import { path, name: Some(name) });
            }
        }
        UseTree::Rename(part) => {
            if part.ident != "self" {
                path.push(part.ident.to_string());
            }
            let name = match part.rename.to_string() {
                name if name == "_" => path.join("::"),
                name => name,
            };
            found.push(Import { path, name: Some(name) });
        }
        UseTree::Glob(_) => found.push(Import { path, name: None }),
        UseTree::Group(group) => {
            for tree in &group.items {
                flatten(tree, path.clone(), found);
            }
        }
    }
}

/// Whether `span` begins on a line of test code.
pub(super) fn is_test_line(tree: &Tree, path: &str, span: Span) -> bool {
    let line = span.start().line;
    tree.sources.get(path).is_some_and(|source| source.test.get(line.saturating_sub(1)) == Some(&true))
}

/// The file in `#[path = "file"]`.
fn path_attribute(item: &syn::ItemMod) -> Option<String> {
    item.attrs.iter().filter(|attribute| attribute.path().is_ident("path")).find_map(|attribute| {
        let syn::Meta::NameValue(pair) = &attribute.meta else { return None };
        let syn::Expr::Lit(literal) = &pair.value else { return None };
        let syn::Lit::Str(text) = &literal.lit else { return None };
        Some(text.value())
    })
}
