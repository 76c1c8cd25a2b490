//! What other gateways count requests by, as names of `per`.

use super::squeezed;

/// The name of `per` for what another gateway counts by: `"ip"` for `$binary_remote_addr`. An empty
/// text is one bucket for all requests.
pub(crate) fn dimension(text: &str) -> Option<String> {
    let text = text.trim();
    let variable = text.trim_start_matches('$').trim_matches(['{', '}', '%', '[', ']']);
    // The header in a variable of nginx and in a fetch of HAProxy.
    let header = variable
        .strip_prefix("http_")
        .map(|name| name.replace('_', "-"))
        .or_else(|| variable.strip_prefix("http.request.header.").map(str::to_owned))
        .or_else(|| Some(variable.strip_prefix("req.hdr(")?.trim_end_matches(')').to_owned()));
    if let Some(header) = header.filter(|name| is_header(name)) {
        return Some(if header.eq_ignore_ascii_case("host") {
            "host".to_owned()
        } else {
            format!("header:{}", header.to_ascii_lowercase())
        });
    }
    let known = match squeezed(variable).as_str() {
        "binaryremoteaddr"
        | "remoteaddr"
        | "remoteaddress"
        | "maskedremoteaddress"
        | "remotehost"
        | "clientip"
        | "realipremoteaddr"
        | "src"
        | "address"
        | "addr"
        | "ipaddress"
        | "sourceip"
        | "http.request.remote.host"
        | "ipstrategy"
        | "client" => "ip",
        "consumer" | "credential" | "apikey" | "user" | "userid" | "token" => "key",
        "consumergroup" | "tier" => "plan",
        "requestmethod" | "verb" | "http.request.method" => "method",
        "host" | "httphost" | "requesthost" | "http.request.host" | "domain" => "host",
        "uri" | "requesturi" | "documenturi" | "path" | "service" | "url" | "endpoint"
        | "destinationcluster" => "route",
        "sslclientsdn" | "sslclientfingerprint" | "certificate" | "tls" => "cert",
        "servername" | "global" | "all" | "everyone" | "none" => "",
        _ => return None,
    };
    Some(known.to_owned())
}

fn is_header(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_other_gateways_are_names_of_per() {
        let table = [
            ("$binary_remote_addr", "ip"),
            ("${remote_addr}", "ip"),
            ("{remote_host}", "ip"),
            ("src", "ip"),
            ("remote_address", "ip"),
            ("$http_x_api_key", "header:x-api-key"),
            ("req.hdr(X-Tenant)", "header:x-tenant"),
            ("{http.request.header.X-Tenant}", "header:x-tenant"),
            ("$http_host", "host"),
            ("$request_method", "method"),
            ("$request_uri", "route"),
            ("$ssl_client_s_dn", "cert"),
            ("$server_name", ""),
            ("consumer", "key"),
        ];
        for (written, expected) in table {
            assert_eq!(dimension(written).as_deref(), Some(expected), "{written}");
        }
        for unknown in ["ipp", "$cookie_a", "header:x", "$http_", "$http_x y", ""] {
            assert_eq!(dimension(unknown), None, "{unknown}");
        }
    }
}
