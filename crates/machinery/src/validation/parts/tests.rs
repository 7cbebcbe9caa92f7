use super::*;

const PATH: Path<'_> = Path::new("f");

#[test]
fn paths_read_as_upstreams() {
    let spec = Path::new("spec");
    let list = spec.child("ports");
    let item = list.index(2);
    assert_eq!(item.child("name").to_string(), "spec.ports[2].name");
    assert_eq!(spec.key("a/b").to_string(), "spec[a/b]");
    assert_eq!(Path::new("").child("spec").to_string(), "spec");
}

#[test]
fn addresses_are_read_as_upstream_reads_them() {
    const LEADING: &str = "must not have leading 0s";
    const NO_IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
    for (value, legacy, strict) in [
        ("10.9.8.7", "", ""),
        ("010.9.8.7", LEADING, LEADING),
        ("10.9.8", NO_IP, NO_IP),
        ("10.9.8.256", NO_IP, NO_IP),
        ("", NO_IP, NO_IP),
        ("::", "", ""),
        ("::1", "", ""),
        ("1::2::3", NO_IP, NO_IP),
        ("1:2:3:4:5:6:7:8", "", ""),
        ("1:2:3:4:5:6:7::8", NO_IP, NO_IP),
        ("1:2:3:4:5:6:7:", NO_IP, NO_IP),
        ("2001:DB8::1", "", "must be in canonical form (\"2001:db8::1\")"),
        ("00001::", LEADING, LEADING),
        (
            "::ffff:1.2.3.4",
            "must not be an IPv4-mapped IPv6 address",
            "must not be an IPv4-mapped IPv6 address",
        ),
    ] {
        let detail = |cause: Option<Cause>| {
            let prefix = format!("Invalid value: {}: ", crate::gotext::quote(value));
            cause.map_or(String::new(), |cause| cause.message.replacen(&prefix, "", 1))
        };
        assert_eq!(detail(legacy_ip(value, &PATH, &[])), legacy, "{value}");
        assert_eq!(detail(ip(value, &PATH)), strict, "{value}");
        assert_eq!(legacy_ip(value, &PATH, &[value]), None, "{value} is stored");
    }
}

#[test]
fn networks_are_read_as_upstream_reads_them() {
    const NO_CIDR: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
    for (value, wanted) in [
        ("10.9.8.0/24", ""),
        ("0.0.0.0/0", ""),
        ("10.9.8.0/33", NO_CIDR),
        ("10.9.8.0", NO_CIDR),
        ("10.9.8.1/24", "must not have bits set beyond the prefix length"),
        ("10.9.8.0/024", "must not have leading 0s in IP or prefix length"),
        ("::ffff:1.2.3.0/120", "must not have an IPv4-mapped IPv6 address"),
        ("2001:db8::/64", ""),
        ("2001:DB8::/64", "must be in canonical form (\"2001:db8::/64\")"),
    ] {
        let message = cidr(value, &PATH).map_or(String::new(), |cause| cause.message);
        assert!(message.ends_with(wanted) && message.is_empty() == wanted.is_empty(), "{value}: {message}");
    }
    assert_eq!(
        cidr_warnings("10.9.8.1/24", &PATH),
        [
            "f: CIDR value \"10.9.8.1/24\" is ambiguous in this context (should be \"10.9.8.0/24\" or \"10.9.8.1/32\"?)"
        ]
    );
}

#[test]
fn resources_have_known_names_or_a_domain() {
    for (name, any, of_container) in [
        ("cpu", true, true),
        ("pods", true, false),
        ("gpu", false, false),
        ("example.com/gpu", true, true),
        ("hugepages-2Mi", true, true),
        ("kubernetes.io/x", true, true),
        ("requests.example.com/x", true, false),
        ("", false, false),
    ] {
        assert_eq!(resource_name(name, &PATH).is_empty(), any, "{name}");
        assert_eq!(container_resource_name(name, &PATH).is_empty(), of_container, "{name}");
    }
}
