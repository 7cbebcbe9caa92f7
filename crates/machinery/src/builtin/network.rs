//! Kinds about reaching workloads.

use serde_json::{Value, json};

use super::{AGE, NAME, at, compute, field, path};
use crate::{
    names,
    resource::{Cell, Column, Row, SelectableField, Subresource},
    selector::LabelSelector,
    validation::network as v,
};

const NETWORKING: Row = Row { group: "networking.k8s.io", ..Row::PLAIN };

/// How many of a list's items a cell shows.
const SHOWN: usize = 3;

const SERVICE_COLUMNS: &[Column] = &[
    NAME,
    path("Type", 0, ".spec.type", "How the service is exposed."),
    compute("Cluster-IP", 0, cluster_ip, "The address inside the cluster."),
    compute("External-IP", 0, external_ip, "Addresses outside the cluster."),
    compute("Port(s)", 0, service_ports, "Ports, with the ports on nodes."),
    AGE,
    compute("Selector", 1, selector, "Labels of the pods behind the service."),
];

const SERVICE_FIELDS: &[SelectableField] =
    &[field("spec.clusterIP", &["spec.clusterIP"]), field("spec.type", &["spec.type"])];

pub const ROWS: &[Row] = &[
    Row {
        kind: "Service",
        plural: "services",
        singular: "service",
        short_names: &["svc"],
        categories: &["all"],
        subresources: &[Subresource {
            validate: v::service::status,
            ..Subresource::status("Service", "", "v1")
        }],
        type_name: "core/v1.Service",
        columns: SERVICE_COLUMNS,
        fields: SERVICE_FIELDS,
        name_rule: names::label_name,
        create_on_update: true,
        returns_deleted: true,
        takes_addresses: true,
        prepare_create: v::addresses::prepare_create,
        prepare_update: v::addresses::prepare_update,
        default: v::service::default,
        validate: v::service::validate,
        warn: v::service::warn,
        ..Row::PLAIN
    },
    Row {
        kind: "Endpoints",
        plural: "endpoints",
        singular: "endpoints",
        short_names: &["ep"],
        type_name: "core/v1.Endpoints",
        columns: &[NAME, compute("Endpoints", 0, endpoints, "Addresses and ports."), AGE],
        create_on_update: true,
        default: v::endpoints::default,
        validate: v::endpoints::validate,
        warn: v::endpoints::warn,
        deprecation: Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
        ..Row::PLAIN
    },
    Row {
        group: "discovery.k8s.io",
        kind: "EndpointSlice",
        plural: "endpointslices",
        singular: "endpointslice",
        type_name: "discovery/v1.EndpointSlice",
        columns: &[
            NAME,
            path("AddressType", 0, ".addressType", "What the addresses are."),
            compute("Ports", 0, slice_ports, "Ports that every address serves."),
            compute("Endpoints", 0, slice_endpoints, "The addresses."),
            AGE,
        ],
        generation: true,
        counts_generation: Some(v::endpoints::slice_counts),
        prepare_create: v::endpoints::drop_topology,
        prepare_update: v::endpoints::keep_topology,
        default: v::endpoints::default_slice,
        validate: v::endpoints::validate_slice,
        warn: v::endpoints::warn_slice,
        ..Row::PLAIN
    },
    Row {
        kind: "Ingress",
        plural: "ingresses",
        singular: "ingress",
        short_names: &["ing"],
        subresources: &[Subresource {
            validate: v::ingress::status,
            ..Subresource::status("Ingress", "networking.k8s.io", "v1")
        }],
        type_name: "networking/v1.Ingress",
        columns: &[
            NAME,
            compute("Class", 0, ingress_class, "The class that serves it."),
            compute("Hosts", 0, hosts, "Hosts that it answers for."),
            compute("Address", 0, ingress_address, "Where the load balancer is."),
            compute("Ports", 0, ingress_ports, "Ports that are open."),
            AGE,
        ],
        generation: true,
        prepare_create: v::ingress::prepare_create,
        validate: v::ingress::validate,
        warn: v::ingress::warn,
        ..NETWORKING
    },
    Row {
        kind: "IngressClass",
        plural: "ingressclasses",
        singular: "ingressclass",
        namespaced: false,
        type_name: "networking/v1.IngressClass",
        columns: &[
            Column { cell: Cell::Compute(ingress_class_name), ..NAME },
            path("Controller", 0, ".spec.controller", "Who serves the class."),
            compute("Parameters", 0, class_parameters, "Where more is said about the class."),
            AGE,
        ],
        generation: true,
        default: v::ingress::default_class,
        validate: v::ingress::validate_class,
        ..NETWORKING
    },
    Row {
        kind: "NetworkPolicy",
        plural: "networkpolicies",
        singular: "networkpolicy",
        short_names: &["netpol"],
        type_name: "networking/v1.NetworkPolicy",
        columns: &[NAME, compute("Pod-Selector", 0, pod_selector, "The pods it is about."), AGE],
        generation: true,
        default: v::policy::default,
        validate: v::policy::validate,
        warn: v::policy::warn,
        ..NETWORKING
    },
    Row {
        kind: "IPAddress",
        plural: "ipaddresses",
        singular: "ipaddress",
        namespaced: false,
        short_names: &["ip"],
        type_name: "networking/v1.IPAddress",
        columns: &[NAME, compute("ParentRef", 0, parent, "Who has the address.")],
        name_rule: v::address_name,
        validate: v::validate_address,
        ..NETWORKING
    },
    Row {
        kind: "ServiceCIDR",
        plural: "servicecidrs",
        singular: "servicecidr",
        namespaced: false,
        subresources: &[Subresource {
            prepare: v::only_status_of_range,
            resets: &["metadata", "spec"],
            ..Subresource::status("ServiceCIDR", "networking.k8s.io", "v1")
        }],
        type_name: "networking/v1.ServiceCIDR",
        columns: &[
            NAME,
            compute("CIDRs", 0, |o, _| json!(texts(o, "/spec/cidrs").join(",")), "The ranges."),
            AGE,
        ],
        prepare_create: v::prepare_range,
        validate: v::validate_range,
        ..NETWORKING
    },
];

fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn texts<'a>(object: &'a Value, pointer: &str) -> Vec<&'a str> {
    list(object, pointer).iter().filter_map(Value::as_str).collect()
}

fn or<'a>(text: &'a str, otherwise: &'a str) -> &'a str {
    if text.is_empty() { otherwise } else { text }
}

/// The first of many, and how many more there are.
fn some_of(shown: &[String], count: usize) -> String {
    let shown = shown.join(",");
    if count > SHOWN { format!("{shown} + {} more...", count - SHOWN) } else { shown }
}

fn cluster_ip(object: &Value, _: i64) -> Value {
    json!(texts(object, "/spec/clusterIPs").first().unwrap_or(&"<none>"))
}

fn external_ip(object: &Value, _: i64) -> Value {
    let mut addresses: Vec<String> = Vec::new();
    let otherwise = match at(object, "/spec/type") {
        "ClusterIP" | "NodePort" => "<none>",
        "LoadBalancer" => {
            addresses = balancer_addresses(object);
            "<pending>"
        }
        "ExternalName" => return json!(at(object, "/spec/externalName")),
        _ => return json!("<unknown>"),
    };
    addresses.extend(texts(object, "/spec/externalIPs").into_iter().map(str::to_owned));
    json!(or(&addresses.join(","), otherwise))
}

/// Where load balancers are, in order and each once.
fn balancer_addresses(object: &Value) -> Vec<String> {
    let ingress = list(object, "/status/loadBalancer/ingress").iter();
    let mut found: Vec<String> = ingress
        .map(|it| or(at(it, "/ip"), at(it, "/hostname")).to_owned())
        .filter(|it| !it.is_empty())
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

fn service_ports(object: &Value, _: i64) -> Value {
    let ports = list(object, "/spec/ports").iter().map(|port| {
        let (number, protocol) = (&port["port"], at(port, "/protocol"));
        match port["nodePort"].as_i64() {
            Some(node_port) if node_port > 0 => format!("{number}:{node_port}/{protocol}"),
            _ => format!("{number}/{protocol}"),
        }
    });
    json!(or(&ports.collect::<Vec<_>>().join(","), "<none>"))
}

fn selector(object: &Value, _: i64) -> Value {
    let labels = object.pointer("/spec/selector").and_then(Value::as_object).into_iter().flatten();
    let labels = labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
    json!(or(&labels.collect::<Vec<_>>().join(","), "<none>"))
}

fn endpoints(object: &Value, _: i64) -> Value {
    let subsets = list(object, "/subsets");
    if subsets.is_empty() {
        return json!("<none>");
    }
    let mut shown = Vec::new();
    let mut count = 0;
    for subset in subsets {
        let addresses = list(subset, "/addresses");
        let ports: Vec<Option<&Value>> = match list(subset, "/ports") {
            // A headless service may have none.
            [] => vec![None],
            ports => ports.iter().map(Some).collect(),
        };
        for port in ports {
            count += addresses.len();
            let room = SHOWN - shown.len();
            shown.extend(addresses.iter().take(room).map(|address| endpoint(at(address, "/ip"), port)));
        }
    }
    json!(some_of(&shown, count))
}

fn endpoint(ip: &str, port: Option<&Value>) -> String {
    match port {
        None => ip.to_owned(),
        Some(port) if ip.contains(':') => format!("[{ip}]:{}", port["port"]),
        Some(port) => format!("{ip}:{}", port["port"]),
    }
}

fn slice_ports(object: &Value, _: i64) -> Value {
    let ports = list(object, "/ports");
    let shown = ports.iter().take(SHOWN).map(|port| match (&port["port"], &port["name"]) {
        (Value::Number(number), _) => number.to_string(),
        (_, Value::String(name)) => name.clone(),
        _ => "*".to_owned(),
    });
    json!(or(&some_of(&shown.collect::<Vec<_>>(), ports.len()), "<unset>"))
}

fn slice_endpoints(object: &Value, _: i64) -> Value {
    let endpoints = list(object, "/endpoints").iter();
    let addresses: Vec<String> =
        endpoints.flat_map(|it| texts(it, "/addresses")).map(str::to_owned).collect();
    json!(or(&some_of(&addresses[..addresses.len().min(SHOWN)], addresses.len()), "<unset>"))
}

fn ingress_class(object: &Value, _: i64) -> Value {
    let class = object.pointer("/spec/ingressClassName").and_then(Value::as_str);
    json!(class.unwrap_or("<none>"))
}

fn hosts(object: &Value, _: i64) -> Value {
    let rules = list(object, "/spec/rules");
    let mut shown: Vec<String> = Vec::new();
    let mut more = false;
    for rule in rules {
        more |= shown.len() == SHOWN;
        let host = at(rule, "/host");
        if !more && !host.is_empty() {
            shown.push(host.to_owned());
        }
    }
    // All rules count, also those without a host.
    let count = if more { rules.len() } else { 0 };
    json!(or(&some_of(&shown, count), "*"))
}

fn ingress_address(object: &Value, _: i64) -> Value {
    json!(balancer_addresses(object).join(","))
}

fn ingress_ports(object: &Value, _: i64) -> Value {
    json!(if list(object, "/spec/tls").is_empty() { "80" } else { "80, 443" })
}

fn ingress_class_name(object: &Value, _: i64) -> Value {
    let is_default =
        object["metadata"]["annotations"]["ingressclass.kubernetes.io/is-default-class"] == "true";
    let name = at(object, "/metadata/name");
    json!(if is_default { format!("{name} (default)") } else { name.to_owned() })
}

fn class_parameters(object: &Value, _: i64) -> Value {
    let Some(parameters) = object.pointer("/spec/parameters").filter(|it| it.is_object()) else {
        return json!("<none>");
    };
    let group = parameters["apiGroup"].as_str().map(|group| format!(".{group}")).unwrap_or_default();
    json!(format!("{}{group}/{}", at(parameters, "/kind"), at(parameters, "/name")))
}

fn pod_selector(object: &Value, _: i64) -> Value {
    match object.pointer("/spec/podSelector").map(LabelSelector::from_object) {
        Some(Err(_)) => json!("<error>"),
        Some(Ok(selector)) => json!(or(&selector.to_string(), "<none>")),
        None => json!("<none>"),
    }
}

fn parent(object: &Value, _: i64) -> Value {
    let Some(parent) = object.pointer("/spec/parentRef").filter(|it| it.is_object()) else {
        return json!("<none>");
    };
    let group = match at(parent, "/group") {
        "" => String::new(),
        group => format!(".{group}"),
    };
    let namespace = match at(parent, "/namespace") {
        "" => String::new(),
        namespace => format!("/{namespace}"),
    };
    let resource = format!("{}{group}", at(parent, "/resource")).to_lowercase();
    json!(format!("{resource}{namespace}/{}", at(parent, "/name")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cells of a row's columns, but for the name and the age.
    fn cells(kind: &str, object: &Value) -> Vec<Value> {
        let row = ROWS.iter().find(|row| row.kind == kind).unwrap();
        let shown = row.columns.iter().filter_map(|column| match column.cell {
            Cell::Compute(compute) => Some(compute(object, 0)),
            Cell::Path(path) => Some(crate::table::find(object, path)),
            _ => None,
        });
        shown.collect()
    }

    #[test]
    fn services_show_where_they_are() {
        for (object, wanted) in [
            (
                json!({"spec": {"type": "ClusterIP", "clusterIPs": ["10.96.0.1"], "ports": [{"port": 443, "protocol": "TCP"}]}}),
                json!(["ClusterIP", "10.96.0.1", "<none>", "443/TCP", "<none>"]),
            ),
            (
                json!({"spec": {"type": "ExternalName", "externalName": "a.b", "selector": {"b": "1", "a": "2"}}}),
                json!(["ExternalName", "<none>", "a.b", "<none>", "a=2,b=1"]),
            ),
            (
                json!({"spec": {"type": "LoadBalancer", "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}]}}),
                json!(["LoadBalancer", "<none>", "<pending>", "80:30080/TCP", "<none>"]),
            ),
            (
                json!({
                    "spec": {"type": "LoadBalancer", "externalIPs": ["192.0.2.9"]},
                    "status": {"loadBalancer": {"ingress": [{"hostname": "b"}, {"ip": "192.0.2.1"}, {"hostname": "b"}]}},
                }),
                json!(["LoadBalancer", "<none>", "192.0.2.1,b,192.0.2.9", "<none>", "<none>"]),
            ),
        ] {
            assert_eq!(json!(cells("Service", &object)), wanted);
        }
    }

    #[test]
    fn endpoints_show_three_and_count_the_rest() {
        let addresses = |count: usize| -> Vec<Value> {
            (0..count).map(|at| json!({"ip": format!("10.0.0.{at}")})).collect()
        };
        for (subsets, wanted) in [
            (json!([]), "<none>"),
            (json!([{"addresses": addresses(1)}]), "10.0.0.0"),
            (
                json!([{"addresses": addresses(2), "ports": [{"port": 80}, {"port": 81}]}]),
                "10.0.0.0:80,10.0.0.1:80,10.0.0.0:81 + 1 more...",
            ),
            (json!([{"addresses": [{"ip": "fd00::1"}], "ports": [{"port": 80}]}]), "[fd00::1]:80"),
            (json!([{"notReadyAddresses": addresses(1)}]), ""),
        ] {
            assert_eq!(cells("Endpoints", &json!({"subsets": subsets})), [wanted]);
        }
        let slice = json!({
            "addressType": "IPv4",
            "ports": [{"port": 80}, {"name": "any"}, {}],
            "endpoints": [{"addresses": ["a", "b"]}, {"addresses": ["c", "d", "e"]}],
        });
        assert_eq!(cells("EndpointSlice", &slice), ["IPv4", "80,any,*", "a,b,c + 2 more..."]);
        assert_eq!(cells("EndpointSlice", &json!({"addressType": "IPv4"})), ["IPv4", "<unset>", "<unset>"]);
    }

    #[test]
    fn ingresses_show_hosts_and_classes_their_parameters() {
        let rules =
            |hosts: &[&str]| -> Vec<Value> { hosts.iter().map(|host| json!({"host": host})).collect() };
        for (hosts, wanted) in [
            (&[][..], "*"),
            (&["a", "b", "c"][..], "a,b,c"),
            (&["a", "b", "c", "d", "e"][..], "a,b,c + 2 more..."),
        ] {
            let object = json!({"spec": {"rules": rules(hosts), "tls": [{}]}});
            assert_eq!(cells("Ingress", &object), ["<none>", wanted, "", "80, 443"]);
        }
        let class = json!({
            "metadata": {"name": "a", "annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}},
            "spec": {"controller": "example.com/x", "parameters": {"apiGroup": "example.com", "kind": "K", "name": "n"}},
        });
        assert_eq!(cells("IngressClass", &class), ["a (default)", "example.com/x", "K.example.com/n"]);
        let address = json!({"spec": {"parentRef": {"resource": "services", "namespace": "n", "name": "s"}}});
        assert_eq!(cells("IPAddress", &address), ["services/n/s"]);
        let policy = json!({"spec": {"podSelector": {"matchLabels": {"a": "b"}}}});
        assert_eq!(cells("NetworkPolicy", &policy), ["a=b"]);
    }
}
