//! Writes the table of built-in types, `crates/machinery/data/types.txt`, from Kubernetes' Go sources.
//!
//! ```text
//!   go mod download k8s.io/api@v0.36.6 k8s.io/apimachinery@v0.36.6 k8s.io/apiextensions-apiserver@v0.36.6 \
//!     k8s.io/kube-aggregator@v0.36.6
//!   cargo run -p generate -- "$(go env GOMODCACHE)" 0.36.6 crates/machinery/data/types.txt
//! ```
//!
//! The table holds facts only: names, types, numbers, keys and flags. To serve another group, add its package to
//! [`PACKAGES`] and run this again.

// A tool for developers, not part of a peer: it may touch files itself.
#![allow(clippy::disallowed_methods)]

mod source;
mod table;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Module, import path inside it, and what the table calls the package.
const PACKAGES: &[(&str, &str, &str)] = &[
    ("k8s.io/apimachinery", "pkg/apis/meta/v1", "meta/v1"),
    ("k8s.io/api", "admission/v1", "admission/v1"),
    ("k8s.io/api", "admissionregistration/v1", "admissionregistration/v1"),
    ("k8s.io/api", "apidiscovery/v2", "apidiscovery/v2"),
    ("k8s.io/api", "apps/v1", "apps/v1"),
    ("k8s.io/api", "authentication/v1", "authentication/v1"),
    ("k8s.io/api", "authorization/v1", "authorization/v1"),
    ("k8s.io/api", "autoscaling/v1", "autoscaling/v1"),
    ("k8s.io/api", "autoscaling/v2", "autoscaling/v2"),
    ("k8s.io/api", "batch/v1", "batch/v1"),
    ("k8s.io/api", "certificates/v1", "certificates/v1"),
    ("k8s.io/api", "coordination/v1", "coordination/v1"),
    ("k8s.io/api", "core/v1", "core/v1"),
    ("k8s.io/api", "discovery/v1", "discovery/v1"),
    ("k8s.io/api", "events/v1", "events/v1"),
    ("k8s.io/api", "flowcontrol/v1", "flowcontrol/v1"),
    ("k8s.io/api", "networking/v1", "networking/v1"),
    ("k8s.io/api", "node/v1", "node/v1"),
    ("k8s.io/api", "policy/v1", "policy/v1"),
    ("k8s.io/api", "rbac/v1", "rbac/v1"),
    ("k8s.io/api", "scheduling/v1", "scheduling/v1"),
    ("k8s.io/api", "storage/v1", "storage/v1"),
    ("k8s.io/apiextensions-apiserver", "pkg/apis/apiextensions/v1", "apiextensions/v1"),
    ("k8s.io/kube-aggregator", "pkg/apis/apiregistration/v1", "apiregistration/v1"),
];

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [modules, release, output] = arguments.as_slice() else {
        bail!(
            "usage: generate MODULE-CACHE RELEASE OUTPUT, for example: generate ~/go/pkg/mod 0.36.6 types.txt"
        );
    };
    let packages = read_packages(Path::new(modules), release)?;
    let text = table::write(&packages, release)?;
    std::fs::write(output, &text).with_context(|| format!("write {output}"))?;
    let messages = text.lines().filter(|line| line.starts_with('>')).count();
    eprintln!("{output}: {messages} messages, {} bytes", text.len());
    Ok(())
}

fn read_packages(modules: &Path, release: &str) -> Result<Vec<source::Package>> {
    let mut packages = Vec::new();
    for (module, path, name) in PACKAGES {
        let folder = modules.join(format!("{module}@v{release}")).join(path);
        let mut package = source::Package::new(name, &format!("{module}/{path}"));
        for file in go_files(&folder)? {
            let text = std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
            package.read(&text).with_context(|| format!("in {}", file.display()))?;
        }
        packages.push(package);
    }
    Ok(packages)
}

/// Hand-written sources: what is generated upstream only repeats them.
fn go_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| {
        format!("read {}; download the module first, see the top of this file", folder.display())
    })?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let generated =
            name.starts_with("zz_generated") || name.contains("generated.") || name.ends_with("_test.go");
        if name.ends_with(".go") && !generated {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
