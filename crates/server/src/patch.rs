//! Patching: what a patch makes of an object, checked like a whole object sent by the client.

use bytes::Bytes;
use machinery::{
    Object,
    field_error::Cause,
    patch::PatchError,
    resource::Tree,
    schema::{self, Types},
    status::{Reason, Status},
};
use serde_json::Value;

use crate::{
    context::Context,
    decode::{self, Decoded},
    negotiate::PatchKind,
    views::render,
};

/// A patch, read once and applied as often as needed.
pub enum Body {
    /// RFC 6902.
    Operations(Bytes),
    /// RFC 7396.
    Merge(Bytes),
    Strategic(Value, Bytes),
}

impl Body {
    pub fn read(kind: PatchKind, bytes: Bytes) -> Result<Body, Status> {
        Ok(match kind {
            PatchKind::Json => Body::Operations(bytes),
            PatchKind::Merge => Body::Merge(bytes),
            PatchKind::Apply => return Err(Status::internal("a configuration is no patch")),
            PatchKind::Strategic => {
                let value = machinery::gojson::parse(&bytes)
                    .map_err(|error| Status::bad_request(error.to_string()))?;
                if !value.is_object() {
                    return Err(Status::bad_request("error decoding patch: the patch is not an object"));
                }
                Body::Strategic(value, bytes)
            }
        })
    }

    /// What the patch says twice, or says to nobody.
    fn doubtful(&self) -> Vec<String> {
        match self {
            Body::Operations(bytes) => machinery::patch::json_patch_unknown_fields(bytes),
            Body::Merge(bytes) | Body::Strategic(_, bytes) => schema::find_duplicates(bytes),
        }
    }
}

/// The object after the patch, in the spelling of the request's version.
pub fn apply(context: &Context, body: &Body, old: &Object) -> Result<Decoded, Status> {
    let mut value = Value::Object(context.visible(old)?);
    let outcome = match body {
        Body::Operations(bytes) => {
            let before = value["metadata"]["annotations"].clone();
            let outcome = machinery::patch::json_patch(&mut value, bytes);
            keep_what_copies_lack(&before, &mut value);
            outcome
        }
        Body::Merge(patch) => machinery::patch::merge_patch(&mut value, patch),
        Body::Strategic(patch, _) => strategic(context, &mut value, patch),
    };
    outcome.map_err(|error| refusal(context, old, error))?;
    let Value::Object(tree) = value else {
        return Err(Status::bad_request("the patch does not leave an object"));
    };
    same_type(context, &tree)?;
    decode::check(context, tree, body.doubtful())
}

/// `kubectl rollout undo` writes the annotations of a ReplicaSet over those of its workload. It belongs to a copy in a member:
/// what Hanse says there is nothing of the object's own, and what the object says to Hanse never gets there.
fn keep_what_copies_lack(before: &Value, value: &mut Value) {
    let Some(annotations) = value.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) else {
        return;
    };
    let is_new = |key: &String| before[key.as_str()].is_null();
    if !annotations.keys().any(|key| is_new(key) && render::is_own(key)) {
        return;
    }
    annotations.retain(|key, _| !render::is_own(key) || !is_new(key));
    let is_for_hanse = |key: &str| {
        let own = key.strip_prefix(api::GROUP).is_some_and(|rest| rest.starts_with('/'));
        own || placement::dialect::is_read(key)
    };
    for (key, said) in before.as_object().into_iter().flatten().filter(|(key, _)| is_for_hanse(key)) {
        annotations.insert(key.clone(), said.clone());
    }
}

fn strategic(context: &Context, value: &mut Value, patch: &Value) -> Result<(), PatchError> {
    let types = Types::builtin();
    match context.shown.message() {
        Some(message) => machinery::strategic::strategic_merge(types, message, value, patch.clone()),
        None => machinery::patch::merge_patch(value, patch.to_string().as_bytes()),
    }
}

/// A patch cannot make another kind of an object.
fn same_type(context: &Context, tree: &Tree) -> Result<(), Status> {
    let kind = tree.get("kind").and_then(Value::as_str).unwrap_or_default();
    let version = tree.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    if kind != context.shown.kind || version != context.shown.api_version {
        let why = format!(
            "the patch changes the type of the object: {version} {kind} is not {} {}",
            context.shown.api_version, context.shown.kind
        );
        let cause = Cause::invalid("patch", &Value::String(Value::Object(tree.clone()).to_string()), &why);
        return Err(Status::invalid("", "", "", vec![cause]));
    }
    Ok(())
}

fn refusal(context: &Context, old: &Object, error: PatchError) -> Status {
    match error {
        PatchError::Malformed(message) => Status::bad_request(message),
        PatchError::Inapplicable(why) => {
            let message = "the server rejected our request due to an error in our request";
            Status::new(Reason::Invalid, message).about(context.about(&old.head.name)).cause("", why, "")
        }
        PatchError::TooLarge(message) => Status::new(Reason::RequestEntityTooLarge, message),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_copied_back_from_a_copy_changes_nothing_of_what_is_said_to_hanse() {
        let before = json!({"hanse.io/clusters": "eu-1,us-1", "note": "old"});
        let after = |annotations: Value| {
            let mut value = json!({"metadata": {"annotations": annotations}});
            keep_what_copies_lack(&before, &mut value);
            value["metadata"]["annotations"].clone()
        };
        let of_a_replica_set = json!({
            "hanse.io/source-uid": "1", "hanse.io/replicas": "eu-1=1,us-1=1", "note": "first",
        });
        assert_eq!(after(of_a_replica_set), json!({"hanse.io/clusters": "eu-1,us-1", "note": "first"}));
        // Whoever writes them themselves means what they write.
        for own in [json!({"note": "new"}), json!({"hanse.io/clusters": "eu-1"}), json!({})] {
            assert_eq!(after(own.clone()), own);
        }
        let mut none = json!({"metadata": {}});
        keep_what_copies_lack(&before, &mut none);
        assert_eq!(none, json!({"metadata": {}}));
    }
}
