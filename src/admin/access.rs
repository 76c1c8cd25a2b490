//! What a caller of the admin API may do: by the roles of its token, and by its tenant.

use http::StatusCode;

use super::answer::Answer;
use super::audit::Visible;
use super::guard::Caller;
use super::routes::Call;
use crate::base::text::cut;
use crate::policy::Policy;
use crate::policy::settings::AdminRole;

/// Checks that the caller may make a call with these segments of the path.
///
/// # Errors
/// The response, if it may not.
pub(super) fn check(
    policy: &Policy,
    caller: &Caller,
    call: Call,
    parts: &[String],
) -> Result<(), Box<Answer>> {
    let Some(role) = role_for(call) else { return Ok(()) };
    // It sees changes of API keys only: see `visible`.
    let has_role = caller.has(role) || (call == Call::Audit && caller.has(AdminRole::Keys));
    if !has_role {
        let detail =
            format!("the token `{}` does not have the role `{}`", caller.name(), role.name());
        return Err(Answer::refusal(StatusCode::FORBIDDEN, &detail));
    }
    match caller.tenant() {
        Some(tenant) if !is_about(policy, tenant, call, parts) => {
            let tenant = cut(tenant, 64);
            let detail = format!("the token `{}` is for tenant `{tenant}` only", caller.name());
            Err(Answer::refusal(StatusCode::FORBIDDEN, &detail))
        }
        _ => Ok(()),
    }
}

/// What a caller may see of the audit, which it may call.
pub(super) fn visible(caller: &Caller) -> Visible<'_> {
    let tenant = caller.tenant().map(|tenant| &**tenant);
    Visible { is_of_keys: !caller.has(AdminRole::Read), tenant }
}

/// The role that a call needs; `None` if it needs none.
fn role_for(call: Call) -> Option<AdminRole> {
    match call {
        // They need no token either, or say nothing of this gateway.
        Call::Live | Call::Ready | Call::Metrics | Call::OpenApi => None,
        Call::Events
        | Call::Samples
        | Call::Status
        | Call::Policy
        | Call::Reloads
        | Call::Upstreams
        | Call::Certificates
        | Call::Audit
        | Call::Usage
        | Call::Bans
        | Call::Top
        | Call::Buckets
        | Call::TopUps
        | Call::ShowBreaker
        | Call::Explain => Some(AdminRole::Read),
        Call::Drain
        | Call::Disable
        | Call::Enable
        | Call::BeginBan
        | Call::LiftBans
        | Call::Reset
        | Call::Grant
        | Call::RevokeTopUp
        | Call::SetBreaker
        | Call::Reload
        | Call::Upgrade => Some(AdminRole::Operate),
        Call::Keys
        | Call::CreateKey
        | Call::ImportKeys
        | Call::Key
        | Call::PatchKey
        | Call::RemoveKey
        | Call::RotateKey
        | Call::DisableKey
        | Call::EnableKey => Some(AdminRole::Keys),
    }
}

/// Whether a call is about a tenant or one of its clients. `keys` checks those about API keys.
fn is_about(policy: &Policy, tenant: &str, call: Call, parts: &[String]) -> bool {
    match (call, parts) {
        (Call::Buckets | Call::TopUps, [kind, id]) if kind == "tenant" => *id == *tenant,
        (Call::Buckets | Call::TopUps, [kind, id]) if kind == "key" => {
            let known = policy.keys.named(id);
            known.is_some_and(|known| known.tenant.as_ref().is_some_and(|own| *own.id == *tenant))
        }
        // They list those of the tenant.
        (Call::Bans | Call::Audit | Call::Usage, _) => true,
        (call, _) => role_for(call) == Some(AdminRole::Keys) && call != Call::ImportKeys,
    }
}
