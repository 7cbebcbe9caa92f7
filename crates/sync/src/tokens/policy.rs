//! What a member's own API server does to new pods of workspaces: a mutating policy gives them the hub's token, authority
//! and address, a validating one refuses what would still hold a token of the member's.
//!
//! ```text
//!   pod ──> ServiceAccount plug-in: mounts kube-api-access-…, a projected volume with a token of the member's
//!       ──> mutating policy: in that volume, and in those that people wrote, Secret hanse-token-ACCOUNT takes its place
//!       ──> webhooks of others; if they add containers, both of the above are asked again
//!       ──> validating policy: is there a token of the member's left?
//! ```
//!
//! The policies are evaluated in the member, and need nobody else: pods are made and healed there while the hub is away.
//! The plug-in has looked at who opted out of tokens, so the policy need not.

use serde_json::{Value, json};

use crate::MANAGER;

pub const GROUP: &str = "admissionregistration.k8s.io";
pub const MUTATING: &str = "mutatingadmissionpolicies";
pub const VALIDATING: &str = "validatingadmissionpolicies";
/// Newest first. Each has policies of the same shape.
pub const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];
/// Of the policies and of their bindings.
pub const NAME: &str = "hanse-pods";
/// What the name of the Secret with an account's token begins with.
pub const SECRET_PREFIX: &str = "hanse-token-";
/// With the prefix it is a name that a Secret may have.
pub const MAX_ACCOUNT: usize = 253 - SECRET_PREFIX.len();
/// Keys of such a Secret, and what the files are called.
pub const TOKEN: &str = "token";
pub const AUTHORITY: &str = "ca.crt";
pub const NAMESPACE: &str = "namespace";

/// Where pods reach the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    pub host: String,
    pub port: String,
}

impl Address {
    /// `host:port`; an IPv6 address is in brackets there, and not in the environment of pods.
    pub fn read(advertised: &str) -> Option<Address> {
        let (host, port) = advertised.rsplit_once(':')?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let is_plain =
            |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-:_".contains(&byte));
        let is_good = !host.is_empty() && is_plain(host) && port.parse::<u16>().is_ok();
        is_good.then(|| Address { host: host.to_owned(), port: port.to_owned() })
    }
}

/// One object that a member is to have.
pub struct Wanted {
    pub path: String,
    pub object: Value,
}

/// The policies and their bindings. `versions`: in which the member has mutating and validating policies. `owner`: what
/// they go with.
pub fn wanted(address: &Address, versions: (&str, &str), owner: &Value) -> Vec<Wanted> {
    let (mutating, validating) = versions;
    let bound = json!({"policyName": NAME});
    let denying = json!({"policyName": NAME, "validationActions": ["Deny"]});
    vec![
        one(validating, "ValidatingAdmissionPolicy", VALIDATING, validating_spec(), owner),
        one(
            validating,
            "ValidatingAdmissionPolicyBinding",
            "validatingadmissionpolicybindings",
            denying,
            owner,
        ),
        one(mutating, "MutatingAdmissionPolicy", MUTATING, mutating_spec(address), owner),
        one(mutating, "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings", bound, owner),
    ]
}

/// Where they are, in whichever version a member has them. Bindings go first: without them a policy does nothing.
pub fn paths() -> impl Iterator<Item = String> {
    let resources =
        ["mutatingadmissionpolicybindings", "validatingadmissionpolicybindings", MUTATING, VALIDATING];
    let of = move |version| resources.map(|resource| format!("/apis/{GROUP}/{version}/{resource}/{NAME}"));
    VERSIONS.into_iter().flat_map(of)
}

fn one(version: &str, kind: &str, resource: &str, spec: Value, owner: &Value) -> Wanted {
    Wanted {
        path: format!("/apis/{GROUP}/{version}/{resource}/{NAME}"),
        object: json!({
            "apiVersion": format!("{GROUP}/{version}"), "kind": kind,
            "metadata": {
                "name": NAME, "labels": {"app.kubernetes.io/managed-by": MANAGER}, "ownerReferences": [owner],
            },
            "spec": spec,
        }),
    }
}

/// A source that is a token of the member's, for its API. One for others keeps what it is, and is refused later.
const IS_TOKEN: &str = "has(s.serviceAccountToken) && (s.serviceAccountToken.?audience.orValue('') == '' \
                        || s.serviceAccountToken.audience.startsWith('https://kubernetes.default.svc'))";
const IS_AUTHORITY: &str = "s.?configMap.?name.orValue('') == 'kube-root-ca.crt'";
const IS_NAMESPACE: &str = "i.?fieldRef.?fieldPath.orValue('') == 'metadata.namespace'";

/// A source of the downward API with the namespace's name.
const NAMES_IT: &str = "s.?downwardAPI.?items.orValue([]).exists(i, \
                        i.?fieldRef.?fieldPath.orValue('') == 'metadata.namespace')";

fn rules(resource: &str, operations: &[&str]) -> Value {
    json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": operations, "resources": [resource]})
}

fn of_workspaces() -> Value {
    json!({"matchExpressions": [{"key": api::WORKSPACE_LABEL, "operator": "Exists"}]})
}

/// Pods that nodes run by themselves only show in the API, and have no account.
fn no_mirror() -> Value {
    json!([{
        "name": "not-a-mirror",
        "expression": "request.resource.resource != 'pods' \
                       || !('kubernetes.io/config.mirror' in object.metadata.?annotations.orValue({}))",
    }])
}

pub fn mutating_spec(address: &Address) -> Value {
    let entry = |name: &str, value: &str| format!("{{'name': '{name}', 'value': '{value}'}}");
    let Address { host, port } = address;
    let entries = [
        entry("KUBERNETES_SERVICE_HOST", host),
        entry("KUBERNETES_SERVICE_PORT", port),
        entry("KUBERNETES_SERVICE_PORT_HTTPS", port),
    ];
    let home = format!(
        "string(namespaceObject.metadata.?labels['{}'].orValue(namespaceObject.metadata.name))",
        api::NAMESPACE_LABEL
    );
    let patch =
        |expression: String| json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}});
    json!({
        // Rather no pod than one with a token of the member's.
        "failurePolicy": "Fail",
        "reinvocationPolicy": "IfNeeded",
        "matchConstraints": {
            "matchPolicy": "Equivalent",
            "namespaceSelector": of_workspaces(), "objectSelector": {},
            "resourceRules": [rules("pods", &["CREATE"])],
        },
        "matchConditions": no_mirror(),
        "variables": [
            {"name": "account", "expression": "string(object.spec.serviceAccountName)"},
            {"name": "secret", "expression": format!("'{SECRET_PREFIX}' + variables.account")},
            {"name": "home", "expression": home},
            {"name": "mapped", "expression": "variables.home != namespaceObject.metadata.name"},
            {"name": "address", "expression": format!("[{}]", entries.join(", "))},
        ],
        "mutations": [
            patch(volumes()),
            patch(namespace_sources()),
            patch(namespace_volumes()),
            patch(containers("containers")),
            patch(containers("initContainers")),
        ],
    })
}

/// A source, in a volume of several, that is these items of the account's Secret.
fn of_secret(items: &str) -> String {
    format!("dyn({{'secret': {{'name': dyn(variables.secret), 'items': dyn({items})}}}})")
}

/// The patches that a volume has, one for each that is so; `path`: of what in the volume.
fn patched(is_so: &str, path: &str, value: &str) -> String {
    format!(
        "size(variables.account) > {MAX_ACCOUNT} ? [] : object.spec.?volumes.orValue([])\n\
         .filter(v, {is_so})\n\
         .map(v, JSONPatch{{\n\
           op: 'replace',\n\
           path: '/spec/volumes/' + string(object.spec.volumes.map(w, w.name).indexOf(v.name)) + '{path}',\n\
           value: {value}\n\
         }})"
    )
}

/// Items of the downward API that are the namespace's name, as items of the account's Secret.
fn namespace_items(items: &str) -> String {
    let with_mode =
        format!("dyn({{'key': dyn('{NAMESPACE}'), 'path': dyn(string(i.path)), 'mode': dyn(int(i.mode))}})");
    let without = format!("dyn({{'key': '{NAMESPACE}', 'path': string(i.path)}})");
    format!("{items}.filter(i, {IS_NAMESPACE}).map(i, has(i.mode) ? {with_mode} : {without})")
}

/// In all volumes with a token of the member's, its sources are replaced by those of the hub.
fn volumes() -> String {
    let tokens = of_secret(&format!("[{{'key': '{TOKEN}', 'path': string(s.serviceAccountToken.path)}}]"));
    let authorities = of_secret(&format!(
        "s.configMap.?items.orValue([{{'path': '{AUTHORITY}'}}]).map(i, {{'key': '{AUTHORITY}', 'path': string(i.path)}})"
    ));
    let value = format!(
        "v.projected.sources.filter(s, !({IS_TOKEN}) && !({IS_AUTHORITY}) && !({NAMES_IT})).map(s, dyn(s))\n\
             + v.projected.sources.filter(s, {IS_TOKEN}).map(s, {tokens})\n\
             + v.projected.sources.filter(s, {IS_AUTHORITY}).map(s, {authorities})\n\
             + {}",
        named_sources()
    );
    let has_token = format!("v.?projected.?sources.orValue([]).exists(s, {IS_TOKEN})");
    patched(&has_token, "/projected/sources", &value)
}

/// What takes the place of sources with the namespace's name: that, and their other items.
fn named_sources() -> String {
    let names = of_secret(&namespace_items("s.downwardAPI.items"));
    let others = format!("s.downwardAPI.items.filter(i, !({IS_NAMESPACE}))");
    format!(
        "v.projected.sources.filter(s, {NAMES_IT}).map(s, {names})\n\
             + v.projected.sources.filter(s, {NAMES_IT} && size({others}) > 0)\n\
               .map(s, dyn({{'downwardAPI': {{'items': {others}}}}}))"
    )
}

/// A volume of several sources may have the namespace's name and no token.
fn namespace_sources() -> String {
    let value = format!(
        "v.projected.sources.filter(s, !({NAMES_IT})).map(s, dyn(s))\n             + {}",
        named_sources()
    );
    let is_so = format!("variables.mapped && v.?projected.?sources.orValue([]).exists(s, {NAMES_IT})");
    patched(&is_so, "/projected/sources", &value)
}

/// A volume that is the downward API alone becomes one of several sources.
fn namespace_volumes() -> String {
    let names = of_secret(&namespace_items("v.downwardAPI.items"));
    let others = format!("v.downwardAPI.items.filter(i, !({IS_NAMESPACE}))");
    let value = format!(
        "{{'name': dyn(v.name), 'projected': dyn({{\n\
             'defaultMode': dyn(int(v.downwardAPI.?defaultMode.orValue(420))),\n\
             'sources': dyn([{names}] + (size({others}) > 0 ? [dyn({{'downwardAPI': {{'items': {others}}}}})] : []))\n\
           }})}}"
    );
    let is_so = format!("variables.mapped && v.?downwardAPI.?items.orValue([]).exists(i, {IS_NAMESPACE})");
    patched(&is_so, "", &value)
}

/// All containers are told where the hub is, unless they know better, and what their namespace is called there.
fn containers(field: &str) -> String {
    let lacks = "!c.?env.orValue([]).exists(e, e.name == a.name)";
    let names = "e.?valueFrom.?fieldRef.?fieldPath.orValue('') == 'metadata.namespace'";
    format!(
        "object.spec.?{field}.orValue([])\n\
         .filter(c, variables.address.exists(a, {lacks})\n\
           || variables.mapped && c.?env.orValue([]).exists(e, {names}))\n\
         .map(c, JSONPatch{{\n\
           op: 'add',\n\
           path: '/spec/{field}/' + string(object.spec.{field}.map(d, d.name).indexOf(c.name)) + '/env',\n\
           value: variables.address.filter(a, {lacks}).map(a, dyn(a))\n\
             + c.?env.orValue([]).map(e, variables.mapped && {names}\n\
               ? dyn({{'name': string(e.name), 'value': variables.home}}) : dyn(e))\n\
         }})"
    )
}

pub fn validating_spec() -> Value {
    let tokens = "object.spec.?volumes.orValue([]).exists(v, \
                  v.?projected.?sources.orValue([]).exists(s, has(s.serviceAccountToken)))";
    let too_long = format!("size(object.spec.serviceAccountName) > {MAX_ACCOUNT}");
    let why = format!(
        "{too_long} ? 'the name of a service account whose pods get tokens may have {MAX_ACCOUNT} characters at most' : \
         'a token of this cluster would be mounted, and pods of a workspace have none: a projected serviceAccountToken \
         must be for the API, which is the workspace, and without another audience'"
    );
    json!({
        "failurePolicy": "Fail",
        "matchConstraints": {
            "matchPolicy": "Equivalent",
            "namespaceSelector": of_workspaces(), "objectSelector": {},
            "resourceRules": [rules("pods", &["CREATE"]), rules("secrets", &["CREATE", "UPDATE"])],
        },
        "matchConditions": no_mirror(),
        "validations": [
            {
                "expression": format!("request.resource.resource != 'pods' || !({tokens})"),
                "messageExpression": why,
                "reason": "Forbidden",
            },
            {
                "expression": "request.resource.resource != 'secrets' \
                               || object.?type.orValue('') != 'kubernetes.io/service-account-token'",
                "message": "a Secret of the type kubernetes.io/service-account-token would be filled with a token of this \
                            cluster, and workspaces have none: let pods use the token that is mounted, or give the Secret \
                            another type",
                "reason": "Forbidden",
            },
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port() {
        for (advertised, expected) in [
            ("hub.example.com:6443", Some(("hub.example.com", "6443"))),
            ("192.0.2.7:443", Some(("192.0.2.7", "443"))),
            ("[2001:db8::1]:6443", Some(("2001:db8::1", "6443"))),
            ("hub.example.com", None),
            (":6443", None),
            ("hub:99999", None),
            ("a'b:1", None),
            ("", None),
        ] {
            let expected =
                expected.map(|(host, port)| Address { host: host.to_owned(), port: port.to_owned() });
            assert_eq!(Address::read(advertised), expected, "{advertised}");
        }
    }

    #[test]
    fn the_longest_account_has_a_secret() {
        assert_eq!(SECRET_PREFIX.len() + MAX_ACCOUNT, 253);
    }

    #[test]
    fn the_policy_fails_rather_than_let_a_pod_pass_and_asks_nobody_else() {
        let address = Address { host: "hub".into(), port: "6443".into() };
        let objects = wanted(&address, ("v1beta1", "v1"), &json!({"name": "hanse-system"}));
        let paths: Vec<&str> = objects.iter().map(|it| it.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/hanse-pods",
                "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/hanse-pods",
                "/apis/admissionregistration.k8s.io/v1beta1/mutatingadmissionpolicies/hanse-pods",
                "/apis/admissionregistration.k8s.io/v1beta1/mutatingadmissionpolicybindings/hanse-pods",
            ]
        );
        for object in [&objects[0].object, &objects[2].object] {
            assert_eq!(object["spec"]["failurePolicy"], "Fail");
            assert_eq!(object["spec"].get("paramKind"), None, "nothing that could be missing is needed");
            let selected = &object["spec"]["matchConstraints"]["namespaceSelector"]["matchExpressions"][0];
            assert_eq!(selected["key"], api::WORKSPACE_LABEL);
        }
    }
}
