//! [`Cache`]: API keys of the store in this process, known and unknown ones, up to a number.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use quick_cache::sync::Cache as Bounded;

use super::record::{Override, Record, Secret};
use super::uses::{LastNoted, Uses};
use crate::base::hash::Digest;
use crate::client::principal::{KnownKey, Principal, Validity};
use crate::limit::grant::{Grant, OwnGrant};
use crate::policy::Policy;
use crate::policy::build::stored_grant;
use crate::store::memory::MemoryStore;

/// An API key of a stored client.
#[derive(Debug)]
pub struct StoredKey {
    id: Arc<str>,
    /// Name of the plan: its index depends on the configuration.
    plan: Box<str>,
    /// Name of the tenant, whose plan depends on the configuration, too.
    tenant: Option<Box<str>>,
    is_enabled: bool,
    /// Its limits under single rules, by their names.
    overrides: Box<[(Box<str>, Override)]>,
    name: Option<Arc<str>>,
    validity: Validity,
    last_noted: LastNoted,
    /// The key under the configuration in force when it was last used.
    bound: ArcSwapOption<Bound>,
}

/// A key under one configuration.
#[derive(Debug)]
struct Bound {
    /// Generation of the configuration.
    generation: u64,
    /// `None`: see [`StoredKey::under`].
    key: Option<KnownKey>,
}

/// What the cache has for a digest.
#[derive(Debug, Clone)]
pub enum Cached {
    Known(Arc<StoredKey>),
    /// The store has no such key.
    Unknown,
}

/// Keys by their digests.
#[derive(Debug)]
pub struct Cache {
    known: Bounded<Digest, Arc<StoredKey>>,
    unknown: Bounded<Digest, ()>,
}

impl Cached {
    /// What the store has for a digest: the record that has it.
    pub fn of(digest: &Digest, record: Option<&Record>) -> Self {
        let found = record.and_then(|record| Some((record, record.secret(digest)?)));
        found.map_or(Self::Unknown, |(record, secret)| {
            Self::Known(Arc::new(StoredKey::of(record, secret)))
        })
    }
}

impl StoredKey {
    /// One key of a record.
    pub fn of(record: &Record, secret: &Secret) -> Self {
        Self {
            id: Arc::from(record.id.as_str()),
            plan: record.plan.as_str().into(),
            tenant: record.tenant.as_deref().map(Box::from),
            is_enabled: record.enabled,
            overrides: overrides(record),
            name: secret.name.as_deref().map(Arc::from),
            validity: secret.validity(),
            last_noted: LastNoted::default(),
            bound: ArcSwapOption::empty(),
        }
    }

    /// The key under `policy`, which is in force as that `generation`; `None` if the policy does
    /// not have its plan, or has a client of its own with the same id. `store` numbers its
    /// own limits.
    pub fn under(&self, policy: &Policy, generation: u64, store: &MemoryStore) -> Option<KnownKey> {
        if let Some(bound) = &*self.bound.load()
            && bound.generation == generation
        {
            return bound.key.clone();
        }
        let key = self.bind(policy, store);
        self.bound.store(Some(Arc::new(Bound { generation, key: key.clone() })));
        key
    }

    fn bind(&self, policy: &Policy, store: &MemoryStore) -> Option<KnownKey> {
        // A client of the file with the same id is another one, with its own overrides and buckets.
        if policy.keys.named(&self.id).is_some() {
            return None;
        }
        let plan = plan_index(policy, &self.plan)?;
        let own_grants = own_grants(policy, plan, &self.overrides, store);
        let principal = Principal::new(Arc::clone(&self.id), plan, self.is_enabled);
        let principal = Principal { own_grants, ..principal };
        let principal = under(policy, principal, self.tenant.as_deref());
        Some(KnownKey { principal, name: self.name.clone(), validity: self.validity })
    }

    /// Notes in `uses` that it is used at `now`, in microseconds.
    pub fn note_use(&self, uses: &Uses, now: u64) {
        uses.note(&self.id, &self.last_noted, now);
    }

    /// Id of the client.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Name of the client's plan.
    pub fn plan(&self) -> &str {
        &self.plan
    }
}

/// The client of a record; `None` if the policy does not have its plan.
pub fn client(record: &Record, policy: &Policy, store: &MemoryStore) -> Option<Arc<Principal>> {
    let plan = plan_index(policy, &record.plan)?;
    let own_grants = own_grants(policy, plan, &overrides(record), store);
    let principal = Principal::new(Arc::from(record.id.as_str()), plan, record.enabled);
    let principal = Principal { own_grants, ..principal };
    Some(under(policy, principal, record.tenant.as_deref()))
}

fn overrides(record: &Record) -> Box<[(Box<str>, Override)]> {
    let all = record.overrides.iter();
    all.map(|(rule, own)| (Box::from(rule.as_str()), own.clone())).collect()
}

/// The grants of a client with this plan under the rules that the policy has. An override of
/// another rule, or one that is none for the present kind of its rule, does nothing.
fn own_grants(
    policy: &Policy,
    plan: u32,
    overrides: &[(Box<str>, Override)],
    store: &MemoryStore,
) -> Box<[OwnGrant]> {
    let grant = |(name, own): &(Box<str>, Override)| {
        let rule = policy.rules.iter().find(|rule| *rule.name == **name)?;
        let grant = stored_grant(policy, rule, plan, own.text()).ok()?;
        let index = store.number_of(grant.limit)?;
        Some(OwnGrant { rule: rule.salt, grant: Grant { index, ..grant } })
    };
    overrides.iter().filter_map(grant).collect()
}

/// Index of the plan of this name; `None` if the policy does not have it.
fn plan_index(policy: &Policy, plan: &str) -> Option<u32> {
    u32::try_from(policy.plans.iter().position(|own| **own == *plan)?).ok()
}

/// The client with the tenant of this name, as the policy has it.
fn under(policy: &Policy, principal: Principal, tenant: Option<&str>) -> Arc<Principal> {
    let tenant = tenant.map(|tenant| policy.tenants.named(tenant));
    Arc::new(Principal { tenant, ..principal })
}

impl Cache {
    /// Creates an empty cache for this number of known keys, and as many unknown ones.
    pub fn new(capacity: usize) -> Self {
        Self { known: Bounded::new(capacity), unknown: Bounded::new(capacity) }
    }

    /// What is known of a digest; `None`: nothing.
    pub fn get(&self, digest: &Digest) -> Option<Cached> {
        match self.known.get(digest) {
            Some(key) => Some(Cached::Known(key)),
            None => self.unknown.get(digest).map(|()| Cached::Unknown),
        }
    }

    /// Keeps what the store has for a digest.
    pub fn put(&self, digest: Digest, found: Cached) {
        match found {
            Cached::Known(key) => self.known.insert(digest, key),
            Cached::Unknown => self.unknown.insert(digest, ()),
        }
    }

    /// Forgets what is known of these digests.
    pub fn forget(&self, digests: &[Digest]) {
        for digest in digests {
            self.known.remove(digest);
            self.unknown.remove(digest);
        }
    }

    /// Forgets all.
    pub fn clear(&self) {
        self.known.clear();
        self.unknown.clear();
    }

    /// Numbers of known and of unknown keys.
    pub fn len(&self) -> (usize, usize) {
        (self.known.len(), self.unknown.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::record::TextOrNumber;
    use crate::keys::record::tests::record;
    use crate::limit::Limit;
    use crate::limit::fixed_window::Overage;
    use crate::load::from_text;

    fn policy(plans: &str) -> Policy {
        let rest = "[upstreams.a]\nservers = ['demo']\n[routes.all]\n";
        from_text("gateway.toml", &format!("{plans}{rest}[clients]\nanonymous_plan = 'free'\n"))
            .unwrap()
    }

    fn store() -> MemoryStore {
        MemoryStore::new(64, &[])
    }

    /// An override is in force under the rules that a policy has, and only there.
    #[test]
    fn override_follows_the_rules_of_each_configuration() {
        let rule =
            |rest: &str| policy(&format!("[plans.free]\n[rules.r]\nper = ['key']\n{rest}\n"));
        let first = rule("rate = '1/s'");
        let own = Override {
            rate: Some("7/s".to_owned()),
            burst: Some(TextOrNumber::Number(9)),
            ..Override::default()
        };
        let overrides = [("r".to_owned(), own.clone()), ("gone".to_owned(), own)].into();
        let record = Record { overrides, ..record("acme", 7) };
        let key = StoredKey::of(&record, &record.secrets[0]);
        let store = store();
        let capacities = |policy: &Policy, generation| {
            let known = key.under(policy, generation, &store).unwrap();
            let own = known.principal.own_grants.iter();
            own.map(|own| (own.grant.limit.capacity(), own.grant.written.to_string()))
                .collect::<Vec<_>>()
        };
        assert_eq!(capacities(&first, 1), [(9, "7/s".to_owned())]);
        // Without the rule, or with one of another kind, there is none; and it comes back.
        assert_eq!(capacities(&policy("[plans.free]\n"), 2), []);
        assert_eq!(capacities(&rule("kind = 'fixed_window'\nlimit = '5/d'"), 3), []);
        assert_eq!(capacities(&first, 4).len(), 1);
    }

    /// A quota of a single client has `soft` and `overage` of its plan, unless it has its own.
    #[test]
    fn override_keeps_the_warning_and_overage_of_the_plan() {
        let policy = policy(
            "[plans.free]\n[plans.pro]\n[rules.r]\nper = ['key']\nkind = 'fixed_window'\n\
             limit = '5/d'\nsoft = '50%'\nplans.pro = { limit = '6/d', overage = 'count' }\n",
        );
        assert!(policy.has_soft());
        let limit = Some(TextOrNumber::Text("9/d".to_owned()));
        let of = |plan: &str, own: Override| {
            let overrides = [("r".to_owned(), own)].into();
            let record = Record { plan: plan.to_owned(), overrides, ..record("acme", 7) };
            let key = StoredKey::of(&record, &record.secrets[0]);
            let known = key.under(&policy, 1, &store()).unwrap();
            match known.principal.own_grants[0].grant.limit {
                Limit::FixedWindow(window) => (window.limit(), window.overage(), window.soft()),
                other => panic!("{other:?}"),
            }
        };
        let plain = Override { limit: limit.clone(), ..Override::default() };
        assert_eq!(of("free", plain.clone()), (9, Overage::Refuse, 500));
        assert_eq!(of("pro", plain.clone()), (9, Overage::Count, 500));
        let own = Override {
            soft: Some("80%".to_owned()),
            overage: Some(Overage::Refuse),
            ..plain.clone()
        };
        assert_eq!(of("pro", own), (9, Overage::Refuse, 800));
        let own = Override { overage: Some(Overage::Count), ..plain };
        assert_eq!(of("free", own), (9, Overage::Count, 500));
        // Neither is for shorter periods, whatever the plan has.
        let limit = Some(TextOrNumber::Text("9/m".to_owned()));
        assert_eq!(of("pro", Override { limit, ..Override::default() }).2, 0);
    }

    #[test]
    fn key_has_its_plan_under_each_configuration() {
        let key = StoredKey::of(&record("acme", 7), &record("acme", 7).secrets[0]);
        let first = policy("[plans.free]\n[plans.pro]\n");
        let second = policy("[plans.basic]\n[plans.free]\n");
        let plan = |policy: &Policy, generation| {
            let known = key.under(policy, generation, &store())?;
            Some(policy.plan_name(known.principal.plan).to_owned())
        };
        for generation in [1, 1, 3] {
            assert_eq!(plan(&first, generation).as_deref(), Some("free"));
        }
        assert_eq!(plan(&second, 4).as_deref(), Some("free"));
        assert_eq!(key.under(&second, 4, &store()).unwrap().principal.plan, 1);
        let mut pro = record("acme", 7);
        pro.plan = "pro".to_owned();
        let key = StoredKey::of(&pro, &pro.secrets[0]);
        assert!(key.under(&first, 1, &store()).is_some());
        assert!(key.under(&second, 2, &store()).is_none());
    }

    #[test]
    fn number_of_keys_is_bounded() {
        let cache = Cache::new(1_000);
        let digest = |at: u32| {
            let mut digest = [0; 32];
            digest[..4].copy_from_slice(&at.to_le_bytes());
            digest
        };
        (0..50_000).for_each(|at| cache.put(digest(at), Cached::Unknown));
        let known = record("acme", 7);
        cache.put([7; 32], Cached::of(&[7; 32], Some(&known)));
        let (known, unknown) = cache.len();
        assert!(known == 1 && unknown <= 1_000, "{known} {unknown}");
        assert!(matches!(cache.get(&[7; 32]), Some(Cached::Known(_))));
        cache.forget(&[[7; 32]]);
        assert!(cache.get(&[7; 32]).is_none());
    }
}
