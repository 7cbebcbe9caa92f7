use serde_json::json;

use super::*;
use crate::audit::Stages;

fn mk_record(level: Level, omit_managed_fields: bool) -> Record {
    let demand = Demand { level, omit_stages: Stages::default(), omit_managed_fields, refusals_only: false };
    let received = Timestamp::from_millisecond(1_893_456_000_001).unwrap();
    let mut record = Record::new(demand, "id-1".into(), received);
    record.request_uri = "/api/v1/namespaces/n/configmaps".into();
    record.verb = "create".into();
    record.user = Identity { username: "ann".into(), groups: vec!["g".into()], ..Identity::default() };
    record.object = Some(ObjectReference {
        resource: "configmaps".into(),
        namespace: "n".into(),
        api_version: "v1".into(),
        ..ObjectReference::default()
    });
    record
}

fn seen(record: &Record, stage: Stage) -> Value {
    let now = Timestamp::from_second(1_893_456_002).unwrap();
    serde_json::from_slice(&record.encode(stage, now)).unwrap()
}

#[test]
fn an_event_has_upstreams_members_in_its_order() {
    let mut record = mk_record(Level::Metadata, false);
    record.source_addresses = vec!["10.0.0.1".into()];
    record.annotations.add("k", "v");
    record.set_request_object(json!({"metadata": {"name": "c", "uid": "u"}, "data": {"a": "b"}}));
    record.set_response(201, None);
    let text = String::from_utf8(
        record.encode(Stage::ResponseComplete, Timestamp::from_second(1_893_456_002).unwrap()),
    );
    assert_eq!(
        text.unwrap(),
        r#"{"level":"Metadata","auditID":"id-1","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/n/configmaps","verb":"create","user":{"username":"ann","groups":["g"]},"sourceIPs":["10.0.0.1"],"objectRef":{"resource":"configmaps","namespace":"n","name":"c","uid":"u","apiVersion":"v1"},"responseStatus":{"code":201,"metadata":{}},"requestReceivedTimestamp":"2030-01-01T00:00:00.001000Z","stageTimestamp":"2030-01-01T00:00:02.000000Z","annotations":{"k":"v"}}"#
    );
}

#[test]
fn the_level_decides_which_bodies_are_told() {
    let sent = json!({"metadata": {"name": "c", "managedFields": []}, "data": {"a": "b"}});
    let answered = json!({"kind": "ConfigMap", "metadata": {"name": "c", "managedFields": []}});
    for (level, omit, request, response) in [
        (Level::Metadata, false, None, None),
        (Level::Request, false, Some(sent.clone()), None),
        (Level::RequestResponse, false, Some(sent.clone()), Some(answered.clone())),
        (
            Level::RequestResponse,
            true,
            Some(json!({"metadata": {"name": "c"}, "data": {"a": "b"}})),
            Some(json!({"kind": "ConfigMap", "metadata": {"name": "c"}})),
        ),
    ] {
        let mut record = mk_record(level, omit);
        record.set_request_object(sent.clone());
        record.set_response(201, Some(answered.clone()));
        let event = seen(&record, Stage::ResponseComplete);
        assert_eq!(event.get("requestObject").cloned(), request, "{level:?}");
        assert_eq!(event.get("responseObject").cloned(), response, "{level:?}");
    }
}

#[test]
fn managed_fields_are_dropped_from_lists_and_tables() {
    let mut list = json!({"items": [{"metadata": {"managedFields": [], "name": "a"}}],
        "rows": [{"object": {"metadata": {"managedFields": []}}}]});
    drop_managed_fields(&mut list);
    assert_eq!(list, json!({"items": [{"metadata": {"name": "a"}}], "rows": [{"object": {"metadata": {}}}]}));
}

#[test]
fn a_refusal_is_told_in_full_at_every_level() {
    let mut record = mk_record(Level::Metadata, false);
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "no", "reason": "Forbidden", "details": {"name": "c"}, "code": 403});
    record.set_response(403, Some(status));
    let expected = json!({"metadata": {}, "status": "Failure", "message": "no", "reason": "Forbidden",
        "details": {"name": "c"}, "code": 403});
    let event = seen(&record, Stage::ResponseComplete);
    assert_eq!(event["responseStatus"], expected);
    assert_eq!(event.get("responseObject"), None);
}

#[test]
fn refusals_only_means_no_event_of_what_succeeds() {
    let mut record = mk_record(Level::Metadata, false);
    record.demand.refusals_only = true;
    assert!(!record.tells(Stage::RequestReceived), "it is not known yet how it ends");
    record.set_response(200, None);
    assert!(!record.tells(Stage::ResponseComplete));
    record.set_response(403, None);
    assert!(record.tells(Stage::ResponseComplete));
}

#[test]
fn a_received_request_is_as_old_as_its_stage() {
    let event = seen(&mk_record(Level::Metadata, false), Stage::RequestReceived);
    assert_eq!(event["stageTimestamp"], event["requestReceivedTimestamp"]);
}

#[test]
fn sources() {
    let peer: Option<IpAddr> = Some("10.0.0.9".parse().unwrap());
    for (forwarded, real, expected) in [
        ("", "", vec!["10.0.0.9"]),
        ("1.1.1.1, nonsense,2.2.2.2", "", vec!["1.1.1.1", "2.2.2.2", "10.0.0.9"]),
        ("1.1.1.1", "1.1.1.1", vec!["1.1.1.1", "10.0.0.9"]),
        ("1.1.1.1", "3.3.3.3", vec!["1.1.1.1", "3.3.3.3", "10.0.0.9"]),
        ("10.0.0.9", "", vec!["10.0.0.9"]),
        ("2001:db8::1", "", vec!["2001:db8::1", "10.0.0.9"]),
    ] {
        assert_eq!(source_addresses(forwarded, real, peer), expected, "{forwarded} {real}");
    }
}

#[test]
fn a_long_name_of_a_client_is_cut_between_characters() {
    let mut record = mk_record(Level::Metadata, false);
    record.set_user_agent(&"ä".repeat(600));
    assert_eq!(record.user_agent, format!("{}...TRUNCATED", "ä".repeat(512)));
}
