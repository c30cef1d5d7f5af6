#!/usr/bin/env bash
# A throw-away PostgreSQL for the benchmarks, on loopback, with the durability
# that Millrace is compared at: every commit is on disk before it is answered.
#
#   postgres.sh start DIR [PORT]   make a cluster in DIR, start it, print how to connect
#   postgres.sh stop DIR           stop it; DIR may then be removed
#
# PostgreSQL is installed from Debian's packages if it is not there. It refuses to
# run as root, so root runs it as the user postgres, who must be able to enter DIR.
set -euo pipefail

verb=${1:-} dir=${2:-} port=${3:-54329}
if [[ -z $verb || -z $dir ]]; then
	sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
	exit 2
fi

find_binaries() {
	# The newest major version, wherever Debian put it; else what PATH has.
	local found
	found=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -1 || true)
	if [[ -z $found ]] && command -v initdb >/dev/null; then
		found=$(dirname "$(readlink -f "$(command -v initdb)")")
	fi
	[[ -n $found && -x $found/initdb ]] && echo "$found"
}

install_postgres() {
	if [[ $(id -u) -ne 0 ]]; then
		echo "postgres.sh: PostgreSQL is not installed; install Debian's package postgresql, or run as root" >&2
		exit 1
	fi
	echo "postgres.sh: installing PostgreSQL" >&2
	export DEBIAN_FRONTEND=noninteractive
	apt-get update -qq >&2
	apt-get install -y -qq --no-install-recommends postgresql >&2
}

as_postgres() {
	if [[ $(id -u) -eq 0 ]]; then
		runuser -u postgres -- "$@"
	else
		"$@"
	fi
}

start() {
	bin=$(find_binaries) || { install_postgres && bin=$(find_binaries); }
	mkdir -p "$dir"
	if [[ $(id -u) -eq 0 ]]; then
		chown postgres "$dir"
	fi
	if ! as_postgres test -w "$dir"; then
		echo "postgres.sh: the user postgres cannot enter $dir; choose a directory that others may enter" >&2
		exit 1
	fi
	# PostgreSQL stays where it was started, which postgres may not be allowed to read.
	cd /
	if [[ ! -f $dir/data/PG_VERSION ]]; then
		as_postgres "$bin/initdb" -D "$dir/data" -U bench --auth=trust -E UTF8 --locale=C >"$dir/initdb.log" 2>&1 ||
			{ cat "$dir/initdb.log" >&2; exit 1; }
		# Vacuum and checkpoints are done between measurements, not during them;
		# this favours PostgreSQL. A large WAL keeps it from doing more of them.
		as_postgres tee -a "$dir/data/postgresql.conf" >/dev/null <<-CONF
			listen_addresses = '127.0.0.1'
			unix_socket_directories = ''
			max_connections = 200
			fsync = on
			synchronous_commit = on
			full_page_writes = on
			shared_buffers = 2GB
			max_wal_size = 8GB
			checkpoint_timeout = 30min
			autovacuum = off
			work_mem = 64MB
			maintenance_work_mem = 512MB
		CONF
	fi
	as_postgres "$bin/pg_ctl" -D "$dir/data" -o "-p $port" -l "$dir/server.log" -w -t 60 start >"$dir/start.log" 2>&1 ||
		{ cat "$dir/start.log" >&2; tail -20 "$dir/server.log" >&2 || true; exit 1; }
	echo "postgres://bench@127.0.0.1:$port/postgres?sslmode=disable"
}

stop() {
	[[ -f $dir/data/postmaster.pid ]] || return 0
	bin=$(find_binaries)
	cd /
	as_postgres "$bin/pg_ctl" -D "$dir/data" -m fast -w -t 60 stop >&2
}

case $verb in
start) start ;;
stop) stop ;;
*)
	echo "postgres.sh: $verb is neither start nor stop" >&2
	exit 2
	;;
esac
