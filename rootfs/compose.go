package rootfs

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// compose merges layers, Debian's first, and adds what makes a Debian tree an image.
func (b *builder) compose(p plan, m Manifest, layers []layer) (*tree, error) {
	t := newTree(b.recipe.time())
	for i, l := range layers {
		clean := plainMode
		if i == 0 { // Debian's
			clean = keepMode
		}
		if err := t.addLayer(l.tree(), clean); err != nil {
			return nil, err
		}
	}
	if err := addFolders(t, p); err != nil {
		return nil, err
	}
	if err := addAccounts(t, layers[0].tree()); err != nil {
		return nil, err
	}
	info, err := json.MarshalIndent(m.guest(), "", "  ")
	if err != nil {
		return nil, fmt.Errorf("rootfs: encode image.json: %w", err)
	}
	for name, content := range map[string]string{
		"etc/hostname":        "sandbox\n",
		"etc/hosts":           "127.0.0.1\tlocalhost sandbox\n::1\tlocalhost sandbox\n",
		"etc/machine-id":      "", // set at every restore
		"etc/resolv.conf":     "", // no network unless the job's profile gives one
		"etc/thaw/image.json": string(info) + "\n",
	} {
		if err := t.file(name, 0o644, []byte(content)); err != nil {
			return nil, err
		}
	}
	if p.node == SourceNPM {
		return t, t.symlink("node_modules", moduleDir)
	}
	return t, nil
}

// addFolders adds the mount points that PID 1 needs and the folders that belong
// to the job's user.
func addFolders(t *tree, p plan) error {
	for _, name := range []string{"dev", "proc", "run", "sys"} {
		if err := t.dir(name, 0o755, 0, 0); err != nil {
			return err
		}
	}
	for _, name := range []string{"tmp", "var/tmp"} {
		if err := t.dir(name, os.ModeSticky|0o777, 0, 0); err != nil {
			return err
		}
	}
	own := []string{"workspace"}
	if p.python != "" {
		own = append(own, fontDir)
	}
	for _, name := range own {
		if err := t.dir(name, 0o755, jobUser.UID, jobUser.GID); err != nil {
			return err
		}
	}
	return nil
}

// addAccounts adds the job's user and group to Debian's.
func addAccounts(t *tree, debian string) error {
	u := jobUser
	for name, line := range map[string]string{
		"etc/passwd": fmt.Sprintf("%s:*:%d:%d::%s:/bin/bash\n", u.Name, u.UID, u.GID, u.Home),
		"etc/group":  fmt.Sprintf("%s:*:%d:\n", u.Name, u.GID),
	} {
		raw, err := os.ReadFile(filepath.Join(debian, name))
		if err != nil {
			return fmt.Errorf("rootfs: add user: %w", err)
		}
		if err := t.file(name, 0o644, append(raw, line...)); err != nil {
			return err
		}
	}
	return nil
}
