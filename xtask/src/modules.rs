//! Modules import each other in one direction only: those directly in a crate, and those directly in a module. A module and the
//! ones within it are one thing, so what they name of each other does not count.

use crate::{packages, read, sources};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use syn::visit::{self, Visit};
use syn::{ItemUse, UseTree};

/// The place of a module: its names from the crate on, none for the crate itself.
type Place = Vec<String>;

/// The modules of a crate: which items each imports, by the name they have there, and the paths that it names otherwise.
#[derive(Default)]
struct Modules(BTreeMap<Place, Names>);

#[derive(Default)]
struct Names {
    imported: BTreeMap<String, Place>,
    /// All paths that it names, imports among them.
    paths: Vec<Place>,
    /// The modules within it that only tests have.
    of_tests: Vec<Place>,
}

/// For each module, those it names of the ones beside it, and what of them.
type Edges = BTreeMap<Place, BTreeMap<Place, BTreeSet<String>>>;

/// Circles of modules in all packages.
pub(crate) fn check(root: &Path) -> Vec<String> {
    let mut problems = Vec::new();
    for directory in packages(root) {
        let name = directory.file_name().unwrap_or_default().to_string_lossy();
        let circle = circles(&Modules::read(&directory.join("src")).edges());
        if !circle.is_empty() {
            problems.push(format!(
                "modules of {name} import each other in circles: {}",
                circle.join(", ")
            ));
        }
    }
    problems
}

/// The edges that are in a circle: where the module that is named leads back.
fn circles(edges: &Edges) -> Vec<String> {
    let mut found = Vec::new();
    for (from, to) in edges {
        for (to, names) in to.iter().filter(|(to, _)| leads_to(edges, to, from)) {
            let names: Vec<_> = names.iter().map(String::as_str).collect();
            let (from, to) = (from.join("::"), to.join("::"));
            found.push(format!("{from} to {to} ({})", names.join(" ")));
        }
    }
    found
}

fn leads_to(edges: &Edges, from: &Place, to: &Place) -> bool {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(place) = next.pop() {
        if place == to {
            return true;
        }
        if seen.insert(place) {
            next.extend(edges.get(place).into_iter().flat_map(BTreeMap::keys));
        }
    }
    false
}

impl Modules {
    /// Tests and models aside.
    fn read(source: &Path) -> Self {
        let mut files = Vec::new();
        sources(source, &mut files);
        let mut modules = Self::default();
        for file in files {
            let path = file.strip_prefix(source).unwrap_or(&file);
            let mut place: Place = (path.with_extension("").iter())
                .map(|part| part.to_string_lossy().into_owned())
                .collect();
            let is_outside = |part: &String| part == "tests" || part.contains("model");
            if place.iter().any(is_outside) || place[0] == "bin" {
                continue;
            }
            if ["lib", "main", "mod"].contains(&&*place[place.len() - 1]) {
                place.pop();
            }
            let Ok(code) = syn::parse_file(&read(&file)) else {
                continue;
            };
            let mut reader = Reader {
                names: Names::default(),
                place,
            };
            reader.visit_file(&code);
            modules.0.insert(reader.place, reader.names);
        }
        let of_tests: Vec<_> = (modules.0.values())
            .flat_map(|names| names.of_tests.clone())
            .collect();
        let is_of_tests = |place: &Place| of_tests.iter().any(|of| place.starts_with(of));
        modules.0.retain(|place, _| !is_of_tests(place));
        modules
    }

    /// Of the modules directly in the same one, those that each names.
    fn edges(&self) -> Edges {
        let mut edges = Edges::new();
        for (from, names) in &self.0 {
            for path in &names.paths {
                let to = self.module_of(path, 4);
                let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
                // Neither is within the other.
                if common < from.len() && common < to.len() {
                    let (from, to) = (from[..=common].to_vec(), to[..=common].to_vec());
                    let names = edges.entry(from).or_default().entry(to).or_default();
                    names.extend(path.last().cloned());
                }
            }
        }
        edges
    }

    /// The module that has what a path names, through re-exports.
    fn module_of(&self, path: &Place, steps: u32) -> Place {
        let len = (0..=path.len())
            .rev()
            .find(|len| self.0.contains_key(&path[..*len]))
            .unwrap_or_default();
        let module = path[..len].to_vec();
        let exported = (path.get(len))
            .and_then(|name| self.0.get(&module)?.imported.get(name))
            .filter(|_| steps > 0);
        match exported {
            Some(elsewhere) => self.module_of(elsewhere, steps - 1),
            None => module,
        }
    }
}

/// Reads the names of one file.
struct Reader {
    place: Place,
    names: Names,
}

impl Reader {
    /// A path of this crate, from the crate on.
    fn resolved(&self, path: &[String]) -> Option<Place> {
        let mut place = self.place.clone();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => place.clear(),
            "self" => {}
            "super" => {
                place.pop();
            }
            _ => return None,
        }
        rest = &rest[1..];
        while rest.first().is_some_and(|name| name == "super") {
            place.pop();
            rest = &rest[1..];
        }
        place.extend(rest.iter().cloned());
        Some(place)
    }

    fn imports(&mut self, tree: &UseTree, before: &mut Vec<String>) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.imports(&path.tree, before);
                before.pop();
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.imports(tree, before);
                }
            }
            UseTree::Name(name) => self.import(before, &name.ident.to_string(), None),
            UseTree::Rename(rename) => {
                self.import(
                    before,
                    &rename.ident.to_string(),
                    Some(rename.rename.to_string()),
                );
            }
            UseTree::Glob(_) => self.names.paths.extend(self.resolved(before)),
        }
    }

    fn import(&mut self, before: &[String], name: &str, renamed: Option<String>) {
        let mut path = before.to_vec();
        if name != "self" {
            path.push(name.to_owned());
        }
        // `use part::Name`: of a module within this one.
        let is_own = path.first().is_some_and(|first| {
            !["crate", "self", "super", "core", "std"].contains(&first.as_str())
        });
        if is_own {
            path.insert(0, "self".to_owned());
        }
        if let Some(place) = self.resolved(&path) {
            let name = renamed.or_else(|| path.last().cloned()).unwrap_or_default();
            self.names.imported.insert(name, place.clone());
            self.names.paths.push(place);
        }
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if !is_of_tests(&item.attrs) {
            self.imports(&item.tree, &mut Vec::new());
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_of_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        } else if item.content.is_none() {
            let within = ["self".to_owned(), item.ident.to_string()];
            self.names.of_tests.extend(self.resolved(&within));
        }
    }

    fn visit_stmt(&mut self, statement: &'ast syn::Stmt) {
        let attrs = match statement {
            syn::Stmt::Expr(syn::Expr::Call(call), _) => &call.attrs[..],
            syn::Stmt::Macro(called) => &called.attrs,
            _ => &[],
        };
        if !is_of_tests(attrs) {
            visit::visit_stmt(self, statement);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let words: Vec<_> = (path.segments.iter())
            .map(|segment| segment.ident.to_string())
            .collect();
        self.names.paths.extend(self.resolved(&words));
        visit::visit_path(self, path);
    }

    /// Paths in the arguments of macros, which are no syntax yet.
    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        let words = called.tokens.to_string().replace(" :: ", "::");
        for word in words.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')) {
            let path: Vec<_> = word.split("::").map(str::to_owned).collect();
            self.names.paths.extend(self.resolved(&path));
        }
        visit::visit_macro(self, called);
    }
}

/// `#[cfg(test)]`, and what is left out of products likewise.
fn is_of_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else {
            return false;
        };
        list.path.is_ident("cfg") && list.tokens.to_string().contains("test")
    })
}
