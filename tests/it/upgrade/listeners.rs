//! Listeners that change with an upgrade, and what the new process inherits besides its sockets.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{upgrade, upgraded};
use crate::support::{
    Connection, DEMO, Gateway, Request, eventually, free_port, full_config, inconclusive,
    is_running, replace_file,
};

fn local(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// A file with these ports for clients, this admin port and these Unix sockets with their modes.
fn file(ports: &[u16], admin: u16, sockets: &[(&Path, &str)]) -> String {
    let ports: Vec<_> = ports.iter().map(|port| local(*port).to_string()).collect();
    let mut file = format!("[server]\nlisten = {ports:?}\nadmin = \"127.0.0.1:{admin}\"\n{DEMO}");
    for (path, mode) in sockets {
        let path = path.display();
        let _ = write!(file, "[[listeners]]\naddress = \"unix:{path}\"\nmode = \"{mode}\"\n");
    }
    file
}

#[track_caller]
fn assert_answers(path: &Path) {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn terminate(pid: u32) {
    kill(Pid::from_raw(pid.try_into().unwrap()), Signal::SIGTERM).unwrap();
}

#[test]
fn row_67_listeners_of_the_new_file_are_opened_and_others_closed() {
    let folder = tempfile::tempdir().unwrap();
    let [kept, removed, added] = ["kept", "removed", "added"].map(|it| folder.path().join(it));
    let [first, second, third] = [free_port(), free_port(), free_port()];
    let (admin, new_admin) = (free_port(), free_port());
    let before = file(&[first, second], admin, &[(&kept, "0600"), (&removed, "0600")]);
    let mut gateway = Gateway::start_full(&before);
    replace_file(
        gateway.file(),
        file(&[first, third], new_admin, &[(&kept, "0660"), (&added, "0600")]),
    );
    let answer = upgrade(&gateway);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(gateway.exit().0, Some(0));
    for port in [first, third] {
        assert_eq!(Connection::open(local(port)).send(&Request::get("/")).status, 200, "{port}");
    }
    let ready = Request::get("/ready").at(local(new_admin));
    assert_eq!(Connection::open(local(new_admin)).send(&ready).status, 200);
    assert_answers(&kept);
    assert_answers(&added);
    assert_eq!(mode(&kept), 0o660, "the mode of the new file");
    for port in [second, admin] {
        let refused = TcpStream::connect(local(port)).map_err(|error| error.kind());
        assert_eq!(refused.err(), Some(std::io::ErrorKind::ConnectionRefused), "{port}");
    }
    assert!(!removed.exists());
    terminate(gateway.successors()[0]);
    eventually("the files to be removed", || (!kept.exists() && !added.exists()).then_some(()));
}

#[test]
fn row_67_failed_upgrade_changes_no_listener() {
    let folder = tempfile::tempdir().unwrap();
    let [kept, removed] = ["kept", "removed"].map(|it| folder.path().join(it));
    let [first, second, admin] = [free_port(), free_port(), free_port()];
    let before = file(&[first, second], admin, &[(&kept, "0600"), (&removed, "0600")]);
    let gateway = Gateway::start_full(&before);
    // Opening the last listener fails.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    replace_file(gateway.file(), file(&[first, port], admin, &[(&kept, "0660")]));
    let answer = upgrade(&gateway);
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert!(answer.text().contains(&format!("port {port} is taken")), "{}", answer.text());
    for port in [first, second] {
        assert_eq!(Connection::open(local(port)).send(&Request::get("/")).status, 200, "{port}");
    }
    assert_eq!(gateway.admin("/ready").status, 200);
    assert_answers(&kept);
    assert_answers(&removed);
    assert_eq!(mode(&kept), 0o600);
}

#[test]
fn row_67_address_of_the_admin_port_can_become_one_for_clients() {
    let [first, second] = [free_port(), free_port()];
    let mut gateway = Gateway::start_full(&file(&[first], second, &[]));
    replace_file(gateway.file(), file(&[second], first, &[]));
    let answer = upgrade(&gateway);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(gateway.exit().0, Some(0));
    assert_eq!(Connection::open(local(second)).send(&Request::get("/")).status, 200);
    let ready = Request::get("/ready").at(local(first));
    assert_eq!(Connection::open(local(first)).send(&ready).status, 200);
}

#[test]
fn all_addresses_of_both_families_stay_apart() {
    if TcpListener::bind("[::1]:0").is_err() {
        return inconclusive("this machine has no IPv6");
    }
    let [port, admin] = [free_port(), free_port()];
    let file = |listen: &str| {
        format!("[server]\nlisten = [{listen}]\nadmin = \"127.0.0.1:{admin}\"\n{DEMO}")
    };
    let [all, of_ipv6] = [format!("'0.0.0.0:{port}', '[::]:{port}'"), format!("'[::]:{port}'")];
    let gateway = Gateway::start_full(&file(&all));
    let by_ipv6 = SocketAddr::from((Ipv6Addr::LOCALHOST, port));
    let assert_both = || {
        for address in [local(port), by_ipv6] {
            let answer = Connection::open(address).send(&Request::get("/"));
            assert_eq!(answer.status, 200, "{address}");
        }
    };
    assert_both();
    // The socket for IPv6 cannot get connections of IPv4 while it is open.
    replace_file(gateway.file(), file(&of_ipv6));
    let answer = upgrade(&gateway);
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert!(answer.text().contains("without IPv4"), "{}", answer.text());
    assert_both();
    replace_file(gateway.file(), file(&all));
    let answer = upgrade(&gateway);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_both();
}

/// A program that opens a Unix socket as systemd does, then becomes the gateway.
fn activated(folder: &Path, socket: &Path) -> std::path::PathBuf {
    let path = folder.join("activated");
    let script = format!(
        "#!/usr/bin/env python3\nimport os, socket, sys\nkept = [os.dup(0) for _ in range(16)]\n\
         if 'TOLLGATE_HANDOVER' not in os.environ:\n    \
             s = socket.socket(socket.AF_UNIX)\n    s.bind('{socket}')\n    s.listen(100)\n    \
             os.dup2(s.fileno(), 3)\n    os.set_inheritable(3, True)\n    s.detach()\n    \
             os.environ['LISTEN_FDS'] = '1'\n    os.environ['LISTEN_PID'] = str(os.getpid())\n\
         os.execv('{program}', ['{program}'] + sys.argv[1:])\n",
        socket = socket.display(),
        program = super::PROGRAM,
    );
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    path
}

#[test]
fn row_67_file_of_a_socket_of_systemd_stays_after_upgrades_and_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("gateway.sock");
    let program = activated(folder.path(), &socket);
    let listener = format!("[[listeners]]\naddress = \"unix:{}\"\n", socket.display());
    let config = full_config(&format!("{listener}{DEMO}"));
    let gateway = Gateway::start_program(&program, &config);
    let mut serving = gateway.pid();
    for _ in 0..2 {
        let next = upgraded(&gateway);
        eventually("the previous process to end", || (!is_running(serving)).then_some(()));
        assert_answers(&socket);
        serving = next;
    }
    terminate(serving);
    eventually("the end", || (!is_running(serving)).then_some(()));
    assert!(socket.exists(), "systemd owns it");
}

/// What the descriptors of a process are, without numbers.
fn descriptors(pid: u32) -> Vec<String> {
    let kind = |entry: std::io::Result<std::fs::DirEntry>| {
        let target = std::fs::read_link(entry.ok()?.path()).ok()?;
        let target = target.to_string_lossy().into_owned();
        Some(target.split(':').next().unwrap_or_default().to_owned())
    };
    let mut all: Vec<_> =
        std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().filter_map(kind).collect();
    all.sort();
    all
}

/// The descriptors of a process once they no longer change: after an upgrade and a request, those
/// of both are open for a moment.
fn settled_descriptors(pid: u32) -> Vec<String> {
    let (mut seen, mut times) = (descriptors(pid), 0);
    eventually("the descriptors to stay", || {
        let now = descriptors(pid);
        times = if now == seen { times + 1 } else { 0 };
        seen = now;
        (times == 40).then(|| seen.clone())
    })
}

#[test]
fn row_67_twenty_upgrades_leave_no_descriptor_and_no_process() {
    let gateway = Gateway::start(DEMO);
    let mut serving = vec![gateway.pid()];
    let mut after_first = Vec::new();
    for round in 0..20 {
        serving.push(upgraded(&gateway));
        assert_eq!(gateway.get("/").status, 200);
        if round == 0 {
            let next = serving[1];
            eventually("the first to end", || (!is_running(serving[0])).then_some(()));
            after_first = settled_descriptors(next);
        }
    }
    let last = serving.pop().unwrap();
    for pid in &serving {
        eventually("the previous processes to end", || (!is_running(*pid)).then_some(()));
    }
    let same = || (descriptors(last) == after_first).then_some(());
    if crate::support::within(crate::support::TIMEOUT, same).is_none() {
        assert_eq!(descriptors(last), after_first);
    }
    assert_eq!(gateway.successors(), [last]);
}
