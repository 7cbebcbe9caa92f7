//! What the policies do to pods, done to what is sent to a member: to pods, so that what is there is what was sent, and
//! where a member has no such policies, to the templates of pods.
//!
//! There the work of the member's ServiceAccount plug-in is done here as well, and the plug-in is told to do nothing:
//! what it would mount is a token of the member's.

use serde_json::{Value, json};

use super::{
    policy::{AUTHORITY, Address, MAX_ACCOUNT, NAMESPACE, TOKEN},
    secret,
};

/// Where every pod finds its token.
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The plug-in knows its volume by what the name begins with.
const VOLUME: &str = "kube-api-access-hanse";
const ALL_CONTAINERS: [&str; 2] = ["containers", "initContainers"];

/// What pods of a namespace are told.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// Where the hub is; `None`: that is left to the policy, which tells each pod what is so when it is made.
    pub address: Option<&'a Address>,
    /// What the namespace is called in its workspace.
    pub home: &'a str,
    /// It is called otherwise in the member.
    pub mapped: bool,
}

/// The account that a pod runs as.
pub fn account(spec: &Value) -> &str {
    spec["serviceAccountName"].as_str().filter(|name| !name.is_empty()).unwrap_or("default")
}

fn items<'a>(holder: &'a mut Value, key: &str) -> impl Iterator<Item = &'a mut Value> {
    holder.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten()
}

/// Appends to a list that need not be there; what is no list stays as it is, and is refused by the member.
fn push(holder: &mut Value, key: &str, item: Value) {
    let Some(holder) = holder.as_object_mut() else { return };
    let list = holder.entry(key).or_insert(Value::Null);
    match list {
        Value::Array(list) => list.push(item),
        Value::Null => *list = json!([item]),
        _ => {}
    }
}

/// As the ServiceAccount plug-in mounts a token, which is then told not to. `wanted`: what the account says of that.
pub fn mount(spec: &mut Value, wanted: Option<bool>) {
    let own = spec["automountServiceAccountToken"].as_bool();
    if !spec.is_object() {
        return;
    }
    spec["automountServiceAccountToken"] = json!(false);
    if !own.or(wanted).unwrap_or(true) || account(spec).len() > MAX_ACCOUNT {
        return;
    }
    let mut is_needed = false;
    for field in ALL_CONTAINERS {
        for container in items(spec, field) {
            if items(container, "volumeMounts").any(|mount| mount["mountPath"] == MOUNT_PATH) {
                continue;
            }
            let mount = json!({"name": VOLUME, "mountPath": MOUNT_PATH, "readOnly": true});
            push(container, "volumeMounts", mount);
            is_needed = true;
        }
    }
    if is_needed {
        let sources = json!([
            {"serviceAccountToken": {"path": TOKEN}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": AUTHORITY, "path": AUTHORITY}]}},
            {"downwardAPI": {"items": [{"path": NAMESPACE, "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
        ]);
        let volume = json!({"name": VOLUME, "projected": {"defaultMode": 420, "sources": sources}});
        push(spec, "volumes", volume);
    }
}

/// As the mutating policy changes a pod.
pub fn rewrite(spec: &mut Value, facts: &Facts<'_>) {
    let account = account(spec).to_owned();
    if account.len() <= MAX_ACCOUNT {
        let secret = secret::name(&account);
        for volume in items(spec, "volumes") {
            if facts.mapped {
                become_several(volume);
            }
            let Some(sources) = volume.pointer_mut("/projected/sources").and_then(Value::as_array_mut) else {
                continue;
            };
            if sources.iter().any(is_token) {
                *sources = replaced(std::mem::take(sources), &secret);
            } else if facts.mapped && sources.iter().any(has_namespace) {
                *sources = renamed(std::mem::take(sources), &secret);
            }
        }
    }
    for field in ALL_CONTAINERS {
        items(spec, field).for_each(|container| tell(container, facts));
    }
}

/// Why a pod may not be made, as the validating policy says it: a token of the member's is left in it.
pub fn refused(spec: &Value) -> Option<String> {
    let mut sources = list(&spec["volumes"]).flat_map(|volume| list(&volume["projected"]["sources"]));
    if !sources.any(|source| source["serviceAccountToken"].is_object()) {
        return None;
    }
    Some(match account(spec).len() > MAX_ACCOUNT {
        true => format!(
            "the name of a service account whose pods get tokens may have {MAX_ACCOUNT} characters at most"
        ),
        false => "a token of this cluster would be mounted, and pods of a workspace have none: a projected \
                  serviceAccountToken must be for the API, which is the workspace, and without another audience"
            .to_owned(),
    })
}

fn is_token(source: &Value) -> bool {
    let token = &source["serviceAccountToken"];
    let audience = token["audience"].as_str().unwrap_or_default();
    token.is_object() && (audience.is_empty() || audience.starts_with("https://kubernetes.default.svc"))
}

fn is_authority(source: &Value) -> bool {
    source["configMap"]["name"] == "kube-root-ca.crt"
}

fn is_namespace(item: &Value) -> bool {
    item["fieldRef"]["fieldPath"] == "metadata.namespace"
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn has_namespace(source: &Value) -> bool {
    list(&source["downwardAPI"]["items"]).any(is_namespace)
}

/// A volume that is the downward API alone, and has the namespace's name, becomes one of several sources: others can be
/// beside it then.
fn become_several(volume: &mut Value) {
    if !has_namespace(volume) {
        return;
    }
    let Some(volume) = volume.as_object_mut() else { return };
    let Some(mut fields) = volume.remove("downwardAPI") else { return };
    let mode = fields.as_object_mut().and_then(|fields| fields.remove("defaultMode"));
    let mut projected = json!({"sources": [{"downwardAPI": fields}]});
    if let Some(mode) = mode {
        projected["defaultMode"] = mode;
    }
    volume.insert("projected".into(), projected);
}

fn of_secret(secret: &str, items: Vec<Value>) -> Value {
    json!({"secret": {"name": secret, "items": items}})
}

fn item(key: &str, path: &Value) -> Value {
    json!({"key": key, "path": path})
}

/// In the order that the policy has.
fn replaced(sources: Vec<Value>, secret: &str) -> Vec<Value> {
    let (of_namespaces, sources): (Vec<Value>, Vec<Value>) = sources.into_iter().partition(has_namespace);
    let of_tokens = sources.iter().filter(|it| is_token(it));
    let of_tokens =
        of_tokens.map(|it| of_secret(secret, vec![item(TOKEN, &it["serviceAccountToken"]["path"])]));
    let of_authorities = sources.iter().filter(|it| is_authority(it)).map(|it| {
        let items = &it["configMap"]["items"];
        let items = match items.is_array() {
            true => list(items).map(|it| item(AUTHORITY, &it["path"])).collect(),
            false => vec![item(AUTHORITY, &json!(AUTHORITY))],
        };
        of_secret(secret, items)
    });
    let kept = sources.iter().filter(|it| !is_token(it) && !is_authority(it)).cloned();
    kept.chain(of_tokens).chain(of_authorities).chain(renamed(of_namespaces, secret)).collect()
}

/// Those that have the namespace's name have it from the Secret, after all others.
fn renamed(sources: Vec<Value>, secret: &str) -> Vec<Value> {
    let (named, kept): (Vec<Value>, Vec<Value>) = sources.into_iter().partition(has_namespace);
    let of_namespaces = named.iter().map(|it| {
        let named = list(&it["downwardAPI"]["items"]).filter(|it| is_namespace(it));
        let named = named.map(|it| {
            let mut named = item(NAMESPACE, &it["path"]);
            if let Some(mode) = it.get("mode") {
                named["mode"] = mode.clone();
            }
            named
        });
        of_secret(secret, named.collect())
    });
    let others = named.iter().filter_map(|it| {
        let others: Vec<&Value> = list(&it["downwardAPI"]["items"]).filter(|it| !is_namespace(it)).collect();
        (!others.is_empty()).then(|| json!({"downwardAPI": {"items": others}}))
    });
    kept.iter().cloned().chain(of_namespaces).chain(others).collect()
}

fn tell(container: &mut Value, facts: &Facts<'_>) {
    let Some(container) = container.as_object_mut() else { return };
    let own = match container.get("env") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(own)) => own.clone(),
        Some(_) => return,
    };
    let given = facts.address.into_iter().flat_map(|Address { host, port }| {
        [
            ("KUBERNETES_SERVICE_HOST", host),
            ("KUBERNETES_SERVICE_PORT", port),
            ("KUBERNETES_SERVICE_PORT_HTTPS", port),
        ]
    });
    let lacking = given.filter(|(name, _)| own.iter().all(|it| it["name"] != *name));
    let lacking = lacking.map(|(name, value)| json!({"name": name, "value": value}));
    let own = own.iter().map(|it| {
        match facts.mapped && it["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.namespace" {
            true => json!({"name": it["name"], "value": facts.home}),
            false => it.clone(),
        }
    });
    let env: Vec<Value> = lacking.chain(own).collect();
    if !env.is_empty() {
        container.insert("env".into(), Value::Array(env));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_of_no_shape_at_all_is_left_to_the_member() {
        let address = Address { host: "h".into(), port: "1".into() };
        let facts = Facts { address: Some(&address), home: "n", mapped: true };
        for spec in [
            json!(null),
            json!(7),
            json!([]),
            json!({"containers": 7, "volumes": "x"}),
            json!({"containers": [7, {"env": 7, "volumeMounts": 7}], "volumes": [7, {"projected": 7}]}),
            json!({"volumes": [{"projected": {"sources": [7, {"serviceAccountToken": {}}]}}]}),
        ] {
            let mut spec = spec;
            mount(&mut spec, None);
            rewrite(&mut spec, &facts);
        }
    }

    #[test]
    fn the_plug_in_of_the_member_is_always_told_to_do_nothing() {
        for own in [json!(null), json!(true), json!(false)] {
            let mut spec = json!({"automountServiceAccountToken": own, "containers": [{"name": "c"}]});
            mount(&mut spec, None);
            assert_eq!(spec["automountServiceAccountToken"], false, "{own}");
            assert_eq!(spec["volumes"].is_array(), own != false, "{own}");
        }
    }

    #[test]
    fn what_still_has_a_token_of_the_member_is_refused() {
        let volume =
            |token: Value| json!([{"name": "v", "projected": {"sources": [{"serviceAccountToken": token}]}}]);
        let for_vault = volume(json!({"path": "t", "audience": "vault"}));
        let long = "a".repeat(MAX_ACCOUNT + 1);
        for (spec, expected) in [
            (json!({"containers": [{"name": "c"}]}), None),
            (json!({"volumes": volume(json!({"path": "t"}))}), None),
            (json!({"volumes": for_vault}), Some("audience")),
            (
                json!({"volumes": volume(json!({"path": "t"})), "serviceAccountName": long}),
                Some("241 characters"),
            ),
            (json!({"serviceAccountName": long, "containers": [{"name": "c"}]}), None),
        ] {
            let mut spec = spec;
            mount(&mut spec, None);
            rewrite(&mut spec, &Facts { address: None, home: "n", mapped: false });
            let found = refused(&spec);
            let is_expected = expected.map(|words| found.as_ref().is_some_and(|it| it.contains(words)));
            assert!(is_expected.unwrap_or(found.is_none()), "{spec}: {found:?}");
        }
    }

    #[test]
    fn doing_it_twice_changes_nothing() {
        let address = Address { host: "h".into(), port: "1".into() };
        let facts = Facts { address: Some(&address), home: "n", mapped: true };
        let field = json!({"fieldRef": {"fieldPath": "metadata.namespace"}});
        let env = json!([{"name": "NS", "valueFrom": field}]);
        let mut spec = json!({"containers": [{"name": "c", "env": env}]});
        mount(&mut spec, None);
        rewrite(&mut spec, &facts);
        let once = spec.clone();
        mount(&mut spec, None);
        rewrite(&mut spec, &facts);
        assert_eq!(spec, once);
    }
}
