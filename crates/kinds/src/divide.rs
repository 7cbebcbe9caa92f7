//! How a whole number of replicas is divided over clusters.
