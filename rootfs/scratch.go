package rootfs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"thaw/internal/cache"
	"thaw/internal/hostcmd"
)

// Sizes of a scratch disk, in bytes. A size is a multiple of ScratchUnit.
const (
	MinScratch  = 16 << 20
	MaxScratch  = 64 << 30
	ScratchUnit = 1 << 20
)

// scratchOptions are mkfs.ext4's options, all spelled out, since /etc/mke2fs.conf
// differs between hosts.
//
//   - No journal: the disk lives and dies with its machine. A checkpoint holds
//     disk and memory of one instant, so a restore finds the file system mounted,
//     not crashed; after a VMM's crash the disk is thrown away. A journal would
//     write every metadata block twice and make each delta larger.
//   - quota, project, quotatype=prjquota: the guest limits /workspace and /tmp by
//     project quota.
//   - The inode tables of a sparse file are zero: mke2fs finds that out by
//     discarding, and marks them so; lazy_itable_init keeps it from writing them
//     where it cannot tell. Hence the template stays a few hundred KiB.
//   - One inode for 8 KiB: workspaces hold many small files.
//   - Fixed UUID and hash seed, like the time in the environment, make the
//     template the same everywhere; a directory's hash order is no secret between
//     a machine and itself.
var scratchOptions = []string{
	"-q", "-F", "-t", "ext4", "-b", "4096", "-I", "256", "-i", "8192", "-G", "16", "-m", "0",
	"-L", "thaw-scratch", "-M", "/",
	"-U", "7468a177-0000-4000-8000-000000000001",
	"-E", "hash_seed=7468a177-0000-4000-8000-000000000002,lazy_itable_init=1,root_owner=0:0,quotatype=prjquota",
	"-O", "none,ext_attr,dir_index,filetype,extent,flex_bg,sparse_super,large_file,huge_file,dir_nlink,extra_isize,64bit,metadata_csum,quota,project",
}

// Scratch returns an empty ext4 file system of sizeBytes as a sparse file, from
// the cache or newly made. It is a template: machines lay their own layers over
// it and never write to it. The guest mounts it with -o prjquota.
func Scratch(ctx context.Context, sizeBytes int64) (string, error) {
	if sizeBytes < MinScratch || sizeBytes > MaxScratch || sizeBytes%ScratchUnit != 0 {
		return "", fmt.Errorf("rootfs: %w: %d bytes, want whole MiB from %d MiB to %d GiB",
			ErrScratchSize, sizeBytes, MinScratch>>20, int64(MaxScratch)>>30)
	}
	r, err := loadRecipe()
	if err != nil {
		return "", err
	}
	epoch := strconv.FormatInt(r.Epoch, 10)
	key := cache.Key(append([]string{strconv.FormatInt(sizeBytes, 10), epoch}, scratchOptions...)...)
	dir, err := cache.Get(ctx, "scratch", key, func(ctx context.Context, dir string) error {
		return makeScratch(ctx, filepath.Join(dir, scratchFile), sizeBytes, epoch)
	})
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, scratchFile), nil
}

const scratchFile = "scratch.ext4"

func makeScratch(ctx context.Context, path string, size int64, epoch string) error {
	if err := ensureTool(ctx, newProgress(nil), "mkfs.ext4"); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o644)
	if err != nil {
		return fmt.Errorf("rootfs: create scratch disk: %w", err)
	}
	err = f.Truncate(size)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("rootfs: size scratch disk: %w", err)
	}
	_, err = hostcmd.Command{Argv: slices.Concat([]string{"mkfs.ext4"}, scratchOptions, []string{path}),
		Env: []string{"MKE2FS_CONFIG=/dev/null", "E2FSPROGS_FAKE_TIME=" + epoch, "SOURCE_DATE_EPOCH=" + epoch}}.Run(ctx)
	if err != nil {
		return err
	}
	if err := os.Chmod(path, 0o444); err != nil {
		return fmt.Errorf("rootfs: protect scratch disk: %w", err)
	}
	return nil
}
