package kernel

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"thaw/internal/cache"
)

// TestConfigFragment names the options that other parts of Thaw rely on, so
// that none goes unnoticed. That the source takes them is checked by every
// build (lostOptions).
func TestConfigFragment(t *testing.T) {
	options := parseConfig(string(configFragment))
	for why, names := range map[string]string{
		"disks":                  "EROFS_FS OVERLAY_FS EXT4_FS VIRTIO_BLK",
		"directory limits":       "QUOTA QUOTACTL QFMT_V2",
		"devices through ACPI":   "ACPI PCI VIRTIO_MMIO SERIAL_8250_PNP VMGENID PVPANIC_MMIO",
		"agent's connection":     "VSOCKETS VIRTIO_VSOCKETS",
		"memory given back":      "VIRTIO_BALLOON PAGE_REPORTING",
		"limits of an exec":      "MEMCG CGROUP_PIDS CFS_BANDWIDTH BLK_DEV_THROTTLING PSI",
		"audit and exec policy":  "FANOTIFY_ACCESS_PERMISSIONS PROC_EVENTS AUDITSYSCALL",
		"confinement in a guest": "SECCOMP_FILTER SECURITY_LANDLOCK NAMESPACES",
		"end of TCP connections": "INET_DIAG_DESTROY",
		"pvm hosts":              "PVM_NATIVE_GUEST MITIGATION_PAGE_TABLE_ISOLATION",
		"boot by PVH":            "PVH",
		"entropy at boot":        "HW_RANDOM_VIRTIO",
	} {
		for name := range strings.FieldsSeq(names) {
			if options["CONFIG_"+name] != "y" {
				t.Errorf("%s: CONFIG_%s is %q", why, name, options["CONFIG_"+name])
			}
		}
	}
	for _, name := range []string{"MODULES", "RTC_CLASS", "RANDOMIZE_BASE", "VMAP_STACK", "IA32_EMULATION"} {
		if v := options["CONFIG_"+name]; v != "n" {
			t.Errorf("CONFIG_%s is %q", name, v)
		}
	}
	// It asks to be told of a new generation, and sleeps then: in an interrupt, by vmgenid-interrupt.patch.
	if v, ok := options["CONFIG_WIREGUARD"]; ok && v != "n" {
		t.Errorf("CONFIG_WIREGUARD is %q", v)
	}
}

func TestConfigFragmentHasNoDoubles(t *testing.T) {
	seen := map[string]bool{}
	for line := range strings.Lines(string(configFragment)) {
		name, _, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok || strings.HasPrefix(name, "#") {
			continue
		}
		if seen[name] {
			t.Errorf("%s is set twice", name)
		}
		seen[name] = true
	}
}

func TestLostOptions(t *testing.T) {
	fragment := "# a comment\nCONFIG_A=y\nCONFIG_B=n\nCONFIG_C=\"x=y\"\n# CONFIG_D is not set\nCONFIG_E=y\nCONFIG_F=-1\n"
	config := "CONFIG_A=y\n# CONFIG_B is not set\nCONFIG_C=\"x=y\"\nCONFIG_F=0\nCONFIG_G=y\n"
	if d := cmp.Diff([]string{"CONFIG_E=y", "CONFIG_F=-1"}, lostOptions(fragment, config)); d != "" {
		t.Error(d)
	}
}

func TestTunedKeyDependsOnInputs(t *testing.T) {
	pkg := Package{Name: sourcePackage, Version: "1", Digest: "md5:0"}
	tc := toolchain{compiler: "gcc 12", linker: "ld 2.40"}
	seen := map[string]bool{tunedKey(pkg, tc): true}
	for _, c := range []struct {
		name string
		pkg  Package
		tc   toolchain
	}{
		{"version", Package{Name: sourcePackage, Version: "2", Digest: "md5:0"}, tc},
		{"digest", Package{Name: sourcePackage, Version: "1", Digest: "md5:1"}, tc},
		{"compiler", pkg, toolchain{compiler: "gcc 13", linker: "ld 2.40"}},
		{"linker", pkg, toolchain{compiler: "gcc 12", linker: "ld 2.41"}},
	} {
		key := tunedKey(c.pkg, c.tc)
		if seen[key] {
			t.Errorf("%s does not decide the key", c.name)
		}
		seen[key] = true
	}
	if first, again := tunedKey(pkg, tc), tunedKey(pkg, tc); first != again {
		t.Error("one input has two keys")
	}
}

func TestBuildEnvIsFixed(t *testing.T) {
	tree := t.TempDir()
	if _, err := buildEnv(tree); err == nil {
		t.Error("a tree without a Makefile is accepted")
	}
	if err := os.WriteFile(filepath.Join(tree, "Makefile"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	first, err := buildEnv(tree)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("TZ", "Asia/Tokyo")
	second, err := buildEnv(tree)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(first, second); d != "" {
		t.Error(d)
	}
}

func TestPatchesAreOurs(t *testing.T) {
	for i, patch := range patches {
		if !strings.HasPrefix(string(patch), "SPDX-License-Identifier: GPL-2.0\n") {
			t.Errorf("patch %d has no licence line", i)
		}
		if strings.Contains(string(patch), "\r") {
			t.Errorf("patch %d has carriage returns", i)
		}
	}
}

// TestCachedTuned checks the real kernel where it has been built already.
func TestCachedTuned(t *testing.T) {
	src, err := installedSource(t.Context())
	if err != nil || src == nil {
		t.Skipf("no installed %s (%v)", sourcePackage, err)
	}
	tc, err := findToolchain(t.Context())
	if err != nil {
		t.Skip(err)
	}
	if _, ok, err := cache.Lookup(cacheKind, tunedKey(src.pkg, tc)); !ok || err != nil {
		t.Skipf("the tuned kernel is not in the cache (%v)", err)
	}
	k, err := Tuned(t.Context(), writerFunc(func(p []byte) (int, error) {
		t.Errorf("a look-up says %q", p)
		return len(p), nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Verify(); err != nil {
		t.Error(err)
	}
	config, err := os.ReadFile(k.ConfigPath)
	if err != nil {
		t.Fatal(err)
	}
	if lost := lostOptions(string(configFragment), string(config)); len(lost) > 0 {
		t.Errorf("the built kernel lacks %v", lost)
	}
	if !strings.HasPrefix(k.Manifest.Version, "6.12.") || !strings.HasSuffix(k.Manifest.Version, "-thaw") {
		t.Errorf("release %q", k.Manifest.Version)
	}
}
