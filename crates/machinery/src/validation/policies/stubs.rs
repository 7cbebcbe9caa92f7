use crate::{field_error::Cause, resource::Tree};
pub fn mutating_policy(_: &Tree, _: Option<&Tree>) -> Vec<Cause> {
    Vec::new()
}
pub fn mutating_policy_binding(_: &Tree, _: Option<&Tree>) -> Vec<Cause> {
    Vec::new()
}
pub fn mutating_webhooks(_: &Tree, _: Option<&Tree>) -> Vec<Cause> {
    Vec::new()
}
pub fn validating_policy(_: &Tree, _: Option<&Tree>) -> Vec<Cause> {
    Vec::new()
}
pub fn validating_policy_binding(_: &Tree, _: Option<&Tree>) -> Vec<Cause> {
    Vec::new()
}
pub fn validating_webhooks(_: &Tree, _: Option<&Tree>) -> Vec<Cause> {
    Vec::new()
}
pub fn api_service(_: &Tree, _: Option<&Tree>) -> Vec<Cause> {
    Vec::new()
}
pub fn signing_request(_: &Tree, _: Option<&Tree>) -> Vec<Cause> {
    Vec::new()
}
pub fn flow_schema(_: &Tree, _: Option<&Tree>) -> Vec<Cause> {
    Vec::new()
}
pub fn priority_level(_: &Tree, _: Option<&Tree>) -> Vec<Cause> {
    Vec::new()
}
pub fn validating_policy_status(_: &Tree, _: &Tree) -> Vec<Cause> {
    Vec::new()
}
pub fn api_service_status(_: &Tree, _: &Tree) -> Vec<Cause> {
    Vec::new()
}
pub fn approval(_: &Tree, _: &Tree) -> Vec<Cause> {
    Vec::new()
}
pub fn signing_status(_: &Tree, _: &Tree) -> Vec<Cause> {
    Vec::new()
}
pub fn flow_schema_status(_: &Tree, _: &Tree) -> Vec<Cause> {
    Vec::new()
}
pub fn priority_level_status(_: &Tree, _: &Tree) -> Vec<Cause> {
    Vec::new()
}
pub fn warn_static_name(_: &Tree, _: Option<&Tree>) -> Vec<String> {
    Vec::new()
}
