//! Directives that need nothing here, those that other files of this module read, and what to do
//! about the rest.

use super::{Directive, Notes};
use crate::config::foreign;

/// Directives of the main level, which concern the process.
const OF_PROCESS: &str = "user worker_processes worker_cpu_affinity worker_priority worker_rlimit_nofile \
    worker_shutdown_timeout pid daemon master_process events load_module env error_log pcre_jit thread_pool \
    timer_resolution lock_file debug_points working_directory worker_connections ssl_engine";

/// Directives that are read elsewhere in this module.
const READ: &str = "server upstream location limit_req_zone limit_conn_zone limit_req limit_conn limit_req_dry_run \
    limit_conn_dry_run client_max_body_size client_header_timeout client_body_timeout send_timeout keepalive_requests \
    keepalive_timeout resolver set_real_ip_from real_ip_header listen server_name ssl_certificate ssl_certificate_key \
    ssl_client_certificate ssl_verify_client ssl_protocols ssl http2 proxy_pass grpc_pass return rewrite if set \
    proxy_set_header grpc_set_header add_header proxy_hide_header proxy_pass_header allow deny \
    proxy_connect_timeout proxy_read_timeout \
    proxy_send_timeout grpc_connect_timeout grpc_read_timeout grpc_send_timeout proxy_next_upstream \
    proxy_next_upstream_tries gzip brotli proxy_ssl_verify proxy_ssl_trusted_certificate proxy_ssl_certificate \
    proxy_ssl_certificate_key proxy_ssl_name map geo split_clients default_type root alias try_files \
    fastcgi_pass uwsgi_pass scgi_pass memcached_pass internal ssl_stapling_file limit_req_status \
    limit_conn_status real_ip_recursive auth_basic stub_status empty_gif autoindex index limit_except";

/// Directives that the gateway does without a setting, or that have no meaning for it.
const SILENT: &str = "proxy_http_version proxy_buffering proxy_buffers proxy_buffer_size proxy_busy_buffers_size \
    proxy_request_buffering proxy_redirect proxy_headers_hash_max_size proxy_headers_hash_bucket_size proxy_socket_keepalive \
    proxy_ssl_server_name proxy_ssl_session_reuse proxy_ssl_protocols proxy_ssl_ciphers proxy_ssl_verify_depth \
    proxy_max_temp_file_size proxy_temp_file_write_size proxy_temp_path client_body_temp_path client_body_buffer_size \
    client_header_buffer_size large_client_header_buffers sendfile sendfile_max_chunk tcp_nopush tcp_nodelay aio directio \
    open_file_cache open_file_cache_valid open_file_cache_min_uses open_file_cache_errors types types_hash_max_size \
    types_hash_bucket_size server_names_hash_max_size server_names_hash_bucket_size variables_hash_max_size \
    variables_hash_bucket_size map_hash_max_size map_hash_bucket_size charset source_charset charset_types server_tokens \
    log_not_found log_subrequest merge_slashes underscores_in_headers ignore_invalid_headers port_in_redirect \
    absolute_redirect server_name_in_redirect reset_timedout_connection keepalive_disable keepalive keepalive_time \
    ssl_session_cache ssl_session_timeout ssl_session_tickets ssl_prefer_server_ciphers ssl_ciphers ssl_ecdh_curve \
    ssl_dhparam ssl_buffer_size ssl_early_data ssl_conf_command http2_max_concurrent_streams http2_recv_timeout \
    http2_idle_timeout http2_chunk_size etag chunked_transfer_encoding postpone_output recursive_error_pages \
    disable_symlinks lingering_close lingering_time lingering_timeout proxy_ignore_client_abort msie_padding \
    gzip_types gzip_min_length gzip_comp_level gzip_proxied gzip_vary gzip_disable gzip_buffers gzip_http_version \
    gzip_static brotli_types brotli_comp_level brotli_static brotli_min_length resolver_timeout limit_req_log_level \
    limit_conn_log_level rewrite_log uninitialized_variable_warn ssl_verify_depth proxy_intercept_errors_off \
    fastcgi_param fastcgi_index fastcgi_split_path_info fastcgi_buffers fastcgi_buffer_size fastcgi_read_timeout \
    uwsgi_param uwsgi_read_timeout break proxy_method_off";

/// Whether a directive concerns the process as a whole.
pub(super) fn is_of_process(name: &str) -> bool {
    contains(OF_PROCESS, name)
}

fn contains(words: &str, name: &str) -> bool {
    words.split_whitespace().any(|word| word == name)
}

/// Notes a directive that has no equal here.
pub(super) fn note(directive: &Directive, notes: &mut Notes) {
    let name = directive.name.as_str();
    if name == "satisfy" {
        if directive.first() == "any" {
            let why = "all conditions must hold: `allow_ips`, `deny_ips` and what you add for passwords. Write a route for each";
            notes.omitted(directive.place, directive.shown(), why);
        }
        return;
    }
    if contains(READ, name) || contains(SILENT, name) || is_of_process(name) {
        return;
    }
    // `error_page` and others that switch something off.
    if directive.first() == "off" {
        return;
    }
    let why = own(name)
        .map(str::to_owned)
        .or_else(|| foreign::instead_of_directive(name))
        .unwrap_or_else(|| "the gateway has no such setting".to_owned());
    notes.omitted(directive.place, directive.shown(), why);
}

/// What to do about directives that the list of names does not have, or for which it is too short.
fn own(name: &str) -> Option<&'static str> {
    Some(match name {
        "access_log" | "log_format" => {
            "the access log is JSON on standard output: `[access_log]` has `output` and `fields`"
        }
        "auth_basic_user_file" => {
            "passwords are verified for all routes: `[clients.basic]` with `users = \"file:users.htpasswd\"`, and \
             `on_missing_key = \"deny\"` in `[clients]`"
        }
        "auth_request" | "auth_request_set" => {
            "write `forward_auth = { url = \"http://127.0.0.1:9000/auth\" }` in the route, with the URL of the service"
        }
        "ssl_stapling"
        | "ssl_stapling_verify"
        | "ssl_trusted_certificate"
        | "ssl_stapling_responder" => {
            "an OCSP response is a file: `ocsp` of an item of `certificates`"
        }
        "expires" => "write the header as `response_headers` of the route",
        "sub_filter" | "sub_filter_once" | "sub_filter_types" | "image_filter"
        | "xslt_stylesheet" => "bodies are not changed",
        "dav_methods" | "create_full_put_path" | "mp4" | "flv" => "files are not served",
        "quic_retry" | "http3" | "quic_gso" => "the gateway has no HTTP/3",
        "perl" | "perl_set" | "js_content" | "js_import" | "js_set" | "js_path" => {
            "the gateway has no plug-ins"
        }
        _ if name.contains("_by_lua") || name.starts_with("lua_") => "the gateway has no plug-ins",
        _ => return None,
    })
}
