#!/usr/bin/env bash
# A throw-away Docker engine + Compose v2 + buildx + locally built base image for CI.
#   tests/compose/engine.sh up|base|env|status|down|purge
# Needs: root on Debian 12 and an apt configuration whose archive also serves trixie (the usual Debian archive does).
# All state is below $ENGINE_HOME; nothing listens on TCP; the archive's address is read from apt's own configuration.
# shellcheck disable=SC2016  # mmdebstrap's hooks and `env` print a literal $1 and $PATH
set -Eeuo pipefail

ENGINE_HOME=${ENGINE_HOME:-/var/tmp/hps-engine}
BASE_TAG=${BASE_TAG:-hps-test-python:3.11}
BASE_SUITE=${BASE_SUITE:-bookworm}
BASE_PKGS=${BASE_PKGS:-python3,python3-pip,python3-venv,libpython3.11,ca-certificates}
HOST_CA=${HOST_CA:-${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}}
TOOLS_SUITE=${TOOLS_SUITE:-trixie}
BIP=${ENGINE_BIP:-172.31.240.1/24}
POOL=${ENGINE_POOL:-172.31.241.0/24}

RUN=$ENGINE_HOME/run; TOOLS=$ENGINE_HOME/tools; APT=$ENGINE_HOME/apt
PIDFILE=$RUN/dockerd.pid; SOCK=$RUN/docker.sock
export DOCKER_HOST=unix://$SOCK DOCKER_CONFIG=$ENGINE_HOME/config
export DEBIAN_FRONTEND=noninteractive

log() { printf 'engine: %s\n' "$*" >&2; }
die() { log "$*"; exit 1; }

# Is the process in the pid file really our dockerd?
ours() {
  local pid; pid=$(cat "$PIDFILE" 2>/dev/null) || return 1
  [[ $pid =~ ^[0-9]+$ ]] || return 1
  [[ $(readlink "/proc/$pid/exe" 2>/dev/null) == "$TOOLS/usr/sbin/dockerd" ]] || return 1
  printf '%s' "$pid"
}

apt_uri() { # the archive that this machine's apt already uses for its own release
  awk '/^URIs:/{print $2; exit}' /etc/apt/sources.list.d/*.sources 2>/dev/null | grep . ||
    awk '$1=="deb"{for(i=2;i<=NF;i++) if($i ~ /^https?:/){print $i; exit}}' \
      /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null | grep . ||
    die "no apt source found in this machine's configuration"
}

retry() { local i; for i in 1 2 3; do "$@" && return 0; sleep $((i * 3)); done; return 1; }

host_packages() {
  local need=() p
  for p in containerd runc iptables mmdebstrap tini xz-utils; do
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null) == installed ]] || need+=("$p")
  done
  ((${#need[@]})) || return 0
  log "apt-get install ${need[*]}"
  retry apt-get -qq update
  # policy-rc.d may or may not be there: never let a package start a service of its own
  RUNLEVEL=1 retry apt-get -qq install -y --no-install-recommends "${need[@]}" >"$ENGINE_HOME/apt.log" 2>&1 ||
    { tail -20 "$ENGINE_HOME/apt.log" >&2; die "apt-get install failed"; }
}

tools() { # newer engine, Compose v2 and buildx: unpacked privately, never installed system-wide
  [[ -x $TOOLS/usr/sbin/dockerd && -x $TOOLS/usr/libexec/docker/cli-plugins/docker-compose ]] && return 0
  log "fetching engine, compose and buildx from $TOOLS_SUITE"
  mkdir -p "$APT"/{lists/partial,cache/archives/partial,debs} "$TOOLS.new"
  printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n' \
    "$(apt_uri)" "$TOOLS_SUITE" >"$APT/sources.list"
  local o=(-qq -o Dir::Etc::sourcelist="$APT/sources.list" -o Dir::Etc::sourceparts=/dev/null
    -o Dir::State::lists="$APT/lists" -o Dir::Cache="$APT/cache" -o APT::Sandbox::User=root)
  retry apt-get "${o[@]}" update
  (cd "$APT/debs" && retry apt-get "${o[@]}" download docker.io docker-cli docker-compose docker-buildx)
  local d
  for d in "$APT"/debs/*.deb; do dpkg-deb -x "$d" "$TOOLS.new"; done
  rm -rf "$TOOLS" && mv "$TOOLS.new" "$TOOLS"
  rm -rf "$APT"
}

save_net() { # what the machine's packet filter looked like before us
  [[ -e $RUN/iptables.before ]] && return 0
  iptables-save >"$RUN/iptables.before"
  sysctl -n net.ipv4.ip_forward >"$RUN/ip_forward.before"
}

restore_net() {
  [[ -e $RUN/iptables.before ]] || return 0
  if ! grep -q DOCKER "$RUN/iptables.before"; then
    local t
    for t in nat filter raw mangle; do # tables absent from the saved set are flushed
      iptables-save -t "$t" 2>/dev/null | grep -q DOCKER || continue
      iptables -t "$t" -F && iptables -t "$t" -X
    done
    iptables -P FORWARD ACCEPT
    iptables-restore <"$RUN/iptables.before"
    sysctl -qw "net.ipv4.ip_forward=$(cat "$RUN/ip_forward.before")"
  fi
  ip link delete docker0 2>/dev/null || true
  rm -f "$RUN/iptables.before" "$RUN/ip_forward.before"
}

start() {
  local pid
  if pid=$(ours); then log "already running (pid $pid)"; return 0; fi
  rm -f "$PIDFILE" "$SOCK"
  mkdir -p "$RUN" "$ENGINE_HOME"/{data,exec,config/cli-plugins}
  ln -sf "$TOOLS"/usr/libexec/docker/cli-plugins/docker-* "$ENGINE_HOME/config/cli-plugins/"
  [[ -e $ENGINE_HOME/config/config.json ]] || echo '{}' >"$ENGINE_HOME/config/config.json"
  save_net
  local driver=overlay2
  mkdir -p "$ENGINE_HOME"/probe/{l,u,w,m}
  if mount -t overlay overlay -o "lowerdir=$ENGINE_HOME/probe/l,upperdir=$ENGINE_HOME/probe/u,workdir=$ENGINE_HOME/probe/w" "$ENGINE_HOME/probe/m" 2>/dev/null; then
    umount "$ENGINE_HOME/probe/m"
  else driver=vfs; fi
  rm -rf "$ENGINE_HOME/probe"
  cat >"$ENGINE_HOME/daemon.json" <<J
{
  "data-root": "$ENGINE_HOME/data",
  "exec-root": "$ENGINE_HOME/exec",
  "pidfile": "$PIDFILE",
  "hosts": ["unix://$SOCK"],
  "storage-driver": "$driver",
  "init-path": "/usr/bin/tini-static",
  "userland-proxy-path": "$TOOLS/usr/sbin/docker-proxy",
  "exec-opts": ["native.cgroupdriver=cgroupfs"],
  "log-opts": {"max-size": "10m", "max-file": "2"},
  "ip": "127.0.0.1",
  "bip": "$BIP",
  "default-address-pools": [{"base": "$POOL", "size": 28}]
}
J
  PATH=$TOOLS/usr/bin:$PATH setsid nohup "$TOOLS/usr/sbin/dockerd" --config-file "$ENGINE_HOME/daemon.json" >"$RUN/dockerd.log" 2>&1 </dev/null &
  local i
  for i in $(seq 120); do
    "$TOOLS/usr/bin/docker" info >/dev/null 2>&1 && break
    [[ $i -eq 120 ]] && { tail -30 "$RUN/dockerd.log" >&2; die "dockerd did not answer within 30 s"; }
    sleep 0.25
  done
  log "running (pid $(cat "$PIDFILE"), $driver)"
}

base() { # a Debian + Python image under the name that the Dockerfiles' FROM line has
  local d=$TOOLS/usr/bin/docker
  if [[ ${FORCE_BASE:-0} != 1 ]] && "$d" image inspect "$BASE_TAG" >/dev/null 2>&1; then return 0; fi
  log "building $BASE_TAG from $BASE_SUITE"
  mmdebstrap --quiet --mode=root --variant=minbase --components=main --include="$BASE_PKGS" \
    --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='Apt::Install-Recommends "false"' \
    --dpkgopt=force-unsafe-io --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --customize-hook='cp "'"$HOST_CA"'" "$1/etc/ssl/certs/ca-certificates.crt"' \
    --customize-hook='ln -sf python3 "$1/usr/bin/python"' \
    --customize-hook='rm -f "$1"/usr/lib/python3*/EXTERNALLY-MANAGED' \
    "$BASE_SUITE" - "$(apt_uri)" 2>"$ENGINE_HOME/mmdebstrap.log" |
    "$d" import --change 'ENV LANG=C.UTF-8 PIP_CERT=/etc/ssl/certs/ca-certificates.crt SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt' \
      --change 'CMD ["python3"]' - "$BASE_TAG" >/dev/null ||
    { tail -20 "$ENGINE_HOME/mmdebstrap.log" >&2; die "base image failed"; }
}

stop() {
  local pid i ids
  # A dockerd that died uncleanly leaves its containers running: a fresh one ends them, then is stopped.
  if ! ours >/dev/null && [[ -e $RUN/iptables.before && -x $TOOLS/usr/sbin/dockerd ]]; then
    log "cleaning up after an unclean end"
    start || true
  fi
  if pid=$(ours); then
    ids=$("$TOOLS/usr/bin/docker" ps -aq 2>/dev/null || true)
    # shellcheck disable=SC2086
    [[ -z $ids ]] || "$TOOLS/usr/bin/docker" rm -f $ids >/dev/null 2>&1 || true
    "$TOOLS/usr/bin/docker" network prune -f >/dev/null 2>&1 || true
    kill "$pid"
    for i in $(seq 100); do [[ -d /proc/$pid ]] || break; sleep 0.2; done
    [[ ! -d /proc/$pid ]] || { log "dockerd $pid hung: SIGKILL"; kill -9 "$pid"; sleep 1; }
  fi
  rm -f "$PIDFILE" "$SOCK"
  ! mountpoint -q "$ENGINE_HOME/data" || umount "$ENGINE_HOME/data" || true
  restore_net
  log stopped
}

case ${1:-} in
  up) mkdir -p "$ENGINE_HOME" "$RUN"; host_packages; tools; start; base ;;
  base) ours >/dev/null || die "not running"; base ;;
  env) printf 'export DOCKER_HOST=%q DOCKER_CONFIG=%q PATH=%q:"$PATH"\n' "$DOCKER_HOST" "$DOCKER_CONFIG" "$TOOLS/usr/bin" ;;
  status) if pid=$(ours); then echo "running $pid"; else echo stopped; exit 3; fi ;;
  down) stop ;;
  purge) stop; rm -rf --one-file-system "$ENGINE_HOME" ;;
  *) die "usage: $0 up|base|env|status|down|purge" ;;
esac
