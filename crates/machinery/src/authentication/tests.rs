use serde_json::{Map, Value, json};

use super::{compile, parse};

fn mk_config(jwt: &[Value]) -> Value {
    json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration", "jwt": jwt})
}

fn mk_jwt() -> Value {
    json!({
        "issuer": {"url": "https://issuer.example.com", "audiences": ["a"]},
        "claimMappings": {"username": {"claim": "sub", "prefix": ""}},
    })
}

fn messages(config: Value) -> Vec<String> {
    let config = parse(config).unwrap();
    let causes = compile(&config, &["https://own.example.com".to_owned()]).err().unwrap_or_default();
    causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()
}

/// The configuration of one issuer with the value at a place set.
fn with(pointer: &str, value: Value) -> Value {
    let mut jwt = mk_jwt();
    let mut place = &mut jwt;
    for name in pointer.split('/') {
        place = &mut place[name];
    }
    *place = value;
    mk_config(&[jwt])
}

#[test]
fn what_is_wrong_is_said_as_upstream_says_it() {
    let twice = |value: Value| json!([value, value]);
    let rows = [
        ("issuer/url", json!(""), "issuer.url: Required value"),
        (
            "issuer/url",
            json!("http://a"),
            r#"issuer.url: Invalid value: "http://a": URL scheme must be https"#,
        ),
        (
            "issuer/url",
            json!("https://u@a"),
            r#"issuer.url: Invalid value: "https://u@a": URL must not contain a username or password"#,
        ),
        (
            "issuer/url",
            json!("https://a?b"),
            r#"issuer.url: Invalid value: "https://a?b": URL must not contain a query"#,
        ),
        (
            "issuer/url",
            json!("https://a#b"),
            r#"issuer.url: Invalid value: "https://a#b": URL must not contain a fragment"#,
        ),
        (
            "issuer/url",
            json!("https://own.example.com"),
            r#"issuer.url: Invalid value: "https://own.example.com": URL must not overlap with disallowed issuers: [https://own.example.com]"#,
        ),
        (
            "issuer/discoveryURL",
            json!("https://issuer.example.com/"),
            r#"issuer.discoveryURL: Invalid value: "https://issuer.example.com/": discoveryURL must be different from URL"#,
        ),
        (
            "issuer/audiences",
            json!([]),
            "issuer.audiences: Required value: at least one jwt[0].issuer.audiences is required",
        ),
        ("issuer/audiences", json!([""]), "issuer.audiences[0]: Required value"),
        (
            "issuer/audiences",
            json!(["a", "b"]),
            r#"issuer.audienceMatchPolicy: Invalid value: "": audienceMatchPolicy must be MatchAny for multiple audiences"#,
        ),
        (
            "issuer/audienceMatchPolicy",
            json!("All"),
            r#"issuer.audienceMatchPolicy: Invalid value: "All": audienceMatchPolicy must be empty or MatchAny for single audience"#,
        ),
        (
            "issuer/certificateAuthority",
            json!("x"),
            r#"issuer.certificateAuthority: Invalid value: "<omitted>": data does not contain any valid RSA or ECDSA certificates"#,
        ),
        (
            "issuer/egressSelectorType",
            json!("panda"),
            r#"issuer.egressSelectorType: Invalid value: "panda": egress selector must be either controlplane or cluster"#,
        ),
        (
            "claimMappings/username",
            json!({}),
            "claimMappings.username: Required value: claim or expression is required",
        ),
        (
            "claimMappings/username",
            json!({"claim": "a"}),
            "claimMappings.username.prefix: Required value: prefix is required when claim is set. It can be set to an empty string to disable prefixing",
        ),
        (
            "claimMappings/username",
            json!({"claim": "a", "expression": "claims.a"}),
            r#"claimMappings.username: Invalid value: "": claim and expression can't both be set"#,
        ),
        (
            "claimMappings/username",
            json!({"prefix": "x", "expression": "claims.a"}),
            r#"claimMappings.username.prefix: Invalid value: "x": may not be specified when expression is set"#,
        ),
        (
            "claimMappings/username",
            json!({"expression": "claims.?email"}),
            r#"claimMappings.username.expression: Invalid value: "claims.?email": claims.email_verified must be used in claimMappings.username.expression or claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is used in claimMappings.username.expression"#,
        ),
        (
            "claimMappings/username",
            json!({"expression": "[\"a\"].map(i, i + claims.email)"}),
            r#"claimMappings.username.expression: Invalid value: "[\"a\"].map(i, i + claims.email)": claims.email_verified must be used in claimMappings.username.expression or claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is used in claimMappings.username.expression"#,
        ),
        (
            "claimMappings/uid",
            json!({"claim": "a", "expression": "claims.a"}),
            r#"claimMappings.uid: Invalid value: "": claim and expression can't both be set"#,
        ),
        (
            "claimMappings/extra",
            json!([{"valueExpression": "claims.a"}]),
            "claimMappings.extra[0].key: Required value",
        ),
        (
            "claimMappings/extra",
            json!([{"key": "a.b/c"}]),
            "claimMappings.extra[0].valueExpression: Required value",
        ),
        (
            "claimMappings/extra",
            json!([{"key": "a", "valueExpression": "claims.a"}]),
            r#"claimMappings.extra[0].key: Invalid value: "a": must be a domain-prefixed path (such as "acme.io/foo")"#,
        ),
        (
            "claimMappings/extra",
            json!([{"key": "x.k8s.io/c", "valueExpression": "claims.a"}]),
            r#"claimMappings.extra[0].key: Invalid value: "x.k8s.io/c": k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use"#,
        ),
        (
            "claimMappings/extra",
            json!([{"key": "a.b/C", "valueExpression": "claims.a"}]),
            r#"claimMappings.extra[0].key: Invalid value: "a.b/C": must be lowercase"#,
        ),
        (
            "claimValidationRules",
            json!([{}]),
            "claimValidationRules[0]: Required value: claim or expression is required",
        ),
        (
            "claimValidationRules",
            twice(json!({"claim": "a"})),
            r#"claimValidationRules[1].claim: Duplicate value: "a""#,
        ),
        (
            "claimValidationRules",
            json!([{"claim": "a", "message": "m"}]),
            r#"claimValidationRules[0].message: Invalid value: "m": may not be specified when claim is set"#,
        ),
        (
            "claimValidationRules",
            json!([{"expression": "claims.a"}]),
            r#"claimValidationRules[0].expression: Invalid value: "claims.a": must evaluate to bool"#,
        ),
        (
            "claimValidationRules",
            json!([{"expression": "true", "requiredValue": "v"}]),
            r#"claimValidationRules[0].requiredValue: Invalid value: "v": may not be specified when expression is set"#,
        ),
        ("userValidationRules", json!([{}]), "userValidationRules[0].expression: Required value"),
        (
            "userValidationRules",
            twice(json!({"expression": "user.username == 'a'"})),
            r#"userValidationRules[1].expression: Duplicate value: "user.username == 'a'""#,
        ),
    ];
    for (pointer, value, expected) in rows {
        assert_eq!(
            messages(with(pointer, value.clone())),
            [format!("jwt[0].{expected}")],
            "{pointer} = {value}"
        );
    }
}

#[test]
fn expressions_that_do_not_compile_are_refused() {
    for (pointer, value) in [
        ("claimMappings/username", json!({"expression": "claims."})),
        ("claimMappings/username", json!({"expression": "user.username"})),
        ("userValidationRules", json!([{"expression": "user.nothing == 'a'"}])),
        ("userValidationRules", json!([{"expression": "claims.a == 'a'"}])),
    ] {
        let all = messages(with(pointer, value.clone()));
        assert!(
            all.len() == 1 && all[0].contains("compilation failed: ERROR: <input>:1:"),
            "{value}: {all:?}"
        );
    }
}

#[test]
fn issuers_stand_once_and_anonymous_says_what_it_means() {
    assert_eq!(messages(mk_config(&[])), [""; 0]);
    assert_eq!(messages(mk_config(&[mk_jwt()])), [""; 0]);
    assert_eq!(
        messages(mk_config(&[mk_jwt(), mk_jwt()])),
        [r#"jwt[1].issuer.url: Duplicate value: "https://issuer.example.com""#]
    );
    assert_eq!(messages(mk_config(&vec![mk_jwt(); 65])), ["jwt: Too many: 65: must have at most 64 items"]);
    let mut config = mk_config(&[]);
    config["anonymous"] = json!({"enabled": false, "conditions": [{"path": "/livez"}]});
    let all = messages(config);
    assert!(all.len() == 1 && all[0].ends_with("enabled should be set to true when conditions are defined"));
}

#[test]
fn misspelt_fields_and_other_kinds_are_refused() {
    for (wrong, word) in [
        (with("isuer", json!({})), "isuer"),
        (with("issuer/URL", json!("https://a")), "URL"),
        (json!({"apiVersion": "v1", "kind": "ConfigMap"}), "no kind \"ConfigMap\""),
        (json!([]), "no kind"),
        (json!({"apiVersion": "apiserver.config.k8s.io/v2", "kind": "AuthenticationConfiguration"}), "v2"),
    ] {
        let error = parse(wrong.clone()).unwrap_err();
        assert!(error.contains(word), "{wrong}: {error}");
    }
    for version in ["v1", "v1beta1", "v1alpha1"] {
        let mut config = mk_config(&[mk_jwt()]);
        config["apiVersion"] = json!(format!("apiserver.config.k8s.io/{version}"));
        assert!(parse(config).is_ok());
    }
}

fn identity(jwt: Value, claims: Value) -> Result<super::Identity, String> {
    let mappings = compile(&parse(mk_config(&[jwt])).unwrap(), &[]).unwrap();
    mappings[0].identity(&claims.as_object().cloned().unwrap_or_else(Map::new))
}

#[test]
fn claims_become_a_user() {
    let user = identity(mk_jwt(), json!({"sub": "ann", "jti": "1"})).unwrap();
    assert_eq!((user.username.as_str(), user.groups.len()), ("ann", 0));
    assert_eq!(user.extra["authentication.kubernetes.io/credential-id"], ["JTI=1"]);
    let mut jwt = mk_jwt();
    jwt["claimMappings"]["groups"] = json!({"claim": "role", "prefix": "r:"});
    assert_eq!(identity(jwt.clone(), json!({"sub": "a", "role": "x"})).unwrap().groups, ["r:x"]);
    assert_eq!(
        identity(jwt.clone(), json!({"sub": "a", "role": ["x", "y"]})).unwrap().groups,
        ["r:x", "r:y"]
    );
    assert_eq!(identity(jwt.clone(), json!({"sub": "a"})).unwrap().groups, [""; 0]);
    let error = identity(jwt, json!({"sub": "a", "role": {}})).unwrap_err();
    assert!(error.starts_with("oidc: parse groups claim \"role\": "), "{error}");

    let mut email = mk_jwt();
    email["claimMappings"]["username"]["claim"] = json!("email");
    for (verified, error) in [
        (Value::Null, "oidc: email not verified"),
        (json!(false), "oidc: email not verified"),
        (
            json!("true"),
            "oidc: parse 'email_verified' claim: json: cannot unmarshal string into Go value of type bool",
        ),
    ] {
        let claims = json!({"email": "a@b", "email_verified": verified});
        assert_eq!(identity(email.clone(), claims).unwrap_err(), error);
    }
    assert_eq!(identity(email.clone(), json!({"email": "a@b"})).unwrap().username, "a@b");
    assert_eq!(
        identity(email, json!({})).unwrap_err(),
        "oidc: parse username claims \"email\": claim not present"
    );
}

#[test]
fn numbers_in_claims_are_doubles_as_in_go() {
    let mut jwt = mk_jwt();
    jwt["claimMappings"]["username"] =
        json!({"expression": "string(type(claims.n) == double) + string(claims.n)"});
    assert_eq!(identity(jwt, json!({"n": 5})).unwrap().username, "true5");
}
