//! nginx as an independent upstream: serves a folder, stores uploads in it (`PUT /files/`), and
//! returns the body that it received (`POST /echo`).

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::child::Child;
use super::ports::free_port;
use super::wait::{TIMEOUT, within};

/// A running nginx.
pub(crate) struct Nginx {
    pub(crate) address: SocketAddr,
    _child: Child,
    folder: TempDir,
}

impl Nginx {
    /// Serves `/files/` and `/echo` in clear.
    pub(crate) fn start() -> Self {
        Self::with("", |folder, address| {
            format!(
                r#"
    listen {address};
    root {folder};
    location /files/ {{ dav_methods PUT DELETE; }}
    # The variable is there only once something has read the body.
    location = /echo {{ proxy_pass http://{address}/nothing; add_header X-Body $request_body; }}
    location = /nothing {{ return 200 "read"; }}"#
            )
        })
    }

    /// Serves `server`, the rest of a `server` block, made from the folder of `/files/`. `options`
    /// are those of `listen`, such as `ssl http2`.
    pub(crate) fn listening(options: &str, server: impl Fn(&str) -> String) -> Self {
        Self::with("", |folder, address| format!("listen {address} {options};\n{}", server(folder)))
    }

    /// Serves an image at every path, with `http` beside the server and `location` in its only
    /// location.
    pub(crate) fn limited(http: &str, location: &str) -> Self {
        Self::with(http, |_, address| {
            format!("listen {address};\nserver_name api;\nlocation / {{ empty_gif;\n{location} }}")
        })
    }

    /// `server` makes the `server` block from the folder and the address; `http` is beside it.
    fn with(http: &str, server: impl Fn(&str, SocketAddr) -> String) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("files")).unwrap();
        // nginx cannot choose a free port itself, so another process may take the port in between.
        for _ in 0..10 {
            if let Some((child, address)) = try_start(folder.path(), http, &server) {
                return Self { address, _child: child, folder };
            }
        }
        panic!("nginx did not start ten times; see {}", folder.keep().display());
    }

    /// Path of `/files/<name>` on disk.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join("files").join(name)
    }
}

fn try_start(
    folder: &Path,
    http: &str,
    server: &impl Fn(&str, SocketAddr) -> String,
) -> Option<(Child, SocketAddr)> {
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let config = folder.join("nginx.conf");
    let server = server(folder.to_str().unwrap(), address);
    std::fs::write(&config, text(folder, http, &server)).unwrap();
    let mut command = Command::new("nginx");
    command.arg("-p").arg(folder).arg("-c").arg(&config).args(["-e", "stderr"]);
    let mut child = Child::start(&mut command, "apt-get install nginx-light");
    let answers = within(TIMEOUT, || {
        let answers = TcpStream::connect(address).is_ok();
        (answers || child.has_exited()).then_some(answers)
    });
    // Another process may listen on the port.
    (answers == Some(true) && !child.has_exited()).then_some((child, address))
}

/// Configuration of one process in the foreground that uses only the folder and needs no
/// privileges.
fn text(folder: &Path, http: &str, server: &str) -> String {
    let folder = folder.display();
    format!(
        r"
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log stderr error;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  client_max_body_size 0;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  {http}
  server {{ {server} }}
}}
"
    )
}
