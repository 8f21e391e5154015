package broker

import "strconv"

// TenantOfUID maps the user at the other end of the daemon's socket (SO_PEERCRED)
// to a tenant: each user is one, root too. No tenant sees another's things.
func TenantOfUID(uid uint32) string { return "uid:" + strconv.FormatUint(uint64(uid), 10) }
