//! Limits that are introduced step by step: `enforce` and `candidate`.

use std::fmt::Write as _;

use crate::support::{DEMO, Gateway, Redis, Request, key};

const CLIENTS: usize = 100;

fn keys() -> String {
    (0..CLIENTS).fold(String::new(), |mut text, number| {
        let _ = write!(text, "{}", key(&format!("c{number}"), format!("secret{number}"), "free"));
        text
    })
}

/// The clients of whom the second request is refused.
fn refused(gateway: &Gateway) -> Vec<usize> {
    let mut connection = gateway.connect();
    (0..CLIENTS)
        .filter(|number| {
            let request = Request::get("/").header("X-Api-Key", format!("secret{number}"));
            let statuses = [(); 2].map(|()| connection.send(&request).status);
            assert_eq!(statuses[0], 200);
            statuses[1] == 429
        })
        .collect()
}

#[test]
fn rule_is_enforced_for_the_same_part_of_the_clients_on_every_gateway() {
    let keys = keys();
    let file = |share: &str| {
        format!(
            "{DEMO}[rules.r]\nper = [\"key\"]\nrate = \"1/365d\"\nenforce = \"{share}\"\n{keys}"
        )
    };
    let [tenth, half, other] = ["10%", "50%", "50%"].map(|share| Gateway::start(&file(share)));
    let [few, many, same] = [&tenth, &half, &other].map(refused);
    assert_eq!(many, same);
    assert!((25..75).contains(&many.len()), "{many:?}");
    assert!(few.len() < many.len() && few.iter().all(|client| many.contains(client)), "{few:?}");
    let shadow = [("rule", "r"), ("decision", "shadow_deny")];
    assert_eq!(half.count("tollgate_decisions_total", &shadow), (CLIENTS - many.len()) as u64);
    let label = |client: usize| {
        let body = format!("{{\"path\": \"/\", \"key_id\": \"c{client}\"}}");
        half.explain(body).json()["rules"][0]["mode"].as_str().unwrap().to_owned()
    };
    let spared = (0..CLIENTS).find(|client| !many.contains(client)).unwrap();
    assert_eq!([label(many[0]), label(spared)], ["enforce", "shadow"]);
    // All of them after a reload.
    half.apply(&file("100%"));
    let again = Request::get("/").header("X-Api-Key", format!("secret{spared}"));
    assert_eq!(half.send(&again).status, 429);
}

/// A request that a rule cannot count is refused for the clients for which the rule is enforced.
#[test]
fn header_that_cannot_be_counted_is_refused_where_the_rule_is_enforced() {
    let file = |share: &str| {
        format!(
            "{DEMO}[rules.r]\nper = [\"header:x-tenant\"]\nrate = \"10/s\"\nenforce = \"{share}\"\n"
        )
    };
    let twice = Request::get("/").header("X-Tenant", "a").header("X-Tenant", "b");
    let gateway = Gateway::start(&file("0%"));
    assert_eq!(gateway.send(&twice).status, 200);
    gateway.apply(&file("100%"));
    assert_eq!(gateway.send(&twice).status, 400);
}

#[test]
fn candidate_reports_what_it_would_refuse_and_refuses_nothing() {
    let redis = Redis::start();
    let rule = "[rules.r]\nper = [\"key\"]\nkind = \"fixed_window\"\nlimit = \"10/year\"\ncandidate = { limit = \"4/year\" }\n";
    let text = format!("{DEMO}{rule}{}{}", redis.table(), key("acme", "secret", "free"));
    let gateways: [Gateway; 2] = std::array::from_fn(|_| Gateway::start(&text));
    gateways.iter().for_each(Gateway::wait_for_redis);
    let request = Request::get("/").header("X-Api-Key", "secret");
    let statuses: Vec<u16> =
        (0..12).map(|number| gateways[number % 2].send(&request).status).collect();
    assert_eq!(statuses, [vec![200; 10], vec![429; 2]].concat());
    let sum = |decision: &str| -> u64 {
        let labels = [("rule", "r.candidate"), ("decision", decision)];
        let one = |gateway: &Gateway| gateway.existing("tollgate_decisions_total", &labels);
        gateways.iter().filter_map(one).sum()
    };
    assert_eq!((sum("allow"), sum("shadow_deny")), (4, 6));
    let policy = gateways[0].admin("/api/policy").json();
    let rules = policy["rules"].as_array().unwrap();
    assert_eq!(rules[1]["name"], "r.candidate");
    assert_eq!(rules[1]["candidate_of"], "r");
}
