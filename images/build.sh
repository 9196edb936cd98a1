#!/usr/bin/env bash
# Builds images with docker or podman, whichever engine answers; called by `make images`, which has filled dist/.
#   TARGETS= are those of the Dockerfile; without it `sampler pipeline`.
#   ENGINE= BASE_IMAGE= RUST_IMAGE= SOURCE= override what is found or pinned. WHEEL= is a wheel of this tree to take in
#   place of building one; pip refuses it if this machine's C library is newer than the base's. `trainer` then needs
#   RUST_IMAGE= nevertheless, for its C compiler.
# A BASE_IMAGE below localhost/ that does not exist is made from Debian's packages, and so is an image of this machine's
# Rust toolchain: a machine that reaches no container registry needs nothing else.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "images: $*" >&2; exit 1; }

if [ -z "${ENGINE:-}" ]; then
  # The client alone says nothing: docker's is often installed without an engine.
  for engine in docker podman; do
    if "$engine" info >/dev/null 2>&1; then ENGINE=$engine; break; fi
  done
fi
[ -n "${ENGINE:-}" ] || fail "neither docker nor podman answers to 'info': start one, or name it with ENGINE="

# made <name> <Debian packages> [folder paths]: an image of Debian 12 with these packages, and with these paths of the
# folder below /usr/local, unless there is one
made() {
  "$ENGINE" image inspect "$1" >/dev/null 2>&1 && return
  local root status=0
  root=$(mktemp -d)
  if command -v mmdebstrap >/dev/null; then  # a fifth of debootstrap's time
    mmdebstrap --quiet --variant=minbase --include="$2" bookworm "$root" || status=1
  elif command -v debootstrap >/dev/null; then
    debootstrap --variant=minbase --include="$2" bookworm "$root" >&2 || status=1
  else
    fail "$1 does not exist; to make it: apt-get install mmdebstrap"
  fi
  if [ $status = 0 ] && [ $# -gt 2 ]; then tar -C "$3" -c "${@:4}" | tar -C "$root/usr/local" -x; fi
  if [ $status = 0 ]; then tar -C "$root" -c . | "$ENGINE" import - "$1" >/dev/null; fi
  rm -rf "$root"
  [ $status = 0 ] || fail "$1 could not be made"
}

pinned() { sed -n "s/^ARG $1=//p" images/Dockerfile; }

BASE_IMAGE=${BASE_IMAGE:-$(pinned BASE_IMAGE)}
mkdir -p dist/vendor dist/wheels/ours
if [ -z "${WHEEL:-}" ]; then
  rm -f dist/wheels/ours/*
else
  RUST_IMAGE=${RUST_IMAGE:-$BASE_IMAGE}
  # The same file is left as it is, and with it the layers that were made of it.
  cmp -s "$WHEEL" "dist/wheels/ours/${WHEEL##*/}" || { rm -f dist/wheels/ours/*; cp "$WHEEL" dist/wheels/ours/; }
fi
if [[ $BASE_IMAGE == localhost/* ]]; then
  made "$BASE_IMAGE" python3,ca-certificates &
  base=$!
  if [ -z "${RUST_IMAGE:-}" ]; then
    toolchain=$(rustc --print sysroot)
    RUST_IMAGE=localhost/rust:$(rustc --version | cut -d' ' -f2)-bookworm
    # No python3: the official image that this one replaces has none either.
    made "$RUST_IMAGE" gcc,libc6-dev "$toolchain" bin/cargo bin/rustc lib
  fi
  wait "$base"
fi
RUST_IMAGE=${RUST_IMAGE:-$(pinned RUST_IMAGE)}

version=$(sed -n 's/^version = "\(.*\)"/\1/p' rust/Cargo.toml)
revision=$(git rev-parse HEAD)$(git diff --quiet HEAD || echo -dirty)
origin=$(git config --get remote.origin.url || true)
[[ $origin == https://* ]] || origin=unpublished
digest=${BASE_IMAGE#*@}
if [[ $BASE_IMAGE != *@* ]]; then
  # Docker knows no digest of an image that came from no registry.
  digest=$("$ENGINE" image inspect --format '{{.Digest}}' "$BASE_IMAGE" 2>/dev/null || "$ENGINE" image inspect --format '{{.Id}}' "$BASE_IMAGE")
fi

# Not LABEL with an ARG: podman 4.3 takes such a step from its cache though the argument has another value, and the image
# then names an old commit.
labels=()
for label in base.name="${BASE_IMAGE%%@*}" base.digest="$digest" version="$version" revision="$revision" \
  source="${SOURCE:-$origin}"; do
  labels+=(--label "org.opencontainers.image.$label")
done

for target in ${TARGETS:-sampler pipeline}; do
  image=localhost/pairmill-$target:$version
  # Without a network: whatever would not come out of the locked folders fails here.
  "$ENGINE" build --network=none --file images/Dockerfile --target "$target" --tag "$image" \
    --build-arg BASE_IMAGE="$BASE_IMAGE" --build-arg RUST_IMAGE="$RUST_IMAGE" "${labels[@]}" . >"dist/$target.log" 2>&1 || {
    tail -n 40 "dist/$target.log" >&2
    fail "$image was not built; all of it: dist/$target.log"
  }
  container=$("$ENGINE" create --network=none "$image")
  "$ENGINE" cp "$container:/opt/pairmill/sbom.cdx.json" "dist/$target.cdx.json"
  "$ENGINE" rm "$container" >/dev/null
  "$ENGINE" image inspect --format '{{.Size}} {{.Id}}' "$image" |
    awk -v image="$image" -v sbom="dist/$target.cdx.json" '{printf "%s  %.0f MB  %s  %s\n", image, $1 / 1e6, $2, sbom}'
done
