// Package deps holds the module's requirements while packages are being written.
package deps

import (
	_ "github.com/bobuhiro11/gokvm/kvm"
	_ "github.com/cilium/ebpf"
	_ "github.com/danielgtaylor/huma/v2"
	_ "github.com/danielgtaylor/huma/v2/adapters/humago"
	_ "github.com/danielgtaylor/huma/v2/sse"
	_ "github.com/elastic/go-seccomp-bpf"
	_ "github.com/erofs/go-erofs"
	_ "github.com/fxamacker/cbor/v2"
	_ "github.com/gabriel-vasile/mimetype"
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/klauspost/compress/zstd"
	_ "github.com/mdlayher/vsock"
	_ "github.com/rogpeppe/go-internal/testscript"
	_ "github.com/schollz/progressbar/v3"
	_ "github.com/spf13/cobra"
	_ "github.com/u-root/u-root/pkg/cpio"
	_ "github.com/vishvananda/netlink"
	_ "github.com/vishvananda/netns"
	_ "go.uber.org/goleak"
	_ "golang.org/x/sys/unix"
	_ "pgregory.net/rapid"
	_ "golang.org/x/sync/errgroup"
)
