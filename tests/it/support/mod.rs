//! Fixtures. Each stops its processes and threads when dropped.

mod authority;
#[path = "../../../src/base/cases.rs"]
mod cases;
mod cgroup;
mod child;
mod closed_port;
mod cluster;
mod collector;
mod config;
mod curl;
mod dnsmasq;
mod documented;
mod fault_proxy;
mod files;
mod fleet;
mod gateway;
mod http;
mod idle_clients;
mod inconclusive;
mod load;
mod names;
mod nginx;
mod openapi;
mod pebble;
mod peers;
mod ports;
mod pressure;
mod python;
mod redis;
mod send;
mod shell;
mod upstream;
mod wait;
mod wall_clock;

pub(crate) use authority::{Authority, Issued};
pub(crate) use cases::with_cases;
pub(crate) use cgroup::MemoryCgroup;
pub(crate) use child::is_running;
pub(crate) use closed_port::{ClosedPort, SilentPort};
pub(crate) use cluster::{ClusterNode, RedisCluster};
pub(crate) use collector::{Collector, Span};
pub(crate) use config::{DEMO, HTTP2_LISTENER, digest, key, proxy_to, proxy_with};
pub(crate) use curl::{Fetched, curl, fetch, fetch_all};
pub(crate) use dnsmasq::Dnsmasq;
pub(crate) use fault_proxy::{FaultProxy, Mode};
pub(crate) use files::replace_file;
pub(crate) use fleet::{Data, Fleet};
pub(crate) use gateway::{Gateway, Outcome, check, check_file, full_config, tollgate};
pub(crate) use http::{Connection, Request, Response};
pub(crate) use idle_clients::{IdleClients, IdleKind};
pub(crate) use inconclusive::inconclusive;
pub(crate) use load::{ClientGroup, Load, Report};
pub(crate) use names::Names;
pub(crate) use nginx::Nginx;
pub(crate) use pebble::{Pebble, PebbleOptions};
pub(crate) use peers::{
    H2Load, HaProxy, PeerServer, grpc_client, http2_abuse, http2_client, websocket_client,
};
pub(crate) use ports::free_port;
pub(crate) use pressure::{CpuWaits, inconclusive_if_stalled, inconclusive_if_waited};
pub(crate) use python::PythonServer;
pub(crate) use redis::Redis;
pub(crate) use send::{StatusCounts, send_concurrently, send_many};
pub(crate) use shell::{BackgroundShell, bash};
pub(crate) use upstream::{ReceivedRequest, Upstream, is_closed_by_peer};
pub(crate) use wait::{
    Latch, Stopwatch, TIMEOUT, Timestamp, each_below, eventually, keep_clear_of_midnight,
    sleep_for, timed, timed_below, wait_retry_after, within,
};
pub(crate) use wall_clock::WallClock;
