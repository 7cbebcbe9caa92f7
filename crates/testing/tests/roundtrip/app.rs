//! What people apply.

use serde_json::{Value, json};

pub const NS: &str = "shop";

pub fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

fn mk(api_version: &str, kind: &str, name: &str, rest: Value) -> Value {
    let mut object =
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": NS}});
    if let (Value::Object(object), Value::Object(rest)) = (&mut object, rest) {
        object.extend(rest);
    }
    object
}

pub fn template(app: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {"containers": [{"name": "main", "image": "example.com/main:1"}]},
    })
}

pub fn deployment(name: &str, replicas: u32) -> Value {
    let selector = json!({"matchLabels": {"app": name}});
    let spec = json!({"replicas": replicas, "selector": selector, "template": template(name)});
    mk("apps/v1", "Deployment", name, json!({"spec": spec}))
}

pub fn stateful_set(name: &str, replicas: u32) -> Value {
    let selector = json!({"matchLabels": {"app": name}});
    let spec = json!({
        "replicas": replicas, "selector": selector, "serviceName": name, "template": template(name),
    });
    mk("apps/v1", "StatefulSet", name, json!({"spec": spec}))
}

pub fn daemon_set(name: &str) -> Value {
    let spec = json!({"selector": {"matchLabels": {"app": name}}, "template": template(name)});
    mk("apps/v1", "DaemonSet", name, json!({"spec": spec}))
}

pub fn replica_set(name: &str, replicas: u32) -> Value {
    let selector = json!({"matchLabels": {"app": name}});
    let spec = json!({"replicas": replicas, "selector": selector, "template": template(name)});
    mk("apps/v1", "ReplicaSet", name, json!({"spec": spec}))
}

fn job_spec(name: &str) -> Value {
    let mut template = template(name);
    template["spec"]["restartPolicy"] = json!("Never");
    template["metadata"]["annotations"] = json!({"sim.hanse.io/exit-after": "1s"});
    json!({"template": template})
}

pub fn job(name: &str) -> Value {
    mk("batch/v1", "Job", name, json!({"spec": job_spec(name)}))
}

pub fn cron_job(name: &str) -> Value {
    let spec = json!({"schedule": "* * * * *", "jobTemplate": {"spec": job_spec(name)}});
    mk("batch/v1", "CronJob", name, json!({"spec": spec}))
}

pub fn pod(name: &str) -> Value {
    let mut template = template(name);
    template["metadata"]["name"] = json!(name);
    mk("v1", "Pod", name, json!({"spec": template["spec"]}))
}

pub fn service(name: &str) -> Value {
    let spec = json!({"selector": {"app": name}, "ports": [{"port": 80, "targetPort": 8080}]});
    mk("v1", "Service", name, json!({"spec": spec}))
}

pub fn config_map(name: &str, value: &str) -> Value {
    mk("v1", "ConfigMap", name, json!({"data": {"key": value}}))
}

pub fn secret(name: &str) -> Value {
    mk("v1", "Secret", name, json!({"stringData": {"password": "hunter2"}}))
}

pub fn service_account(name: &str) -> Value {
    mk("v1", "ServiceAccount", name, json!({}))
}

pub fn claim(name: &str) -> Value {
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    mk("v1", "PersistentVolumeClaim", name, json!({"spec": spec}))
}

pub fn ingress(name: &str) -> Value {
    let backend = json!({"service": {"name": name, "port": {"number": 80}}});
    let path = json!({"path": "/", "pathType": "Prefix", "backend": backend});
    let rule = json!({"host": "shop.example.com", "http": {"paths": [path]}});
    mk("networking.k8s.io/v1", "Ingress", name, json!({"spec": {"rules": [rule]}}))
}

pub fn autoscaler(name: &str) -> Value {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name});
    let spec = json!({"scaleTargetRef": target, "minReplicas": 3, "maxReplicas": 6});
    mk("autoscaling/v2", "HorizontalPodAutoscaler", name, json!({"spec": spec}))
}

pub fn budget(name: &str) -> Value {
    let spec = json!({"minAvailable": 1, "selector": {"matchLabels": {"app": name}}});
    mk("policy/v1", "PodDisruptionBudget", name, json!({"spec": spec}))
}

pub fn network_policy(name: &str) -> Value {
    let spec = json!({"podSelector": {"matchLabels": {"app": name}}, "policyTypes": ["Ingress"]});
    mk("networking.k8s.io/v1", "NetworkPolicy", name, json!({"spec": spec}))
}

pub fn role(name: &str) -> Value {
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}]);
    mk("rbac.authorization.k8s.io/v1", "Role", name, json!({"rules": rules}))
}

pub fn role_binding(name: &str) -> Value {
    let subjects = json!([{"kind": "ServiceAccount", "name": name, "namespace": NS}]);
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name});
    mk("rbac.authorization.k8s.io/v1", "RoleBinding", name, json!({"subjects": subjects, "roleRef": role}))
}

/// A Deployment with three replicas, its Service, its configuration and its password.
pub fn web() -> Vec<Value> {
    let mut web = deployment("web", 3);
    web["spec"]["template"]["spec"]["containers"][0]["envFrom"] =
        json!([{"configMapRef": {"name": "settings"}}, {"secretRef": {"name": "password"}}]);
    vec![config_map("settings", "one"), secret("password"), web, service("web")]
}

/// One of everything that an application brings.
pub fn everything() -> Vec<Value> {
    let mut all = web();
    let pod_spec = &mut all[2]["spec"]["template"]["spec"];
    pod_spec["serviceAccountName"] = json!("web");
    pod_spec["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    all.insert(0, service_account("web"));
    all.insert(1, claim("data"));
    all.extend([ingress("web"), autoscaler("web"), budget("web"), network_policy("web")]);
    all.extend([role("web"), role_binding("web")]);
    all
}
