#!/bin/sh
# Turns the extracted packages in $1 into what the distroless images of the same distribution are: no shell, no package
# manager, no documentation; the certificates as one file; an unprivileged user.
set -eu
root=$1
cat "$root"/usr/share/ca-certificates/mozilla/*.crt >"$root/etc/ssl/certs/ca-certificates.crt"
rm -rf "$root/dev" "$root/etc/apt" "$root/etc/ca-certificates" "$root/etc/dpkg" "$root/etc/hostname" "$root/etc/resolv.conf" \
  "$root/usr/share/ca-certificates" "$root/usr/share/doc" "$root/usr/share/doc-base" "$root/usr/share/bug" "$root/usr/share/lintian" \
  "$root/usr/share/locale" "$root/usr/share/man" "$root/usr/sbin" "$root/sbin" "$root/usr/bin" "$root/bin" "$root/usr/lib/x86_64-linux-gnu/gconv" \
  "$root/var/cache" "$root/var/lib/apt" "$root/var/lib/dpkg" "$root/var/log"
mkdir -p "$root/etc" "$root/home/nonroot" "$root/root" "$root/tmp" "$root/var/tmp"
chmod 1777 "$root/tmp" "$root/var/tmp"
printf 'root:x:0:0:root:/root:/sbin/nologin\nnobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n' >"$root/etc/passwd"
printf 'root:x:0:\nnogroup:x:65534:\nnonroot:x:65532:\n' >"$root/etc/group"
printf 'hosts: files dns\n' >"$root/etc/nsswitch.conf"
chown -R 65532:65532 "$root/home/nonroot"
