//! The Service `kubernetes`, by which programs in a workspace's pods find its API server, and what belongs to it.

use std::net::{IpAddr, SocketAddr};

use machinery::{
    resource::Tree,
    validation::network::addresses::{Ranges, ip_address_object},
};
use serde_json::{Value, json};

const NAME: &str = "kubernetes";
const NAMESPACE: &str = "default";

/// Group, resource, namespace and name of an object of the base, and the object.
type Entry = (&'static str, &'static str, &'static str, String, Value);

/// Without what only a running peer knows; [`complete`] adds that.
pub fn objects() -> Vec<Entry> {
    let ranges = Ranges::DEFAULT;
    // The first address of the range, as everywhere.
    let address = ranges.first_address().to_string();
    let labelled = |labels: Value| json!({"name": NAME, "namespace": NAMESPACE, "labels": labels});
    let service = json!({
        "kind": "Service", "apiVersion": "v1",
        "metadata": labelled(json!({"component": "apiserver", "provider": "kubernetes"})),
        "spec": {
            "clusterIP": address, "clusterIPs": [address], "internalTrafficPolicy": "Cluster",
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": 443}],
            "sessionAffinity": "None", "type": "ClusterIP",
        },
        "status": {"loadBalancer": {}},
    });
    let endpoints = json!({
        "kind": "Endpoints", "apiVersion": "v1",
        "metadata": labelled(json!({"endpointslice.kubernetes.io/skip-mirror": "true"})),
        "subsets": [],
    });
    let mut slice = json!({
        "kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1",
        "metadata": labelled(json!({"kubernetes.io/service-name": NAME})),
        "addressType": "IPv4", "endpoints": [], "ports": [],
    });
    slice["metadata"]["generation"] = json!(1);
    let range = json!({
        "kind": "ServiceCIDR", "apiVersion": "networking.k8s.io/v1",
        "metadata": {"name": NAME},
        "spec": {"cidrs": [ranges.to_string()]},
        "status": {"conditions": [{
            "type": "Ready", "status": "True", "reason": "", "message": "Kubernetes default Service CIDR is ready",
        }]},
    });
    let taken = Value::Object(ip_address_object(&address, NAMESPACE, NAME));
    vec![
        ("", "services", NAMESPACE, NAME.into(), service),
        ("", "endpoints", NAMESPACE, NAME.into(), endpoints),
        ("discovery.k8s.io", "endpointslices", NAMESPACE, NAME.into(), slice),
        ("networking.k8s.io", "servicecidrs", "", NAME.into(), range),
        ("networking.k8s.io", "ipaddresses", "", address, taken),
    ]
}

/// Adds to an object of the base where the peer is reached, if it is one that says so.
pub fn complete(tree: &mut Tree, created: &str, endpoint: Option<SocketAddr>) {
    let kind = tree.get("kind").and_then(Value::as_str).unwrap_or_default();
    match (kind, endpoint) {
        ("ServiceCIDR", _) => {
            if let Some(condition) = tree.get_mut("status").and_then(|it| it.pointer_mut("/conditions/0")) {
                condition["lastTransitionTime"] = json!(created);
            }
        }
        ("Service", Some(endpoint)) => {
            if let Some(port) = tree.get_mut("spec").and_then(|it| it.pointer_mut("/ports/0")) {
                port["targetPort"] = json!(endpoint.port());
            }
        }
        ("Endpoints", Some(endpoint)) => {
            let subset = json!({"addresses": [{"ip": endpoint.ip()}], "ports": [port(endpoint)]});
            tree.insert("subsets".into(), json!([subset]));
        }
        ("EndpointSlice", Some(endpoint)) => {
            let family = if endpoint.is_ipv6() { "IPv6" } else { "IPv4" };
            let ready = json!({"addresses": [endpoint.ip()], "conditions": {"ready": true}});
            tree.insert("addressType".into(), json!(family));
            tree.insert("endpoints".into(), json!([ready]));
            tree.insert("ports".into(), json!([port(endpoint)]));
        }
        ("Endpoints", None) => {
            tree.remove("subsets");
        }
        _ => {}
    }
}

fn port(endpoint: SocketAddr) -> Value {
    json!({"name": "https", "port": endpoint.port(), "protocol": "TCP"})
}

/// Where clients reach a peer that listens on `address`: the address it advertises, unless that is a name, else the
/// one it listens on, unless that is every one.
pub fn endpoint(address: SocketAddr, advertise: Option<&str>) -> Option<SocketAddr> {
    let advertised = advertise.and_then(|name| {
        let bare =
            name.trim_matches(['[', ']']).parse::<IpAddr>().map(|ip| SocketAddr::new(ip, address.port()));
        name.parse::<SocketAddr>().or(bare).ok()
    });
    advertised.or_else(|| (!address.ip().is_unspecified()).then_some(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_reached_at_an_address_not_at_a_name() {
        let at = |listen: &str, advertise: Option<&str>| {
            endpoint(listen.parse().unwrap(), advertise).map(|endpoint| endpoint.to_string())
        };
        assert_eq!(at("10.0.0.1:6443", None).as_deref(), Some("10.0.0.1:6443"));
        assert_eq!(at("10.0.0.1:6443", Some("eu.example.com")).as_deref(), Some("10.0.0.1:6443"));
        assert_eq!(at("0.0.0.0:6443", Some("10.0.0.2")).as_deref(), Some("10.0.0.2:6443"));
        assert_eq!(at("0.0.0.0:6443", Some("10.0.0.2:443")).as_deref(), Some("10.0.0.2:443"));
        assert_eq!(at("0.0.0.0:6443", Some("[fd00::1]")).as_deref(), Some("[fd00::1]:6443"));
        assert_eq!(at("0.0.0.0:6443", Some("eu.example.com")), None);
    }
}
