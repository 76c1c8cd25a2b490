//! Warnings of names of upstream servers that have no address, which requests notice, but no check
//! of the file.

use std::collections::HashSet;
use std::sync::Arc;

use crate::config::findings::{Finding, Findings};
use crate::net::address::Origin;
use crate::policy::Policy;
use crate::policy::settings::Target;
use crate::upstream::pool::Pool;

/// Maximum number of such warnings; further ones are counted.
const MAX_LISTED: usize = 100;

/// Adds a warning for each server of `policy` whose name has no address in `pools`.
pub(super) fn add_warnings(warnings: &mut Findings, policy: &Policy, pools: &[Arc<Pool>]) {
    let without: HashSet<&Origin> =
        pools.iter().flat_map(|pool| pool.names_without_address()).collect();
    if without.is_empty() {
        return;
    }
    let mut listed = 0;
    for upstream in &policy.upstreams {
        let Target::Servers(servers) = &upstream.target else { continue };
        for server in servers.iter().filter(|server| without.contains(&server.origin)) {
            if listed == MAX_LISTED {
                warnings.not_kept += 1;
                continue;
            }
            listed += 1;
            warnings.list.push(warning(&upstream.name, &server.origin));
        }
    }
}

fn warning(upstream: &str, server: &Origin) -> Finding {
    Finding {
        message: format!("`{server}` of the upstream `{upstream}` has no known address"),
        line: None,
        column: None,
        help: Some(
            "its name cannot be looked up, and it had no address before: it gets no request until a look-up succeeds"
                .to_owned(),
        ),
    }
}
