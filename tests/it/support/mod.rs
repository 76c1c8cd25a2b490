//! Fixtures. All of them are ended by their own handles when they are dropped.

mod child;
mod collector;
mod config;
mod curl;
mod fault_proxy;
mod gateway;
mod http;
mod inconclusive;
mod load;
mod nginx;
mod openapi;
mod python;
mod redis;
mod swarm;
mod upstream;
mod wait;
mod wall_clock;

pub(crate) use collector::{Collector, Span};
pub(crate) use config::{DEMO, in_front_of, key};
pub(crate) use curl::curl;
pub(crate) use fault_proxy::{FaultProxy, Mode};
pub(crate) use gateway::{Gateway, Outcome, check, check_file, tollgate, whole};
pub(crate) use http::{Connection, Request, Response};
pub(crate) use inconclusive::inconclusive;
pub(crate) use load::{Lane, Load, Report};
pub(crate) use nginx::Nginx;
pub(crate) use python::PythonServer;
pub(crate) use redis::{Redis, free_port};
pub(crate) use swarm::{Tally, rush, swarm};
pub(crate) use upstream::{Seen, Upstream};
pub(crate) use wait::{
    Gate, Moment, PATIENCE, Stopwatch, eventually, lasting, timed, wait_out, within,
};
pub(crate) use wall_clock::WallClock;
