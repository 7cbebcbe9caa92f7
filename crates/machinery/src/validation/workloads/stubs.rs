use crate::{field_error::Cause, resource::Tree};
pub fn replication_controller(_: &Tree, _: Option<&Tree>) -> Vec<Cause> {
    Vec::new()
}
pub fn controller_revision(_: &Tree, _: Option<&Tree>) -> Vec<Cause> {
    Vec::new()
}
pub fn daemon_set(_: &Tree, _: Option<&Tree>) -> Vec<Cause> {
    Vec::new()
}
pub fn deployment(_: &Tree, _: Option<&Tree>) -> Vec<Cause> {
    Vec::new()
}
pub fn replica_set(_: &Tree, _: Option<&Tree>) -> Vec<Cause> {
    Vec::new()
}
pub fn stateful_set(_: &Tree, _: Option<&Tree>) -> Vec<Cause> {
    Vec::new()
}
pub fn cron_job(_: &Tree, _: Option<&Tree>) -> Vec<Cause> {
    Vec::new()
}
pub fn job(_: &Tree, _: Option<&Tree>) -> Vec<Cause> {
    Vec::new()
}
pub fn disruption_budget(_: &Tree, _: Option<&Tree>) -> Vec<Cause> {
    Vec::new()
}
pub fn replication_controller_status(_: &Tree, _: &Tree) -> Vec<Cause> {
    Vec::new()
}
pub fn daemon_set_status(_: &Tree, _: &Tree) -> Vec<Cause> {
    Vec::new()
}
pub fn deployment_status(_: &Tree, _: &Tree) -> Vec<Cause> {
    Vec::new()
}
pub fn replica_set_status(_: &Tree, _: &Tree) -> Vec<Cause> {
    Vec::new()
}
pub fn stateful_set_status(_: &Tree, _: &Tree) -> Vec<Cause> {
    Vec::new()
}
pub fn job_status(_: &Tree, _: &Tree) -> Vec<Cause> {
    Vec::new()
}
pub fn disruption_budget_status(_: &Tree, _: &Tree) -> Vec<Cause> {
    Vec::new()
}
pub fn warn_replication_controller(_: &Tree, _: Option<&Tree>) -> Vec<String> {
    Vec::new()
}
pub fn warn_daemon_set(_: &Tree, _: Option<&Tree>) -> Vec<String> {
    Vec::new()
}
pub fn warn_deployment(_: &Tree, _: Option<&Tree>) -> Vec<String> {
    Vec::new()
}
pub fn warn_replica_set(_: &Tree, _: Option<&Tree>) -> Vec<String> {
    Vec::new()
}
pub fn warn_stateful_set(_: &Tree, _: Option<&Tree>) -> Vec<String> {
    Vec::new()
}
pub fn warn_cron_job(_: &Tree, _: Option<&Tree>) -> Vec<String> {
    Vec::new()
}
pub fn warn_job(_: &Tree, _: Option<&Tree>) -> Vec<String> {
    Vec::new()
}
