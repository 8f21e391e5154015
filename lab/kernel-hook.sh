# Run by mmdebstrap with the tree as $1 and APT_CONFIG set to the tree's apt:
# puts Debian's newest 6.12 cloud kernel below $1/lab-kernel, unpacked only.
set -eu
package=$(apt-cache --names-only search '^linux-image-6\.12.*-cloud-amd64-unsigned$' |
	cut -d' ' -f1 | sort -V | tail -n1)
[ -n "$package" ] || { echo "no 6.12 cloud kernel in this suite" >&2; exit 1; }
mkdir "$1/lab-kernel"
cd "$1/lab-kernel"
apt-get download "$package"
dpkg-deb -x ./*.deb .
rm ./*.deb
# modprobe -d looks below lib/modules, Debian 13 packages use usr/lib/modules.
[ -e lib ] || ln -s usr/lib lib
