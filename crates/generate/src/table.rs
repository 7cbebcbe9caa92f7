//! Writes the declarations as the table that `machinery` reads.
//!
//! ```text
//!   =core/v1.Protocol string values=SCTP|TCP|UDP
//!   =core/v1.ResourceList map[core/v1.ResourceName]Quantity
//!   =authentication/v1.ExtraValue []string wrapped
//!   >core/v1.ServiceSpec
//!   ports 1 []core/v1.ServicePort o? patch=merge key=port list=map keys=port,protocol
//!   + 2 core/v1.VolumeSource
//! ```
//!
//! `=` starts a named type, `>` a message (`atomic`: it has one owner as a whole); the lines below a message are its
//! fields.
//! A field has its JSON name (`+`: its members are inlined), its protobuf number (0: none), its type in Go's notation
//! and its flags: `o` omitted when empty, `z` omitted when zero, `?` optional, `!` required.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use anyhow::{Context, Result, bail};

use crate::source::{Body, Declaration, Member, Package};

/// Types that encode themselves, and the word for each.
const SPECIAL: &[(&str, &str)] = &[
    ("k8s.io/apimachinery/pkg/api/resource.Quantity", "Quantity"),
    ("k8s.io/apimachinery/pkg/util/intstr.IntOrString", "IntOrString"),
    ("k8s.io/apimachinery/pkg/runtime.RawExtension", "RawExtension"),
    ("k8s.io/apimachinery/pkg/apis/meta/v1.FieldsV1", "FieldsV1"),
    ("k8s.io/apimachinery/pkg/apis/meta/v1.Time", "Time"),
    ("k8s.io/apimachinery/pkg/apis/meta/v1.MicroTime", "MicroTime"),
    ("k8s.io/apimachinery/pkg/apis/meta/v1.Duration", "Duration"),
    ("k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSON", "JSON"),
    ("k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrBool", "SchemaOrBool"),
    ("k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrArray", "SchemaOrArray"),
    (
        "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrStringArray",
        "SchemaOrStrings",
    ),
];

/// Named strings of packages that hold nothing else of ours.
const STRINGS: &[(&str, &str)] = &[
    ("k8s.io/apimachinery/pkg/types.UID", "types.UID"),
    ("k8s.io/apimachinery/pkg/types.NodeName", "types.NodeName"),
];

/// Types that never travel as themselves.
const LEFT_OUT: &[&str] = &["meta/v1.InternalEvent", "meta/v1.Timestamp", "meta/v1.FieldsV1"];

pub fn write(packages: &[Package], release: &str) -> Result<String> {
    let mut out = format!("# The types of Kubernetes, modules v{release}; written by `generate`.\n");
    for (_, name) in STRINGS {
        writeln!(out, "={name} string")?;
    }
    let mut messages = String::new();
    for package in packages {
        for (name, declaration) in &package.types {
            let full = format!("{}.{name}", package.name);
            let special =
                SPECIAL.iter().any(|(known, _)| *known == format!("{}.{name}", package.import_path));
            if special || LEFT_OUT.contains(&full.as_str()) {
                continue;
            }
            let writer = Writer { packages, package, declaration };
            match &declaration.body {
                Body::Struct(members) => {
                    writer.message(&mut messages, &full, members).with_context(|| full.clone())?
                }
                Body::Named(target) => {
                    writer.named(&mut out, &mut messages, &full, target).with_context(|| full.clone())?
                }
            }
        }
    }
    out.push_str(&messages);
    Ok(out)
}

struct Writer<'a> {
    packages: &'a [Package],
    package: &'a Package,
    declaration: &'a Declaration,
}

impl Writer<'_> {
    fn message(&self, out: &mut String, name: &str, members: &[Member]) -> Result<()> {
        let atomic =
            ["structType", "mapType"].iter().any(|key| self.declaration.markers.get(key) == Some("atomic"));
        writeln!(out, ">{name}{}", if atomic { " atomic" } else { "" })?;
        for member in members {
            let line = self.field(member).with_context(|| member.name.clone())?;
            writeln!(out, "{line}")?;
        }
        Ok(())
    }

    fn named(&self, out: &mut String, messages: &mut String, name: &str, target: &str) -> Result<()> {
        if let Some(Declaration { body: Body::Struct(members), imports, .. }) = self.find(target) {
            // A struct under another name: the same members, seen from the package that declares them.
            let package = self.package_of(target).context("a struct of no package")?;
            let declaration = Declaration {
                body: Body::Struct(Vec::new()),
                markers: Default::default(),
                imports: imports.clone(),
            };
            let writer = Writer { packages: self.packages, package, declaration: &declaration };
            return writer.message(messages, name, members);
        }
        let mut line = format!("={name} {}", self.type_of(target)?);
        if self.declaration.markers.get("protobuf.nullable") == Some("true") {
            line.push_str(" wrapped");
        }
        if self.declaration.markers.has("enum") {
            let short = name.rsplit('.').next().unwrap_or_default();
            let of_type = self.package.constants.values().filter(|constant| constant.of_type == short);
            let values: BTreeSet<&str> = of_type.map(|constant| constant.value.as_str()).collect();
            write!(line, " values={}", values.into_iter().collect::<Vec<_>>().join("|"))?;
        }
        writeln!(out, "{line}")?;
        Ok(())
    }

    fn field(&self, member: &Member) -> Result<String> {
        let json = &member.tags["json"];
        let mut parts = json.split(',');
        let name = parts.next().unwrap_or_default();
        let options: Vec<&str> = parts.collect();
        let name = if options.contains(&"inline") || (name.is_empty() && member.name.is_empty()) {
            "+"
        } else {
            name
        };
        if name.is_empty() {
            bail!("a field without JSON name");
        }
        let number = match member.tags.get("protobuf") {
            Some(tag) => tag.split(',').nth(1).context("a protobuf tag without number")?.parse::<u32>()?,
            None => 0,
        };
        let mut line = format!("{name} {number} {}", self.type_of(&member.type_text)?);
        let markers = &member.markers;
        let flags: String = [
            ('o', options.contains(&"omitempty")),
            ('z', options.contains(&"omitzero")),
            ('?', markers.has("optional")),
            ('!', markers.has("required")),
        ]
        .into_iter()
        .filter_map(|(flag, set)| set.then_some(flag))
        .collect();
        if !flags.is_empty() {
            write!(line, " {flags}")?;
        }
        for (word, value) in self.attributes(member)? {
            write!(line, " {word}={value}")?;
        }
        Ok(line)
    }

    fn attributes(&self, member: &Member) -> Result<Vec<(&'static str, String)>> {
        let markers = &member.markers;
        let mut found = Vec::new();
        let tag = |key: &str| member.tags.get(key).cloned();
        let marker = |key: &str| markers.get(key).map(str::to_owned);
        found.extend(tag("patchStrategy").map(|value| ("patch", value)));
        found.extend(tag("patchMergeKey").map(|value| ("key", value)));
        found.extend(marker("listType").map(|value| ("list", value)));
        let keys: Vec<&str> = markers.all("listMapKey").collect();
        if !keys.is_empty() {
            found.push(("keys", keys.join(",")));
        }
        found.extend(marker("mapType").map(|value| ("map", value)));
        found.extend(marker("structType").map(|value| ("struct", value)));
        if let Some(default) = markers.get("default") {
            found.push(("default", self.default(default)?));
        }
        Ok(found)
    }

    /// A JSON value, or `ref(Constant)`.
    fn default(&self, text: &str) -> Result<String> {
        let Some(name) = text.strip_prefix("ref(").and_then(|text| text.strip_suffix(')')) else {
            return Ok(text.to_owned());
        };
        let constant = self.package.constants.get(name).with_context(|| format!("no constant {name}"))?;
        Ok(format!("\"{}\"", constant.value))
    }

    /// A Go type with package names as the table has them.
    fn type_of(&self, text: &str) -> Result<String> {
        if let Some(inner) = text.strip_prefix('*') {
            return Ok(format!("*{}", self.type_of(inner)?));
        }
        if text == "[]byte" {
            return Ok(text.to_owned());
        }
        if let Some(inner) = text.strip_prefix("[]") {
            return Ok(format!("[]{}", self.type_of(inner)?));
        }
        if let Some((key, value)) = text.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
            return Ok(format!("map[{}]{}", self.type_of(key)?, self.type_of(value)?));
        }
        match text {
            "string" | "bool" | "int32" | "int64" | "float64" => return Ok(text.to_owned()),
            "interface{}" | "any" => return Ok("Any".to_owned()),
            _ => {}
        }
        let (import_path, name) = self.locate(text)?;
        let full = format!("{import_path}.{name}");
        if let Some((_, word)) = SPECIAL.iter().chain(STRINGS).find(|(known, _)| *known == full) {
            return Ok((*word).to_owned());
        }
        let package = self.packages.iter().find(|package| package.import_path == import_path);
        let package = package.with_context(|| format!("{full} is in none of the packages"))?;
        Ok(format!("{}.{name}", package.name))
    }

    fn locate<'t>(&self, text: &'t str) -> Result<(String, &'t str)> {
        match text.split_once('.') {
            None => Ok((self.package.import_path.clone(), text)),
            Some((import, name)) => {
                let path =
                    self.declaration.imports.get(import).with_context(|| format!("no import {import}"))?;
                Ok((path.clone(), name))
            }
        }
    }

    fn package_of(&self, text: &str) -> Option<&Package> {
        let (import_path, _) = self.locate(text).ok()?;
        self.packages.iter().find(|package| package.import_path == import_path)
    }

    fn find(&self, text: &str) -> Option<&Declaration> {
        let (_, name) = self.locate(text).ok()?;
        self.package_of(text)?.types.get(name)
    }
}
