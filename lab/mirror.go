package lab

import (
	"bufio"
	"bytes"
	"context"
	"os/exec"
	"strings"
)

// Suite is the Debian release that the tools and the kernel come from: the first
// with QEMU 10. QEMU 7.2 can not be trusted with two emulated CPUs.
const Suite = "trixie"

const defaultMirror = "http://deb.debian.org/debian"

// aptSource is where and how the host reaches Debian.
type aptSource struct {
	// Mirror is the archive's URI.
	Mirror string
	// Options are the host's apt settings for reaching it, such as a proxy, in
	// the form of apt.conf.
	Options []string
}

// hostSource asks the host's apt. A host without apt, or one of another
// distribution, gets Debian's own address.
func hostSource(ctx context.Context) aptSource {
	s := aptSource{Mirror: defaultMirror}
	// apt reads both formats of source lists, which saves parsing them here.
	out, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)").Output()
	if err == nil {
		if m := pickMirror(out); m != "" {
			s.Mirror = m
		}
	}
	if out, err := exec.CommandContext(ctx, "apt-config", "dump", "Acquire").Output(); err == nil {
		s.Options = pickOptions(out)
	}
	return s
}

// debianSuites are the names by which a host's sources show a Debian mirror: an
// archive of another distribution or a vendor's repository has none of them.
var debianSuites = map[string]bool{
	"bookworm": true, "trixie": true, "forky": true, "sid": true,
	"stable": true, "testing": true, "unstable": true, "oldstable": true,
}

// pickMirror finds a whole Debian archive among lines of "URI suite". Security
// and vendor repositories end in another word.
func pickMirror(targets []byte) string {
	for sc := bufio.NewScanner(bytes.NewReader(targets)); sc.Scan(); {
		uri, suite, _ := strings.Cut(sc.Text(), " ")
		uri = strings.TrimRight(uri, "/")
		if debianSuites[suite] && strings.HasSuffix(uri, "/debian") {
			return uri
		}
	}
	return ""
}

// pickOptions keeps the settings that decide how a mirror is reached and whether
// its index is believed on a host with a wrong clock.
func pickOptions(dump []byte) []string {
	var opts []string
	for sc := bufio.NewScanner(bytes.NewReader(dump)); sc.Scan(); {
		line := strings.TrimSpace(sc.Text())
		key, _, _ := strings.Cut(line, " ")
		switch {
		case strings.HasSuffix(line, `"";`), !strings.HasSuffix(line, ";"):
		case strings.HasPrefix(key, "Acquire::http::"),
			strings.HasPrefix(key, "Acquire::https::"),
			key == "Acquire::Check-Valid-Until", key == "Acquire::Check-Date", key == "Acquire::Retries":
			opts = append(opts, strings.TrimSuffix(line, ";"))
		}
	}
	return opts
}
