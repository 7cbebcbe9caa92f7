//! Where in an object or a schema something is, kept on the stack until somebody asks for the text.

use std::fmt;

/// A path of steps; the root has none.
#[derive(Clone, Copy, Debug)]
pub enum Path<'p> {
    Root,
    /// A field by name.
    Child(&'p Path<'p>, &'p str),
    /// A member of a map.
    Key(&'p Path<'p>, &'p str),
    Index(&'p Path<'p>, usize),
}

impl<'p> Path<'p> {
    pub fn child(&'p self, name: &'p str) -> Self {
        Path::Child(self, name)
    }

    pub fn key(&'p self, key: &'p str) -> Self {
        Path::Key(self, key)
    }

    pub fn index(&'p self, index: usize) -> Self {
        Path::Index(self, index)
    }

    /// `spec.items[0].labels.app`, as the validator of values writes it: the empty text for the root, and a dot before
    /// every member of a map, even the first.
    pub fn in_body(&self) -> String {
        let mut text = String::new();
        self.write_in_body(&mut text);
        text
    }

    fn write_in_body(&self, text: &mut String) {
        match self {
            Path::Root => {}
            Path::Child(parent, name) => {
                parent.write_in_body(text);
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(name);
            }
            Path::Key(parent, key) => {
                parent.write_in_body(text);
                text.push('.');
                text.push_str(key);
            }
            Path::Index(parent, index) => {
                parent.write_in_body(text);
                text.push_str(&format!("[{index}]"));
            }
        }
    }
}

/// `spec.items[0].labels[app]`, as the causes of a refusal name their field.
impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // What Go prints for no path.
            Path::Root => f.write_str("<nil>"),
            Path::Child(Path::Root, name) => f.write_str(name),
            Path::Child(parent, name) => write!(f, "{parent}.{name}"),
            Path::Key(Path::Root, key) => write!(f, "[{key}]"),
            Path::Key(parent, key) => write!(f, "{parent}[{key}]"),
            Path::Index(Path::Root, index) => write!(f, "[{index}]"),
            Path::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_read_as_upstreams() {
        let root = Path::Root;
        let spec = root.child("spec");
        let item = spec.child("items");
        let item = item.index(0);
        let label = item.key("app");
        let key = root.key("a");
        let below = key.child("b");
        for (path, field, body) in [
            (&root, "<nil>", ""),
            (&spec, "spec", "spec"),
            (&label, "spec.items[0][app]", "spec.items[0].app"),
            (&key, "[a]", ".a"),
            (&below, "[a].b", ".a.b"),
        ] {
            assert_eq!((path.to_string().as_str(), path.in_body().as_str()), (field, body));
        }
    }
}
