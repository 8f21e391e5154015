package rootfs

import (
	"context"
	"fmt"

	"thaw/internal/hostcmd"
)

// tools are the programs a build needs and the Debian package of each.
var tools = map[string]string{
	"mkfs.ext4":  "e2fsprogs",
	"mmdebstrap": "mmdebstrap",
	"npm":        "npm",
	"pip3":       "python3-pip",
	"unshare":    "util-linux",
}

// ensureTool finds a program of tools, installing its package when it is missing.
func ensureTool(ctx context.Context, p *progress, name string) (err error) {
	if hostcmd.Installed(name) {
		return nil
	}
	pkg := tools[name]
	defer p.step(&err, "installing %s for %s", pkg, name)()
	if err = hostcmd.Install(ctx, pkg); err != nil {
		return fmt.Errorf("rootfs: %w: %s (remedy: install the package %s): %w", ErrTool, name, pkg, err)
	}
	return nil
}
