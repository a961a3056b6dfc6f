#!/bin/sh
# efa.sh yes|no RELEASES: build libfabric with EFA and CUDA, and NCCL's plugin for it, into /out; with `no` nothing.
#
# Debian's libfabric is built without CUDA, so EFA could not transfer GPU memory; no distribution has the plugin.
# RELEASES is where the publishers' releases are, or a mirror with the same paths. The hashes are those of the release
# pages (github.com/ofiwg/libfabric, github.com/aws/aws-ofi-nccl); 1.21.1 is tested with libfabric 2.6.0.
set -eu
libfabric=2.6.0
ofi_nccl=1.21.1
hashes="
4aa70dfad7d38c142c6758ce00a23fc0f2f919cb3a4acf9ea294c6bc1db182fc402e4e6578148b34a37b9bd0dad09045cf0284d118c6a5e47eea8b766c051c37  libfabric-$libfabric.tar.bz2
ab7aa6b6f2f5117252e7603cf39458ec9b2d03a4bc2d8b36ac61f0b41287bcea3de619ed2d1638b4258694f48380971a2c60a4eac8e230097e80de2bb8e04e75  aws-ofi-nccl-$ofi_nccl.tar.gz
"
mkdir -p /out
[ "$1" = yes ] || exit 0
releases=$2
here=$(cd "$(dirname "$0")" && pwd)
prefix=/opt/amazon

apt-get update
apt-get install --yes --no-install-recommends \
    bzip2 ca-certificates curl g++ gcc libc6-dev libhwloc-dev libibverbs-dev make python3-pip
# CUDA's headers come as wheels, as CUDA itself does.
{
    python3 "$here/locked.py" "$here/training.txt" nvidia-cuda-runtime
    python3 "$here/locked.py" "$here/peers.txt" nvidia-cuda-crt nvidia-nvml-dev
} >/tmp/cuda.txt
python3 -m pip install --no-cache-dir --require-hashes --no-deps --only-binary=:all: \
    --target=/opt/cuda --requirement=/tmp/cuda.txt
cuda=$(echo /opt/cuda/nvidia/cu*)

mkdir -p /tmp/efa
cd /tmp/efa
curl --fail --location --remote-name-all \
    "$releases/ofiwg/libfabric/releases/download/v$libfabric/libfabric-$libfabric.tar.bz2" \
    "$releases/aws/aws-ofi-nccl/releases/download/v$ofi_nccl/aws-ofi-nccl-$ofi_nccl.tar.gz"
echo "$hashes" | sed '/^$/d' | sha512sum --check --strict

tar -xjf "libfabric-$libfabric.tar.bz2"
cd "libfabric-$libfabric"
# The driver's libraries are on the node: they are loaded, not linked.
./configure --prefix="$prefix/efa" --disable-static --enable-efa --with-cuda="$cuda" --enable-cuda-dlopen \
    --disable-verbs --disable-opx --disable-psm2 --disable-psm3 --disable-usnic
make -j"$(nproc)"
make install

cd /tmp/efa
tar -xzf "aws-ofi-nccl-$ofi_nccl.tar.gz"
cd "aws-ofi-nccl-$ofi_nccl"
# Loaded only with NCCL_NET_PLUGIN=ofi: under the name libnccl-net.so NCCL would also try it on InfiniBand.
./configure --prefix="$prefix/ofi-nccl" --with-libfabric="$prefix/efa" --with-cuda="$cuda" --enable-platform-aws \
    --disable-nccl-net-library --disable-tests LDFLAGS="-L$cuda/lib"
make -j"$(nproc)"
make install

rm -rf "$prefix/efa/include" "$prefix/efa/share" "$prefix/efa/lib/pkgconfig"
find "$prefix" -name '*.la' -delete
mkdir -p /out/opt /out/etc/ld.so.conf.d
mv "$prefix" /out/opt/
printf '%s\n' "$prefix/efa/lib" "$prefix/ofi-nccl/lib" >/out/etc/ld.so.conf.d/efa.conf
