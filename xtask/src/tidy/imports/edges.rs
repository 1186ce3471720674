//! The edges of the import graph: each path of a file, resolved to the file that defines the item.

use std::collections::BTreeMap;

use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use syn::visit::{self, Visit};

use super::names::{Names, ParsedFile, Target, imports, is_re_export, is_test_line};
use crate::tidy::tree::Tree;

/// Edges by the file that names an item and the file that defines it.
pub(super) type Edges = BTreeMap<(String, String), Edge>;

/// The places that make an edge.
#[derive(Clone, Debug)]
pub(super) struct Edge {
    /// The file of the first place.
    pub(super) file: String,
    /// The line of the first place, from 1.
    pub(super) line: usize,
    /// The path at the first place.
    pub(super) path: String,
    /// The number of places.
    pub(super) uses: usize,
}

/// The edges between all files of a crate.
pub(super) fn edges(tree: &Tree, names: &Names) -> Edges {
    let mut edges = Edges::new();
    for file in &names.files {
        let module = file.module;
        let mut walk = Walk { tree, names, file, module, edges: &mut edges, in_macro_rules: false };
        walk.visit_file(&file.syntax);
    }
    edges
}

/// Walks one file and collects its edges.
struct Walk<'w> {
    tree: &'w Tree,
    names: &'w Names,
    file: &'w ParsedFile,
    /// The module of the current position.
    module: usize,
    edges: &'w mut Edges,
    /// Whether the walk is inside `macro_rules!`. Only paths from the crate's root are resolved there; other
    /// paths belong to the place of expansion.
    in_macro_rules: bool,
}

impl Walk<'_> {
    fn note(&mut self, target: Option<Target>, path: &[String], span: Span) {
        let Some(Target::Item(module)) = target else { return };
        let to = &self.names.modules[module].file;
        if *to == self.file.path || is_test_line(self.tree, &self.file.path, span) {
            return;
        }
        let edge = self.edges.entry((self.file.path.clone(), to.clone())).or_insert_with(|| Edge {
            file: self.file.path.clone(),
            line: span.start().line,
            path: path.join("::"),
            uses: 0,
        });
        edge.uses += 1;
    }

    fn note_path(&mut self, path: &[String], span: Span) {
        self.note(self.names.resolve(self.module, path), path, span);
    }

    /// Collects the paths in the tokens of a macro.
    fn tokens(&mut self, tokens: TokenStream) {
        let trees: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < trees.len() {
            match &trees[at] {
                TokenTree::Group(group) => {
                    self.tokens(group.stream());
                    at += 1;
                }
                TokenTree::Ident(first) => {
                    let path = path_at(&trees, at);
                    let length = 3 * path.len() - 2;
                    let from_root = path[0] == "crate";
                    let wanted = if self.in_macro_rules { from_root } else { !continues(&trees, at) };
                    if wanted {
                        let called = is_call(&trees, at + length);
                        let target = match called {
                            true => self.names.resolve_macro(self.module, &path),
                            false => self.names.resolve(self.module, &path),
                        };
                        self.note(target, &path, first.span());
                    }
                    at += length;
                }
                _ => at += 1,
            }
        }
    }
}

impl<'ast> Visit<'ast> for Walk<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let Some((_, items)) = &item.content else { return };
        let Some(child) = self.names.child(self.module, &item.ident.to_string()) else { return };
        let around = std::mem::replace(&mut self.module, child);
        items.iter().for_each(|item| self.visit_item(item));
        self.module = around;
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if is_re_export(item) {
            return;
        }
        for import in imports(item).iter().filter(|import| import.name.is_some()) {
            self.note_path(&import.path, item.use_token.span);
        }
    }

    fn visit_item_macro(&mut self, item: &'ast syn::ItemMacro) {
        if item.mac.path.is_ident("macro_rules") {
            self.in_macro_rules = true;
            self.tokens(item.mac.tokens.clone());
            self.in_macro_rules = false;
        } else {
            self.visit_macro(&item.mac);
        }
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        let path = segments(&mac.path);
        self.note(self.names.resolve_macro(self.module, &path), &path, first_span(&mac.path));
        self.tokens(mac.tokens.clone());
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            self.note_path(&segments(path), first_span(path));
        }
        visit::visit_path(self, path);
    }

    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
}

fn segments(path: &syn::Path) -> Vec<String> {
    path.segments.iter().map(|segment| segment.ident.to_string()).collect()
}

fn first_span(path: &syn::Path) -> Span {
    path.segments.first().map_or_else(Span::call_site, |segment| segment.ident.span())
}

/// The path that begins with the identifier at `at`: identifiers joined by `::`.
fn path_at(trees: &[TokenTree], at: usize) -> Vec<String> {
    let mut path = vec![trees[at].to_string()];
    let mut next = at + 1;
    while is_punct(trees.get(next), ':') && is_punct(trees.get(next + 1), ':') {
        let Some(TokenTree::Ident(name)) = trees.get(next + 2) else { break };
        path.push(name.to_string());
        next += 3;
    }
    path
}

/// Whether the token at `at` continues the tokens before it, as a field, a path or a lifetime.
fn continues(trees: &[TokenTree], at: usize) -> bool {
    let before = |back: usize| at.checked_sub(back).and_then(|index| trees.get(index));
    // After `..` the token ends a range.
    let field = is_punct(before(1), '.') && !is_punct(before(2), '.');
    let path = is_punct(before(1), ':') && is_punct(before(2), ':');
    field || path || is_punct(before(1), '\'')
}

/// Whether the tokens from `at` on call a macro: `!` and its arguments.
fn is_call(trees: &[TokenTree], at: usize) -> bool {
    let arguments = |tree: Option<&TokenTree>| matches!(tree, Some(TokenTree::Group(group)) if group.delimiter() != Delimiter::None);
    is_punct(trees.get(at), '!') && arguments(trees.get(at + 1))
}

fn is_punct(tree: Option<&TokenTree>, wanted: char) -> bool {
    matches!(tree, Some(TokenTree::Punct(punct)) if punct.as_char() == wanted)
}
