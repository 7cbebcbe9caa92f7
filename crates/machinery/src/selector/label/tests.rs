use super::*;
use serde_json::json;

fn labels() -> Vec<(CompactString, CompactString)> {
    [("app", "web"), ("empty", ""), ("n", "5")].map(|(key, value)| (key.into(), value.into())).into()
}

fn matches(text: &str) -> bool {
    LabelSelector::parse(text).unwrap().matches(&labels())
}

#[test]
fn each_operator_means_what_upstream_means() {
    for text in [
        "",
        "  ",
        "app",
        "!other",
        "app=web",
        "app == web",
        "app!=db",
        "other!=db",
        "app in (web,db)",
        "other notin (web)",
        "app notin (db)",
        "empty=",
        "empty in ()",
        "empty in (,x)",
        "n>4",
        "n<6",
        "app=web,n>4,!other",
    ] {
        assert!(matches(text), "{text}");
    }
    for text in [
        "other",
        "!app",
        "app=db",
        "other=",
        "app!=web",
        "app in (db)",
        "app notin (web)",
        "n>5",
        "app<9",
        "x<9",
    ] {
        assert!(!matches(text), "{text}");
    }
}

#[test]
fn the_printed_form_is_canonical() {
    for (text, printed) in [
        ("", ""),
        (" b , a = x ", "a=x,b"),
        ("a in (z, y,,z)", "a in (,y,z)"),
        ("a notin(x)", "a notin (x)"),
        ("!a,b==c,d!=e,f>1,g<2", "!a,b==c,d!=e,f>1,g<2"),
        ("in in (in,notin)", "in in (in,notin)"),
    ] {
        let selector = LabelSelector::parse(text).unwrap();
        assert_eq!(selector.to_string(), printed);
        assert_eq!(LabelSelector::parse(printed).unwrap(), selector, "printing loses nothing");
    }
}

#[test]
fn mistakes_are_explained() {
    for (text, message) in [
        (",", "found ',', expected: !, identifier, or 'end of string'"),
        ("a,", "found '', expected: identifier after ','"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("a==!", "unable to parse requirement: found '!', expected: identifier"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a in (=", "unable to parse requirement: found '=', expected: ',', ')' or identifier"),
        ("a in (b,=", "unable to parse requirement: found '=', expected: ',', or identifier"),
        (
            "a>x",
            "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
        ),
    ] {
        assert_eq!(LabelSelector::parse(text).unwrap_err(), message, "{text}");
    }
    let key = LabelSelector::parse("-a=b").unwrap_err();
    assert!(
        key.starts_with("unable to parse requirement: <nil>: Invalid value: \"-a\": name part must"),
        "{key}"
    );
    let value = LabelSelector::parse("a=b/").unwrap_err();
    assert!(
        value.starts_with("unable to parse requirement: values[0][a]: Invalid value: \"b/\": a valid label"),
        "{value}"
    );
}

#[test]
fn objects_select_like_text() {
    let select = |object: Value| LabelSelector::from_object(&object).unwrap();
    assert!(!select(json!(null)).matches(&labels()), "an absent selector selects nothing");
    assert!(select(json!({})).matches(&labels()), "an empty one everything");
    let selector = select(json!({
        "matchLabels": {"b": "1"},
        "matchExpressions": [
            {"key": "a", "operator": "In", "values": ["y", "x"]},
            {"key": "c", "operator": "Exists"},
            {"key": "d", "operator": "DoesNotExist"},
        ],
    }));
    assert_eq!(selector.to_string(), "a in (x,y),b=1,c,!d");
    assert_eq!((selector.exact("b"), selector.exact("a")), (Some("1"), None));
    assert_eq!(
        LabelSelector::from_object(&json!({"matchExpressions": [{"key": "a", "operator": "Gt"}]})),
        Err("\"Gt\" is not a valid label selector operator".to_owned())
    );
    assert_eq!(
        LabelSelector::from_object(&json!({"matchExpressions": [{"key": "a", "operator": "In"}]})),
        Err("values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty".to_owned())
    );
}

#[test]
fn objects_in_specs_are_checked_by_field() {
    let causes = validate_object(
        &json!({"matchExpressions": [
            {"key": "a", "operator": "In"},
            {"key": "a", "operator": "Exists", "values": ["x"]},
            {"key": "a", "operator": "Near", "values": ["-"]},
        ]}),
        "spec.selector",
    );
    let texts: Vec<String> =
        causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
    assert_eq!(
        texts[..3],
        [
            "spec.selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
            "spec.selector.matchExpressions[1].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            "spec.selector.matchExpressions[2].operator: Invalid value: \"Near\": not a valid selector operator",
        ]
    );
    assert!(
        texts[3]
            .starts_with("spec.selector.matchExpressions[2].values[0]: Invalid value: \"-\": a valid label")
    );
}
