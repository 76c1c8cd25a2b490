//! A cluster whose nodes use TLS among each other and with the gateways.

use rcgen::{CertificateParams, KeyPair};

use super::gateways;
use crate::shared::is_decided_locally;
use crate::support::{
    CpuWaits, DEMO, Gateway, RedisCluster, StatusCounts, free_port, key, send_many,
};

#[test]
fn cluster_over_tls_is_exact() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let [certificate, key_file] = ["server.pem", "server.key"].map(path);
    let pair = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(&certificate, params.self_signed(&pair).unwrap().pem()).unwrap();
    std::fs::write(&key_file, pair.serialize_pem()).unwrap();
    let ports: [u16; 3] = std::array::from_fn(|_| free_port());
    let redis = RedisCluster::over_tls(&ports, &certificate, &key_file);
    let seeds: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    let table = format!(
        "\n[redis]\nurl = \"rediss+cluster://{}\"\nca = \"{certificate}\"\ntimeout = \"1s\"\n",
        seeds.join(",")
    );
    let rules = "[rules.client]\nper = [\"key\"]\nrate = \"30/d\"\n\
        [rules.all]\nper = []\nrate = \"1000/d\"\n";
    let keys = key("a", "s0", "free") + &key("b", "s1", "free");
    let gateways: [Gateway; 2] = gateways(&format!("{DEMO}{table}{rules}{keys}"));
    let urls: Vec<String> = gateways.iter().map(|gateway| gateway.url("/")).collect();
    let waits = CpuWaits::now();
    let counts: StatusCounts = send_many(400, |client, number| {
        let secret = format!("s{}", number / 2 % 2);
        client.get(&urls[number % 2]).header("X-Api-Key", secret)
    });
    if is_decided_locally(&gateways, &waits) {
        return;
    }
    assert_eq!(counts, [(200, 60), (429, 340)].into());
    assert_eq!(redis.masters().len(), 3);
}
