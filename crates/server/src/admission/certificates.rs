//! Who may approve and sign requests for certificates, and for whom none may be asked.
//!
//! Upstream's admission plugins CertificateApproval, CertificateSigning and CertificateSubjectRestriction.

use base64::{Engine, engine::general_purpose::STANDARD};
use machinery::{
    certificates::{Request, Signer},
    resource::Tree,
    status::Status,
};
use serde_json::Value;

use crate::{context::Context, rbac::Attributes, user::MASTERS};

pub const GROUP: &str = "certificates.k8s.io";
pub const RESOURCE: &str = "certificatesigningrequests";

/// Says nothing of other kinds.
pub fn admit(context: &Context, name: &str, new: &Tree, old: Option<&Tree>) -> Result<(), Status> {
    if context.resource.plural != RESOURCE || context.resource.group != GROUP {
        return Ok(());
    }
    let why = match (context.target.subresource.as_str(), old) {
        ("", None) => restricted_subject(new),
        // The signer of the old object counts: the new one might name another.
        ("approval", Some(old)) => not_permitted(context, "approve", spec_text(old, "signerName")),
        ("status", Some(old)) if status_of(old) != status_of(new) => {
            not_permitted(context, "sign", spec_text(old, "signerName"))
        }
        _ => None,
    };
    match why {
        Some(why) => Err(Status::forbidden(context.about(name), &why)),
        None => Ok(()),
    }
}

pub fn spec_text<'a>(tree: &'a Tree, key: &str) -> &'a str {
    tree.get("spec").and_then(|spec| spec.get(key)).and_then(Value::as_str).unwrap_or_default()
}

/// `spec.request`, decoded.
pub fn request_of(tree: &Tree) -> Result<Request, String> {
    Request::parse(&STANDARD.decode(spec_text(tree, "request")).unwrap_or_default())
}

fn status_of(tree: &Tree) -> [Option<&Value>; 2] {
    let member = |key: &str| tree.get("status").and_then(|status| status.get(key));
    // None and an empty list are the same.
    let conditions = member("conditions").filter(|it| it.as_array().is_some_and(|list| !list.is_empty()));
    [member("certificate"), conditions]
}

/// Nobody gets a certificate of the platform's admins by asking for it.
fn restricted_subject(new: &Tree) -> Option<String> {
    let signer = spec_text(new, "signerName");
    if Signer::named(signer) != Some(Signer::ApiClient) {
        return None;
    }
    match request_of(new) {
        Err(error) => Some(format!("failed to parse CSR: {error}")),
        Ok(request) if request.subject.organization.iter().any(|group| group == MASTERS) => {
            Some(format!("use of {signer} signer with {MASTERS} group is not allowed"))
        }
        Ok(_) => None,
    }
}

fn not_permitted(context: &Context, verb: &str, signer: &str) -> Option<String> {
    let any_of_domain = format!("{}/*", signer.split('/').next().unwrap_or_default());
    let may = |name: &str| {
        let attributes = Attributes::Resource {
            verb,
            group: GROUP,
            resource: "signers",
            subresource: "",
            namespace: "",
            name,
        };
        context.hub.authorizer.allows(&context.space, &context.user, &attributes)
    };
    let permitted = may(signer) || may(&any_of_domain);
    (!permitted).then(|| format!("user not permitted to {verb} requests with signerName {signer:?}"))
}
