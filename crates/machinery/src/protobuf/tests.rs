use serde_json::json;

use super::*;

/// Builds messages by hand.
#[derive(Clone, Default)]
struct Build(Vec<u8>);

impl Build {
    fn raw_varint(mut self, mut value: u64) -> Self {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
        self
    }

    fn number(self, field: u64, value: i64) -> Self {
        self.raw_varint(field << 3).raw_varint(value as u64)
    }

    fn bytes(self, field: u64, value: &[u8]) -> Self {
        let mut build = self.raw_varint(field << 3 | 2).raw_varint(value.len() as u64);
        build.0.extend_from_slice(value);
        build
    }

    fn text(self, field: u64, value: &str) -> Self {
        self.bytes(field, value.as_bytes())
    }

    fn message(self, field: u64, value: Build) -> Self {
        self.bytes(field, &value.0)
    }

    fn double(self, field: u64, value: f64) -> Self {
        let mut build = self.raw_varint(field << 3 | 1);
        build.0.extend_from_slice(&value.to_le_bytes());
        build
    }
}

fn build() -> Build {
    Build::default()
}

fn envelope(api_version: &str, kind: &str, raw: Build) -> Vec<u8> {
    let unknown = build()
        .message(1, build().text(1, api_version).text(2, kind))
        .message(2, raw)
        .text(3, "")
        .text(4, "");
    [&PREFIX[..], &unknown.0].concat()
}

fn object(message: &str, raw: Build) -> Value {
    let types = Types::builtin();
    decode_message(types, types.get(message).unwrap(), &raw.0).unwrap()
}

fn refusal(message: &str, raw: &[u8]) -> ProtoError {
    let types = Types::builtin();
    decode_message(types, types.get(message).unwrap(), raw).unwrap_err()
}

#[test]
fn a_body_says_its_kind() {
    let raw =
        build().message(1, build().text(1, "a").text(3, "ns")).message(2, build().text(1, "k").text(2, "v"));
    let (gvk, value) = decode(Types::builtin(), &envelope("v1", "ConfigMap", raw)).unwrap();
    assert_eq!(gvk, GroupVersionKind::new("v1", "ConfigMap"));
    let wanted = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "ns"}, "data": {"k": "v"},
    });
    assert_eq!(value, wanted);
}

#[test]
fn options_belong_to_every_group() {
    for api_version in ["v1", "meta.k8s.io/v1", "apps/v1"] {
        let raw = build().number(1, 30).message(2, build().text(1, "u")).text(4, "Foreground");
        let (_, value) = decode(Types::builtin(), &envelope(api_version, "DeleteOptions", raw)).unwrap();
        assert_eq!(value["gracePeriodSeconds"], 30, "{api_version}");
        assert_eq!(
            (&value["preconditions"]["uid"], &value["propagationPolicy"]),
            (&json!("u"), &json!("Foreground"))
        );
    }
}

#[test]
fn scalars_have_their_json_form() {
    let spec = build()
        .number(2, 15)
        .message(4, build().number(1, 1_704_067_200).number(2, 123_456_789))
        .message(3, build().number(1, 1_704_067_200));
    assert_eq!(
        object("coordination/v1.LeaseSpec", spec),
        json!({
            "leaseDurationSeconds": 15, "renewTime": "2024-01-01T00:00:00.123456Z", "acquireTime": "2024-01-01T00:00:00.000000Z",
        })
    );
    let meta = build().message(8, build().number(1, 1_704_067_200)).message(9, build()).number(7, -1);
    assert_eq!(
        object("meta/v1.ObjectMeta", meta),
        json!({"creationTimestamp": "2024-01-01T00:00:00Z", "deletionTimestamp": null, "generation": -1})
    );
    let int = |kind, number, text| build().number(1, kind).number(2, number).text(3, text);
    assert_eq!(object("core/v1.ServicePort", build().message(4, int(0, 80, ""))), json!({"targetPort": 80}));
    assert_eq!(
        object("core/v1.ServicePort", build().message(4, int(1, 0, "http"))),
        json!({"targetPort": "http"})
    );
    let limits = build().text(1, "cpu").message(2, build().text(1, "100m"));
    assert_eq!(
        object("core/v1.ResourceRequirements", build().message(1, limits)),
        json!({"limits": {"cpu": "100m"}})
    );
    let data = build().text(1, "k").bytes(2, &[1, 2, 255]);
    assert_eq!(object("core/v1.Secret", build().message(2, data)), json!({"data": {"k": "AQL/"}}));
    assert_eq!(object("apiextensions/v1.JSONSchemaProps", build().double(9, 1.5)), json!({"maximum": 1.5}));
}

#[test]
fn inlined_messages_are_nested_on_the_wire() {
    let host_path = build().message(1, build().text(1, "/data"));
    let volume = build().text(1, "v").message(2, host_path);
    assert_eq!(object("core/v1.Volume", volume), json!({"name": "v", "hostPath": {"path": "/data"}}));
}

#[test]
fn numbers_come_packed_or_not() {
    let packed = build().raw_varint(1).raw_varint(200);
    for context in [build().number(4, 1).number(4, 200), build().bytes(4, &packed.0)] {
        assert_eq!(object("core/v1.PodSecurityContext", context), json!({"supplementalGroups": [1, 200]}));
    }
}

#[test]
fn wrapped_lists_and_raw_json_unfold() {
    let entry = build().text(1, "scopes").message(2, build().text(1, "a").text(1, "b"));
    assert_eq!(
        object("authentication/v1.UserInfo", build().message(4, entry)),
        json!({"extra": {"scopes": ["a", "b"]}})
    );
    let raw = |text: &str| build().text(1, text);
    assert_eq!(
        object("apps/v1.ControllerRevision", build().message(2, raw(r#"{"a":[1]}"#))),
        json!({"data": {"a": [1]}})
    );
    assert_eq!(
        object("meta/v1.ManagedFieldsEntry", build().message(7, raw(r#"{"f:a":{}}"#))),
        json!({"fieldsV1": {"f:a": {}}})
    );
    let inner = envelope("v1", "Secret", build().text(3, "Opaque"));
    let list = object("core/v1.List", build().message(2, build().bytes(1, &inner)));
    assert_eq!(list, json!({"items": [{"apiVersion": "v1", "kind": "Secret", "type": "Opaque"}]}));
}

#[test]
fn schemas_or_something_else() {
    let schema = build().text(5, "string");
    for (field, raw, value) in [
        (30, build().number(1, 1), json!({"additionalProperties": true})),
        (
            30,
            build().number(1, 1).message(2, schema.clone()),
            json!({"additionalProperties": {"type": "string"}}),
        ),
        (24, build().message(1, schema.clone()), json!({"items": {"type": "string"}})),
        (
            24,
            build().message(2, schema.clone()).message(2, build()),
            json!({"items": [{"type": "string"}, {}]}),
        ),
    ] {
        assert_eq!(object("apiextensions/v1.JSONSchemaProps", build().message(field, raw)), value);
    }
}

#[test]
fn what_is_unknown_is_skipped() {
    let mut raw = build().number(999, 7).text(998, "x").double(997, 1.0).0;
    raw.extend(build().raw_varint(996 << 3 | 5).0);
    raw.extend([1, 2, 3, 4]);
    raw.extend(build().raw_varint(995 << 3 | 3).number(1, 1).raw_varint(995 << 3 | 4).text(3, "Opaque").0);
    let types = Types::builtin();
    assert_eq!(
        decode_message(types, types.get("core/v1.Secret").unwrap(), &raw),
        Ok(json!({"type": "Opaque"}))
    );
}

#[test]
fn malformed_bodies_are_refused() {
    let types = Types::builtin();
    let body = |bytes: &[u8]| decode(types, bytes).map(|_| ()).unwrap_err().to_string();
    for (bytes, message) in [
        (&b""[..], "empty data"),
        (b"{}", "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"),
        (b"k8s\0", "empty body"),
        (b"k8s\0\x0a\xff", "unexpected EOF"),
    ] {
        assert_eq!(body(bytes), message);
    }
    assert_eq!(
        body(&envelope("v1", "", build())),
        "Object 'Kind' is missing in 'runtime.TypeMeta{APIVersion:\"v1\", Kind:\"\"}'"
    );
    assert_eq!(body(&envelope("x/v1", "Y", build())), "no kind \"Y\" is registered for version \"x/v1\"");
    assert_eq!(refusal("core/v1.Secret", &[0x0a, 5, 1]), ProtoError::Truncated);
    assert_eq!(refusal("core/v1.Secret", &[0x08, 1]), ProtoError::WireType { found: 0, field: "metadata" });
    assert_eq!(refusal("core/v1.Secret", &[0x06, 1]), ProtoError::IllegalTag { message: "Secret", tag: 6 });
    assert_eq!(refusal("core/v1.Secret", &[0x0f]), ProtoError::IllegalWireType(7));
    assert_eq!(refusal("core/v1.Secret", &[0xff; 12]), ProtoError::Overflow);
    let raw = build().message(2, build().text(1, "{"));
    assert_eq!(
        refusal("apps/v1.ControllerRevision", &raw.0),
        ProtoError::Json("unexpected end of JSON input".to_owned())
    );
}

#[test]
fn depth_is_bounded() {
    let mut schema = build();
    for _ in 0..1000 {
        schema = build().message(28, schema);
    }
    assert_eq!(refusal("apiextensions/v1.JSONSchemaProps", &schema.0), ProtoError::TooDeep);
    let deep = format!("{}{}", "[".repeat(126), "]".repeat(126));
    let raw = build().message(1, build()).message(2, build().text(1, &deep));
    assert!(decode(Types::builtin(), &envelope("apps/v1", "ControllerRevision", raw)).is_ok());
    let deep = format!("{}{}", "[".repeat(127), "]".repeat(127));
    let raw = build().message(2, build().text(1, &deep));
    assert_eq!(
        decode(Types::builtin(), &envelope("apps/v1", "ControllerRevision", raw)),
        Err(ProtoError::TooDeep)
    );
}
