//! Fixtures. All of them are ended by their own handles when they are dropped.

mod child;
mod config;
mod curl;
mod gateway;
mod http;
mod nginx;
mod python;
mod redis;
mod swarm;
mod upstream;
mod wait;

pub(crate) use config::{DEMO, in_front_of, key};
pub(crate) use curl::curl;
pub(crate) use gateway::{Gateway, Outcome, check, check_file, tollgate, whole};
pub(crate) use http::{Connection, Request, Response};
pub(crate) use nginx::Nginx;
pub(crate) use python::PythonServer;
pub(crate) use redis::Redis;
pub(crate) use swarm::{Tally, swarm};
pub(crate) use upstream::{Seen, Upstream};
pub(crate) use wait::{Gate, eventually, timed, wait_out};
