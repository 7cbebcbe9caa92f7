//! Reads type declarations out of Go source.
//!
//! The sources are formatted by gofmt, so declarations, fields and comments each start a line of their own; this is
//! a reader of that shape, not of Go.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};

/// The declarations of one Go package.
pub struct Package {
    /// What the table calls it: `core/v1`.
    pub name: String,
    pub import_path: String,
    pub types: BTreeMap<String, Declaration>,
    /// Names of string constants, with their type if they say one.
    pub constants: BTreeMap<String, Constant>,
}

pub struct Constant {
    pub of_type: String,
    pub value: String,
}

pub struct Declaration {
    pub body: Body,
    pub markers: Markers,
    /// Import names in the file that declares it.
    pub imports: BTreeMap<String, String>,
}

pub enum Body {
    Struct(Vec<Member>),
    /// `type A B` and `type A = B`.
    Named(String),
}

/// A field of a struct.
pub struct Member {
    /// Empty when embedded.
    pub name: String,
    pub type_text: String,
    pub tags: BTreeMap<String, String>,
    pub markers: Markers,
}

/// The `+key=value` lines of a comment, in order.
#[derive(Clone, Default)]
pub struct Markers(Vec<(String, String)>);

impl Markers {
    fn read(comment: &[String]) -> Self {
        let marks = comment.iter().filter_map(|line| line.trim().strip_prefix('+'));
        Self(
            marks
                .map(|mark| mark.split_once('=').unwrap_or((mark, "")))
                .map(|(k, v)| (k.into(), v.into()))
                .collect(),
        )
    }

    pub fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(name, _)| name == key).map(|(_, value)| value.as_str())
    }
}

impl Package {
    pub fn new(name: &str, import_path: &str) -> Self {
        Self {
            name: name.to_owned(),
            import_path: import_path.to_owned(),
            types: BTreeMap::new(),
            constants: BTreeMap::new(),
        }
    }

    pub fn read(&mut self, text: &str) -> Result<()> {
        let imports = imports(text);
        let mut comment = Vec::new();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some(note) = line.strip_prefix("//") {
                comment.push(note.to_owned());
                continue;
            }
            if let Some(declaration) = line.strip_prefix("type ") {
                let markers = Markers::read(&comment);
                self.declare(declaration, markers, &imports, &mut lines).with_context(|| line.to_owned())?;
            } else if line == "const (" {
                lines.by_ref().take_while(|line| *line != ")").for_each(|line| self.constant(line));
            } else if let Some(constant) = line.strip_prefix("const ") {
                self.constant(constant);
            }
            // A type's markers may stand one blank line above its description.
            if !line.is_empty() {
                comment.clear();
            }
        }
        Ok(())
    }

    fn declare<'a>(
        &mut self,
        declaration: &str,
        markers: Markers,
        imports: &BTreeMap<String, String>,
        lines: &mut impl Iterator<Item = &'a str>,
    ) -> Result<()> {
        let (name, definition) = declaration.split_once(' ').context("a type without definition")?;
        if name.contains('[') || definition.starts_with("interface") || definition.starts_with("func") {
            return Ok(());
        }
        let definition = definition.trim_start_matches("= ").split(" //").next().unwrap_or_default();
        let body = match definition {
            "struct {" => Body::Struct(members(lines)?),
            "struct{}" => Body::Struct(Vec::new()),
            other => Body::Named(other.to_owned()),
        };
        self.types.insert(name.to_owned(), Declaration { body, markers, imports: imports.clone() });
        Ok(())
    }

    /// `Name Type = "value"`
    fn constant(&mut self, line: &str) {
        let Some((left, right)) = line.trim().split_once('=') else { return };
        let value = right.trim().split(" //").next().unwrap_or_default().trim();
        let Some(value) = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')) else { return };
        let mut words = left.split_whitespace();
        let (name, of_type) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let constant = Constant { of_type: of_type.to_owned(), value: value.to_owned() };
        self.constants.insert(name.to_owned(), constant);
    }
}

/// Import names and paths.
fn imports(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().skip_while(|line| !line.starts_with("import")).take_while(|line| *line != ")");
    let mut found = BTreeMap::new();
    for line in lines {
        let line = line.trim_start_matches("import ").trim();
        let Some((name, path)) = line.split_once('"') else { continue };
        let path = path.trim_end_matches('"');
        let base = path.rsplit('/').next().unwrap_or_default();
        let name = if name.is_empty() { base } else { name.trim() };
        found.insert(name.to_owned(), path.to_owned());
    }
    found
}

fn members<'a>(lines: &mut impl Iterator<Item = &'a str>) -> Result<Vec<Member>> {
    let mut found = Vec::new();
    let mut comment = Vec::new();
    for line in lines {
        if line == "}" {
            return Ok(found);
        }
        let line = line.trim();
        if let Some(note) = line.strip_prefix("//") {
            comment.push(note.to_owned());
            continue;
        }
        if !line.is_empty() {
            found.extend(member(line, Markers::read(&comment))?);
        }
        comment.clear();
    }
    bail!("a struct without end")
}

/// `Name Type `tags``, or `Type `tags`` when embedded. Without a JSON name it does not travel.
fn member(line: &str, markers: Markers) -> Result<Option<Member>> {
    let Some((left, tags)) = line.split_once('`') else { return Ok(None) };
    let tags = tags.split('`').next().unwrap_or_default();
    let tags = read_tags(tags).with_context(|| line.to_owned())?;
    if matches!(tags.get("json").map(String::as_str), None | Some("-")) {
        return Ok(None);
    }
    let words: Vec<&str> = left.split_whitespace().collect();
    let (name, type_text) = match words.as_slice() {
        [type_text] => ("", *type_text),
        [name, type_text] => (*name, *type_text),
        _ => bail!("cannot read {line}"),
    };
    Ok(Some(Member { name: name.to_owned(), type_text: type_text.to_owned(), tags, markers }))
}

/// `key:"value" key:"value"`
fn read_tags(text: &str) -> Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (key, after) = rest.split_once(":\"").context("a tag without value")?;
        let (value, after) = after.split_once('"').context("a tag without end")?;
        found.insert(key.to_owned(), value.to_owned());
        rest = after.trim();
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = r#"
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// +enum
type Mode string

const (
	// Fast is fast.
	Fast Mode = "Fast" // really
)

// Thing is a thing.
type Thing struct {
	metav1.TypeMeta `json:",inline"`
	// names of it.
	// +optional
	// +listType=map
	// +listMapKey=a
	// +listMapKey=b
	Names []types.UID `json:"names,omitempty" patchStrategy:"merge" protobuf:"bytes,1,rep,name=names"`
	hidden int
}
"#;

    #[test]
    fn declarations_are_read_with_their_markers() {
        let mut package = Package::new("x/v1", "example.com/x/v1");
        package.read(SOURCE).unwrap();
        assert!(package.types["Mode"].markers.has("enum"));
        assert_eq!(package.constants["Fast"].value, "Fast");
        let Body::Struct(members) = &package.types["Thing"].body else { panic!("a struct") };
        assert_eq!(members.len(), 2);
        assert_eq!((members[0].name.as_str(), members[0].type_text.as_str()), ("", "metav1.TypeMeta"));
        assert_eq!(members[1].tags["patchStrategy"], "merge");
        assert_eq!(members[1].markers.all("listMapKey").collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(package.types["Thing"].imports["types"], "k8s.io/apimachinery/pkg/types");
    }
}
