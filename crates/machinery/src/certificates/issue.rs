//! What an authority signs for a request: the request's subject, names and key, and nothing else of it.

use jiff::{SignedDuration, Timestamp};

use super::{Request, Subject, WORKSPACE_EXTENSION, der};

/// A certificate is valid a little earlier than it is made, for those whose clocks are behind.
const BACKDATE: SignedDuration = SignedDuration::from_mins(5);
/// Below this the backdating is not taken off the end.
const SHORT: SignedDuration = SignedDuration::from_hours(8);
const SHORTEST: SignedDuration = SignedDuration::from_mins(10);

/// What the authority adds to a request.
pub struct Template<'a> {
    pub serial: [u8; 16],
    /// `AlgorithmIdentifier` of the authority's signature, DER.
    pub algorithm: &'a [u8],
    /// The authority's own name, DER.
    pub issuer: &'a [u8],
    /// Empty if its certificate has none.
    pub issuer_key_id: &'a [u8],
    pub not_before: Timestamp,
    pub not_after: Timestamp,
    pub usages: &'a [&'a str],
    /// The workspace that the certificate is good for; `None`: all of the installation.
    pub workspace: Option<&'a str>,
}

/// From when to when a certificate is valid, if `wanted` seconds (or the longest there is) are asked for now.
pub fn lifetime(
    now: Timestamp,
    wanted: Option<i64>,
    longest: SignedDuration,
    issuer_not_after: Timestamp,
) -> Result<(Timestamp, Timestamp), String> {
    let life = match wanted.map(SignedDuration::from_secs) {
        Some(wanted) if wanted < longest => wanted.max(SHORTEST),
        _ => longest,
    };
    let counted = if life < SHORT { life } else { life - BACKDATE };
    let not_before = now.checked_sub(BACKDATE).map_err(|error| error.to_string())?;
    let not_after = now.checked_add(counted).map_err(|error| error.to_string())?.min(issuer_not_after);
    if not_before >= issuer_not_after {
        return Err(format!("the signer has expired: NotAfter={issuer_not_after}"));
    }
    if now >= issuer_not_after {
        return Err(format!(
            "refusing to sign a certificate that expired in the past: NotAfter={issuer_not_after}"
        ));
    }
    Ok((not_before, not_after))
}

/// `TBSCertificate`, DER.
pub fn to_be_signed(request: &Request, template: &Template<'_>) -> Result<Vec<u8>, String> {
    let extensions = der::tagged(0xa3, &der::sequence(&extensions(request, template)?));
    Ok(der::sequence(&[
        // Version 3.
        der::tagged(0xa0, &der::unsigned(&[2])),
        der::unsigned(&template.serial),
        template.algorithm.to_vec(),
        template.issuer.to_vec(),
        der::sequence(&[der::time(template.not_before), der::time(template.not_after)]),
        name(&request.subject),
        request.public_key.clone(),
        extensions,
    ]))
}

/// The certificate, DER, once the authority's key has signed the rest.
pub fn certificate(to_be_signed: Vec<u8>, algorithm: &[u8], signature: &[u8]) -> Vec<u8> {
    der::sequence(&[to_be_signed, algorithm.to_vec(), der::bit_string(signature, 0)])
}

fn name(subject: &Subject) -> Vec<u8> {
    let one = |text: &String| if text.is_empty() { Vec::new() } else { vec![text.clone()] };
    let parts: [(u64, Vec<String>); 9] = [
        (6, subject.country.clone()),
        (10, subject.organization.clone()),
        (11, subject.organizational_unit.clone()),
        (7, subject.locality.clone()),
        (8, subject.province.clone()),
        (9, subject.street.clone()),
        (17, subject.postal_code.clone()),
        (3, one(&subject.common_name)),
        (5, one(&subject.serial_number)),
    ];
    let encoded: Vec<Vec<u8>> = parts
        .iter()
        .filter(|(_, values)| !values.is_empty())
        .map(|(kind, values)| {
            let kind = der::object_identifier(&[2, 5, 4, *kind]);
            der::set_of(values.iter().map(|value| der::sequence(&[kind.clone(), der::text(value)])).collect())
        })
        .collect();
    der::sequence(&encoded)
}

fn extension(arcs: &[u64], critical: bool, content: &[u8]) -> Vec<u8> {
    let mut parts = vec![der::object_identifier(arcs)];
    if critical {
        parts.push(der::tagged(0x01, &[0xff]));
    }
    parts.push(der::octet_string(content));
    der::sequence(&parts)
}

fn extensions(request: &Request, template: &Template<'_>) -> Result<Vec<Vec<u8>>, String> {
    let (bits, purposes) = split_usages(template.usages)?;
    let mut extensions = Vec::new();
    if bits != 0 {
        extensions.push(extension(&[2, 5, 29, 15], true, &key_usage(bits)));
    }
    if !purposes.is_empty() {
        let purposes: Vec<Vec<u8>> = purposes.iter().map(|arcs| der::object_identifier(arcs)).collect();
        extensions.push(extension(&[2, 5, 29, 37], false, &der::sequence(&purposes)));
    }
    // Not an authority.
    extensions.push(extension(&[2, 5, 29, 19], true, &der::sequence(&[])));
    if !template.issuer_key_id.is_empty() {
        let id = der::sequence(&[der::tagged(0x80, template.issuer_key_id)]);
        extensions.push(extension(&[2, 5, 29, 35], false, &id));
    }
    if let Some(names) = alternative_names(request) {
        let unnamed = request.subject == Subject::default();
        extensions.push(extension(&[2, 5, 29, 17], unnamed, &names));
    }
    if let Some(workspace) = template.workspace {
        let content = der::tagged(0x0c, workspace.as_bytes());
        extensions.push(extension(WORKSPACE_EXTENSION, false, &content));
    }
    Ok(extensions)
}

fn alternative_names(request: &Request) -> Option<Vec<u8>> {
    let names = &request.names;
    let texts = |tag: u8, values: &[String]| -> Vec<Vec<u8>> {
        values.iter().map(|value| der::tagged(tag, value.as_bytes())).collect()
    };
    let mut all = texts(0x82, &names.dns);
    all.extend(texts(0x81, &names.emails));
    all.extend(names.addresses.iter().map(|bytes| der::tagged(0x87, bytes)));
    all.extend(texts(0x86, &names.uris));
    (!all.is_empty()).then(|| der::sequence(&all))
}

/// Bit `n` of the extension is bit `n` of the number.
fn key_usage(bits: u16) -> Vec<u8> {
    let mut bytes = [(bits as u8).reverse_bits(), ((bits >> 8) as u8).reverse_bits()].to_vec();
    if bytes[1] == 0 {
        bytes.pop();
    }
    let unused = bytes.last().map_or(0, |last| last.trailing_zeros() as u8);
    der::bit_string(&bytes, unused)
}

/// The bits of `keyUsage`, and the purposes of `extKeyUsage` in the order Go writes them.
fn split_usages(usages: &[&str]) -> Result<(u16, Vec<&'static [u64]>), String> {
    let mut bits = 0;
    let mut purposes: Vec<usize> = Vec::new();
    let mut unknown = Vec::new();
    for usage in usages {
        match (key_usage_bit(usage), PURPOSES.iter().position(|(names, _)| names.contains(usage))) {
            (Some(bit), _) => bits |= 1 << bit,
            (None, Some(at)) => purposes.push(at),
            (None, None) => unknown.push(format!("{usage:?}")),
        }
    }
    if !unknown.is_empty() {
        return Err(format!("unrecognized usage values: [{}]", unknown.join(" ")));
    }
    purposes.sort_unstable();
    purposes.dedup();
    Ok((bits, purposes.into_iter().map(|at| PURPOSES[at].1).collect()))
}

fn key_usage_bit(usage: &str) -> Option<u16> {
    Some(match usage {
        "signing" | "digital signature" => 0,
        "content commitment" => 1,
        "key encipherment" => 2,
        "data encipherment" => 3,
        "key agreement" => 4,
        "cert sign" => 5,
        "crl sign" => 6,
        "encipher only" => 7,
        "decipher only" => 8,
        _ => return None,
    })
}

/// In the order of Go's constants.
const PURPOSES: [(&[&str], &[u64]); 12] = [
    (&["any"], &[2, 5, 29, 37, 0]),
    (&["server auth"], &[1, 3, 6, 1, 5, 5, 7, 3, 1]),
    (&["client auth"], &[1, 3, 6, 1, 5, 5, 7, 3, 2]),
    (&["code signing"], &[1, 3, 6, 1, 5, 5, 7, 3, 3]),
    (&["email protection", "s/mime"], &[1, 3, 6, 1, 5, 5, 7, 3, 4]),
    (&["ipsec end system"], &[1, 3, 6, 1, 5, 5, 7, 3, 5]),
    (&["ipsec tunnel"], &[1, 3, 6, 1, 5, 5, 7, 3, 6]),
    (&["ipsec user"], &[1, 3, 6, 1, 5, 5, 7, 3, 7]),
    (&["timestamping"], &[1, 3, 6, 1, 5, 5, 7, 3, 8]),
    (&["ocsp signing"], &[1, 3, 6, 1, 5, 5, 7, 3, 9]),
    (&["microsoft sgc"], &[1, 3, 6, 1, 4, 1, 311, 10, 3, 3]),
    (&["netscape sgc"], &[2, 16, 840, 1, 113730, 4, 1]),
];
