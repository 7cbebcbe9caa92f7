//! What is wrong with a configuration, in upstream's words; and its expressions, compiled.

use std::{collections::BTreeSet, sync::Arc};

use cel::{
    Decl, Env, ObjectType, Program, Shape, Type,
    ast::{Expr, ExprKind, Literal},
};
use serde_json::json;

use super::{
    config::{ClaimMappings, ClaimRule, Configuration, Issuer, Jwt, Prefixed, UserRule},
    mapping::{Mapping, Source, Validation},
};
use crate::{
    expressions,
    field_error::Cause,
    gourl, names,
    validation::{parts::Path, policies::pem},
};

const MAX_ISSUERS: usize = 64;

/// The environments of expressions.
struct Compiler {
    claims: Env,
    user: Env,
}

/// What was found while reading one issuer.
#[derive(Default)]
struct Found {
    causes: Vec<Cause>,
    uses_email: bool,
    uses_email_verified: bool,
}

/// The mappings of every issuer, or all that is wrong. `disallowed`: issuers that are somebody else's.
pub fn compile(configuration: &Configuration, disallowed: &[String]) -> Result<Vec<Mapping>, Vec<Cause>> {
    let root = Path::new("jwt");
    if configuration.jwt.len() > MAX_ISSUERS {
        return Err(vec![Cause::too_many(&root, configuration.jwt.len(), MAX_ISSUERS)]);
    }
    let compiler = Compiler::new();
    let (mut causes, mut mappings) = (Vec::new(), Vec::new());
    let (mut urls, mut discovery_urls) = (BTreeSet::new(), BTreeSet::new());
    for (at, jwt) in configuration.jwt.iter().enumerate() {
        let path = root.index(at);
        let mut found = Found::default();
        mappings.push(found.jwt(&compiler, jwt, disallowed, &path));
        causes.extend(found.causes);
        let issuer = path.child("issuer");
        if !urls.insert(&jwt.issuer.url) {
            causes.push(Cause::duplicate(&issuer.child("url"), &json!(jwt.issuer.url)));
        }
        let discovery = &jwt.issuer.discovery_url;
        if !discovery.is_empty() && !discovery_urls.insert(discovery) {
            causes.push(Cause::duplicate(&issuer.child("discoveryURL"), &json!(discovery)));
        }
    }
    if let Some(anonymous) = &configuration.anonymous
        && !anonymous.enabled
        && !anonymous.conditions.is_empty()
    {
        let shown: Vec<_> = anonymous.conditions.iter().map(|it| json!({"Path": it.path})).collect();
        let detail = "enabled should be set to true when conditions are defined";
        causes.push(Cause::invalid("anonymous.conditions", &json!(shown), detail));
    }
    if causes.is_empty() { Ok(mappings) } else { Err(causes) }
}

impl Compiler {
    fn new() -> Compiler {
        let text = Arc::new(Decl::new(Shape::String));
        let list = Arc::new(Decl::new(Shape::List(text.clone(), cel::ListType::Atomic)));
        let fields = [
            ("username".to_owned(), text.clone()),
            ("uid".to_owned(), text),
            ("groups".to_owned(), list.clone()),
            ("extra".to_owned(), Arc::new(Decl::new(Shape::Map(list)))),
        ];
        let user = Decl::new(Shape::Object(ObjectType::new("kubernetes.UserInfo", fields)));
        Compiler {
            claims: expressions::environment().variable("claims", Type::map(Type::String, Type::Any)),
            user: expressions::environment().declared("user", &user),
        }
    }
}

impl Found {
    fn jwt(&mut self, compiler: &Compiler, jwt: &Jwt, disallowed: &[String], path: &Path<'_>) -> Mapping {
        self.issuer(&jwt.issuer, disallowed, &path.child("issuer"));
        let (required, claim_rules) =
            self.claim_rules(compiler, &jwt.claim_validation_rules, &path.child("claimValidationRules"));
        let mut mapping = self.mappings(compiler, &jwt.claim_mappings, &path.child("claimMappings"));
        let user_rules =
            self.user_rules(compiler, &jwt.user_validation_rules, &path.child("userValidationRules"));
        mapping.required = required;
        mapping.claim_rules = claim_rules;
        mapping.user_rules = user_rules;
        mapping
    }

    fn issuer(&mut self, issuer: &Issuer, disallowed: &[String], path: &Path<'_>) {
        let url_path = path.child("url");
        match issuer.url.is_empty() {
            true => self.causes.push(Cause::required(&url_path, "")),
            false => self.url(&issuer.url, disallowed, &url_path),
        }
        if !issuer.discovery_url.is_empty() {
            let path = path.child("discoveryURL");
            let same = issuer.url.trim_end_matches('/') == issuer.discovery_url.trim_end_matches('/');
            if !issuer.url.is_empty() && same {
                let detail = "discoveryURL must be different from URL";
                self.causes.push(Cause::invalid(&path, &json!(issuer.discovery_url), detail));
            }
            self.url(&issuer.discovery_url, &[], &path);
        }
        self.audiences(issuer, path);
        if !issuer.certificate_authority.is_empty()
            && let Err(why) = check_certificates(issuer.certificate_authority.as_bytes())
        {
            self.causes.push(Cause::invalid(&path.child("certificateAuthority"), &json!("<omitted>"), &why));
        }
        if !matches!(issuer.egress_selector_type.as_str(), "" | "controlplane" | "cluster") {
            let detail = "egress selector must be either controlplane or cluster";
            let given = json!(issuer.egress_selector_type);
            self.causes.push(Cause::invalid(&path.child("egressSelectorType"), &given, detail));
        }
    }

    fn url(&mut self, text: &str, disallowed: &[String], path: &Path<'_>) {
        let mut wrong = |detail: &str| self.causes.push(Cause::invalid(path, &json!(text), detail));
        if disallowed.iter().any(|it| it == text) {
            let all: Vec<&str> = disallowed.iter().map(String::as_str).collect();
            wrong(&format!("URL must not overlap with disallowed issuers: [{}]", all.join(" ")));
        }
        let url = match gourl::Url::parse(text) {
            Ok(url) => url,
            Err(error) => return wrong(&error),
        };
        if url.scheme != "https" {
            wrong("URL scheme must be https");
        }
        if url.user.is_some() {
            wrong("URL must not contain a username or password");
        }
        if !url.query.is_empty() {
            wrong("URL must not contain a query");
        }
        if !url.fragment.is_empty() {
            wrong("URL must not contain a fragment");
        }
    }

    fn audiences(&mut self, issuer: &Issuer, path: &Path<'_>) {
        let (path, policy_path) = (path.child("audiences"), path.child("audienceMatchPolicy"));
        if issuer.audiences.is_empty() {
            let detail = format!("at least one {} is required", String::from(&path));
            return self.causes.push(Cause::required(&path, &detail));
        }
        let mut seen = BTreeSet::new();
        for (at, audience) in issuer.audiences.iter().enumerate() {
            if audience.is_empty() {
                self.causes.push(Cause::required(&path.index(at), ""));
            }
            if !seen.insert(audience) {
                self.causes.push(Cause::duplicate(&path.index(at), &json!(audience)));
            }
        }
        let policy = issuer.audience_match_policy.as_str();
        let detail = match issuer.audiences.len() {
            1 if !matches!(policy, "" | "MatchAny") => {
                "audienceMatchPolicy must be empty or MatchAny for single audience"
            }
            2.. if policy != "MatchAny" => "audienceMatchPolicy must be MatchAny for multiple audiences",
            _ => return,
        };
        self.causes.push(Cause::invalid(&policy_path, &json!(policy), detail));
    }

    fn claim_rules(
        &mut self,
        compiler: &Compiler,
        rules: &[ClaimRule],
        path: &Path<'_>,
    ) -> (Vec<(String, String)>, Vec<Validation>) {
        let (mut required, mut compiled) = (Vec::new(), Vec::new());
        let (mut claims, mut expressions) = (BTreeSet::new(), BTreeSet::new());
        for (at, rule) in rules.iter().enumerate() {
            let path = path.index(at);
            match (rule.claim.is_empty(), rule.expression.is_empty()) {
                (false, false) => {
                    let detail = "claim and expression can't both be set";
                    self.causes.push(Cause::invalid(&path, &json!(rule.claim), detail));
                }
                (true, true) => {
                    self.causes.push(Cause::required(&path, "claim or expression is required"));
                }
                (false, true) => {
                    if !rule.message.is_empty() {
                        let detail = "may not be specified when claim is set";
                        self.causes.push(Cause::invalid(
                            &path.child("message"),
                            &json!(rule.message),
                            detail,
                        ));
                    }
                    if !claims.insert(&rule.claim) {
                        self.causes.push(Cause::duplicate(&path.child("claim"), &json!(rule.claim)));
                    }
                    required.push((rule.claim.clone(), rule.required_value.clone()));
                }
                (true, false) => {
                    if !rule.required_value.is_empty() {
                        let detail = "may not be specified when expression is set";
                        let given = json!(rule.required_value);
                        self.causes.push(Cause::invalid(&path.child("requiredValue"), &given, detail));
                    }
                    if !expressions.insert(&rule.expression) {
                        self.causes
                            .push(Cause::duplicate(&path.child("expression"), &json!(rule.expression)));
                        continue;
                    }
                    let program =
                        self.expression(&compiler.claims, &rule.expression, true, &path.child("expression"));
                    let Some(program) = program else { continue };
                    self.uses_email_verified |= selects(&rule.expression, "email_verified");
                    let (expression, message) = (rule.expression.clone(), rule.message.clone());
                    compiled.push(Validation { program, expression, message });
                }
            }
        }
        (required, compiled)
    }

    fn user_rules(&mut self, compiler: &Compiler, rules: &[UserRule], path: &Path<'_>) -> Vec<Validation> {
        let mut compiled = Vec::new();
        let mut seen = BTreeSet::new();
        for (at, rule) in rules.iter().enumerate() {
            let path = path.index(at);
            let path = path.child("expression");
            if rule.expression.is_empty() {
                self.causes.push(Cause::required(&path, ""));
                continue;
            }
            if !seen.insert(&rule.expression) {
                self.causes.push(Cause::duplicate(&path, &json!(rule.expression)));
                continue;
            }
            if let Some(program) = self.expression(&compiler.user, &rule.expression, true, &path) {
                let (expression, message) = (rule.expression.clone(), rule.message.clone());
                compiled.push(Validation { program, expression, message });
            }
        }
        compiled
    }

    fn mappings(&mut self, compiler: &Compiler, mappings: &ClaimMappings, path: &Path<'_>) -> Mapping {
        let username = self.prefixed(compiler, &mappings.username, &path.child("username"), true);
        if let Some(Source::Expression(..)) = &username {
            self.uses_email |= selects(&mappings.username.expression, "email");
            self.uses_email_verified |= selects(&mappings.username.expression, "email_verified");
        }
        let groups = self.prefixed(compiler, &mappings.groups, &path.child("groups"), false);
        let uid = &mappings.uid;
        let uid = match (uid.claim.is_empty(), uid.expression.is_empty()) {
            (false, false) => {
                let detail = "claim and expression can't both be set";
                self.causes.push(Cause::invalid(&path.child("uid"), &json!(""), detail));
                None
            }
            (false, true) => Some(Source::Claim { name: uid.claim.clone(), prefix: String::new() }),
            (true, false) => {
                let path = path.child("uid");
                let path = path.child("expression");
                let program = self.expression(&compiler.claims, &uid.expression, false, &path);
                program.map(|program| Source::Expression(Box::new(program), uid.expression.clone()))
            }
            (true, true) => None,
        };
        let extra = self.extra(compiler, mappings, path);
        if self.uses_email && !self.uses_email_verified {
            let detail = "claims.email_verified must be used in claimMappings.username.expression or \
                          claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when \
                          claims.email is used in claimMappings.username.expression";
            let path = path.child("username");
            let path = path.child("expression");
            self.causes.push(Cause::invalid(&path, &json!(mappings.username.expression), detail));
        }
        Mapping { username, groups, uid, extra, ..Mapping::default() }
    }

    fn extra(
        &mut self,
        compiler: &Compiler,
        mappings: &ClaimMappings,
        path: &Path<'_>,
    ) -> Vec<(String, Program, String)> {
        let mut compiled = Vec::new();
        let mut seen = BTreeSet::new();
        let path = path.child("extra");
        for (at, mapping) in mappings.extra.iter().enumerate() {
            let path = path.index(at);
            let key_path = path.child("key");
            self.causes.extend(domain_prefixed(&mapping.key, &key_path));
            let mut wrong =
                |detail: &str| self.causes.push(Cause::invalid(&key_path, &json!(mapping.key), detail));
            if mapping.key != mapping.key.to_lowercase() {
                wrong("must be lowercase");
            }
            if is_of_kubernetes(&mapping.key) {
                wrong("k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use");
            }
            if !seen.insert(&mapping.key) {
                self.causes.push(Cause::duplicate(&key_path, &json!(mapping.key)));
                continue;
            }
            let value_path = path.child("valueExpression");
            if mapping.value_expression.is_empty() {
                self.causes.push(Cause::required(&value_path, ""));
                continue;
            }
            let program = self.expression(&compiler.claims, &mapping.value_expression, false, &value_path);
            let Some(program) = program else { continue };
            self.uses_email_verified |= selects(&mapping.value_expression, "email_verified");
            compiled.push((mapping.key.clone(), program, mapping.value_expression.clone()));
        }
        compiled
    }

    fn prefixed(
        &mut self,
        compiler: &Compiler,
        mapping: &Prefixed,
        path: &Path<'_>,
        needed: bool,
    ) -> Option<Source> {
        match (mapping.claim.is_empty(), mapping.expression.is_empty()) {
            (false, false) => {
                let detail = "claim and expression can't both be set";
                self.causes.push(Cause::invalid(path, &json!(""), detail));
                None
            }
            (true, true) => {
                if needed {
                    self.causes.push(Cause::required(path, "claim or expression is required"));
                }
                None
            }
            (true, false) => {
                if let Some(prefix) = &mapping.prefix {
                    let detail = "may not be specified when expression is set";
                    self.causes.push(Cause::invalid(&path.child("prefix"), &json!(prefix), detail));
                }
                let at = path.child("expression");
                let program = self.expression(&compiler.claims, &mapping.expression, false, &at)?;
                Some(Source::Expression(Box::new(program), mapping.expression.clone()))
            }
            (false, true) => {
                if mapping.prefix.is_none() {
                    let detail = "prefix is required when claim is set. It can be set to an empty string to \
                                  disable prefixing";
                    self.causes.push(Cause::required(&path.child("prefix"), detail));
                }
                let prefix = mapping.prefix.clone().unwrap_or_default();
                Some(Source::Claim { name: mapping.claim.clone(), prefix })
            }
        }
    }

    fn expression(&mut self, env: &Env, text: &str, is_rule: bool, path: &Path<'_>) -> Option<Program> {
        let why = match env.compile(text) {
            Ok(program) if is_rule && *program.result_type() != Type::Bool => {
                "must evaluate to bool".to_owned()
            }
            Ok(program) => return Some(program),
            Err(cel::CompileError::Issues(issues)) => format!("compilation failed: {issues}"),
            Err(error) => format!("program instantiation failed: {error}"),
        };
        self.causes.push(Cause::invalid(path, &json!(text), &why));
        None
    }
}

fn check_certificates(text: &[u8]) -> Result<(), String> {
    let mut rest = text;
    let mut any = false;
    while let Some((block, after)) = pem::decode(rest) {
        rest = after;
        if block.label != "CERTIFICATE" || block.has_headers {
            continue;
        }
        let parsed = x509_parser::parse_x509_certificate(&block.bytes);
        parsed.map_err(|_| "x509: malformed certificate".to_owned())?;
        any = true;
    }
    if any { Ok(()) } else { Err("data does not contain any valid RSA or ECDSA certificates".to_owned()) }
}

fn domain_prefixed(key: &str, path: &Path<'_>) -> Vec<Cause> {
    if key.is_empty() {
        return vec![Cause::required(path, "")];
    }
    let Some((host, rest)) = key.split_once('/').filter(|(host, rest)| !host.is_empty() && !rest.is_empty())
    else {
        let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        return vec![Cause::invalid(path, &json!(key), detail)];
    };
    let mut causes: Vec<Cause> =
        names::is_dns1123_subdomain(host).iter().map(|why| Cause::invalid(path, &json!(host), why)).collect();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte);
    if !rest.bytes().all(plain) {
        let detail = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
        causes.push(Cause::invalid(path, &json!(rest), detail));
    }
    causes
}

fn is_of_kubernetes(key: &str) -> bool {
    let Some((domain, _)) = key.split_once('/') else { return false };
    ["kubernetes.io", "k8s.io"]
        .iter()
        .any(|own| domain == *own || domain.strip_suffix(own).is_some_and(|rest| rest.ends_with('.')))
}

/// Whether an expression reads `claims.<field>`.
fn selects(text: &str, field: &str) -> bool {
    cel::parse::parse(text).is_ok_and(|parsed| has_select(&parsed.root, field))
}

fn is_claims(expr: &Expr) -> bool {
    matches!(&expr.kind, ExprKind::Ident(name) if **name == *"claims")
}

fn has_select(expr: &Expr, field: &str) -> bool {
    let within = |expr: &Expr| has_select(expr, field);
    match &expr.kind {
        ExprKind::Unspecified | ExprKind::Literal(_) | ExprKind::Ident(_) => false,
        ExprKind::Select(select) => {
            (is_claims(&select.operand) && *select.field == *field) || within(&select.operand)
        }
        ExprKind::Call(call) => {
            let optional = matches!(call.args.as_slice(), [operand, name]
                if &*call.function == "_?._" && call.target.is_none() && is_claims(operand)
                    && matches!(&name.kind, ExprKind::Literal(Literal::String(text)) if **text == *field));
            optional || call.args.iter().any(within) || call.target.as_ref().is_some_and(within)
        }
        ExprKind::List(list) => list.elements.iter().any(within),
        ExprKind::Map(entries) => entries.iter().any(|entry| within(&entry.key) || within(&entry.value)),
        ExprKind::Struct(object) => object.fields.iter().any(|entry| within(&entry.value)),
        ExprKind::Comprehension(fold) => {
            [&fold.range, &fold.init, &fold.condition, &fold.step, &fold.result].into_iter().any(within)
        }
    }
}
