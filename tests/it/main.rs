//! Integration tests: the real program, in front of real servers, driven by real clients.
//!
//! Every test starts a gateway of its own on a port that the kernel chose, so all of them can run
//! at once. Nothing sleeps: what takes time is waited for. Time is avoided, not faked: of a limit
//! of `100/d` exactly 100 requests pass, however slow the machine. A test of a fault is named
//! after the fault's row in `docs/faults.md` (`row_52_…`), which names the test in turn.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what goes wrong in a test should end it, helpers included"
)]

// Fixtures: the gateway, the servers behind it, the clients before it.
mod support;

// Requests and answers go through as they are: bodies of any length and kind, connections that
// are used again, upgrades, and what the API behind gets to see of the client.
mod forwarding;
mod pipelining;
mod proxying;

// Limits let exactly as many requests pass as the file says, and count whom it says.
mod counting;
mod limits;

// What the gateway says itself: every answer of its own, byte for byte, and what becomes of the
// connection after a refusal.
mod answers;
mod own_limits;
mod refusals;

// Who a request is from: keys that are missing, doubled, odd or huge, and forged addresses.
mod addresses;
mod identity;

// The process: start, stop, subcommands, and what must not stand in any log.
mod commands;
mod process;
mod secrets;
mod top;

// Files that are wrong, in every way that a file can be.
mod bad_files;

// Files that change while requests go on: each is taken whole or not at all.
mod reload;
mod reload_blocked;
mod reload_files;
mod reload_load;
mod reload_tokens;

// Clients and servers that break the rules, break off, or never answer.
mod broken_upstreams;
mod hostile;
mod slow_upstreams;
mod surplus;

// Limits that several gateways share through Redis, and what becomes of them when Redis does not
// play along.
mod nested;
mod shared;

// A Redis that fails in every way that it can, under load.
mod outages;

// Who may ask on the operator's port, and what it answers.
mod admin;
mod admin_reads;
mod admin_writes;

// What the operator sees, and what explanations promise: that the gateway does as they say.
mod access_log;
mod audit;
mod audit_stream;
mod dashboard;
mod explain;
mod metrics;
mod traces;

// Memory stays bounded under clients without number.
mod memory;
