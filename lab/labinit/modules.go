package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"thaw/lab/labproto"
)

// missingFile lists the modules that could not be loaded, for Info.
const missingFile = runDir + "/missing.json"

// kmod returns the command line of the tool root's kmod under one of its names;
// kmod goes by argv[0].
func kmod(cfg labproto.Config, name string, args ...string) []string {
	argv := slices.Clone(cfg.Loader)
	argv = append(argv, "--argv0", name, filepath.Join(cfg.ToolRoot, "usr/bin/kmod"), "-d", cfg.KernelDir)
	return append(argv, args...)
}

func modprobe(cfg labproto.Config, args ...string) error {
	argv := kmod(cfg, "modprobe", args...)
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("labinit: load %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// loadModules loads what a host of microVMs has. One that fails is reported,
// not fatal: a test that needs it says so better than a lab that does not start.
func loadModules(cfg labproto.Config) {
	// -a loads all in one process, which the emulated CPU is thankful for; only
	// when that fails is each tried alone to name the culprits.
	if modprobe(cfg, append([]string{"-a"}, cfg.Modules...)...) == nil {
		registerModprobe()
		return
	}
	var missing []string
	for _, m := range cfg.Modules {
		if err := modprobe(cfg, m); err != nil {
			fmt.Println(err)
			missing = append(missing, err.Error())
		}
	}
	if b, err := json.Marshal(missing); err == nil {
		if err := os.WriteFile(missingFile, b, 0o644); err != nil {
			fmt.Printf("labinit: save missing modules: %v\n", err)
		}
	}
	registerModprobe()
}

func missingModules() ([]string, error) {
	b, err := os.ReadFile(missingFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	return names, json.Unmarshal(b, &names)
}

// registerModprobe makes the kernel load modules on demand (a socket family, a
// file system, an nf_tables expression) through this program.
func registerModprobe() {
	link := runDir + "/modprobe"
	err := os.Symlink(selfPath(), link)
	if err == nil {
		err = os.WriteFile("/proc/sys/kernel/modprobe", []byte(link), 0o644)
	}
	if err != nil {
		fmt.Printf("labinit: register modprobe: %v\n", err)
	}
}

// execModprobe becomes the tool root's modprobe.
func execModprobe(args []string) error {
	cfg, err := loadConfig(savedConfig)
	if err != nil {
		return err
	}
	argv := kmod(cfg, "modprobe", args...)
	return unix.Exec(argv[0], argv, os.Environ())
}
