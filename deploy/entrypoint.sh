#!/bin/sh
# Starts one of the program's processes in a container: entrypoint.sh web|worker|watch_mail|…
# Secret keys that identities sign with lie in memory only: they are imported at each start.
set -eu

if [ -n "${GNUPGHOME:-}" ] && [ -d /run/signing-keys ]; then
    for key in /run/signing-keys/*.asc; do
        if [ -e "$key" ]; then
            gpg --batch --quiet --import "$key"
        fi
    done
fi
exec python /srv/countersign/manage.py "$@"
