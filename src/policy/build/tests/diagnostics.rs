//! What people read when a file is wrong. Each was read with the eyes of somebody who wrote that
//! file: is the error plain, the line right, and does the help help?

mod access_log;
mod audit;
mod breaker;
mod costs_beyond_a_burst;
mod files_without_routes;
mod keys_and_secrets;
mod listeners;
mod names_that_do_not_exist;
mod plans_and_clients;
mod rates_and_bursts;
mod redis;
mod rules_per_route;
mod syntax_that_is_broken;
mod tracing;
mod types_that_do_not_fit;
mod upstreams_and_routes;
