//! What a federated object asks for when it is deleted.

use serde_json::Value;

use crate::DELETE_OPTION_ANNOTATION;

/// What becomes of what copies own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Owned {
    Orphan,
    Foreground,
    #[default]
    Background,
}

/// What of `DeleteOptions` is done in members.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeleteOption {
    pub owned: Owned,
    pub grace_seconds: Option<i64>,
}

/// Reads `kubefed.io/deleteoption`. What cannot be done as it is asked for is an error: whoever mistypes `Orphan` wants to keep
/// something.
pub fn delete_option(annotations: &Value) -> Result<DeleteOption, String> {
    let Some(text) = annotations.get(DELETE_OPTION_ANNOTATION) else { return Ok(DeleteOption::default()) };
    let text = text.as_str().ok_or("it is no text")?;
    let asked: Value = serde_json::from_str(text).map_err(|error| format!("it is no JSON: {error}"))?;
    let asked = asked.as_object().ok_or("it is no JSON object")?;
    let is_said = |field: &str| asked.get(field).is_some_and(|value| !value.is_null());
    if is_said("propagationPolicy") && is_said("orphanDependents") {
        return Err("propagationPolicy and orphanDependents say the same, and only one of them may be said"
            .to_owned());
    }
    let mut option = DeleteOption::default();
    for (field, value) in asked {
        match (field.as_str(), value) {
            ("kind" | "apiVersion", Value::String(_)) | (_, Value::Null) => {}
            ("propagationPolicy", Value::String(policy)) => option.owned = owned(policy)?,
            ("orphanDependents", Value::Bool(true)) => option.owned = Owned::Orphan,
            ("orphanDependents", Value::Bool(false)) => option.owned = Owned::Background,
            ("gracePeriodSeconds", seconds) => {
                let seconds = seconds.as_i64().filter(|it| *it >= 0);
                option.grace_seconds = Some(seconds.ok_or("gracePeriodSeconds is no number of seconds")?);
            }
            _ => {
                return Err(format!(
                    "{field} is not known here, or has no such value: propagationPolicy, gracePeriodSeconds and \
                     orphanDependents can be asked for"
                ));
            }
        }
    }
    Ok(option)
}

fn owned(policy: &str) -> Result<Owned, String> {
    match policy {
        "Orphan" => Ok(Owned::Orphan),
        "Foreground" => Ok(Owned::Foreground),
        "Background" => Ok(Owned::Background),
        _ => Err(format!("propagationPolicy is Orphan, Foreground or Background, not {policy:?}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_cannot_be_done_as_it_is_asked_for_is_not_done() {
        let read = |text: &str| delete_option(&json!({DELETE_OPTION_ANNOTATION: text}));
        let asked = |owned, grace_seconds| Ok(DeleteOption { owned, grace_seconds });
        assert_eq!(delete_option(&Value::Null), asked(Owned::Background, None));
        assert_eq!(read("{}"), asked(Owned::Background, None));
        assert_eq!(read(r#"{"propagationPolicy": "Orphan"}"#), asked(Owned::Orphan, None));
        assert_eq!(
            read(r#"{"kind": "DeleteOptions", "propagationPolicy": "Foreground", "gracePeriodSeconds": 5}"#),
            asked(Owned::Foreground, Some(5))
        );
        assert_eq!(read(r#"{"orphanDependents": true}"#), asked(Owned::Orphan, None));
        for wrong in [
            "Orphan",
            "[]",
            r#"{"propagationPolicy": "orphan"}"#,
            r#"{"propagationPolicy": true}"#,
            r#"{"propagationpolicy": "Orphan"}"#,
            r#"{"gracePeriodSeconds": -1}"#,
            r#"{"preconditions": {"uid": "1"}}"#,
            r#"{"orphanDependents": true, "propagationPolicy": "Background"}"#,
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
