# What all commands need before cargo can compile the harness. Sourced by them; it changes to the root of the checkout.

cd "$(dirname "${BASH_SOURCE[0]}")/.."

# A target folder outside of the checkout: a fresh clone on the same machine reuses what is compiled.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/fencepost/target}
case $CARGO_TARGET_DIR in /*) ;; *) CARGO_TARGET_DIR=$PWD/$CARGO_TARGET_DIR ;; esac

die() { echo "error: $*" >&2; exit 1; }

need_toolchains() {
  command -v cargo >/dev/null || die "cargo is not installed: Fencepost needs Rust ($(sed -n 's/^channel *= *"\(.*\)"/\1/p' rust-toolchain.toml))"
}

# librdkafka is compiled from source and linked to the system's OpenSSL.
need_packages() {
  local missing=() package
  for package in gcc g++ make pkg-config libssl-dev; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  [ "$(id -u)" -eq 0 ] || die "this machine lacks ${missing[*]}: run \`apt-get update && apt-get install -y --no-install-recommends ${missing[*]}\` as root"
  echo "==> installing ${missing[*]}" >&2
  apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"
}

# Cargo is quiet, and without a word a first run looks hung.
announce_harness() {
  [ -e "$CARGO_TARGET_DIR/debug/fencepost-e2e" ] || echo "==> compiling the harness (about 3 minutes the first time)" >&2
}

need_toolchains
need_packages
