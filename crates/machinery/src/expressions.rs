//! What expressions in CEL ask of the API: quantities and the rules of names.

use std::{any::Any, cmp::Ordering, sync::Arc};

use cel::Env;

use crate::{names, quantity::Quantity};

/// The environment of expressions, without variables.
pub fn environment() -> Env {
    Env::kubernetes(Arc::new(Machinery))
}

struct Machinery;

impl cel::Host for Machinery {
    fn parse_quantity(&self, text: &str) -> Result<Arc<dyn cel::Quantity>, String> {
        match Quantity::parse(text) {
            Ok(quantity) => Ok(Arc::new(Amount(quantity))),
            Err(error) => Err(error.to_string()),
        }
    }

    fn check_name(&self, format: &str, name: &str) -> Vec<String> {
        match format {
            "dns1123Label" => names::label_name(name, false),
            "dns1123LabelPrefix" => names::label_name(name, true),
            "dns1123Subdomain" => names::subdomain_name(name, false),
            "dns1123SubdomainPrefix" => names::subdomain_name(name, true),
            "dns1035Label" => names::dns1035_name(name, false),
            "dns1035LabelPrefix" => names::dns1035_name(name, true),
            "qualifiedName" => names::is_qualified_name(name),
            "labelValue" => names::is_label_value(name),
            _ => Vec::new(),
        }
    }
}

#[derive(Debug)]
struct Amount(Quantity);

impl Amount {
    fn of(other: &dyn cel::Quantity) -> Quantity {
        // Every quantity that this host makes is one of these.
        other.as_any().downcast_ref::<Amount>().map_or(Quantity::ZERO, |amount| amount.0.clone())
    }
}

impl cel::Quantity for Amount {
    fn compare(&self, other: &dyn cel::Quantity) -> Ordering {
        self.0.cmp(&Amount::of(other))
    }

    fn add(&self, other: &dyn cel::Quantity) -> Arc<dyn cel::Quantity> {
        Arc::new(Amount(self.0.add(&Amount::of(other))))
    }

    fn subtract(&self, other: &dyn cel::Quantity) -> Arc<dyn cel::Quantity> {
        Arc::new(Amount(self.0.sub(&Amount::of(other))))
    }

    fn as_integer(&self) -> Option<i64> {
        self.0.exact_value()
    }

    fn as_approximate_float(&self) -> f64 {
        self.0.approximate()
    }

    fn sign(&self) -> i64 {
        match self.0.cmp(&Quantity::ZERO) {
            Ordering::Less => -1,
            Ordering::Equal => 0,
            Ordering::Greater => 1,
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
