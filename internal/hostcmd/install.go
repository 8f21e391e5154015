package hostcmd

import "context"

// Install installs Debian packages, for which it needs root. An empty or old
// package list is the usual reason of a failure: then it is updated, once.
func Install(ctx context.Context, packages ...string) error {
	args := append([]string{"install", "-y", "--no-install-recommends"}, packages...)
	err := apt(ctx, args...)
	if err == nil || ctx.Err() != nil {
		return err
	}
	if err := UpdateLists(ctx); err != nil {
		return err
	}
	return apt(ctx, args...)
}

// UpdateLists fetches apt's package lists, for which it needs root.
func UpdateLists(ctx context.Context) error { return apt(ctx, "update") }

func apt(ctx context.Context, args ...string) error {
	// Another apt may be at work: wait for it, in seconds.
	_, err := Command{
		Argv: append([]string{"apt-get", "-q", "-o", "DPkg::Lock::Timeout=300"}, args...),
		Env:  []string{"DEBIAN_FRONTEND=noninteractive", "LC_ALL=C"},
	}.Run(ctx)
	return err
}
