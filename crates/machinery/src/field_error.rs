//! What is wrong with one field, as a `Status` lists it under `details.causes`.

use serde_json::Value;

use crate::gotext;

/// In which way a field is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CauseReason {
    Invalid,
    Required,
    Duplicate,
    Forbidden,
    NotSupported,
    TooLong,
    TooShort,
    TooMany,
    TooFew,
    NotFound,
    TypeInvalid,
    Internal,
}

impl CauseReason {
    /// The `reason` of the cause on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            CauseReason::Invalid => "FieldValueInvalid",
            CauseReason::Required => "FieldValueRequired",
            CauseReason::Duplicate => "FieldValueDuplicate",
            CauseReason::Forbidden => "FieldValueForbidden",
            CauseReason::NotSupported => "FieldValueNotSupported",
            CauseReason::TooLong => "FieldValueTooLong",
            CauseReason::TooShort => "FieldValueTooShort",
            CauseReason::TooMany => "FieldValueTooMany",
            CauseReason::TooFew => "FieldValueTooFew",
            CauseReason::NotFound => "FieldValueNotFound",
            CauseReason::TypeInvalid => "FieldValueTypeInvalid",
            CauseReason::Internal => "InternalError",
        }
    }

    /// How a message begins.
    fn title(self) -> &'static str {
        match self {
            CauseReason::Invalid | CauseReason::TypeInvalid => "Invalid value",
            CauseReason::Required => "Required value",
            CauseReason::Duplicate => "Duplicate value",
            CauseReason::Forbidden => "Forbidden",
            CauseReason::NotSupported => "Unsupported value",
            CauseReason::TooLong => "Too long",
            CauseReason::TooShort => "Too short",
            CauseReason::TooMany => "Too many",
            CauseReason::TooFew => "Too few",
            CauseReason::NotFound => "Not found",
            CauseReason::Internal => "Internal error",
        }
    }
}

/// What is wrong with one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    pub reason: CauseReason,
    /// Without the field's path: `Invalid value: "x": must be …`.
    pub message: String,
    /// The field's path: `metadata.labels`, `spec.ports[0].name`.
    pub field: String,
}

impl Cause {
    fn new(reason: CauseReason, field: impl Into<String>, value: Option<&str>, detail: &str) -> Self {
        let parts = [Some(reason.title()), value, Some(detail).filter(|detail| !detail.is_empty())];
        let message = parts.into_iter().flatten().collect::<Vec<_>>().join(": ");
        Self { reason, message, field: field.into() }
    }

    /// A malformed value.
    pub fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::invalid_text(field, &gotext::bad_value(value), detail)
    }

    /// A malformed value that the caller has rendered, for values whose fields have an order.
    pub fn invalid_text(field: impl Into<String>, value: &str, detail: &str) -> Self {
        Self::new(CauseReason::Invalid, field, Some(value), detail)
    }

    /// A malformed value that is not shown.
    pub fn invalid_unseen(field: impl Into<String>, detail: &str) -> Self {
        Self::new(CauseReason::Invalid, field, None, detail)
    }

    /// A value of a type that the schema does not have there.
    pub fn type_invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::new(CauseReason::TypeInvalid, field, Some(&gotext::bad_value(value)), detail)
    }

    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        Self::new(CauseReason::Required, field, None, detail)
    }

    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self::new(CauseReason::Duplicate, field, Some(&gotext::bad_value(value)), "")
    }

    /// A value that the caller has rendered and that is there twice, with what makes it the same.
    pub fn duplicate_text(field: impl Into<String>, value: &str, detail: &str) -> Self {
        Self::new(CauseReason::Duplicate, field, Some(value), detail)
    }

    /// A value that would be fine elsewhere.
    pub fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self::new(CauseReason::Forbidden, field, None, detail)
    }

    /// A value that is none of `valid`.
    pub fn not_supported(field: impl Into<String>, value: &Value, valid: &[&str]) -> Self {
        let valid = valid.iter().map(|value| gotext::quote(value)).collect::<Vec<_>>().join(", ");
        let detail = if valid.is_empty() { valid } else { format!("supported values: {valid}") };
        Self::new(CauseReason::NotSupported, field, Some(&gotext::bad_value(value)), &detail)
    }

    /// As [`Cause::not_supported`] with a value that the caller has rendered.
    pub fn not_supported_text(field: impl Into<String>, value: &str, valid: &[&str]) -> Self {
        let valid = valid.iter().map(|value| gotext::quote(value)).collect::<Vec<_>>().join(", ");
        Self::new(CauseReason::NotSupported, field, Some(value), &format!("supported values: {valid}"))
    }

    pub fn too_long(field: impl Into<String>, max_bytes: usize) -> Self {
        let unit = if max_bytes == 1 { "byte" } else { "bytes" };
        Self::new(CauseReason::TooLong, field, None, &format!("may not be more than {max_bytes} {unit}"))
    }

    pub fn too_many(field: impl Into<String>, count: usize, max: usize) -> Self {
        let unit = if max == 1 { "item" } else { "items" };
        let detail = format!("must have at most {max} {unit}");
        Self::new(CauseReason::TooMany, field, Some(&count.to_string()), &detail)
    }

    /// Too much of something, beyond a bound that cannot be named.
    pub fn unbounded(
        reason: CauseReason,
        field: impl Into<String>,
        count: Option<i64>,
        detail: &str,
    ) -> Self {
        Self::new(reason, field, count.map(|count| count.to_string()).as_deref(), detail)
    }

    /// A malformed value that is not to be shown.
    pub fn invalid_omitted(field: impl Into<String>, detail: &str) -> Self {
        Self::new(CauseReason::Invalid, field, None, detail)
    }

    /// A reference to something that does not exist.
    pub fn not_found(field: impl Into<String>, value: &Value) -> Self {
        Self::new(CauseReason::NotFound, field, Some(&gotext::bad_value(value)), "")
    }

    /// As [`Cause::not_found`], with where it was looked for.
    pub fn not_found_in(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::new(CauseReason::NotFound, field, Some(&gotext::bad_value(value)), detail)
    }

    pub fn internal(field: impl Into<String>, detail: &str) -> Self {
        Self::new(CauseReason::Internal, field, None, detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn messages_read_as_upstreams() {
        for (cause, reason, message) in [
            (
                Cause::invalid("f", &json!("a\"b"), "why"),
                "FieldValueInvalid",
                r#"Invalid value: "a\"b": why"#,
            ),
            (Cause::invalid("f", &json!(-1), "why"), "FieldValueInvalid", "Invalid value: -1: why"),
            (Cause::invalid("f", &json!(null), "why"), "FieldValueInvalid", "Invalid value: null: why"),
            (
                Cause::invalid("f", &json!({"a": ["<"]}), "why"),
                "FieldValueInvalid",
                r#"Invalid value: {"a":["\u003c"]}: why"#,
            ),
            (
                Cause::type_invalid("f", &json!(true), "why"),
                "FieldValueTypeInvalid",
                "Invalid value: true: why",
            ),
            (Cause::required("f", ""), "FieldValueRequired", "Required value"),
            (Cause::required("f", "why"), "FieldValueRequired", "Required value: why"),
            (Cause::duplicate("f", &json!("x")), "FieldValueDuplicate", r#"Duplicate value: "x""#),
            (Cause::forbidden("f", "why"), "FieldValueForbidden", "Forbidden: why"),
            (
                Cause::not_supported("f", &json!("x"), &["a", "b"]),
                "FieldValueNotSupported",
                r#"Unsupported value: "x": supported values: "a", "b""#,
            ),
            (Cause::too_long("f", 10), "FieldValueTooLong", "Too long: may not be more than 10 bytes"),
            (Cause::too_many("f", 3, 1), "FieldValueTooMany", "Too many: 3: must have at most 1 item"),
            (Cause::not_found("f", &json!("x")), "FieldValueNotFound", r#"Not found: "x""#),
            (Cause::internal("f", "why"), "InternalError", "Internal error: why"),
        ] {
            assert_eq!(
                (cause.reason.as_str(), cause.message.as_str(), cause.field.as_str()),
                (reason, message, "f")
            );
        }
    }
}
