//! Clusters as KubeFed and the cluster registry write them down, and `Cluster` as Hanse does.

use std::net::IpAddr;

use api::cluster::condition as own;
use machinery::{
    field_error::Cause,
    resource::Tree,
    validation::parts::{object, text},
};
use serde_json::{Value, json};

use crate::{CORE_GROUP, REGISTRY_GROUP, REGISTRY_NAMESPACE, REGISTRY_SYSTEM_NAMESPACE, SYSTEM_NAMESPACE};

pub const KUBEFED_KIND: &str = "KubeFedCluster";
pub const KUBEFED_PLURAL: &str = "kubefedclusters";
pub const REGISTRY_PLURAL: &str = "clusters";

/// On a `Cluster`: the UID of the object of a dialect that it was made from.
pub const MADE_FROM_ANNOTATION: &str = "hanse.io/registered-as";
/// On a `KubeFedCluster` that shows a `Cluster` which was joined otherwise: the UID of that.
pub const SHOWS_ANNOTATION: &str = "hanse.io/shows";
/// On what a `Cluster` was made from: that goes first.
pub const FINALIZER: &str = "hanse.io/registered";

/// Which of the two kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Register {
    KubeFed,
    Registry,
}

impl Register {
    pub fn of(group: &str, plural: &str) -> Option<Register> {
        match (group, plural) {
            (CORE_GROUP, KUBEFED_PLURAL) => Some(Register::KubeFed),
            (REGISTRY_GROUP, REGISTRY_PLURAL) => Some(Register::Registry),
            _ => None,
        }
    }

    pub fn collection(self) -> (&'static str, &'static str) {
        match self {
            Register::KubeFed => (CORE_GROUP, KUBEFED_PLURAL),
            Register::Registry => (REGISTRY_GROUP, REGISTRY_PLURAL),
        }
    }

    /// The one namespace whose entries count. A cluster serves the whole workspace, and is reached with a Secret that is read
    /// for it: whoever may write in a namespace of their own has no say in that.
    pub fn namespace(self) -> &'static str {
        match self {
            Register::KubeFed => SYSTEM_NAMESPACE,
            Register::Registry => REGISTRY_NAMESPACE,
        }
    }
}

pub const REGISTERS: [Register; 2] = [Register::KubeFed, Register::Registry];

/// What is wrong with a `KubeFedCluster`.
pub fn check(new: &Tree) -> Vec<Cause> {
    let Some(spec) = object(new, "spec") else { return Vec::new() };
    let endpoint = text(spec, "apiEndpoint");
    let mut causes = Vec::new();
    if !endpoint.starts_with("https://") {
        let why = "must begin with https://: credentials are sent there";
        causes.push(Cause::invalid("spec.apiEndpoint", &json!(endpoint), why));
    }
    let loosened =
        spec.get("disabledTLSValidations").and_then(Value::as_array).is_some_and(|it| !it.is_empty());
    if loosened {
        let why = "certificates are verified always: put its authority into caBundle";
        causes.push(Cause::forbidden("spec.disabledTLSValidations", why));
    }
    if !text(spec, "proxyURL").is_empty() {
        causes.push(Cause::forbidden("spec.proxyURL", "clusters are reached without a proxy"));
    }
    causes
}

/// The Secret that a registered cluster points to, as (namespace, name).
pub fn secret(register: Register, object: &Value) -> Option<(String, String)> {
    let text = |value: &Value| value.as_str().filter(|it| !it.is_empty()).map(str::to_owned);
    match register {
        Register::KubeFed => {
            Some((text(&object["metadata"]["namespace"])?, text(&object["spec"]["secretRef"]["name"])?))
        }
        Register::Registry => {
            let controller = &object["spec"]["authInfo"]["controller"];
            let namespace = text(&controller["namespace"]).or_else(|| text(&object["metadata"]["namespace"]));
            Some((namespace?, text(&controller["name"])?))
        }
    }
}

/// The `Cluster` that it becomes, or why there is none. That it says too little is no mistake of an entry of a registry.
pub fn cluster(register: Register, object: &Value) -> Result<Value, String> {
    let place = register.namespace();
    if object["metadata"]["namespace"] != place {
        return Err(format!("it does not count here: write it down in the namespace {place}"));
    }
    let says_little = || "it points to no credential for controllers, or to no address".to_owned();
    let (namespace, name) = secret(register, object).ok_or_else(says_little)?;
    if ![place, REGISTRY_SYSTEM_NAMESPACE].contains(&namespace.as_str()) {
        return Err(format!(
            "its Secret is not read: it must be in the namespace {place} or {REGISTRY_SYSTEM_NAMESPACE}"
        ));
    }
    let (endpoint, bundle) = endpoint(register, object).ok_or_else(says_little)?;
    let mut spec = json!({"endpoint": endpoint, "secretRef": {"namespace": namespace, "name": name}});
    if let Some(bundle) = bundle.as_str().filter(|it| !it.is_empty()) {
        spec["caBundle"] = json!(bundle);
    }
    let mut labels = object["metadata"]["labels"].clone();
    if !labels.is_object() {
        labels = json!({});
    }
    Ok(json!({
        "apiVersion": api::API_VERSION, "kind": api::cluster::KIND,
        "metadata": {
            "name": object["metadata"]["name"], "labels": labels,
            "annotations": {MADE_FROM_ANNOTATION: object["metadata"]["uid"]},
        },
        "spec": spec,
    }))
}

/// Its address, and the certificates of its authorities.
fn endpoint(register: Register, object: &Value) -> Option<(String, &Value)> {
    let spec = &object["spec"];
    match register {
        Register::KubeFed => Some((spec["apiEndpoint"].as_str()?.to_owned(), &spec["caBundle"])),
        Register::Registry => {
            let endpoints = &spec["kubernetesApiEndpoints"];
            Some((address(endpoints)?, &endpoints["caBundle"]))
        }
    }
}

/// Of several the one that is for most clients: this hub's own address is not known here. `0.0.0.0` is every client's.
fn address(endpoints: &Value) -> Option<String> {
    let all = endpoints["serverEndpoints"].as_array()?;
    let width = |it: &Value| prefix(it["clientCIDR"].as_str().unwrap_or("0.0.0.0/0"));
    let widest = all.iter().filter_map(|it| Some((width(it)?, it))).min_by_key(|(width, _)| *width)?.1;
    let address = widest["serverAddress"].as_str().filter(|it| !it.is_empty())?;
    let scheme = if address.contains("://") { "" } else { "https://" };
    Some(format!("{scheme}{address}"))
}

/// How many bits of a client's address it names; `None`: it names no clients.
fn prefix(cidr: &str) -> Option<u8> {
    let (address, bits) = cidr.split_once('/').map_or((cidr, None), |(address, bits)| (address, Some(bits)));
    let address: IpAddr = address.parse().ok()?;
    let all = if address.is_ipv4() { 32 } else { 128 };
    match bits {
        Some(bits) => bits.parse().ok().filter(|bits| *bits <= all),
        None if address.is_unspecified() => Some(0),
        None => Some(all),
    }
}

/// Why an entry is not followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotFollowed {
    pub why: String,
    /// There is a `Cluster` of it all the same, from when it was: nothing is unjoined that nobody asks for.
    pub is_joined: bool,
}

impl NotFollowed {
    fn reason(&self) -> &'static str {
        if self.is_joined { "NotFollowed" } else { "NotUsed" }
    }

    fn message(&self, register: Register) -> String {
        let (why, place) = (&self.why, register.namespace());
        match self.is_joined {
            true => format!(
                "{why}; the Cluster that was made of it before is used on as it was written then, and changes are not taken \
                 over until what is written under its name in the namespace {place} can be used"
            ),
            false => why.clone(),
        }
    }
}

/// The status of a registered cluster, of what is known of the `Cluster`, or why that is not as it says.
pub fn status(register: Register, before: &Value, cluster: Result<&Value, &NotFollowed>, now: &str) -> Value {
    let conditions = match (register, cluster) {
        (Register::KubeFed, Ok(cluster)) => kubefed(cluster),
        (Register::KubeFed, Err(why)) => {
            vec![condition("ConfigMalformed", "True", "MalformedClusterConfig", &why.message(register))]
        }
        (Register::Registry, Ok(cluster)) => vec![registry(cluster)],
        (Register::Registry, Err(why)) => {
            vec![condition("OK", "Unknown", why.reason(), &why.message(register))]
        }
    };
    let conditions = conditions.into_iter().map(|it| timed(register, before, it, now)).collect::<Vec<_>>();
    let mut status = json!({"conditions": conditions});
    if let (Register::KubeFed, Ok(cluster)) = (register, cluster) {
        status["kubernetesVersion"] = cluster["status"]["version"].clone();
        let label = |key: &str| cluster["metadata"]["labels"][key].as_str();
        if let Some(region) = label(api::REGION_LABEL) {
            status["region"] = json!(region);
        }
        if let Some(zone) = label(api::ZONE_LABEL) {
            status["zones"] = json!([zone]);
        }
    }
    status
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message})
}

fn ready(cluster: &Value) -> (bool, &str, &str) {
    let ready = api::cluster::condition(cluster, own::READY);
    let text = |key: &str| ready.and_then(|it| it[key].as_str()).unwrap_or_default();
    (text("status") == "True", text("reason"), text("message"))
}

fn kubefed(cluster: &Value) -> Vec<Value> {
    let (is_ready, reason, message) = ready(cluster);
    if is_ready {
        return vec![condition("Ready", "True", "ClusterReady", "/readyz responded with ok")];
    }
    let is_malformed = matches!(reason, "CredentialMissing" | "CredentialInvalid" | "AccessInvalid");
    if is_malformed {
        return vec![condition("ConfigMalformed", "True", reason, message)];
    }
    let reachable = api::cluster::condition(cluster, own::REACHABLE).is_some_and(|it| it["status"] == "True");
    match reachable {
        true => vec![
            condition("Ready", "False", "ClusterNotReady", message),
            condition("Offline", "False", "ClusterReachable", "cluster is reachable"),
        ],
        false => vec![
            condition("Ready", "False", "ClusterNotReachable", message),
            condition("Offline", "True", "ClusterNotReachable", message),
        ],
    }
}

fn registry(cluster: &Value) -> Value {
    let (is_ready, reason, message) = ready(cluster);
    match is_ready {
        true => condition("OK", "True", "Ready", "the cluster can be reached and takes workloads"),
        false => condition("OK", "False", if reason.is_empty() { "Unknown" } else { reason }, message),
    }
}

/// Since when it is so. What merely was asked again is not worth a write.
fn timed(register: Register, before: &Value, mut condition: Value, now: &str) -> Value {
    let known =
        before["conditions"].as_array().into_iter().flatten().find(|it| it["type"] == condition["type"]);
    let same = |key: &str| known.is_some_and(|it| it[key] == condition[key]);
    let probed = if register == Register::KubeFed { "lastProbeTime" } else { "lastHeartbeatTime" };
    let is_same = same("status") && same("reason") && same("message");
    let kept = |key: &str, keep: bool| {
        known.filter(|_| keep).and_then(|it| it[key].as_str()).unwrap_or(now).to_owned()
    };
    let times =
        [(probed, kept(probed, is_same)), ("lastTransitionTime", kept("lastTransitionTime", same("status")))];
    for (key, time) in times {
        condition[key] = json!(time);
    }
    condition
}

/// A `KubeFedCluster` that shows a `Cluster` which was joined otherwise.
pub fn shown(cluster: &Value) -> Value {
    let metadata = &cluster["metadata"];
    let mut shown = json!({
        "apiVersion": "core.kubefed.io/v1beta1", "kind": KUBEFED_KIND,
        "metadata": {
            "name": metadata["name"], "namespace": crate::SYSTEM_NAMESPACE,
            "annotations": {SHOWS_ANNOTATION: metadata["uid"]},
        },
        "spec": {
            "apiEndpoint": cluster["spec"]["endpoint"],
            "secretRef": {"name": cluster["spec"]["secretRef"]["name"]},
        },
    });
    if metadata["labels"].is_object() {
        shown["metadata"]["labels"] = metadata["labels"].clone();
    }
    if let Some(bundle) = cluster["spec"]["caBundle"].as_str() {
        shown["spec"]["caBundle"] = json!(bundle);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registered() -> Value {
        json!({
            "metadata": {"name": "a", "namespace": "kube-multicluster-public", "uid": "u", "labels": {"size": "big"}},
            "spec": {
                "kubernetesApiEndpoints": {
                    "serverEndpoints": [
                        {"clientCIDR": "10.0.0.0/8", "serverAddress": "10.0.0.1:6443"},
                        {"clientCIDR": "0.0.0.0", "serverAddress": "a.example.com"},
                    ],
                    "caBundle": "YQ==",
                },
                "authInfo": {"controller": {"kind": "Secret", "name": "a-cred", "namespace": "kube-multicluster-system"}},
            },
        })
    }

    #[test]
    fn an_entry_of_the_registry_becomes_a_cluster() {
        let cluster = cluster(Register::Registry, &registered()).unwrap();
        assert_eq!(
            cluster["spec"],
            json!({
                "endpoint": "https://a.example.com", "caBundle": "YQ==",
                "secretRef": {"namespace": "kube-multicluster-system", "name": "a-cred"},
            })
        );
        assert_eq!(cluster["metadata"]["labels"], json!({"size": "big"}));
        assert!(api::admit(&api::cluster::ROW, cluster).is_ok());
        let mut silent = registered();
        silent["spec"]["authInfo"] = json!({});
        let why = super::cluster(Register::Registry, &silent).unwrap_err();
        assert!(why.contains("no credential"), "it only says that it is there: {why}");
    }

    /// Else whoever may write in a namespace could have any Secret sent to an address of their own.
    #[test]
    fn an_entry_counts_in_one_namespace_and_points_to_no_secret_of_others() {
        let kubefed = json!({
            "metadata": {"name": "b", "namespace": "kube-federation-system", "uid": "u"},
            "spec": {"apiEndpoint": "https://b:6443", "secretRef": {"name": "b-1"}},
        });
        for (register, entry) in [(Register::Registry, registered()), (Register::KubeFed, kubefed)] {
            let home = register.namespace();
            assert!(cluster(register, &entry).is_ok());
            let others = ["shop", "default", REGISTRY_SYSTEM_NAMESPACE, SYSTEM_NAMESPACE, REGISTRY_NAMESPACE];
            for namespace in others.into_iter().filter(|it| *it != home) {
                let mut elsewhere = entry.clone();
                elsewhere["metadata"]["namespace"] = json!(namespace);
                let why = cluster(register, &elsewhere).unwrap_err();
                assert!(why.contains(home), "{namespace}: {why}");
            }
        }
        let rows = [
            (json!(REGISTRY_SYSTEM_NAMESPACE), true),
            (json!(REGISTRY_NAMESPACE), true),
            (Value::Null, true),
            (json!("kube-system"), false),
            (json!(SYSTEM_NAMESPACE), false),
        ];
        for (namespace, is_read) in rows {
            let mut entry = registered();
            entry["spec"]["authInfo"]["controller"]["namespace"] = namespace.clone();
            assert_eq!(cluster(Register::Registry, &entry).is_ok(), is_read, "{namespace}");
        }
    }

    /// What is used on is not called unused.
    #[test]
    fn an_entry_that_is_not_followed_says_whether_its_cluster_is_used_on() {
        for register in REGISTERS {
            let told = |is_joined: bool| {
                let not = NotFollowed { why: "it does not count here".to_owned(), is_joined };
                status(register, &Value::Null, Err(&not), "t1")["conditions"][0].clone()
            };
            let (joined, never) = (told(true), told(false));
            for told in [&joined, &never] {
                assert!(told["message"].to_string().contains("it does not count here"), "{told}");
            }
            let goes_on =
                |it: &Value| it["message"].to_string().contains("is used on as it was written then");
            assert!(goes_on(&joined) && !goes_on(&never), "{joined} {never}");
            assert!(joined["message"].to_string().contains(register.namespace()), "{joined}");
            assert_ne!(joined["reason"], "NotUsed");
        }
    }

    #[test]
    fn a_kubefed_cluster_becomes_one_and_hears_how_it_is() {
        let object = json!({
            "metadata": {"name": "b", "namespace": "kube-federation-system", "uid": "u"},
            "spec": {"apiEndpoint": "https://b:6443", "secretRef": {"name": "b-1"}},
        });
        let made = cluster(Register::KubeFed, &object).unwrap();
        assert_eq!(made["spec"]["secretRef"], json!({"namespace": "kube-federation-system", "name": "b-1"}));
        let with = |conditions: Value| json!({"status": {"version": "v1.36.4", "conditions": conditions}});
        let lost = with(
            json!([{"type": "Ready", "status": "False", "reason": "Unreachable", "message": "no route"}]),
        );
        let told = status(Register::KubeFed, &Value::Null, Ok(&lost), "t1");
        assert_eq!(told["conditions"][1]["reason"], "ClusterNotReachable");
        assert_eq!(told["conditions"][1]["message"], "no route");
        let again = status(Register::KubeFed, &told, Ok(&lost), "t2");
        assert_eq!(again, told, "nothing is new");
        let well = with(json!([{"type": "Ready", "status": "True", "reason": "Ready"}]));
        let told = status(Register::KubeFed, &again, Ok(&well), "t3");
        assert_eq!(
            (&told["conditions"][0]["status"], &told["kubernetesVersion"]),
            (&json!("True"), &json!("v1.36.4"))
        );
        assert_eq!(told["conditions"][0]["lastTransitionTime"], "t3");
    }

    #[test]
    fn what_would_weaken_the_way_to_a_cluster_is_refused() {
        let spec = json!({"spec": {"apiEndpoint": "http://b", "disabledTLSValidations": ["*"], "proxyURL": "http://p"}});
        assert_eq!(check(spec.as_object().unwrap()).len(), 3);
    }
}
