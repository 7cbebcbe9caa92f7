//! Kinds that direct the API server itself.

mod cells;

use serde_json::json;

use super::{AGE, NAME, compute, field};
use crate::{
    names,
    resource::{Column, Row, Subresource},
    validation::policies as v,
};
use cells::*;

const ADMISSION: Row = Row {
    group: "admissionregistration.k8s.io",
    namespaced: false,
    categories: &["api-extensions"],
    generation: true,
    unconditional_update: false,
    qualified_finalizers: false,
    warn: v::warn_static_name,
    ..Row::PLAIN
};

const FLOW: Row =
    Row { group: "flowcontrol.apiserver.k8s.io", namespaced: false, generation: true, ..Row::PLAIN };

const WEBHOOKS: &[Column] = &[
    NAME,
    Column {
        kind: "integer",
        ..compute("Webhooks", 0, |o, _| json!(length(o, "/webhooks")), "How many webhooks it has.")
    },
    AGE,
];

const POLICY_BINDING: &[Column] = &[
    NAME,
    compute("PolicyName", 0, |o, _| json!(text(o, "/spec/policyName")), "The policy that it puts in force."),
    compute("ParamRef", 0, param_ref, "What it gives the policy as parameters."),
    AGE,
];

const PARAM_KIND: Column = compute("ParamKind", 0, param_kind, "The kind of the policy's parameters.");

pub const ROWS: &[Row] = &[
    Row {
        kind: "MutatingAdmissionPolicy",
        plural: "mutatingadmissionpolicies",
        singular: "mutatingadmissionpolicy",
        type_name: "admissionregistration/v1.MutatingAdmissionPolicy",
        columns: &[
            NAME,
            Column {
                kind: "integer",
                ..compute(
                    "Mutations",
                    0,
                    |o, _| json!(length(o, "/spec/mutations")),
                    "How many mutations it has.",
                )
            },
            PARAM_KIND,
            AGE,
        ],
        default: v::default_policy,
        validate: v::mutating_policy,
        ..ADMISSION
    },
    Row {
        kind: "MutatingAdmissionPolicyBinding",
        plural: "mutatingadmissionpolicybindings",
        singular: "mutatingadmissionpolicybinding",
        type_name: "admissionregistration/v1.MutatingAdmissionPolicyBinding",
        columns: POLICY_BINDING,
        default: v::default_policy_binding,
        validate: v::mutating_policy_binding,
        ..ADMISSION
    },
    Row {
        kind: "MutatingWebhookConfiguration",
        plural: "mutatingwebhookconfigurations",
        singular: "mutatingwebhookconfiguration",
        type_name: "admissionregistration/v1.MutatingWebhookConfiguration",
        columns: WEBHOOKS,
        default: v::default_mutating_webhooks,
        validate: v::mutating_webhooks,
        ..ADMISSION
    },
    Row {
        kind: "ValidatingAdmissionPolicy",
        plural: "validatingadmissionpolicies",
        singular: "validatingadmissionpolicy",
        type_name: "admissionregistration/v1.ValidatingAdmissionPolicy",
        subresources: &[Subresource {
            prepare: v::only_policy_status,
            resets: &["metadata", "spec"],
            validate: v::validating_policy_status,
            ..Subresource::status("ValidatingAdmissionPolicy", "admissionregistration.k8s.io", "v1")
        }],
        columns: &[
            NAME,
            Column {
                kind: "integer",
                ..compute(
                    "Validations",
                    0,
                    |o, _| json!(length(o, "/spec/validations")),
                    "How many validations it has.",
                )
            },
            PARAM_KIND,
            AGE,
        ],
        prepare_create: v::no_status_yet,
        default: v::default_policy,
        validate: v::validating_policy,
        ..ADMISSION
    },
    Row {
        kind: "ValidatingAdmissionPolicyBinding",
        plural: "validatingadmissionpolicybindings",
        singular: "validatingadmissionpolicybinding",
        type_name: "admissionregistration/v1.ValidatingAdmissionPolicyBinding",
        columns: POLICY_BINDING,
        default: v::default_policy_binding,
        validate: v::validating_policy_binding,
        ..ADMISSION
    },
    Row {
        kind: "ValidatingWebhookConfiguration",
        plural: "validatingwebhookconfigurations",
        singular: "validatingwebhookconfiguration",
        type_name: "admissionregistration/v1.ValidatingWebhookConfiguration",
        columns: WEBHOOKS,
        default: v::default_validating_webhooks,
        validate: v::validating_webhooks,
        ..ADMISSION
    },
    Row {
        group: "apiregistration.k8s.io",
        kind: "APIService",
        plural: "apiservices",
        singular: "apiservice",
        namespaced: false,
        categories: &["api-extensions"],
        type_name: "apiregistration/v1.APIService",
        name_rule: names::path_segment_name,
        unconditional_update: false,
        qualified_finalizers: false,
        subresources: &[Subresource {
            prepare: v::only_api_service_status,
            validate: v::api_service_status,
            ..Subresource::status("APIService", "apiregistration.k8s.io", "v1")
        }],
        columns: &[
            NAME,
            compute("Service", 0, serving, "Who serves the API."),
            compute("Available", 0, available, "Whether it is there."),
            AGE,
        ],
        prepare_create: v::prepare_api_service,
        default: v::default_api_service,
        validate: v::api_service,
        ..Row::PLAIN
    },
    Row {
        group: "certificates.k8s.io",
        kind: "CertificateSigningRequest",
        plural: "certificatesigningrequests",
        singular: "certificatesigningrequest",
        namespaced: false,
        short_names: &["csr"],
        type_name: "certificates/v1.CertificateSigningRequest",
        name_rule: names::path_segment_name,
        subresources: &[
            Subresource {
                name: "approval",
                prepare: v::only_approval,
                resets: &["spec", "status.certificate"],
                validate: v::approval,
                stamped: v::STAMPED,
                ..Subresource::status("CertificateSigningRequest", "certificates.k8s.io", "v1")
            },
            Subresource {
                prepare: v::only_signing_status,
                resets: &["spec", "status.conditions"],
                validate: v::signing_status,
                stamped: v::STAMPED,
                ..Subresource::status("CertificateSigningRequest", "certificates.k8s.io", "v1")
            },
        ],
        fields: &[field("spec.signerName", &["spec.signerName"])],
        columns: &[
            NAME,
            AGE,
            compute("SignerName", 0, signer, "Who is to sign it."),
            compute("Requestor", 0, |o, _| json!(text(o, "/spec/username")), "Who asked for it."),
            compute("RequestedDuration", 0, requested_duration, "How long the certificate should last."),
            compute("Condition", 0, signing_condition, "What became of it."),
        ],
        prepare_create: v::no_status_yet,
        sign: Some(v::sign_request),
        resets: &["spec", "status"],
        prepare_update: v::keep_signing_request,
        validate: v::signing_request,
        ..Row::PLAIN
    },
    Row {
        kind: "FlowSchema",
        plural: "flowschemas",
        singular: "flowschema",
        type_name: "flowcontrol/v1.FlowSchema",
        subresources: &[Subresource {
            prepare: v::only_flow_status,
            resets: &["metadata", "spec"],
            validate: v::flow_schema_status,
            ..Subresource::status("FlowSchema", "flowcontrol.apiserver.k8s.io", "v1")
        }],
        columns: &[
            NAME,
            compute(
                "PriorityLevel",
                0,
                |o, _| json!(text(o, "/spec/priorityLevelConfiguration/name")),
                "The priority level of its requests.",
            ),
            compute(
                "MatchingPrecedence",
                0,
                |o, _| json!(count(o, "/spec/matchingPrecedence")),
                "Where it stands in the order of schemas.",
            ),
            compute("DistinguisherMethod", 0, distinguisher, "What tells its flows apart."),
            AGE,
            compute("MissingPL", 0, missing_level, "Whether its priority level does not exist."),
        ],
        prepare_create: v::no_status_yet,
        default: v::default_flow_schema,
        validate: v::flow_schema,
        ..FLOW
    },
    Row {
        kind: "PriorityLevelConfiguration",
        plural: "prioritylevelconfigurations",
        singular: "prioritylevelconfiguration",
        type_name: "flowcontrol/v1.PriorityLevelConfiguration",
        subresources: &[Subresource {
            prepare: v::only_flow_status,
            resets: &["metadata", "spec"],
            validate: v::priority_level_status,
            ..Subresource::status("PriorityLevelConfiguration", "flowcontrol.apiserver.k8s.io", "v1")
        }],
        columns: &[
            NAME,
            compute("Type", 0, |o, _| json!(text(o, "/spec/type")), "Whether it is limited."),
            compute(
                "NominalConcurrencyShares",
                0,
                |o, _| number_or_none(o, "/spec/limited/nominalConcurrencyShares"),
                "Its share of the concurrent requests.",
            ),
            compute(
                "Queues",
                0,
                |o, _| number_or_none(o, "/spec/limited/limitResponse/queuing/queues"),
                "How many queues it has.",
            ),
            compute(
                "HandSize",
                0,
                |o, _| number_or_none(o, "/spec/limited/limitResponse/queuing/handSize"),
                "From how many queues a flow chooses.",
            ),
            compute(
                "QueueLengthLimit",
                0,
                |o, _| number_or_none(o, "/spec/limited/limitResponse/queuing/queueLengthLimit"),
                "How many requests wait in a queue.",
            ),
            AGE,
        ],
        prepare_create: v::no_status_yet,
        default: v::default_priority_level,
        validate: v::priority_level,
        ..FLOW
    },
];
