//! A real Redis Cluster on loopback.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use tempfile::TempDir;

use super::child::Child;
use super::ports::free_port;
use super::wait::{TIMEOUT, eventually, sleep_for, within};

/// Slots of a cluster.
const SLOTS: usize = 16_384;

/// A node of the cluster.
pub(crate) struct ClusterNode {
    pub(crate) address: SocketAddr,
    bus_port: u16,
    child: Option<Child>,
    folder: TempDir,
    timeout: NodeTimeout,
    /// Further arguments of the server.
    arguments: Vec<String>,
}

/// When a node counts as failed that does not respond, in milliseconds. A replica then takes over.
#[derive(Clone, Copy)]
enum NodeTimeout {
    /// For tests that wait for a failover.
    Short = 1_000,
    /// For all others: a node that gets no CPU for a second must not be failed over.
    Long = 15_000,
}

/// A cluster: its masters first, then a replica of each.
pub(crate) struct RedisCluster {
    pub(crate) nodes: Vec<ClusterNode>,
}

impl ClusterNode {
    /// Starts a node, and does not wait until it responds.
    fn spawn(timeout: NodeTimeout, arguments: Vec<String>) -> Self {
        // A node writes its view of the cluster, and waits for the disk, at each change of a slot.
        let memory = std::path::Path::new("/dev/shm");
        let folder = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let folder = tempfile::tempdir_in(folder).unwrap();
        let (port, bus_port) = (free_port(), free_port());
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut node = Self { address, bus_port, child: None, folder, timeout, arguments };
        node.spawn_server();
        node
    }

    /// Starts the server, with what it has saved.
    pub(crate) fn launch(&mut self) {
        self.spawn_server();
        self.wait_until_it_answers();
    }

    fn spawn_server(&mut self) {
        let program = std::env::var("TOLLGATE_REDIS_SERVER");
        let mut command = Command::new(program.as_deref().unwrap_or("redis-server"));
        command.arg("--port").arg(self.address.port().to_string());
        command.arg("--cluster-port").arg(self.bus_port.to_string());
        command.args(["--cluster-enabled", "yes", "--cluster-node-timeout"]);
        command.arg((self.timeout as u32).to_string());
        command.args(["--cluster-require-full-coverage", "no"]);
        command.args(["--cluster-replica-validity-factor", "0"]);
        command.args(["--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes"]);
        command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir"]);
        command.arg(self.folder.path()).args(&self.arguments);
        self.child = Some(Child::start(&mut command, "apt-get install redis-server"));
    }

    fn wait_until_it_answers(&self) {
        let answers = || self.try_query::<String>(&["PING"]).is_ok().then_some(());
        let log = || self.child.as_ref().map(Child::log).unwrap_or_default();
        assert!(within(TIMEOUT, answers).is_some(), "{} does not answer:\n{}", self.address, log());
    }

    /// Stops the server with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child = None;
    }

    /// Whether the server runs.
    pub(crate) fn is_running(&self) -> bool {
        self.child.is_some()
    }

    /// Suspends or resumes the process.
    pub(crate) fn signal(&self, signal: Signal) {
        self.child.as_ref().unwrap().signal(signal);
    }

    /// Sends a command and returns the reply.
    pub(crate) fn query<T: redis::FromRedisValue>(&self, command: &[&str]) -> T {
        self.try_query(command).unwrap()
    }

    /// Sends a command.
    pub(crate) fn try_query<T: redis::FromRedisValue>(
        &self,
        command: &[&str],
    ) -> redis::RedisResult<T> {
        let (name, arguments) = command.split_first().unwrap();
        redis::cmd(name).arg(arguments).query(&mut self.connection()?)
    }

    fn connection(&self) -> redis::RedisResult<redis::Connection> {
        let client = redis::Client::open(format!("redis://{}", self.address))?;
        client.get_connection_with_timeout(Duration::from_secs(2))
    }

    /// Sends a command of `CLUSTER` for each slot, all at once, and returns the replies.
    fn query_each<T: redis::FromRedisValue>(
        &self,
        slots: &[u16],
        command: &str,
        arguments: &[&str],
    ) -> redis::RedisResult<Vec<T>> {
        let mut pipe = redis::pipe();
        for slot in slots {
            pipe.cmd("CLUSTER").arg(command).arg(slot).arg(arguments);
        }
        pipe.query(&mut self.connection()?)
    }

    /// The slots of this master, in order.
    fn slots(&self) -> Vec<u16> {
        let nodes = self.query::<String>(&["CLUSTER", "NODES"]);
        let own = nodes.lines().find(|line| line.contains("myself")).unwrap();
        let ranges = own.split_whitespace().skip(8).filter(|range| !range.starts_with('['));
        let each = ranges.flat_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            first.parse::<u16>().unwrap()..=last.parse().unwrap()
        });
        each.collect()
    }

    /// Whether it is a master.
    pub(crate) fn is_master(&self) -> bool {
        let role = self.try_query::<redis::Value>(&["ROLE"]);
        matches!(role, Ok(redis::Value::Array(parts))
            if parts.first() == Some(&redis::Value::BulkString(b"master".to_vec())))
    }
}

impl RedisCluster {
    /// Starts a cluster of three masters, each with this number of replicas. A node that does not
    /// respond for a second counts as failed.
    pub(crate) fn start(replicas: usize) -> Self {
        Self::started(replicas, NodeTimeout::Short)
    }

    /// As [`start`](Self::start), but without a failover on a busy machine.
    pub(crate) fn steady(replicas: usize) -> Self {
        Self::started(replicas, NodeTimeout::Long)
    }

    fn started(replicas: usize, timeout: NodeTimeout) -> Self {
        let cluster = Self::nodes_with(3 * (1 + replicas), timeout);
        cluster.create(replicas);
        cluster
    }

    /// Starts nodes that are not yet a cluster.
    pub(crate) fn nodes(count: usize) -> Self {
        Self::nodes_with(count, NodeTimeout::Short)
    }

    fn nodes_with(count: usize, timeout: NodeTimeout) -> Self {
        let nodes: Vec<ClusterNode> =
            (0..count).map(|_| ClusterNode::spawn(timeout, Vec::new())).collect();
        nodes.iter().for_each(ClusterNode::wait_until_it_answers);
        Self { nodes }
    }

    /// Makes the nodes a cluster, with this number of replicas for each master: what `redis-cli
    /// --cluster create` does, in less time.
    pub(crate) fn create(&self, replicas: usize) {
        let masters = self.nodes.len() / (1 + replicas);
        for (number, node) in self.nodes.iter().enumerate() {
            // Different epochs, so that no two nodes claim a slot by the same.
            node.query::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()]);
            if number < masters {
                let (first, end) = (SLOTS * number / masters, SLOTS * (number + 1) / masters);
                let (first, last) = (first.to_string(), (end - 1).to_string());
                node.query::<()>(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
            }
        }
        let (first, others) = self.nodes.split_first().unwrap();
        for node in others {
            let (host, port) = (node.address.ip().to_string(), node.address.port().to_string());
            first.query::<()>(&["CLUSTER", "MEET", &host, &port, &node.bus_port.to_string()]);
        }
        let known = format!("cluster_known_nodes:{}\r\n", self.nodes.len());
        let knows_all = |node: &ClusterNode| {
            let nodes = node.query::<String>(&["CLUSTER", "NODES"]);
            node.query::<String>(&["CLUSTER", "INFO"]).contains(&known)
                && !nodes.contains("handshake")
        };
        eventually("the nodes to know each other", || {
            self.nodes.iter().all(knows_all).then_some(())
        });
        let (masters, others) = self.nodes.split_at(masters);
        for (number, node) in others.iter().enumerate() {
            let master = &masters[number % masters.len()];
            let id = master.query::<String>(&["CLUSTER", "MYID"]);
            node.query::<()>(&["CLUSTER", "REPLICATE", &id]);
        }
        self.wait_until_ok();
        let replicas = others.len();
        let knows_replicas = |node: &ClusterNode| {
            let nodes = node.query::<String>(&["CLUSTER", "NODES"]);
            let flags = nodes.lines().filter_map(|line| line.split(' ').nth(2));
            flags.filter(|flags| flags.contains("slave")).count() == replicas
        };
        eventually("the nodes to know all replicas", || {
            self.nodes.iter().all(knows_replicas).then_some(())
        });
    }

    /// Starts a cluster of masters that listen for TLS on these ports, and use it among each other.
    pub(crate) fn over_tls(ports: &[u16], certificate: &str, key: &str) -> Self {
        let node = |port: &u16| {
            let port = port.to_string();
            let arguments =
                ["--tls-port", &port, "--tls-cluster", "yes", "--tls-auth-clients", "no"];
            let files = ["--tls-cert-file", certificate, "--tls-key-file", key];
            let authority = ["--tls-ca-cert-file", certificate];
            let all = arguments.iter().chain(&files).chain(&authority);
            ClusterNode::spawn(NodeTimeout::Short, all.map(ToString::to_string).collect())
        };
        let cluster = Self { nodes: ports.iter().map(node).collect() };
        cluster.nodes.iter().for_each(ClusterNode::wait_until_it_answers);
        let mut arguments =
            ["--tls", "--cacert", certificate, "--cluster", "create"].map(str::to_owned).to_vec();
        arguments.extend(ports.iter().map(|port| format!("127.0.0.1:{port}")));
        arguments.push("--cluster-yes".to_owned());
        Self::cli(&arguments);
        cluster.wait_until_ok();
        cluster
    }

    /// Moves slots from one master to another, as an operator does: the lowest ones, by the
    /// commands of `redis-cli --cluster reshard`, but a hundred slots at a time. `redis-cli` waits
    /// for five replies for each slot, which takes most of a minute.
    pub(crate) fn reshard(&self, from: usize, to: usize, slots: usize) {
        let own = self.nodes[from].slots();
        for group in own[..slots].chunks(100) {
            self.move_slots(group, from, to, Duration::from_millis(25));
        }
    }

    /// Moves the slot of a key from one master to another, as `redis-cli --cluster reshard` does,
    /// with pauses in which its keys are at both.
    pub(crate) fn move_slot(&self, key: &str, from: usize, to: usize) {
        let slot = self.nodes[from].query::<u16>(&["CLUSTER", "KEYSLOT", key]);
        self.move_slots(&[slot], from, to, Duration::from_millis(200));
    }

    fn move_slots(&self, slots: &[u16], from: usize, to: usize, pause: Duration) {
        let (source, target) = (&self.nodes[from], &self.nodes[to]);
        let [old, new] = [source, target].map(|node| node.query::<String>(&["CLUSTER", "MYID"]));
        target.query_each::<()>(slots, "SETSLOT", &["IMPORTING", &old]).unwrap();
        source.query_each::<()>(slots, "SETSLOT", &["MIGRATING", &new]).unwrap();
        sleep_for(pause);
        let (host, port) = (target.address.ip().to_string(), target.address.port().to_string());
        loop {
            let keys = source.query_each(slots, "GETKEYSINSLOT", &["100"]);
            let keys: Vec<Vec<String>> = keys.unwrap();
            if keys.iter().all(Vec::is_empty) {
                break;
            }
            for keys in keys.iter().filter(|keys| !keys.is_empty()) {
                let command = ["MIGRATE", &host, &port, "", "0", "5000", "KEYS"].into_iter();
                let command: Vec<&str> = command.chain(keys.iter().map(String::as_str)).collect();
                source.query::<redis::Value>(&command);
            }
            sleep_for(pause);
        }
        let masters = self.masters().into_iter();
        let others = masters.filter(|at| ![from, to].contains(at)).map(|at| &self.nodes[at]);
        for node in [target, source].into_iter().chain(others) {
            let replies = node.query_each::<()>(slots, "SETSLOT", &["NODE", &new]);
            // A master becomes a replica when it has heard that it has no slot left.
            assert!(replies.is_ok() || !node.is_master(), "{replies:?}");
        }
    }

    /// Runs `redis-cli`, which has to succeed.
    pub(crate) fn cli(arguments: &[String]) {
        let mut command = Command::new("redis-cli");
        let mut child = Child::start(command.args(arguments), "apt-get install redis-server");
        // To move thousands of slots takes long on a busy machine.
        let _ = within(4 * TIMEOUT, || child.has_exited().then_some(()));
        let exit = child.exit();
        let log = child.log();
        assert!(exit.is_some_and(|exit| exit.success()), "redis-cli {arguments:?}: {log}");
    }

    /// Waits until every running node sees a cluster that serves all slots.
    pub(crate) fn wait_until_ok(&self) {
        eventually("the cluster to serve all slots", || {
            let is_ok = |node: &ClusterNode| {
                let info = node.try_query::<String>(&["CLUSTER", "INFO"]).unwrap_or_default();
                ["cluster_state:ok", "cluster_slots_ok:16384"]
                    .iter()
                    .all(|text| info.contains(text))
            };
            self.nodes.iter().filter(|node| node.is_running()).all(is_ok).then_some(())
        });
        // The replicas follow their masters.
        eventually("the replicas to follow", || {
            let replicas = self.nodes.iter().filter(|node| node.is_running() && !node.is_master());
            let is_linked = |node: &ClusterNode| {
                node.query::<String>(&["INFO", "replication"]).contains("master_link_status:up")
            };
            replicas.clone().all(is_linked).then_some(())
        });
    }

    /// Waits until the replica has all that its master has written.
    pub(crate) fn wait_until_replicated(&self, master: usize, replica: usize) {
        let offset = |node: usize, name: &str| {
            let info = self.nodes[node].query::<String>(&["INFO", "replication"]);
            let line = info.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.parse::<u64>().unwrap()
        };
        let written = offset(master, "master_repl_offset:");
        eventually("the replica to have all writes", || {
            (offset(replica, "slave_repl_offset:") >= written).then_some(())
        });
    }

    /// The `[redis]` table, with a long timeout, since the machine may be busy.
    pub(crate) fn table(&self) -> String {
        self.table_with("timeout = \"1s\"\n")
    }

    /// The `[redis]` table with these lines.
    pub(crate) fn table_with(&self, lines: &str) -> String {
        let seeds: Vec<String> =
            self.nodes.iter().take(2).map(|node| node.address.to_string()).collect();
        Self::table_of(&seeds, lines)
    }

    /// The `[redis]` table with these seeds and lines.
    pub(crate) fn table_of(seeds: &[String], lines: &str) -> String {
        format!("\n[redis]\nurl = \"redis+cluster://{}\"\n{lines}", seeds.join(","))
    }

    /// The current masters that run.
    pub(crate) fn masters(&self) -> Vec<usize> {
        let is_master = |at: &usize| self.nodes[*at].is_running() && self.nodes[*at].is_master();
        (0..self.nodes.len()).filter(is_master).collect()
    }

    /// The master that has the slot of this hash tag, which ends before a `}`.
    pub(crate) fn master_of_tag(&self, tag: &str) -> usize {
        let slot: u16 = self.nodes[0].query(&["CLUSTER", "KEYSLOT", tag]);
        let nodes: String = self.nodes[0].query(&["CLUSTER", "NODES"]);
        let has = |range: &str| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let range = first.parse().ok().zip(last.parse().ok());
            range.is_some_and(|(first, last): (u16, u16)| (first..=last).contains(&slot))
        };
        let line = nodes.lines().find(|line| line.split(' ').skip(8).any(has)).unwrap();
        self.position(line.split(' ').nth(1).unwrap())
    }

    /// The node that replicates this one.
    pub(crate) fn replica_of(&self, master: usize) -> usize {
        let id: String = self.nodes[master].query(&["CLUSTER", "MYID"]);
        let nodes: String = self.nodes[master].query(&["CLUSTER", "NODES"]);
        let line = nodes.lines().find(|line| line.split(' ').nth(3) == Some(&id)).unwrap();
        self.position(line.split(' ').nth(1).unwrap())
    }

    /// The node at an address of `CLUSTER NODES`.
    fn position(&self, at: &str) -> usize {
        let address = at.split('@').next().unwrap();
        self.nodes.iter().position(|node| node.address.to_string() == address).unwrap()
    }
}
