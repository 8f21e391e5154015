package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"thaw/lab/labproto"
)

// savedConfig is where the server and modprobe find the configuration: on the
// lab's own /run, which hides the host's.
const savedConfig = runDir + "/config.json"

// runDir holds what belongs to the lab's init.
const runDir = "/run/thaw-lab"

func readConfig() (labproto.Config, error) {
	b, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return labproto.Config{}, fmt.Errorf("labinit: read command line: %w", err)
	}
	path, err := configPath(string(b))
	if err != nil {
		return labproto.Config{}, err
	}
	return loadConfig(path)
}

// configPath finds the configuration's path on the kernel's command line.
func configPath(cmdline string) (string, error) {
	for _, f := range strings.Fields(cmdline) {
		if v, ok := strings.CutPrefix(f, labproto.ConfigParam+"="); ok {
			return v, nil
		}
	}
	return "", fmt.Errorf("labinit: no %s on the kernel's command line", labproto.ConfigParam)
}

func loadConfig(path string) (labproto.Config, error) {
	var cfg labproto.Config
	b, err := os.ReadFile(path)
	if err != nil {
		return cfg, fmt.Errorf("labinit: read configuration: %w", err)
	}
	if err := json.Unmarshal(b, &cfg); err != nil {
		return cfg, fmt.Errorf("labinit: decode configuration: %w", err)
	}
	return cfg, nil
}

func saveConfig(cfg labproto.Config) error {
	b, err := json.Marshal(cfg)
	if err != nil {
		return fmt.Errorf("labinit: encode configuration: %w", err)
	}
	if err := os.MkdirAll(runDir, 0o755); err != nil {
		return fmt.Errorf("labinit: make run folder: %w", err)
	}
	if err := os.WriteFile(savedConfig, b, 0o644); err != nil {
		return fmt.Errorf("labinit: save configuration: %w", err)
	}
	return nil
}
