//! What CEL's Kubernetes libraries need from the API's rules: quantities and the formats of names.

use std::{any::Any, cmp::Ordering, sync::Arc};

use crate::{names, quantity::Quantity};

/// The environment of expressions, without variables.
pub fn environment() -> cel::Env {
    cel::Env::kubernetes(Arc::new(Host))
}

/// Lends this crate's quantities and names to expressions.
#[derive(Debug, Clone, Copy, Default)]
pub struct Host;

impl cel::Host for Host {
    fn parse_quantity(&self, text: &str) -> Result<Arc<dyn cel::Quantity>, String> {
        match Quantity::parse(text) {
            Ok(quantity) => Ok(Arc::new(quantity)),
            Err(error) => Err(error.to_string()),
        }
    }

    fn check_name(&self, format: &str, name: &str) -> Vec<String> {
        let (format, prefix) = match format.strip_suffix("Prefix") {
            Some(format) => (format, true),
            None => (format, false),
        };
        match format {
            "dns1123Label" => names::label_name(name, prefix),
            "dns1123Subdomain" => names::subdomain_name(name, prefix),
            "dns1035Label" => names::dns1035_name(name, prefix),
            "qualifiedName" => names::is_qualified_name(name),
            "labelValue" => names::is_label_value(name),
            other => vec![format!("unknown format {other}")],
        }
    }
}

impl cel::Quantity for Quantity {
    fn compare(&self, other: &dyn cel::Quantity) -> Ordering {
        own(other).map_or(Ordering::Equal, |other| self.cmp(other))
    }

    fn add(&self, other: &dyn cel::Quantity) -> Arc<dyn cel::Quantity> {
        Arc::new(own(other).map_or_else(|| self.clone(), |other| Quantity::add(self, other)))
    }

    fn subtract(&self, other: &dyn cel::Quantity) -> Arc<dyn cel::Quantity> {
        Arc::new(own(other).map_or_else(|| self.clone(), |other| Quantity::sub(self, other)))
    }

    fn as_integer(&self) -> Option<i64> {
        Quantity::as_integer(self)
    }

    fn as_approximate_float(&self) -> f64 {
        self.approximately()
    }

    fn sign(&self) -> i64 {
        match (self.is_zero(), self.is_negative()) {
            (true, _) => 0,
            (false, true) => -1,
            (false, false) => 1,
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Every quantity in an evaluation came from `Host::parse_quantity`.
fn own(quantity: &dyn cel::Quantity) -> Option<&Quantity> {
    quantity.as_any().downcast_ref()
}
