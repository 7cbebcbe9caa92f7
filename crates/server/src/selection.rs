//! Which objects a list, a watch or a mass deletion is about.

use compact_str::CompactString;
use machinery::{
    Object,
    resource::Resource,
    selector::{FieldSelector, LabelSelector},
    status::Status,
};
use serde_json::Value;
use std::sync::Arc;

/// Label and field selectors, made ready for one resource.
#[derive(Clone)]
pub struct Selection {
    labels: LabelSelector,
    fields: FieldSelector,
    resource: Arc<Resource>,
    only_name: Option<CompactString>,
}

impl Selection {
    /// Refuses a field that the kind does not select by.
    pub fn new(
        labels: LabelSelector,
        fields: FieldSelector,
        resource: &Arc<Resource>,
    ) -> Result<Self, Status> {
        for term in fields.terms() {
            let known = match term.field.as_str() {
                "metadata.name" => true,
                "metadata.namespace" => resource.namespaced || resource.plural == "namespaces",
                name => resource.fields.iter().any(|field| field.name == name),
            };
            if !known {
                let message = match (resource.fields.is_empty(), resource.namespaced) {
                    (true, true) => format!(
                        "{:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
                        term.field
                    ),
                    (true, false) => {
                        format!("{:?} is not a known field selector: only \"metadata.name\"", term.field)
                    }
                    (false, _) => format!("field label not supported: {}", term.field),
                };
                return Err(Status::bad_request(message));
            }
        }
        Ok(Self { labels, fields, resource: resource.clone(), only_name: None })
    }

    /// The same, of one object only.
    pub fn named(mut self, name: &str) -> Self {
        self.only_name = Some(name.into());
        self
    }

    pub fn is_everything(&self) -> bool {
        self.only_name.is_none() && self.labels.is_empty() && self.fields.is_empty()
    }

    pub fn matches(&self, object: &Object) -> bool {
        self.only_name.as_ref().is_none_or(|name| *name == object.head.name)
            && self.labels.matches(&object.head.labels)
            && (self.fields.is_empty() || self.fields_match(object))
    }

    fn fields_match(&self, object: &Object) -> bool {
        let only_metadata = self.fields.terms().iter().all(|term| term.field.starts_with("metadata."));
        // An object remembers the values for the version it is stored in; other versions have other fields.
        let stored = self.resource.api_version == self.resource.stored_api_version;
        let read;
        let values: &[CompactString] = match (only_metadata, stored) {
            (true, _) => &[],
            (false, true) => object.fields(|object| read_fields(object, &self.resource)),
            (false, false) => {
                read = read_fields(object, &self.resource);
                &read
            }
        };
        self.fields.matches(|field| match field {
            "metadata.name" => Some(&object.head.name),
            "metadata.namespace" => Some(&object.head.namespace),
            _ => {
                let at = self.resource.fields.iter().position(|it| it.name == field)?;
                values.get(at).map(CompactString::as_str)
            }
        })
    }
}

/// The values of a kind's selectable fields, in the order of its row; absent is empty, as upstream has it.
fn read_fields(object: &Object, resource: &Resource) -> Box<[CompactString]> {
    let tree = object.tree().map(Value::Object).unwrap_or(Value::Null);
    let value = |path: &str| -> CompactString {
        let found = path.split('.').try_fold(&tree, |value, key| value.get(key));
        match found {
            Some(Value::String(text)) => text.into(),
            Some(Value::Bool(flag)) => flag.to_string().into(),
            Some(Value::Number(number)) => number.to_string().into(),
            _ => CompactString::default(),
        }
    };
    let first = |paths: &[String]| paths.iter().map(|path| value(path)).find(|it| !it.is_empty());
    let fields = resource.fields.iter();
    fields.map(|field| first(&field.paths).unwrap_or_else(|| field.absent.as_str().into())).collect()
}
