#!/bin/sh
# A fake Python: `-c` answers the bootstrap's questions, `-m venv` makes an environment with this fake.
echo "$@" >> "$FAKE_LOG"
case "$*" in
*fcntl*) shift 2; exec sh "$@" ;;
*sha256*) sed "s/[^a-z]//g" ;;
*version_info*"<"*) exit "$FAKE_OLD" ;;
*"%d.%d-venv"*) echo python3.11-venv ;;
*ensurepip*) exit "$FAKE_BARE" ;;
*"-m venv"*)
    mkdir -p .venv/bin
    cp "$0" .venv/bin/python
    # shellcheck disable=SC2016
    printf '#!/bin/sh\necho uv "$@" >> "$FAKE_LOG"' > .venv/bin/uv
    chmod +x .venv/bin/uv ;;
--version) echo "Python 3.9.2" ;;
esac
