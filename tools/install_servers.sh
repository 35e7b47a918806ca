#!/usr/bin/env bash
# Install what the tests start: Prometheus, VictoriaMetrics, node_exporter and Chromium, what the real training run makes
# its machines and faults of, and what two methods of the bench run in (node), as Debian packages.
# Does nothing where all of them are there. Run: tools/install_servers.sh
set -euo pipefail

missing=()
need() { # package, then what proves that it is there: a command's name or a file
    [[ $2 == /* && -e $2 ]] || command -v "$2" >/dev/null || missing+=("$1")
}
need prometheus prometheus
need victoria-metrics victoria-metrics
need prometheus-node-exporter prometheus-node-exporter
need chromium chromium
need fonts-dejavu-core /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf
need iproute2 ip
need iptables iptables
need stress-ng stress-ng
need nodejs node
need npm npm

[[ ${#missing[@]} -gt 0 ]] || exit 0

give_up() {
    echo "error: the tests need ${missing[*]}, and $1:" >&2
    echo "       install them by hand (Debian: apt-get install --no-install-recommends ${missing[*]})" >&2
    exit 1
}

command -v apt-get >/dev/null || give_up "there is no apt-get here"
as_root=()
if [[ $(id -u) -ne 0 ]]; then
    command -v sudo >/dev/null || give_up "you are not root and there is no sudo"
    as_root=(sudo)
fi

echo "installing ${missing[*]} (Debian packages for the tests)"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
run() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive "$@" >>"$log" 2>&1 || {
        tail -n 20 "$log" >&2
        give_up "apt-get failed"
    }
}
run apt-get update
run apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=300 "${missing[@]}"
