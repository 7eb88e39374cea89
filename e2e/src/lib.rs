//! A real Kubernetes and a real Kafka on one machine, and what tests do to them.
//!
//! [`cluster::Cluster`] brings a cluster up inside network namespaces, gives access to it and takes it down; [`tools`] builds
//! what it is made of, once for each version; [`faults`] break it; [`images`] makes the project's container images and
//! `Cluster::import_image` brings them in. Everything below is synchronous and may be called before a process enters the
//! cluster's namespace, see [`ns`].

pub mod bench;
pub mod cache;
pub mod cli;
pub mod cluster;
pub mod command;
pub mod demo;
pub mod faults;
pub mod images;
pub mod interrupt;
pub mod load;
pub mod ns;
pub mod packages;
pub mod paths;
pub mod report;
pub mod scenarios;
pub mod selfcheck;
pub mod tools;
pub mod wait;
