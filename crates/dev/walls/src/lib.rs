//! The crates of the workspace, the part of the house each lives in, and what each depends on, as cargo tells it.
//!
//! The directory is the claim (`crates/job` runs inside the traced process, `crates/offline` outside it, and so on);
//! `tests/suite` holds the claims against the dependencies that cargo resolves.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

/// One crate of the workspace.
#[derive(Debug)]
pub struct Room {
    /// Where its sources live, seen from the top: `crates/job`, `standin`, ...
    pub part: String,
    /// What its product code needs, itself excluded: crates of the workspace and foreign ones.
    pub needs: BTreeSet<String>,
    /// What its build script needs.
    pub build_needs: BTreeSet<String>,
}

/// The whole workspace.
#[derive(Debug)]
pub struct House {
    /// By the crate's name.
    pub rooms: BTreeMap<String, Room>,
    /// What each crate of the lock file needs to run, foreign ones included.
    closure_edges: BTreeMap<String, BTreeSet<String>>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_members: BTreeSet<String>,
    workspace_root: PathBuf,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    manifest_path: PathBuf,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<NodeDependency>,
}

#[derive(Deserialize)]
struct NodeDependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Deserialize)]
struct DependencyKind {
    kind: Option<String>,
}

impl House {
    /// Asks cargo about the workspace that this crate belongs to.
    ///
    /// # Errors
    /// When cargo cannot be run or its answer is not understood.
    pub fn read() -> Result<House, String> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args(["metadata", "--format-version=1", "--locked", "--filter-platform", "x86_64-unknown-linux-gnu"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .map_err(|error| format!("cargo metadata: {error}"))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        let metadata: Metadata = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
        Ok(House::of(&metadata))
    }

    fn of(metadata: &Metadata) -> House {
        let name_of: BTreeMap<&str, &str> =
            metadata.packages.iter().map(|package| (package.id.as_str(), package.name.as_str())).collect();
        let needs = |package: &Package, kind: Option<&str>| {
            let wanted = package.dependencies.iter().filter(|dependency| dependency.kind.as_deref() == kind);
            wanted.map(|dependency| dependency.name.clone()).collect()
        };
        let rooms = metadata
            .packages
            .iter()
            .filter(|package| metadata.workspace_members.contains(&package.id))
            .map(|package| {
                let room = Room {
                    part: part(&package.manifest_path, &metadata.workspace_root),
                    needs: needs(package, None),
                    build_needs: needs(package, Some("build")),
                };
                (package.name.clone(), room)
            })
            .collect();
        let closure_edges = metadata
            .resolve
            .nodes
            .iter()
            .map(|node| {
                let runs = node.deps.iter().filter(|edge| edge.dep_kinds.iter().any(|kind| kind.kind.is_none()));
                (name_of[node.id.as_str()].to_owned(), runs.map(|edge| name_of[edge.pkg.as_str()].to_owned()).collect())
            })
            .collect();
        House { rooms, closure_edges }
    }

    /// Foreign crates that are linked into `name`, however far away.
    #[must_use]
    pub fn foreign_closure(&self, name: &str) -> BTreeSet<String> {
        let mut seen = BTreeSet::new();
        let mut waiting = vec![name.to_owned()];
        while let Some(next) = waiting.pop() {
            let Some(edges) = self.closure_edges.get(&next) else { continue };
            waiting.extend(edges.iter().filter(|edge| seen.insert((*edge).clone())).cloned());
        }
        seen.retain(|found| !self.rooms.contains_key(found));
        seen
    }
}

/// The directory above the crate's own, seen from the top of the workspace.
fn part(manifest: &Path, top: &Path) -> String {
    let above = manifest.parent().and_then(Path::parent).unwrap_or(manifest);
    above.strip_prefix(top).unwrap_or(above).display().to_string()
}
