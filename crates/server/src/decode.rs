//! From a request body to a checked tree.

use bytes::Bytes;
use machinery::{
    apply::asks_for_reset,
    field_error::Cause,
    gojson, gotext, protobuf,
    resource::{Schema, Tree},
    schema::{self, Types},
    status::Status,
    structural::Malformed,
};
use serde_json::Value;

use crate::{
    context::Context,
    negotiate::{self, Content},
    yaml,
};

/// An object as the client sent it, of the right type, and what it should be told.
pub struct Decoded {
    pub tree: Tree,
    pub warnings: Vec<String>,
    /// It asks to forget who set what.
    pub resets_managers: bool,
}

/// What to do about fields that the kind does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strictness {
    Ignore,
    Warn,
    Strict,
}

fn strictness(context: &Context) -> Result<Strictness, Status> {
    match context.query.get("fieldValidation") {
        Some("Ignore") => Ok(Strictness::Ignore),
        None | Some("" | "Warn") => Ok(Strictness::Warn),
        Some("Strict") => Ok(Strictness::Strict),
        Some(other) => {
            let valid = ["", "Ignore", "Strict", "Warn"];
            let cause = Cause::not_supported("fieldValidation", &other.into(), &valid);
            Err(Status::invalid("meta.k8s.io", "CreateOptions", "", vec![cause]))
        }
    }
}

/// The body of a create or an update.
pub fn object(context: &Context, bytes: &Bytes) -> Result<Decoded, Status> {
    let strictness = strictness(context)?;
    let content = negotiate::content(&context.headers, context.shown.message().is_some())?;
    let value = parse(context, content, bytes)?;
    // Only the text shows what stands in it twice; a tree with fewer members than the text says that something does.
    let text = (content == Content::Json && strictness != Strictness::Ignore).then_some(bytes);
    let doubled = text.is_some_and(|text| schema::has_duplicates(text, &value));
    let mut tree = match value {
        Value::Object(tree) => tree,
        Value::Null => Tree::new(),
        other => {
            let why = format!(
                "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type \
                 struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \
                 \"json:\\\"kind,omitempty\\\"\" }}",
                gojson::type_name(&other)
            );
            return Err(unrecognized(context, &why, bytes));
        }
    };
    check_type(context, &mut tree, bytes)?;
    let resets_managers = asks_for_reset(&tree);
    let mut decoded = conform(context, tree, text, doubled, strictness)?;
    decoded.resets_managers = resets_managers;
    if content == Content::Yaml && strictness != Strictness::Ignore {
        let doubled = std::str::from_utf8(bytes).ok().and_then(yaml_duplicate);
        if let (Some(doubled), Strictness::Strict) = (&doubled, strictness) {
            return Err(not_handled(context, &format!("strict decoding error: {YAML_ERRORS}{doubled}")));
        }
        decoded.warnings.extend(doubled);
    }
    Ok(decoded)
}

/// A tree made by a patch, and what was found wrong in the patch itself: checked like a body, but what is wrong
/// with it is the patch's fault.
pub fn check(context: &Context, tree: Tree, found: Vec<String>) -> Result<Decoded, Status> {
    let strictness = strictness(context)?;
    let resource = &context.shown;
    let types = Types::builtin();
    let shown = Value::Object(tree.clone());
    let refuse = |why: &str| {
        let document = serde_json::Value::from(shown.to_string());
        Status::invalid("", "", "", vec![Cause::invalid("patch", &document, why)])
    };
    let mut found = found;
    let resets_managers = asks_for_reset(&tree);
    let mut value = Value::Object(tree);
    match (&resource.schema, &mut value) {
        (Schema::Typed(message), value) => {
            let conformed = schema::conform(types, message, value, schema::Options::default())
                .map_err(|error| refuse(&error.to_string()))?;
            found.extend(conformed.unknown);
        }
        (Schema::Custom(custom) | Schema::Own(custom), Value::Object(tree)) => {
            let accepted = custom.version.accept(tree, Malformed::Refuse);
            found.extend(unknown_fields(accepted.map_err(|error| refuse(&error))?));
        }
        (_, value) => check_metadata(context, types, value)?,
    }
    let Value::Object(tree) = value else { return Err(refuse("the patch does not leave an object")) };
    match strictness {
        Strictness::Strict if !found.is_empty() => {
            Err(refuse(&format!("strict decoding error: {}", found.join(", "))))
        }
        Strictness::Ignore => Ok(Decoded { tree, warnings: Vec::new(), resets_managers }),
        _ => Ok(Decoded { tree, warnings: found, resets_managers }),
    }
}

fn parse(context: &Context, content: Content, bytes: &Bytes) -> Result<Value, Status> {
    match content {
        Content::Json => gojson::parse(bytes).map_err(|error| {
            unrecognized(context, &format!("couldn't get version/kind; json parse error: {error}"), bytes)
        }),
        Content::Yaml => {
            let text =
                std::str::from_utf8(bytes).map_err(|_| Status::bad_request("the body is not UTF-8"))?;
            read_yaml(text).map_err(|error| unrecognized(context, &format!("yaml: {error}"), bytes))
        }
        Content::Protobuf => {
            let decoded = protobuf::decode(Types::builtin(), bytes);
            decoded.map(|(_, value)| value).map_err(|error| unrecognized(context, &error.to_string(), bytes))
        }
    }
}

/// YAML, with keys that stand twice taken as the last one, as upstream does unless it is strict.
fn read_yaml(text: &str) -> Result<Value, serde_saphyr::Error> {
    let mut options = serde_saphyr::Options::default();
    options.duplicate_keys = serde_saphyr::DuplicateKeyPolicy::LastWins;
    yaml::lenient(text, |text| serde_saphyr::from_str_with_options::<Value>(text, options.clone()))
}

/// What errors of YAML begin with; each stands on a line of its own.
const YAML_ERRORS: &str = "yaml: unmarshal errors:\n  ";

/// What stands twice in YAML that can be read otherwise.
fn yaml_duplicate(text: &str) -> Option<String> {
    let mut options = serde_saphyr::Options::default();
    options.duplicate_keys = serde_saphyr::DuplicateKeyPolicy::Error;
    let read = |text: &str| serde_saphyr::from_str_with_options::<Value>(text, options.clone());
    let error = yaml::lenient(text, read).err()?;
    Some(match error.without_snippet() {
        serde_saphyr::Error::DuplicateMappingKey { key: Some(key), location } => {
            format!("line {}: key {} already set in map", location.line(), gotext::quote(key))
        }
        other => other.to_string().lines().next().unwrap_or_default().to_owned(),
    })
}

fn unrecognized(context: &Context, why: &str, bytes: &[u8]) -> Status {
    Status::bad_request(format!(
        "the object provided is unrecognized (must be of type {}): {why} ({})",
        context.shown.kind,
        summary(bytes)
    ))
}

/// The beginning of a body that cannot be read: as text if it looks like JSON, else in hexadecimal.
fn summary(bytes: &[u8]) -> String {
    const SHOWN: usize = 30;
    let head = &bytes[..bytes.len().min(SHOWN)];
    let text = match bytes.first() {
        None => return "<empty>".to_owned(),
        Some(b'{') => String::from_utf8_lossy(head).into_owned(),
        Some(_) => head.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    if bytes.len() > SHOWN { text + " ..." } else { text }
}

/// What the body says it is must be what the path is about; saying nothing is fine.
fn check_type(context: &Context, tree: &mut Tree, bytes: &[u8]) -> Result<(), Status> {
    let resource = &context.shown;
    for key in ["kind", "apiVersion"] {
        if let Some(value) = tree.get(key).filter(|value| !value.is_string() && !value.is_null()) {
            let found = gojson::type_name(value);
            let why = format!("json: cannot unmarshal {found} into Go struct field .{key} of type string");
            return Err(unrecognized(
                context,
                &format!("couldn't get version/kind; json parse error: {why}"),
                bytes,
            ));
        }
    }
    let text = |tree: &Tree, key: &str| tree.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (kind, version) = (text(tree, "kind"), text(tree, "apiVersion"));
    if !version.is_empty() && version != resource.api_version {
        return Err(Status::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({})",
            resource.api_version
        )));
    }
    if !kind.is_empty() && kind != resource.kind {
        return Err(Status::bad_request(format!(
            "{kind} in version {:?} cannot be handled as a {}: the kinds differ",
            resource.version, resource.kind
        )));
    }
    tree.insert("kind".into(), resource.kind.as_str().into());
    tree.insert("apiVersion".into(), resource.api_version.as_str().into());
    Ok(())
}

/// `text`: the JSON it was read from, if what is unknown or doubled in it is to be reported.
fn conform(
    context: &Context,
    tree: Tree,
    text: Option<&Bytes>,
    doubled: bool,
    strictness: Strictness,
) -> Result<Decoded, Status> {
    let resource = &context.shown;
    let types = Types::builtin();
    let mut value = Value::Object(tree);
    let found = match (&resource.schema, &mut value) {
        (Schema::Typed(message), value) => {
            let conformed = schema::conform(types, message, value, schema::Options::default())
                .map_err(|error| not_handled(context, &error.to_string()))?;
            // Only the text has the order in which upstream reports; it is read again only if there is something.
            match text.filter(|_| doubled || !conformed.unknown.is_empty()) {
                Some(text) => schema::strict_errors(types, message, text),
                None => conformed.unknown,
            }
        }
        (Schema::Custom(custom) | Schema::Own(custom), Value::Object(tree)) => {
            let accepted = custom.version.accept(tree, Malformed::Refuse);
            let unknown = unknown_fields(accepted.map_err(|error| not_handled(context, &error))?);
            let doubled = text.filter(|_| doubled).map_or(Vec::new(), |text| schema::find_duplicates(text));
            doubled.into_iter().chain(unknown).collect()
        }
        (_, value) => {
            check_metadata(context, types, value)?;
            text.filter(|_| doubled).map_or(Vec::new(), |text| schema::find_duplicates(text))
        }
    };
    let Value::Object(tree) = value else { return Err(Status::bad_request("the body is not an object")) };
    (resource.row.readable)(&tree).map_err(|why| not_handled(context, &why))?;
    match strictness {
        Strictness::Strict if !found.is_empty() => {
            Err(not_handled(context, &format!("strict decoding error: {}", found.join(", "))))
        }
        Strictness::Ignore => Ok(Decoded { tree, warnings: Vec::new(), resets_managers: false }),
        _ => Ok(Decoded { tree, warnings: found, resets_managers: false }),
    }
}

fn unknown_fields(paths: Vec<String>) -> impl Iterator<Item = String> {
    paths.into_iter().map(|path| format!("unknown field {path:?}"))
}

fn not_handled(context: &Context, why: &str) -> Status {
    let (kind, version) = (&context.shown.kind, &context.shown.version);
    Status::bad_request(format!("{kind} in version {version:?} cannot be handled as a {kind}: {why}"))
}

/// Kinds without a type of their own still have ordinary metadata.
fn check_metadata(context: &Context, types: &Types, value: &mut Value) -> Result<(), Status> {
    let Some(message) = types.get("meta/v1.ObjectMeta") else { return Ok(()) };
    let Some(metadata) = value.get_mut("metadata") else { return Ok(()) };
    schema::conform(types, message, metadata, schema::Options::default())
        .map_err(|error| not_handled(context, &error.to_string()))?;
    Ok(())
}

/// A configuration to be applied: YAML, of which JSON is a part. It is not made to fit the kind; applying does that.
pub fn configuration(context: &Context, bytes: &Bytes) -> Result<Decoded, Status> {
    let strictness = strictness(context)?;
    let text = std::str::from_utf8(bytes).map_err(|_| Status::bad_request("the body is not UTF-8"))?;
    let undecodable = |why: String| Status::bad_request(format!("error decoding YAML: {why}"));
    let looks_like_json = bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    let (value, doubled) = match looks_like_json.then(|| gojson::parse(bytes)) {
        Some(Ok(value)) => {
            let doubled = match strictness != Strictness::Ignore && schema::has_duplicates(bytes, &value) {
                true => schema::find_duplicates(bytes),
                false => Vec::new(),
            };
            (value, doubled)
        }
        _ => {
            let value = read_yaml(text).map_err(|error| undecodable(error.to_string()))?;
            (value, yaml_duplicate(text).filter(|_| strictness != Strictness::Ignore).into_iter().collect())
        }
    };
    if strictness == Strictness::Strict && !doubled.is_empty() {
        let all = doubled.join("\n  ");
        let why = format!("error strict decoding YAML: error converting YAML to JSON: {YAML_ERRORS}{all}");
        return Err(Status::bad_request(why));
    }
    match value {
        Value::Object(tree) => Ok(Decoded { tree, warnings: doubled, resets_managers: false }),
        _ => Err(undecodable("a configuration is an object".into())),
    }
}

/// What applying made of an object, in the form of the kind.
pub fn applied(context: &Context, tree: Tree) -> Result<Tree, Status> {
    Ok(conform(context, tree, None, false, Strictness::Ignore)?.tree)
}

/// A body of options, as DELETE has them.
pub fn options(context: &Context, bytes: &Bytes, kind: &str) -> Result<Tree, Status> {
    let content = negotiate::content(&context.headers, true)?;
    let mut value = match content {
        Content::Json => gojson::parse(bytes).map_err(|error| {
            Status::bad_request(format!("couldn't get version/kind; json parse error: {error}"))
        })?,
        content => parse(context, content, bytes)?,
    };
    let given = value.get("kind").and_then(Value::as_str).unwrap_or_default();
    if !given.is_empty() && given != kind {
        let version = value.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        return Err(Status::bad_request(format!(
            "no kind {given:?} is registered for version {version:?} here; want {kind}"
        )));
    }
    let types = Types::builtin();
    if let Some(message) = types.get(&format!("meta/v1.{kind}")) {
        schema::conform(types, message, &mut value, schema::Options::default())
            .map_err(|error| Status::bad_request(error.to_string()))?;
    }
    match value {
        Value::Object(tree) => Ok(tree),
        _ => Err(Status::bad_request(format!("the body is not a {kind}"))),
    }
}
