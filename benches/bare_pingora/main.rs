//! A minimal Pingora proxy, built like tollgate, as a baseline. Usage: `bare_pingora LISTEN
//! UPSTREAM`. Uses one thread.

use std::error::Error as StdError;
use std::net::SocketAddr;

use async_trait::async_trait;
use pingora::prelude::{HttpPeer, Result, Server};
use pingora::proxy::{ProxyHttp, Session, http_proxy_service};
use pingora::server::configuration::ServerConf;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

struct Bare {
    upstream: SocketAddr,
}

#[async_trait]
impl ProxyHttp for Bare {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn upstream_peer(&self, _: &mut Session, (): &mut ()) -> Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(self.upstream, false, String::new())))
    }
}

fn main() -> Result<(), Box<dyn StdError>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(listen), Some(upstream)) = (arguments.next(), arguments.next()) else {
        return Err("usage: bare_pingora LISTEN UPSTREAM".into());
    };
    let conf = ServerConf { threads: 1, upstream_keepalive_pool_size: 512, ..Default::default() };
    let mut server = Server::new_with_opt_and_conf(None, conf);
    let bare = Bare { upstream: upstream.parse()? };
    let mut service = http_proxy_service(&server.configuration, bare);
    service.add_tcp(&listen);
    server.add_service(service);
    server.run_forever()
}
