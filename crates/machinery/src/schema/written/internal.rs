//! How upstream's internal types differ from those of the API: facts about names, order and pointers.

/// Words that Go's names write in capitals.
const ACRONYMS: [&str; 23] = [
    "api", "aws", "ca", "csi", "dns", "fc", "fs", "gce", "gmsa", "grpc", "http", "ip", "iqn", "iscsi", "nfs",
    "os", "rbd", "ssl", "tcp", "tls", "ttl", "tty", "uid",
];

/// Names that follow no rule: (message or empty for any, JSON, Go).
const NAMES: [(&str, &str, &str); 15] = [
    ("", "url", "URL"),
    ("", "seLinuxOptions", "SELinuxOptions"),
    ("", "seLinuxChangePolicy", "SELinuxChangePolicy"),
    ("", "cephfs", "CephFS"),
    ("", "storageos", "StorageOS"),
    ("core/v1.AzureDiskVolumeSource", "diskURI", "DataDiskURI"),
    ("core/v1.FCVolumeSource", "wwids", "WWIDs"),
    ("core/v1.GCEPersistentDiskVolumeSource", "pdName", "PDName"),
    ("core/v1.GlusterfsVolumeSource", "endpoints", "EndpointsName"),
    ("core/v1.ISCSIVolumeSource", "chapAuthDiscovery", "DiscoveryCHAPAuth"),
    ("core/v1.ISCSIVolumeSource", "chapAuthSession", "SessionCHAPAuth"),
    ("core/v1.RBDVolumeSource", "monitors", "CephMonitors"),
    ("core/v1.RBDVolumeSource", "image", "RBDImage"),
    ("core/v1.RBDVolumeSource", "pool", "RBDPool"),
    ("core/v1.RBDVolumeSource", "user", "RadosUser"),
];

/// Members in the order of the internal type, where that is another. What is missing here is not in it.
const ORDERS: [(&str, &[&str]); 3] = [
    (
        "core/v1.PodSpec",
        &[
            "volumes",
            "initContainers",
            "containers",
            "ephemeralContainers",
            "restartPolicy",
            "terminationGracePeriodSeconds",
            "activeDeadlineSeconds",
            "dnsPolicy",
            "nodeSelector",
            "serviceAccountName",
            "automountServiceAccountToken",
            "nodeName",
            "securityContext",
            "imagePullSecrets",
            "hostname",
            "subdomain",
            "setHostnameAsFQDN",
            "affinity",
            "schedulerName",
            "tolerations",
            "hostAliases",
            "priorityClassName",
            "priority",
            "preemptionPolicy",
            "dnsConfig",
            "readinessGates",
            "runtimeClassName",
            "overhead",
            "enableServiceLinks",
            "topologySpreadConstraints",
            "os",
            "schedulingGates",
            "resourceClaims",
            "resources",
            "hostnameOverride",
            "schedulingGroup",
        ],
    ),
    (
        "core/v1.PodSecurityContext",
        &[
            "seLinuxOptions",
            "windowsOptions",
            "runAsUser",
            "runAsGroup",
            "runAsNonRoot",
            "supplementalGroups",
            "supplementalGroupsPolicy",
            "fsGroup",
            "fsGroupChangePolicy",
            "sysctls",
            "seccompProfile",
            "appArmorProfile",
            "seLinuxChangePolicy",
        ],
    ),
    (
        "core/v1.VolumeSource",
        &[
            "hostPath",
            "emptyDir",
            "gcePersistentDisk",
            "awsElasticBlockStore",
            "gitRepo",
            "secret",
            "nfs",
            "iscsi",
            "glusterfs",
            "persistentVolumeClaim",
            "rbd",
            "quobyte",
            "flexVolume",
            "cinder",
            "cephfs",
            "flocker",
            "downwardAPI",
            "fc",
            "azureFile",
            "configMap",
            "vsphereVolume",
            "azureDisk",
            "photonPersistentDisk",
            "projected",
            "portworxVolume",
            "scaleIO",
            "storageos",
            "csi",
            "ephemeral",
            "image",
        ],
    ),
];

/// Members that can be unset in the API and not inside: (message, member).
const VALUES: [(&str, &str); 7] = [
    ("apps/v1.RollingUpdateDaemonSet", "maxUnavailable"),
    ("apps/v1.RollingUpdateDaemonSet", "maxSurge"),
    ("apps/v1.RollingUpdateDeployment", "maxUnavailable"),
    ("apps/v1.RollingUpdateDeployment", "maxSurge"),
    ("apps/v1.RollingUpdateStatefulSetStrategy", "partition"),
    ("core/v1.ServiceAccountTokenProjection", "expirationSeconds"),
    ("flowcontrol/v1.LimitedPriorityLevelConfiguration", "nominalConcurrencyShares"),
];

/// What a pod's spec has in the API and its security context has inside.
pub const OF_SECURITY_CONTEXT: [&str; 5] =
    ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers"];

pub fn order(message: &str) -> Option<&'static [&'static str]> {
    ORDERS.iter().find(|(name, _)| *name == message).map(|(_, order)| *order)
}

pub fn is_value(message: &str, member: &str) -> bool {
    VALUES.contains(&(message, member))
}

/// The Go field that JSON calls `name`.
pub fn go_name(message: &str, name: &str) -> String {
    let odd = NAMES.iter().find(|(of, json, _)| *json == name && (of.is_empty() || *of == message));
    if let Some((_, _, go)) = odd {
        return (*go).to_owned();
    }
    let end = name.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(name.len());
    let (word, rest) = name.split_at(end);
    if ACRONYMS.contains(&word) {
        return format!("{}{rest}", word.to_ascii_uppercase());
    }
    let mut letters = name.chars();
    letters.next().map_or_else(String::new, |first| first.to_ascii_uppercase().to_string() + letters.as_str())
}
