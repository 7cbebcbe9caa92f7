//! Descriptions of what every object has, for `kubectl explain`.

use serde_json::{Map, Value, json};

/// Fields of an object, whatever its kind.
const OBJECT: [(&str, &str); 3] = [
    (
        "apiVersion",
        "APIVersion defines the form in which the object is written: a version of the API and, before a slash, its \
         group. The core group has no name and no slash.",
    ),
    (
        "kind",
        "Kind is the name of the resource that the object is one of, in CamelCase. It cannot be changed.",
    ),
    ("metadata", "Standard object's metadata."),
];

/// Fields of `metadata`.
const METADATA: [(&str, &str); 15] = [
    (
        "annotations",
        "Annotations are notes of tools and people, kept with the object. They cannot be selected by.",
    ),
    (
        "creationTimestamp",
        "CreationTimestamp is a timestamp of the server: when the object was created. It cannot be set.",
    ),
    (
        "deletionGracePeriodSeconds",
        "Seconds that the object has to end by itself once it is being deleted. It can only become shorter.",
    ),
    (
        "deletionTimestamp",
        "When the object is to be gone. It is set by the server if a deletion has to wait, for finalizers or for a \
         graceful end, and is never unset.",
    ),
    ("finalizers", "Who has to finish something before the object goes. It goes when the list is empty."),
    (
        "generateName",
        "The beginning of a name, if none is given: the server completes it and keeps the whole as the name.",
    ),
    ("generation", "A number of what is asked for: it grows by one when that changes. Set by the server."),
    ("labels", "Labels are what the object can be selected by."),
    (
        "managedFields",
        "Which fields were set by whom, and how. Kept by the server; rarely of interest to people.",
    ),
    ("name", "The name, unique among the objects of the same kind in a namespace. It cannot be changed."),
    ("namespace", "The namespace that the object is in; none for kinds that are not in namespaces."),
    (
        "ownerReferences",
        "What the object belongs to. When all of that is gone, so is the object. One of them may be its controller.",
    ),
    (
        "resourceVersion",
        "A mark of this state of the object, by which changes are noticed. It only means something to the server that \
         gave it.",
    ),
    ("selfLink", "Not set any more."),
    (
        "uid",
        "What tells the object from all others, also from those that had the same name. Set by the server.",
    ),
];

/// Describes the fields of a message that are the same in every kind.
pub fn describe(message: &str, properties: &mut Map<String, Value>) {
    let is_object = ["kind", "apiVersion"].iter().all(|key| properties.contains_key(*key));
    let words: &[(&str, &str)] = match message {
        "meta/v1.ObjectMeta" => &METADATA,
        _ if is_object => &OBJECT,
        _ => return,
    };
    for (name, text) in words {
        if let Some(Value::Object(property)) = properties.get_mut(*name) {
            property.insert("description".to_owned(), json!(text));
        }
    }
}
