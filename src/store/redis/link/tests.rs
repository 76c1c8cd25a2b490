//! The link against real servers, and against some that only pretend. Each test has servers of
//! its own; a row is one of the table of faults.

mod append;
mod fixture;
mod hostile;
mod login;
mod outages;
mod sentinels;
mod tls;
