//! Who did what: a record of requests, as far as the audit policy asks for one.
//!
//! A request carries its [`Recorder`]; whoever decides something about the request writes it there.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;

/// What is written down about one request: nothing, and at no cost, if it is not audited. Cheap to clone.
#[derive(Clone, Default)]
pub struct Recorder(Option<Arc<Record>>);

/// A request that is audited.
#[derive(Default)]
struct Record {
    annotations: Mutex<BTreeMap<String, String>>,
}

impl Recorder {
    /// For a request that is not audited.
    pub fn off() -> Recorder {
        Recorder(None)
    }

    /// Whether anything is written down: ask before computing what is only for the record.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Adds an annotation to the request's audit events, such as `pod-security.kubernetes.io/audit-violations`. What is
    /// said first about a key stays, as upstream.
    pub fn annotate(&self, key: impl Into<String>, value: impl Into<String>) {
        self.annotate_with(|| (key.into(), value.into()));
    }

    /// The same; `annotation` makes key and value, and is only called if somebody will read them.
    pub fn annotate_with(&self, annotation: impl FnOnce() -> (String, String)) {
        let Some(record) = &self.0 else { return };
        let (key, value) = annotation();
        record.annotations.lock().entry(key).or_insert(value);
    }
}
