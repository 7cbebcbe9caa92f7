//! What two servers make of the same object.

use std::collections::BTreeSet;

use serde_json::{Value, json};

/// A reply of the real server beside Hanse's.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Both take it; where what they make of it differs.
    Accepted(Vec<Difference>),
    /// Both refuse it.
    Refused {
        /// With the same code, for the same fields and reasons.
        same_causes: bool,
        same_message: bool,
    },
    RefusedOnlyHere,
    AcceptedOnlyHere,
    /// The real server failed instead of judging.
    NothingToCompare,
}

/// One place where the results are not the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// `.spec.replicas`
    pub place: String,
    pub kube: String,
    pub hanse: String,
}

/// Who made Hanse's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The whole server.
    #[allow(dead_code)]
    Server,
    /// The rules of the kind alone, which know neither the time, nor the user, nor what is free.
    #[allow(dead_code)]
    Rules,
}

/// What was sent, and what came back from each: a code and a body.
pub struct Answers<'a> {
    pub sent: &'a Value,
    pub kube: (u16, &'a Value),
    pub hanse: (u16, &'a Value),
}

pub fn judge(answers: &Answers<'_>, by: By) -> Verdict {
    let accepts = |code: u16| (200..300).contains(&code);
    let (kube, hanse) = (answers.kube, answers.hanse);
    match (accepts(kube.0), accepts(hanse.0)) {
        // A failure of the real server is nothing to imitate.
        (false, _) if kube.0 == 0 || kube.0 >= 500 => Verdict::NothingToCompare,
        (true, true) => {
            let mut differences = Vec::new();
            if kube.0 != hanse.0 {
                differ(&mut differences, "code", kube.0, hanse.0);
            }
            let (one, other) = (comparable(kube.1, answers.sent, by), comparable(hanse.1, answers.sent, by));
            differences_of("", &one, &other, &mut differences);
            Verdict::Accepted(differences)
        }
        (true, false) => Verdict::RefusedOnlyHere,
        (false, true) => Verdict::AcceptedOnlyHere,
        (false, false) => Verdict::Refused {
            same_causes: kube.0 == hanse.0 && causes(kube.1) == causes(hanse.1),
            same_message: kube.1["message"] == hanse.1["message"],
        },
    }
}

/// The fields a refusal is about, and why.
pub fn causes(status: &Value) -> BTreeSet<(String, String)> {
    let causes = status.pointer("/details/causes").and_then(Value::as_array);
    let text = |cause: &Value, key: &str| cause[key].as_str().unwrap_or_default().to_owned();
    causes.into_iter().flatten().map(|cause| (text(cause, "field"), text(cause, "reason"))).collect()
}

/// An answered object without what each server chooses by itself: `(chosen)` where that is all that matters.
pub fn comparable(answer: &Value, sent: &Value, by: By) -> Value {
    let mut object = answer.clone();
    let uid = answer.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default().to_owned();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for key in ["managedFields", "uid", "creationTimestamp", "resourceVersion"] {
            metadata.remove(key);
        }
    }
    if sent.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().is_empty() {
        hide(&mut object, &["metadata", "name"], by);
    }
    if !uid.is_empty() {
        replace(&mut object, &uid, "(uid)");
    }
    match object["kind"].as_str() {
        Some("Pod") => hide_token_volume(&mut object),
        Some("Service") => hide_allocated(&mut object, sent, by),
        Some("PersistentVolume") => hide(&mut object, &["status", "lastPhaseTransitionTime"], by),
        Some("CertificateSigningRequest") => {
            // Names the credential, of which each server has its own.
            hide(&mut object, &["spec", "extra"], By::Rules);
            for key in ["username", "uid", "groups"].into_iter().filter(|_| by == By::Rules) {
                hide(&mut object, &["spec", key], by);
            }
        }
        _ => {}
    }
    object
}

/// The volume with a pod's token is called as each server likes.
fn hide_token_volume(pod: &mut Value) {
    let names = pod.pointer("/spec/volumes").and_then(Value::as_array).into_iter().flatten();
    let name =
        names.filter_map(|volume| volume["name"].as_str()).find(|name| name.starts_with("kube-api-access-"));
    if let Some(name) = name.map(str::to_owned) {
        replace(pod, &name, "(token volume)");
    }
}

/// Addresses and ports that the client did not ask for.
fn hide_allocated(object: &mut Value, sent: &Value, by: By) {
    let asked = |pointer: &str| {
        sent.pointer(pointer).is_some_and(|value| !matches!(value.as_str(), Some("")) && *value != json!(0))
    };
    let headless = ["/spec/clusterIP", "/spec/clusterIPs/0"]
        .iter()
        .any(|at| object.pointer(at).is_some_and(|value| value == "None"));
    if !asked("/spec/clusterIP") && !asked("/spec/clusterIPs/0") && !headless {
        hide(object, &["spec", "clusterIP"], by);
        hide(object, &["spec", "clusterIPs"], by);
    }
    if !asked("/spec/healthCheckNodePort") {
        hide(object, &["spec", "healthCheckNodePort"], by);
    }
    if by == By::Rules && !asked("/spec/ipFamilies") {
        hide(object, &["spec", "ipFamilies"], by);
    }
    let ports = object.pointer_mut("/spec/ports").and_then(Value::as_array_mut);
    for (at, port) in ports.into_iter().flatten().enumerate() {
        if !asked(&format!("/spec/ports/{at}/nodePort")) {
            hide(port, &["nodePort"], by);
        }
    }
}

fn hide(object: &mut Value, path: &[&str], by: By) {
    let Some((last, before)) = path.split_last() else { return };
    let mut at = object;
    for key in before {
        match at.get_mut(*key) {
            Some(below) => at = below,
            None => return,
        }
    }
    let Some(members) = at.as_object_mut() else { return };
    if members.remove(*last).is_some() && by == By::Server {
        members.insert((*last).to_owned(), json!("(chosen)"));
    }
}

fn replace(value: &mut Value, from: &str, to: &str) {
    match value {
        Value::String(text) if text == from => *text = to.to_owned(),
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, from, to)),
        Value::Object(members) => members.values_mut().for_each(|value| replace(value, from, to)),
        _ => {}
    }
}

fn differ(found: &mut Vec<Difference>, place: &str, kube: impl ToString, hanse: impl ToString) {
    let place = if place.is_empty() { "." } else { place };
    found.push(Difference { place: place.into(), kube: kube.to_string(), hanse: hanse.to_string() });
}

fn differences_of(place: &str, kube: &Value, hanse: &Value, found: &mut Vec<Difference>) {
    match (kube, hanse) {
        (Value::Object(one), Value::Object(other)) => {
            let keys: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            for key in keys {
                let below = format!("{place}.{key}");
                match (one.get(key), other.get(key)) {
                    (Some(one), Some(other)) => differences_of(&below, one, other, found),
                    (Some(one), None) => differ(found, &below, one, "(absent)"),
                    (None, Some(other)) => differ(found, &below, "(absent)", other),
                    (None, None) => {}
                }
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (at, (one, other)) in one.iter().zip(other).enumerate() {
                differences_of(&format!("{place}[{at}]"), one, other, found);
            }
        }
        (one, other) if one == other => {}
        (one, other) => differ(found, place, one, other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(sent: Value, kube: (u16, Value), hanse: (u16, Value)) -> Verdict {
        let answers = Answers { sent: &sent, kube: (kube.0, &kube.1), hanse: (hanse.0, &hanse.1) };
        judge(&answers, By::Server)
    }

    #[test]
    fn results_are_equal_but_for_what_a_server_chooses() {
        let service = |uid: &str, ip: &str, port: u16| json!({"kind": "Service", "metadata": {"uid": uid}, "spec": {"clusterIP": ip, "ports": [{"port": port}]}});
        let asked = json!({"metadata": {"name": "one"}, "spec": {"ports": [{"port": 80}]}});
        let same =
            judged(asked.clone(), (201, service("a", "10.0.0.1", 80)), (201, service("b", "10.0.0.2", 80)));
        assert_eq!(same, Verdict::Accepted(Vec::new()));
        let Verdict::Accepted(found) =
            judged(asked, (201, service("a", "10.0.0.1", 80)), (201, service("b", "10.0.0.2", 81)))
        else {
            panic!("both accept");
        };
        assert_eq!(found.iter().map(|it| it.place.as_str()).collect::<Vec<_>>(), [".spec.ports[0].port"]);
        let fixed = json!({"spec": {"clusterIP": "10.0.0.1"}});
        let other = judged(fixed, (201, service("a", "10.0.0.1", 80)), (201, service("b", "10.0.0.2", 80)));
        assert!(matches!(other, Verdict::Accepted(found) if found.len() == 1));
    }

    #[test]
    fn a_name_that_was_not_given_is_the_servers_choice() {
        let named = |name: &str| (201, json!({"metadata": {"name": name}}));
        let verdict = |sent: Value| judged(sent, named("a-1"), named("a-2"));
        assert_eq!(verdict(json!({"metadata": {"generateName": "a-"}})), Verdict::Accepted(Vec::new()));
        assert_ne!(verdict(json!({"metadata": {"name": "a-1"}})), Verdict::Accepted(Vec::new()));
    }

    #[test]
    fn refusals_are_equal_in_code_fields_and_reasons() {
        let status = |field: &str, message: &str| json!({"message": message, "details": {"causes": [{"field": field, "reason": "FieldValueInvalid"}]}});
        let verdict = |kube, hanse| judged(json!({}), kube, hanse);
        let refused = |same_causes, same_message| Verdict::Refused { same_causes, same_message };
        assert_eq!(verdict((422, status("a", "x")), (422, status("a", "x"))), refused(true, true));
        assert_eq!(verdict((422, status("a", "x")), (422, status("a", "y"))), refused(true, false));
        assert_eq!(verdict((422, status("a", "x")), (422, status("b", "x"))), refused(false, true));
        assert_eq!(verdict((422, status("a", "x")), (400, status("a", "x"))), refused(false, true));
        assert_eq!(verdict((422, status("a", "x")), (200, json!({}))), Verdict::AcceptedOnlyHere);
        assert_eq!(verdict((201, json!({})), (422, status("a", "x"))), Verdict::RefusedOnlyHere);
        assert_eq!(verdict((0, json!(null)), (422, status("a", "x"))), Verdict::NothingToCompare);
    }
}
