//! How objects go out: as they are stored, in another version, as metadata only, or as a table.

use std::sync::Arc;

use bytes::Bytes;
use machinery::{
    EventType, Object,
    object::frame_around,
    resource::{Cell, Resource, TableCell, TableColumn, Tree},
    table,
};
use serde_json::{Value, json};

use crate::{negotiate::Shape, options::Query};

/// What `includeObject` asks a table's rows to carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Include {
    None,
    Metadata,
    Object,
}

/// How one client wants objects of one resource.
#[derive(Clone)]
pub struct Presenter {
    pub resource: Arc<Resource>,
    pub shape: Shape,
    pub include: Include,
    /// Seconds since 1970, for ages.
    pub now: i64,
}

const PARTIAL_START: &[u8] = br#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","#;

impl Presenter {
    pub fn new(resource: Arc<Resource>, shape: Shape, query: &Query, now: i64) -> Self {
        let include = match query.get("includeObject") {
            Some("None") => Include::None,
            Some("Object") => Include::Object,
            _ => Include::Metadata,
        };
        Self { resource, shape, include, now }
    }

    /// One object, on its own.
    pub fn one(&self, object: &Object) -> Bytes {
        match self.shape {
            Shape::Object => self.whole(object),
            Shape::Partial => [PARTIAL_START, object.metadata_member(), b"}"].concat().into(),
            Shape::Table => {
                let mut text = self.table_start(&json!({"resourceVersion": object.revision.to_string()}));
                text.push_str(&self.row(object));
                text.push_str("]}");
                text.into()
            }
        }
    }

    /// A line of a watch. `with_columns`: the first table a client sees carries the column definitions.
    pub fn event(&self, event: EventType, object: &Object, with_columns: bool) -> Bytes {
        match self.shape {
            Shape::Object if self.resource.served_as_stored => object.frame(event),
            Shape::Object => frame_around(event, &[&self.whole(object)]),
            Shape::Partial => frame_around(event, &[PARTIAL_START, object.metadata_member(), b"}"]),
            Shape::Table => {
                let meta = json!({"resourceVersion": object.revision.to_string()});
                let start = if with_columns { self.table_start(&meta) } else { table_without_columns(&meta) };
                frame_around(event, &[start.as_bytes(), self.row(object).as_bytes(), b"]}"])
            }
        }
    }

    /// What comes before the items of a list. `meta` is its `metadata`.
    pub fn list_start(&self, meta: &Value) -> String {
        match self.shape {
            Shape::Object => format!(
                "{{\"kind\":\"{}\",\"apiVersion\":\"{}\",\"metadata\":{meta},\"items\":[",
                self.resource.list_kind, self.resource.api_version
            ),
            Shape::Partial => format!(
                "{{\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":{meta},\"items\":["
            ),
            Shape::Table => self.table_start(meta),
        }
    }

    /// One item of a list, appended to `chunk`.
    pub fn item(&self, object: &Object, chunk: &mut Vec<u8>) {
        match self.shape {
            Shape::Object if self.resource.served_as_stored => {
                // Items of typed lists carry no kind of their own, as upstream has it.
                if self.resource.message().is_none() {
                    chunk.extend_from_slice(object.body_slice());
                } else {
                    chunk.push(b'{');
                    chunk.extend_from_slice(object.after_type());
                }
            }
            Shape::Object => {
                let whole = self.whole(object);
                match serde_json::from_slice::<Tree>(&whole) {
                    Ok(mut tree) if self.resource.message().is_some() => {
                        tree.remove("kind");
                        tree.remove("apiVersion");
                        chunk.extend_from_slice(Value::Object(tree).to_string().as_bytes());
                    }
                    _ => chunk.extend_from_slice(&whole),
                }
            }
            Shape::Partial => {
                chunk.extend_from_slice(PARTIAL_START);
                chunk.extend_from_slice(object.metadata_member());
                chunk.push(b'}');
            }
            Shape::Table => chunk.extend_from_slice(self.row(object).as_bytes()),
        }
    }

    fn whole(&self, object: &Object) -> Bytes {
        if self.resource.served_as_stored {
            return object.body();
        }
        match object.tree() {
            Ok(mut tree) => {
                self.resource.from_storage(&mut tree);
                Value::Object(tree).to_string().into()
            }
            // Stored bytes were a tree when they were written; serve them as they are rather than nothing.
            Err(_) => object.body(),
        }
    }

    fn table_start(&self, meta: &Value) -> String {
        let columns: Vec<Value> = self
            .resource
            .columns
            .iter()
            .map(|column| {
                json!({
                    "name": column.name,
                    "type": column.kind,
                    "format": column.format,
                    "description": column.description,
                    "priority": column.priority,
                })
            })
            .collect();
        let columns = if columns.is_empty() { default_columns() } else { Value::Array(columns) };
        format!(
            "{{\"kind\":\"Table\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":{meta},\"columnDefinitions\":{columns},\"rows\":["
        )
    }

    fn row(&self, object: &Object) -> String {
        let tree = object.tree().map(Value::Object).unwrap_or(Value::Null);
        let cells: Vec<Value> = match self.resource.columns.as_slice() {
            [] => vec![
                json!(object.head.name),
                tree.pointer("/metadata/creationTimestamp").cloned().unwrap_or_default(),
            ],
            columns => columns.iter().map(|column| self.cell(column, object, &tree)).collect(),
        };
        let shown = match self.include {
            Include::None => "null".to_owned(),
            Include::Metadata => {
                let partial = [PARTIAL_START, object.metadata_member(), b"}"].concat();
                String::from_utf8(partial).unwrap_or_default()
            }
            Include::Object => String::from_utf8(self.whole(object).to_vec()).unwrap_or_default(),
        };
        format!("{{\"cells\":{},\"object\":{shown}}}", Value::Array(cells))
    }

    fn cell(&self, column: &TableColumn, object: &Object, tree: &Value) -> Value {
        let cell = match &column.cell {
            TableCell::Builtin(cell) => cell,
            TableCell::Custom(path) => return table::custom_cell(path, &column.kind, tree, self.now),
        };
        match cell {
            Cell::Name => json!(object.head.name),
            Cell::Age => {
                let created = tree.pointer("/metadata/creationTimestamp").and_then(Value::as_str);
                json!(created.map_or("<unknown>".to_owned(), |created| table::age_of(created, self.now)))
            }
            Cell::Path(path) => match table::find(tree, path) {
                Value::Null => json!(""),
                value => value,
            },
            Cell::Compute(compute) => compute(tree, self.now),
        }
    }
}

fn default_columns() -> Value {
    json!([
        {"name": "Name", "type": "string", "format": "name", "description": "Name", "priority": 0},
        {"name": "Created At", "type": "date", "format": "", "description": "Creation time", "priority": 0},
    ])
}

fn table_without_columns(meta: &Value) -> String {
    format!(
        "{{\"kind\":\"Table\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":{meta},\"columnDefinitions\":null,\"rows\":["
    )
}
