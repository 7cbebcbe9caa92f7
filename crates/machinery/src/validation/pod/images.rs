//! References to images: `registry.example.com:5000/team/app:1.2@sha256:…`.

const MAX_REPOSITORY: usize = 255;
const MAX_TAG: usize = 128;

/// How an image is pulled when its author does not say: always if its tag moves.
pub fn default_pull_policy(image: &str) -> &'static str {
    if is_latest(image) { "Always" } else { "IfNotPresent" }
}

/// Whether an image is meant by the tag `latest`, written or not. What is no reference has no tag.
fn is_latest(image: &str) -> bool {
    let is_identifier = image.len() == 64 && image.bytes().all(is_lower_hex);
    if is_identifier {
        return false;
    }
    let (domain, remainder) = split_domain(image);
    let remote = remainder.split(':').next().unwrap_or_default();
    if remote.to_lowercase() != remote {
        return false;
    }
    let (named, digest) = match remainder.split_once('@') {
        Some((named, digest)) => (named, Some(digest)),
        None => (remainder.as_str(), None),
    };
    let last = named.rfind('/').map_or(0, |slash| slash + 1);
    let (path, tag) = match named[last..].find(':') {
        Some(colon) => (&named[..last + colon], Some(&named[last + colon + 1..])),
        None => (named, None),
    };
    let is_reference = (is_domain(domain) || is_path_component(domain))
        && path.split('/').all(is_path_component)
        && path.len() <= MAX_REPOSITORY
        && tag.is_none_or(is_tag)
        && digest.is_none_or(is_digest);
    is_reference && tag.map_or(digest.is_none(), |tag| tag == "latest")
}

/// The registry, and the repository with what follows it. Short names are those of Docker's registry.
fn split_domain(image: &str) -> (&str, String) {
    const DOCKER: &str = "docker.io";
    let (domain, remote) = match image.split_once('/') {
        None => return (DOCKER, format!("library/{image}")),
        Some(("index.docker.io", remote)) => (DOCKER, remote),
        Some((domain, remote))
            if domain == "localhost" || domain.contains(['.', ':']) || domain.to_lowercase() != domain =>
        {
            (domain, remote)
        }
        Some(_) => (DOCKER, image),
    };
    match domain == DOCKER && !remote.contains('/') {
        true => (domain, format!("library/{remote}")),
        false => (domain, remote.to_owned()),
    }
}

fn is_lower_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

fn is_domain(domain: &str) -> bool {
    let (host, port) = match domain.rfind(':').filter(|colon| !domain[*colon..].contains(']')) {
        Some(colon) => (&domain[..colon], Some(&domain[colon + 1..])),
        None => (domain, None),
    };
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let is_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(ipv6) => !ipv6.is_empty() && ipv6.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':'),
        None => host.split('.').all(is_domain_component),
    };
    is_host && port.is_none_or(is_port)
}

fn is_domain_component(component: &str) -> bool {
    !component.is_empty()
        && !component.starts_with('-')
        && !component.ends_with('-')
        && component.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Lower case letters and digits, with `.`, `_`, `__` or any number of dashes between them.
fn is_path_component(component: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let mut rest = component;
    loop {
        let word = rest.bytes().take_while(|byte| is_word(*byte)).count();
        if word == 0 {
            return false;
        }
        rest = &rest[word..];
        if rest.is_empty() {
            return true;
        }
        let separator = match rest.as_bytes() {
            [b'-', ..] => rest.bytes().take_while(|byte| *byte == b'-').count(),
            [b'_', b'_', ..] => 2,
            [b'.' | b'_', ..] => 1,
            _ => return false,
        };
        rest = &rest[separator..];
    }
}

fn is_tag(tag: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    tag.len() <= MAX_TAG
        && tag.bytes().next().is_some_and(is_word)
        && tag.bytes().all(|byte| is_word(byte) || matches!(byte, b'.' | b'-'))
}

fn is_digest(digest: &str) -> bool {
    let Some((algorithm, encoded)) = digest.split_once(':') else { return false };
    let size = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return false,
    };
    encoded.len() == size && encoded.bytes().all(is_lower_hex)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_moving_tag_is_pulled_always() {
        let digest = format!("a@sha256:{}", "0".repeat(64));
        for (image, latest) in [
            ("nginx", true),
            ("nginx:latest", true),
            ("nginx:1.2", false),
            ("localhost/nginx", true),
            ("example.com:5000/a/b", true),
            ("example.com:5000/a/b:v1", false),
            ("UPPER/nginx", true),
            ("nginX", false),
            ("a__b--c.d/e", true),
            ("a..b", false),
            ("", false),
            (" nginx", false),
            ("nginx:", false),
            (digest.as_str(), false),
            ("a@sha256:0", false),
        ] {
            assert_eq!(is_latest(image), latest, "{image}");
        }
    }
}
