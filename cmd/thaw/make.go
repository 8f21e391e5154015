package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"thaw/broker/assets"
	"thaw/kernel"
	"thaw/rootfs"
)

var (
	kernelNames = []string{kernel.NameTuned, kernel.NameStock}
	imageNames  = []string{"python", "node", "dual"}
)

func (a *app) kernelCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "kernel", Short: "Make and show guest kernels"}
	cmd.AddCommand(
		&cobra.Command{Use: "build", Short: "Compile the tuned kernel, if it is not there yet", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			k, err := kernel.Tuned(cmd.Context(), a.stderr)
			return a.publishKernel(k, err)
		}},
		&cobra.Command{Use: "fetch", Short: "Fetch Debian's stock kernel, if it is not there yet", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			k, err := kernel.Stock(cmd.Context(), a.stderr)
			return a.publishKernel(k, err)
		}},
		&cobra.Command{Use: "show", Short: "Show the kernels that are there", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error {
			return a.show(kernelNames, assets.KernelName)
		}},
	)
	return cmd
}

func (a *app) publishKernel(k *kernel.Kernel, err error) error {
	if err != nil {
		return err
	}
	if k.ModulesDir != "" {
		if err := assets.Publish(assets.ModulesName(k.Manifest.Name), k.ModulesDir); err != nil {
			return err
		}
	}
	if err := assets.Publish(assets.KernelName(k.Manifest.Name), k.Path); err != nil {
		return err
	}
	return a.made(k.Path, k.Manifest)
}

// made prints what a build gave: its path, or its manifest.
func (a *app) made(path string, manifest any) error {
	if a.json {
		return a.printJSON(struct {
			Path     string `json:"path"`
			Manifest any    `json:"manifest"`
		}{path, manifest})
	}
	_, err := fmt.Fprintln(a.stdout, path)
	return err
}

func (a *app) imageCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "image", Short: "Make and list images"}
	build := &cobra.Command{
		Use: "build [NAME…]", Short: "Make images, if they are not there yet (default: all)", ValidArgs: imageNames,
		RunE: func(cmd *cobra.Command, names []string) error {
			if len(names) == 0 {
				names = imageNames
			}
			for _, name := range names {
				img, err := rootfs.Build(cmd.Context(), name, a.stderr)
				if err != nil {
					return err
				}
				if err := assets.Publish(assets.ImageName(name), img.Path); err != nil {
					return err
				}
				if err := a.made(img.Path, img.Manifest); err != nil {
					return err
				}
			}
			return nil
		},
	}
	list := &cobra.Command{Use: "ls", Short: "List the images that are there", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error {
		return a.show(imageNames, assets.ImageName)
	}}
	lock := &cobra.Command{
		Use: "lock [DIR]", Short: "Write lock files for the packages that registries serve now", Args: cobra.MaximumNArgs(1),
		Long: "Lock resolves the recipe's packages anew and writes the lock files into DIR (default: rootfs/lock of the source tree).",
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := filepath.Join("rootfs", "lock")
			if len(args) > 0 {
				dir = args[0]
			}
			return rootfs.Relock(cmd.Context(), dir, a.stderr)
		},
	}
	cmd.AddCommand(build, list, lock)
	return cmd
}

// shown is one published thing.
type shown struct {
	Name     string          `json:"name"`
	Path     string          `json:"path"`
	Manifest json.RawMessage `json:"manifest,omitempty"`
}

// show lists what is published under the given names.
func (a *app) show(names []string, publishedAs func(string) string) error {
	dir, err := assets.Dir()
	if err != nil {
		return err
	}
	list := []shown{}
	for _, name := range names {
		path, err := filepath.EvalSymlinks(filepath.Join(dir, publishedAs(name)))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("thaw: look at %s: %w", name, err)
		}
		manifest, err := os.ReadFile(filepath.Join(filepath.Dir(path), "manifest.json"))
		if err != nil {
			return fmt.Errorf("thaw: read manifest of %s: %w", name, err)
		}
		list = append(list, shown{name, path, manifest})
	}
	if a.json {
		return a.printJSON(list)
	}
	for _, s := range list {
		var m struct {
			Version  string            `json:"version"`
			Versions map[string]string `json:"versions"`
			SHA256   string            `json:"sha256"`
			Size     int64             `json:"size"`
		}
		if err := json.Unmarshal(s.Manifest, &m); err != nil {
			return fmt.Errorf("thaw: manifest of %s: %w", s.Name, err)
		}
		version := m.Version
		if version == "" {
			for _, what := range slices.Sorted(maps.Keys(m.Versions)) {
				version += what + " " + m.Versions[what] + ", "
			}
			version = strings.TrimSuffix(version, ", ")
		}
		fmt.Fprintf(a.stdout, "%-7s %s  %d MiB  sha256 %.16s…\n        %s\n", s.Name, version, m.Size>>20, m.SHA256, s.Path)
	}
	return nil
}
