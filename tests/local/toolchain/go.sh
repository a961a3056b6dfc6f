#!/bin/sh
# A fake Go toolchain: records its calls, and writes what a build would.
echo "$@" >> "$FAKE_GO_LOG"
case $1 in
version) echo "go version go1.30.0 linux/amd64" ;;
list)
    case "$*" in
    *@*) if [ -e "$FAKE_GO_LOG.offline" ]; then echo "dial tcp: lookup proxy: no such host"; exit 1; fi ;;
    *" -m "*) echo v1.2.3 ;;
    *) printf 'example.test/a\nexample.test/b\n' ;;
    esac ;;
mod) printf '{"Dir": "%s"}' "$FAKE_GO_MODULE" ;;
build)
    if [ -n "$(find "$FAKE_GO_LOG.fails" 2>/dev/null)" ]; then cat "$FAKE_GO_LOG.fails"; exit 1; fi
    while [ "$1" != -o ]; do shift; done
    echo example.test/a
    printf '#!/bin/sh\necho v1.2.3\n' > "$2"; chmod +x "$2" ;;
esac
