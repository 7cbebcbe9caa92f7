//! Errors as clients read them: Kubernetes' own `Status`.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use crate::field_error::Cause;

/// Why a request was refused, in the words of the API; decides the HTTP code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    Unauthorized,
    Forbidden,
    NotFound,
    AlreadyExists,
    Conflict,
    Gone,
    Expired,
    Invalid,
    ServerTimeout,
    Timeout,
    TooManyRequests,
    BadRequest,
    MethodNotAllowed,
    NotAcceptable,
    RequestEntityTooLarge,
    UnsupportedMediaType,
    InternalError,
    ServiceUnavailable,
    /// The server did not expect it and has no word for it: 500.
    Unknown,
}

impl Reason {
    pub fn code(self) -> u16 {
        match self {
            Reason::BadRequest => 400,
            Reason::Unauthorized => 401,
            Reason::Forbidden => 403,
            Reason::NotFound => 404,
            Reason::MethodNotAllowed => 405,
            Reason::NotAcceptable => 406,
            Reason::AlreadyExists | Reason::Conflict => 409,
            Reason::Gone | Reason::Expired => 410,
            Reason::RequestEntityTooLarge => 413,
            Reason::UnsupportedMediaType => 415,
            Reason::Invalid => 422,
            Reason::TooManyRequests => 429,
            Reason::InternalError | Reason::ServerTimeout | Reason::Unknown => 500,
            Reason::ServiceUnavailable => 503,
            Reason::Timeout => 504,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Unauthorized => "Unauthorized",
            Reason::Forbidden => "Forbidden",
            Reason::NotFound => "NotFound",
            Reason::AlreadyExists => "AlreadyExists",
            Reason::Conflict => "Conflict",
            Reason::Gone => "Gone",
            Reason::Expired => "Expired",
            Reason::Invalid => "Invalid",
            Reason::ServerTimeout => "ServerTimeout",
            Reason::Timeout => "Timeout",
            Reason::TooManyRequests => "TooManyRequests",
            Reason::BadRequest => "BadRequest",
            Reason::MethodNotAllowed => "MethodNotAllowed",
            Reason::NotAcceptable => "NotAcceptable",
            Reason::RequestEntityTooLarge => "RequestEntityTooLarge",
            Reason::UnsupportedMediaType => "UnsupportedMediaType",
            Reason::InternalError => "InternalError",
            Reason::ServiceUnavailable => "ServiceUnavailable",
            Reason::Unknown => "",
        }
    }
}

/// A refusal. Every handler returns `Result<_, Status>`.
#[derive(Clone, Debug)]
pub struct Status(Box<Refusal>);

#[derive(Clone, Debug)]
struct Refusal {
    reason: Reason,
    /// Differs from the reason's own in few cases (a dropped precondition is 409 with another reason).
    code: u16,
    message: String,
    name: String,
    group: String,
    kind: String,
    uid: String,
    causes: Vec<(String, String, String)>,
    retry_after_seconds: Option<u32>,
    /// For an expired list: the token with which to go on, inconsistently.
    continue_token: Option<String>,
    /// Generic answers carry `details` even when there is nothing to say in them.
    generic: bool,
    /// The whole of it, where it is somebody else's.
    said: Option<Map<String, Value>>,
    /// For the author, besides.
    warnings: Vec<String>,
}

/// The `details` of which object a refusal is about. `kind` is the plural resource name, as upstream has it, except
/// in `Invalid`, where it is the kind.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    pub group: &'a str,
    pub resource: &'a str,
    pub name: &'a str,
}

impl About<'_> {
    /// `configmaps` or `roles.rbac.authorization.k8s.io`, as messages spell it.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.resource.to_owned()
        } else {
            format!("{}.{}", self.resource, self.group)
        }
    }
}

impl Status {
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self(Box::new(Refusal {
            reason,
            code: reason.code(),
            message: message.into(),
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: Vec::new(),
            retry_after_seconds: None,
            continue_token: None,
            generic: false,
            said: None,
            warnings: Vec::new(),
        }))
    }

    /// What somebody else said, word for word: a `v1.Status` of the right types. The words are theirs, so its reason
    /// decides nothing here.
    pub fn said(mut status: Map<String, Value>) -> Self {
        let text = |key: &str| status.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut refusal = Self::new(Reason::Unknown, text("message"));
        let code = status.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
        refusal.0.code = code.unwrap_or(Reason::Unknown.code());
        let seconds = status.get("details").and_then(|details| details.get("retryAfterSeconds"));
        let seconds = seconds.and_then(Value::as_u64).and_then(|seconds| u32::try_from(seconds).ok());
        refusal.0.retry_after_seconds = seconds.filter(|seconds| *seconds > 0);
        status.insert("kind".into(), json!("Status"));
        status.insert("apiVersion".into(), json!("v1"));
        status.entry("metadata").or_insert_with(|| json!({}));
        refusal.0.said = Some(status);
        refusal
    }

    /// With warnings that its author gets beside it.
    pub fn warning(mut self, warnings: impl IntoIterator<Item = String>) -> Self {
        self.0.warnings.extend(warnings);
        self
    }

    pub fn about(mut self, about: About<'_>) -> Self {
        self.0.group = about.group.to_owned();
        self.0.kind = about.resource.to_owned();
        self.0.name = about.name.to_owned();
        self
    }

    /// Another code than the reason's own.
    pub fn with_code(mut self, code: u16) -> Self {
        self.0.code = code;
        self
    }

    pub fn cause(mut self, reason: &str, message: impl Into<String>, field: &str) -> Self {
        self.0.causes.push((reason.to_owned(), message.into(), field.to_owned()));
        self
    }

    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.0.retry_after_seconds = Some(seconds);
        self
    }

    pub fn continue_with(mut self, token: String) -> Self {
        self.0.continue_token = Some(token);
        self
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(Reason::BadRequest, message)
    }

    pub fn internal(message: impl std::fmt::Display) -> Self {
        Self::new(Reason::InternalError, format!("Internal error occurred: {message}")).cause(
            "",
            message.to_string(),
            "",
        )
    }

    pub fn not_found(about: About<'_>) -> Self {
        Self::new(Reason::NotFound, format!("{} \"{}\" not found", about.qualified(), about.name))
            .about(about)
    }

    /// For a path that no resource is behind.
    pub fn no_such_path() -> Self {
        Self::new(Reason::NotFound, "the server could not find the requested resource").generic()
    }

    fn generic(mut self) -> Self {
        self.0.generic = true;
        self
    }

    /// For a path that is not an object's.
    pub fn forbidden_path(why: &str) -> Self {
        Self::new(Reason::Forbidden, format!("forbidden: {why}")).generic()
    }

    pub fn already_exists(about: About<'_>) -> Self {
        Self::new(Reason::AlreadyExists, format!("{} \"{}\" already exists", about.qualified(), about.name))
            .about(about)
    }

    pub fn conflict(about: About<'_>, why: &str) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {} \"{}\": {why}", about.qualified(), about.name);
        Self::new(Reason::Conflict, message).about(about)
    }

    pub fn modified(about: About<'_>) -> Self {
        Self::conflict(
            about,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    pub fn forbidden(about: About<'_>, why: &str) -> Self {
        let qualified = about.qualified();
        let message = match (qualified.is_empty(), about.name.is_empty()) {
            (true, _) => format!("forbidden: {why}"),
            (false, true) => format!("{qualified} is forbidden: {why}"),
            (false, false) => format!("{qualified} \"{}\" is forbidden: {why}", about.name),
        };
        Self::new(Reason::Forbidden, message).about(about)
    }

    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(Reason::MethodNotAllowed, message).generic()
    }

    /// `kind` is the kind, not the resource; upstream is so in `Invalid` alone.
    pub fn invalid(group: &str, kind: &str, name: &str, causes: Vec<Cause>) -> Self {
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let mut texts: Vec<String> = Vec::new();
        let mut said = HashSet::new();
        // What is wrong twice is listed twice, and said once.
        for text in causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)) {
            if said.insert(text.clone()) {
                texts.push(text);
            }
        }
        let joined = match texts.len() {
            0 => String::new(),
            1 => format!(": {}", texts[0]),
            _ => format!(": [{}]", texts.join(", ")),
        };
        let mut status = Self::new(Reason::Invalid, format!("{qualified} \"{name}\" is invalid{joined}"))
            .about(About { group, resource: kind, name });
        for cause in causes {
            status = status.cause(cause.reason.as_str(), cause.message, &cause.field);
        }
        status
    }

    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(Reason::Expired, message)
    }

    pub fn code(&self) -> u16 {
        self.0.code
    }

    pub fn reason(&self) -> Reason {
        self.0.reason
    }

    pub fn message(&self) -> &str {
        &self.0.message
    }

    pub fn retry_after_seconds(&self) -> Option<u32> {
        self.0.retry_after_seconds
    }

    pub fn warnings(&self) -> &[String] {
        &self.0.warnings
    }

    /// The refusal as `v1.Status`.
    pub fn to_json(&self) -> Value {
        let refusal = &*self.0;
        if let Some(said) = &refusal.said {
            return Value::Object(said.clone());
        }
        let mut metadata = Map::new();
        if let Some(token) = &refusal.continue_token {
            metadata.insert("continue".into(), json!(token));
        }
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata,
            "status": "Failure",
            "message": refusal.message,
            "code": refusal.code,
        });
        if refusal.reason != Reason::Unknown {
            status["reason"] = json!(refusal.reason.as_str());
        }
        let details = refusal.details();
        if !details.is_empty() || refusal.generic {
            status["details"] = Value::Object(details);
        }
        status
    }
}

impl Refusal {
    fn details(&self) -> Map<String, Value> {
        let mut details = Map::new();
        let texts = [("name", &self.name), ("group", &self.group), ("kind", &self.kind), ("uid", &self.uid)];
        for (key, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            details.insert(key.into(), json!(text));
        }
        if !self.causes.is_empty() {
            let causes = self.causes.iter().map(|(reason, message, field)| {
                let mut cause = Map::new();
                for (key, text) in [("reason", reason), ("message", message), ("field", field)] {
                    if !text.is_empty() {
                        cause.insert(key.into(), json!(text));
                    }
                }
                Value::Object(cause)
            });
            details.insert("causes".into(), causes.collect());
        }
        if let Some(seconds) = self.retry_after_seconds {
            details.insert("retryAfterSeconds".into(), json!(seconds));
        }
        details
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for Status {}

/// The answer to a deletion that left nothing behind.
pub fn success(about: About<'_>, uid: &str) -> Value {
    let mut details = Map::new();
    for (key, text) in [("name", about.name), ("group", about.group), ("kind", about.resource), ("uid", uid)]
    {
        if !text.is_empty() {
            details.insert(key.into(), json!(text));
        }
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}
