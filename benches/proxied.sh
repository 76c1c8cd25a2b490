#!/usr/bin/env bash
# What a proxied request costs Redis and the gateway: `make release && benches/proxied.sh`.
#
# nginx behind the gateway, wrk before it with 64 connections, one Redis; all on this machine, all
# started here on free ports and ended here by their process ids. Prints a Markdown table: requests
# a second, and CPU microseconds and calls per request.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PATH:/usr/sbin"
scripts/need nginx redis-server wrk
program=${TOLLGATE:-target/release/tollgate}
seconds=${SECONDS_EACH:-8}
folder=$(mktemp -d)
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; rm -rf "$folder"' EXIT

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
# User and system time of a process in microseconds.
cpu_us() { awk -v hz="$(getconf CLK_TCK)" '{print int(($14 + $15) * 1000000 / hz)}' "/proc/$1/stat"; }
calls() {
    redis-cli -s "$folder/redis.sock" info commandstats |
        awk -F'[=,]' '/^cmdstat_eval/ {sum += $2} END {print sum + 0}'
}

upstream=$(free_port)
cat >"$folder/nginx.conf" <<END
daemon off; worker_processes 1; pid $folder/nginx.pid; error_log stderr crit;
events { worker_connections 1024; }
http { access_log off; keepalive_requests 100000000; server { listen 127.0.0.1:$upstream;
  location / { default_type application/json; return 200 '{"message":"a small answer of about eighty bytes, as APIs give them"}'; } } }
END
nginx -p "$folder" -c "$folder/nginx.conf" -e stderr & pids+=($!)
redis-server --port 0 --unixsocket "$folder/redis.sock" --save "" --appendonly no >/dev/null & pids+=($!)
redis=$!

port=$(free_port)
admin=$(free_port)
cat >"$folder/gateway.toml" <<END
[server]
listen = ["127.0.0.1:$port"]
admin = "127.0.0.1:$admin"
threads = 1
[redis]
url = "unix://$folder/redis.sock"
timeout = "100ms"
[clients]
api_key = ["header:x-api-key"]
on_unknown_key = "accept"
[plans.free]
[upstreams.api]
servers = ["127.0.0.1:$upstream"]
[routes.all]
[rules.per-key]
per = ["key"]
rate = "1000000/s"
burst = 1000000
END
"$program" run -c "$folder/gateway.toml" 2>"$folder/log" & pids+=($!)
gateway=$!
until grep -q 'connected to Redis' "$folder/log"; do sleep 0.05; done

cat >"$folder/hot.lua" <<'END'
wrk.headers["x-api-key"] = "hot"
END
cat >"$folder/distinct.lua" <<'END'
math.randomseed(os.time())
request = function()
    return wrk.format(nil, nil, { ["x-api-key"] = "user-" .. math.random(100000) })
end
END

echo "| keys | requests/s | gateway CPU us/request | Redis CPU us/request | Redis calls/request |"
echo "| --- | --- | --- | --- | --- |"
for keys in hot distinct hot distinct hot distinct; do
    before=("$(cpu_us "$gateway")" "$(cpu_us "$redis")" "$(calls)")
    wrk -t1 -c64 -d"${seconds}s" -s "$folder/$keys.lua" "http://127.0.0.1:$port/" >"$folder/wrk"
    after=("$(cpu_us "$gateway")" "$(cpu_us "$redis")" "$(calls)")
    if grep -q 'Non-2xx' "$folder/wrk"; then
        cat "$folder/wrk" "$folder/log" >&2
        exit 1
    fi
    requests=$(awk '/requests in/ {print $1}' "$folder/wrk")
    awk -v keys="$keys" -v n="$requests" -v s="$seconds" \
        -v g="$((after[0] - before[0]))" -v r="$((after[1] - before[1]))" -v c="$((after[2] - before[2]))" \
        'BEGIN {printf "| %s | %d | %.1f | %.2f | %.3f |\n", keys, n / s, g / n, r / n, c / n}'
done
