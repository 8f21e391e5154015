package fleet

import (
	"errors"
	"os"

	"thaw/snapshot/store"
)

// fingerprint is what the state of a machine of an image depends on, here.
func (f *Fleet) fingerprint(image string) (p store.Fingerprint, err error) {
	var errs [3]error
	p = store.Fingerprint{
		Format: store.Format(), CPU: f.cfg.Host.CPUModel, CPUHash: f.cpu, Host: string(f.cfg.Host.Kind), HostKrn: f.cfg.Host.Kernel,
	}
	p.VMM, errs[0] = f.digests.Open(func() (*os.File, error) { return os.Open(f.cfg.VMM) })
	p.Kernel, errs[1] = f.digests.Open(f.cfg.Assets.Kernel)
	p.Image, errs[2] = f.digests.Open(func() (*os.File, error) { return f.cfg.Assets.Image(image) })
	return p, errors.Join(errs[:]...)
}
